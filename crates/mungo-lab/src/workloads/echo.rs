//! Request and response over TCP on the loopback interface: clients and server are goroutines of one runtime.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams, gather, merged};
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::stats::{Times, jain};
use mungo::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::time::Instant;

/// Connections for each processor.
const CONNECTIONS: usize = 8;
/// The longest message.
const LONGEST: u64 = 1024;

pub(super) struct Echo;

/// How long a message is.
fn message_len(rng: &mut Rng) -> u64 {
    rng.between(16, LONGEST)
}

/// Returns both ends of `count` connections.
fn connect(count: usize) -> io::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let one = |_| {
        // The kernel completes a connection before it is accepted.
        let client = TcpStream::connect(address)?;
        client.set_nodelay(true)?;
        let (server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        Ok((client, server))
    };
    (0..count).map(one).collect()
}

/// Sends back what comes, until the client is done.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; LONGEST as usize];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

/// Sends and expects the same back, until the time is over.
fn talk(which: u64, mut stream: TcpStream, setting: &Setting) -> io::Result<Times> {
    let mut rng = Rng::new(setting.seed, which);
    let mut times = Times::default();
    let mut answer = [0; LONGEST as usize];
    while !setting.over() {
        let message = vec![which as u8; message_len(&mut rng) as usize];
        let start = Instant::now();
        stream.write_all(&message)?;
        let answer = &mut answer[..message.len()];
        stream.read_exact(answer)?;
        times.record(start.elapsed());
        assert_eq!(message, answer, "the echo is another one's");
    }
    Ok(times)
}

impl Workload for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn about(&self) -> &'static str {
        "8 TCP connections a processor over loopback; a client sends 16 to 1024 bytes and waits for their echo"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let failed = |e: io::Error| Error::Failed(format!("the workload 'echo' needs TCP on 127.0.0.1: {e}"));
        let count = CONNECTIONS * setting.procs;
        let (clients, servers): (Vec<_>, Vec<_>) = connect(count).map_err(failed)?.into_iter().unzip();
        let times = mungo::scope(|s| {
            for server in servers {
                // A server whose client ended early has no client to tell.
                s.spawn(move || _ = serve(server));
            }
            gather((0..).zip(clients), |(which, client)| talk(which, client, setting))
        });
        let times = times.into_iter().collect::<io::Result<Vec<Times>>>().map_err(failed)?;
        let counts: Vec<f64> = times.iter().map(|t| t.len() as f64).collect();
        let latency = merged(&times);
        let print = fingerprint_of_streams(setting.seed, count as u64, message_len);
        let outcome = Outcome::all_done(setting, latency.len(), print);
        let class = Class { name: "request", latency: Some(latency), ..Class::default() };
        Ok(Outcome { classes: vec![class], fairness: jain(&counts), ..outcome })
    }
}
