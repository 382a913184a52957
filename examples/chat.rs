//! A chat server, two goroutines per guest: `chat 127.0.0.1:7000` serves until Ctrl-C (try it with two `nc 127.0.0.1
//! 7000`), without an argument three guests of its own talk.

use mungo::chan::{Receiver, Sender, bounded};
use mungo::context::Context;
use mungo::net::{Shutdown, TcpListener, TcpStream};
use mungo::signal::{Signal, raise};
use mungo::sync::{Mutex, WaitGroup};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;

/// The guests, and how to reach each.
type Room = Arc<Mutex<HashMap<SocketAddr, Sender<Arc<str>>>>>;

/// Passes a line on to all guests. One that does not read, so that its queue is full, misses it: none waits for it.
fn say(room: &Room, line: &str) {
    let line: Arc<str> = format!("{line}\n").into();
    room.lock().values().for_each(|guest| _ = guest.try_send(line.clone()));
}

fn guest(ctx: &Context, room: &Room, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
    let stream = Arc::new(stream);
    let (sender, lines) = bounded(64);
    let (writing, to_write) = (stream.clone(), lines);
    let writer = mungo::go(move || write_lines(&writing, &to_write));
    room.lock().insert(address, sender);
    say(room, &format!("* {address} is here"));
    let mut reader = BufReader::new(stream.with_context(ctx)).lines();
    while let Some(Ok(line)) = reader.next() {
        say(room, &format!("{address}: {line}"));
    }
    room.lock().remove(&address); // which ends the writer, when it has written all
    say(room, &format!("* {address} has left"));
    writer.join().expect("no panic")
}

fn write_lines(mut stream: &TcpStream, lines: &Receiver<Arc<str>>) -> io::Result<()> {
    for line in lines {
        stream.write_all(line.as_bytes())?;
    }
    stream.shutdown(Shutdown::Both)
}

fn serve(ctx: &Context, listener: &TcpListener) {
    let (room, guests) = (Room::default(), WaitGroup::new());
    for stream in listener.with_context(ctx).incoming() {
        let Ok((stream, address)) = stream.and_then(|s| s.peer_addr().map(|address| (s, address))) else {
            continue;
        };
        let (ctx, room) = (ctx.clone(), room.clone());
        guests.go(move || guest(&ctx, &room, stream, address));
    }
    guests.wait();
}

/// Three guests: when all are there, another one greets, and each hears it.
fn try_it(here: SocketAddr) -> io::Result<()> {
    let mut guests = Vec::new();
    for _ in 0..3 {
        let stream = TcpStream::connect(here)?;
        let arrived = format!("* {} is here", stream.local_addr()?);
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| *line == arrived).expect("its own arrival");
        guests.push(lines);
    }
    let fourth = TcpStream::connect(here)?;
    (&fourth).write_all(b"hello, all\n")?;
    for guest in &mut guests {
        println!("{}", guest.find(|line| line.ends_with(": hello, all")).expect("a greeting"));
    }
    Ok(())
}

#[mungo::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("chat at {here}; ^C ends");
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT]);
    let server = mungo::go(move || serve(&ctx, &listener));
    if address.is_none() {
        try_it(here)?;
        raise(Signal::INTERRUPT);
    }
    server.join().expect("no panic");
    println!("all guests have left");
    Ok(())
}
