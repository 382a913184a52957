//! An echo server, a goroutine per connection: `echo 127.0.0.1:7000` serves, without an argument it tries itself.

use mungo::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::time::Duration;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("listening at {}", listener.local_addr()?);
    if address.is_some() {
        return mungo::go(move || serve(&listener)).join().expect("no panic");
    }
    let here = listener.local_addr()?;
    mungo::go(move || serve(&listener));
    let clients: Vec<_> = (0..100).map(|n: u32| mungo::go(move || ask(TcpStream::connect(here)?, n))).collect();
    for (client, n) in clients.into_iter().zip(0..) {
        assert_eq!(client.join().expect("no panic")?, n);
    }
    println!("a hundred clients got back what they sent");
    Ok(())
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => drop(mungo::go(move || echo(stream))),
            Err(e) => eprintln!("cannot accept: {e}"),
        }
    }
    Ok(())
}

/// Until the peer ends, or says nothing for a minute.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

fn ask(mut stream: TcpStream, n: u32) -> io::Result<u32> {
    let mut answer = [0; 4];
    for _ in 0..10 {
        stream.write_all(&n.to_le_bytes())?;
        stream.read_exact(&mut answer)?;
    }
    Ok(u32::from_le_bytes(answer))
}
