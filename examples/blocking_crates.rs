//! Blocking code that knows nothing of goroutines, on a thousand of them: std's sockets, locks, channels and sleeps.
//!
//! `cargo run --release -p mungo-interpose --example blocking_crates`

use mungo_interpose as _; // from here on std's blocking calls park goroutines
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

const CLIENTS: usize = 500;

/// Answers each line with its length; plain blocking code for one connection.
fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        std::thread::sleep(Duration::from_millis(10)); // a slow service
        writeln!(writer, "{}", line?.len())?;
    }
    Ok(())
}

fn ask(address: std::net::SocketAddr, n: usize) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    writeln!(stream, "{}", "x".repeat(n))?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    answer.trim().parse().map_err(std::io::Error::other)
}

fn main() -> std::io::Result<()> {
    let runtime = mungo::Runtime::builder().procs(2).build()?;
    let start = Instant::now();
    let sum = runtime.run(|| -> std::io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        mungo::go(move || {
            for stream in listener.incoming().flatten() {
                mungo::go(move || serve(stream));
            }
        });
        // A hundred at a time, by a lock and a condition of std; results by a channel of std.
        let room = Arc::new((Mutex::new(100), Condvar::new()));
        let (sender, results) = mpsc::channel();
        for n in 0..CLIENTS {
            let (room, sender) = (room.clone(), sender.clone());
            mungo::go(move || {
                let mut free = room.1.wait_while(room.0.lock().unwrap(), |free| *free == 0).unwrap();
                *free -= 1;
                drop(free);
                sender.send(ask(address, n)).unwrap();
                *room.0.lock().unwrap() += 1;
                room.1.notify_one();
            });
        }
        drop(sender);
        results.iter().sum()
    })?;
    assert_eq!(sum, CLIENTS * (CLIENTS - 1) / 2);
    println!(
        "{CLIENTS} clients of std::net in {:.0?}, on {} threads",
        start.elapsed(),
        runtime.metrics().threads
    );
    for c in mungo_interpose::counts().filter(|c| c.parked != 0) {
        println!("{:>16}: parked {:>5}, done at once {:>5}", c.function, c.parked, c.passed);
    }
    Ok(())
}
