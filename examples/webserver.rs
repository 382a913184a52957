//! A web server in plain blocking code, whose light requests stay fast beside heavy ones: `webserver 127.0.0.1:8080`
//! serves until SIGINT, without an argument it tries itself.

use httparse::{Request, Status};
use mungo::Runtime;
use mungo::net::{Pollable, Shutdown, TcpListener, TcpStream};
use mungo::sync::{Mutex, WaitGroup};
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

fn main() -> io::Result<()> {
    let interrupts = interrupts()?;
    let runtime: &'static Runtime = Box::leak(Box::new(Runtime::new()?));
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("http://{here}/light, /heavy and /debug/sched; ^C ends");
    let server = runtime.spawn(move || serve(runtime, listener, interrupts));
    if address.is_none() {
        for (path, part) in [("/light", "Hello"), ("/heavy", "4999"), ("/debug/sched", "procs"), ("/", "404")] {
            let mut stream = TcpStream::connect(here)?;
            write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n")?;
            assert!(io::read_to_string(stream)?.contains(part));
        }
        let _idle = TcpStream::connect(here)?; // is not waited for
        // SAFETY: a signal to this process, which expects it.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    }
    server.join().expect("no panic")
}

fn serve(runtime: &'static Runtime, listener: TcpListener, interrupts: Pollable<OwnedFd>) -> io::Result<()> {
    let (listener, connections) = (Arc::new(listener), WaitGroup::new());
    let open: Arc<Mutex<Vec<Weak<TcpStream>>>> = Arc::default();
    let (closing, idle) = (listener.clone(), open.clone());
    mungo::go(move || {
        interrupts.readable()?;
        closing.close()?;
        idle.lock().iter().filter_map(Weak::upgrade).for_each(|stream| _ = stream.shutdown(Shutdown::Read));
        io::Result::Ok(())
    });
    for stream in listener.incoming() {
        match stream.map(Arc::new) {
            Ok(stream) => {
                let mut open = open.lock();
                open.retain(|other| other.strong_count() != 0);
                open.push(Arc::downgrade(&stream));
                connections.go(move || connection(runtime, &stream));
            }
            Err(e) if e.kind() == io::ErrorKind::NotConnected => break, // closed
            Err(e) => eprintln!("cannot accept: {e}"),
        }
    }
    connections.wait(); // those that are busy finish
    Ok(())
}

/// Requests until the peer ends, or the server.
fn connection(runtime: &Runtime, mut stream: &TcpStream) -> io::Result<()> {
    let (mut buffer, mut len) = ([0; 8 << 10], 0);
    stream.set_read_deadline(Some(Instant::now() + Duration::from_secs(10)));
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = Request::new(&mut headers);
        let Status::Complete(end) = request.parse(&buffer[..len]).map_err(io::Error::other)? else {
            match stream.read(&mut buffer[len..])? {
                0 => return Ok(()),
                n => len += n,
            }
            continue;
        };
        let (status, body) = match request.path {
            Some("/light") => (200, "Hello, World!\n".to_owned()),
            Some("/heavy") => (200, (0..10_000_000u64).map(std::hint::black_box).sum::<u64>().to_string()),
            Some("/debug/sched") => (200, format!("{:#?}\n", runtime.metrics())),
            _ => (404, "404\n".to_owned()),
        };
        let head = format!("HTTP/1.1 {status} \r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes())?;
        if request.headers.iter().any(|h| h.name.eq_ignore_ascii_case("connection") && h.value == b"close") {
            return Ok(());
        }
        buffer.copy_within(end..len, 0);
        len -= end;
        stream.set_read_deadline(Some(Instant::now() + Duration::from_secs(10)));
    }
}

/// Becomes readable at SIGINT. To be called before there are other threads: they inherit what is blocked.
fn interrupts() -> io::Result<Pollable<OwnedFd>> {
    // SAFETY: the mask outlives the calls, and is as good as any; the descriptor is new and ours.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigaddset(&mut mask, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &mask, std::ptr::null_mut());
        Pollable::new(OwnedFd::from_raw_fd(libc::signalfd(-1, &mask, libc::SFD_CLOEXEC)))
    }
}
