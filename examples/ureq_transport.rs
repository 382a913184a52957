//! ureq, a blocking HTTP client, on `mungo::net`: a hundred requests wait at once, without a thread each. (With
//! `mungo-interpose` it needs none of this; see `blocking_crates.rs`.)

use mungo::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

#[derive(Debug)]
struct MungoConnector;

#[derive(Debug)]
struct MungoTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
}

fn explain(e: io::Error, timeout: &NextTimeout) -> Error {
    if e.kind() == io::ErrorKind::TimedOut { Error::Timeout(timeout.reason) } else { e.into() }
}

impl<In: Transport> Connector<In> for MungoConnector {
    type Out = MungoTransport;

    fn connect(&self, to: &ConnectionDetails<'_>, _: Option<In>) -> Result<Option<MungoTransport>, Error> {
        let connect = |address| match to.timeout.not_zero() {
            Some(limit) => TcpStream::connect_timeout(address, *limit),
            None => TcpStream::connect(address),
        };
        // The first address that answers, or the last one's error.
        let none = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        let stream = to.addrs.iter().fold(none, |found, address| found.or_else(|_| connect(address)));
        let stream = stream.map_err(|e| explain(e, &to.timeout))?;
        let buffers = LazyBuffers::new(to.config.input_buffer_size(), to.config.output_buffer_size());
        Ok(Some(MungoTransport { stream, buffers }))
    }
}

impl Transport for MungoTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|limit| *limit))?;
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(|e| explain(e, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|limit| *limit))?;
        let n = self.stream.read(self.buffers.input_append_buf()).map_err(|e| explain(e, &timeout))?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        _ = self.stream.set_nonblocking(true);
        let kept = self.stream.peek(&mut [0]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        _ = self.stream.set_nonblocking(false);
        kept
    }
}

/// Answers each request after 20 ms.
fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        mungo::go(move || {
            let mut request = [0; 4096];
            while let Ok(1..) = stream.read(&mut request) {
                mungo::sleep(Duration::from_millis(20));
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")?;
            }
            io::Result::Ok(())
        });
    }
}

#[mungo::main]
fn main() -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    mungo::go(move || serve(&listener));
    let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(60))).build();
    let agent = Agent::with_parts(config, MungoConnector, DefaultResolver::default());
    let start = Instant::now();
    let pages: Vec<_> = (0..100)
        .map(|_| {
            let (agent, url) = (agent.clone(), url.clone());
            mungo::go(move || agent.get(&url).call()?.body_mut().read_to_string())
        })
        .collect();
    let bytes: usize = pages.into_iter().map(|page| page.join().unwrap().map_or(0, |p| p.len())).sum();
    println!("a hundred pages of 20 ms each, {bytes} bytes, in {:?}", start.elapsed());
    Ok(())
}
