//! Where `mungo top` asks: the socket of a program, found by the number of the process or by its path, or HTTP.

use crate::error::{Error, Result};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the protocol that we speak.
const PROTOCOL: u64 = 1;
/// Time that a program has for an answer. It answers while it is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that says what its scheduler does.
#[derive(Debug)]
pub(super) enum Source {
    Socket { stream: BufReader<UnixStream>, is_recording: bool },
    Http(String),
}

fn failed(what: String) -> Error {
    Error::Failed(what)
}

impl Source {
    /// Finds the program: a number is a process, `HOST:PORT` is HTTP, all else is the path of a socket.
    pub(super) fn open(target: &str) -> Result<Source> {
        if let Ok(pid) = target.parse::<u32>() {
            return Source::connect(&socket_of(pid)?);
        }
        if let Some(address) = http_address(target) {
            return Ok(Source::Http(address));
        }
        Source::connect(Path::new(target))
    }

    fn connect(path: &Path) -> Result<Source> {
        let shown = path.display();
        let stream = UnixStream::connect(path).map_err(|e| {
            failed(match e.kind() {
                io::ErrorKind::NotFound => {
                    format!("there is no socket at {shown}: start the program with MUNGO_DEBUG=listen={shown}")
                }
                io::ErrorKind::ConnectionRefused => {
                    format!("nothing listens at {shown}: the program has ended, or it is no socket of mungo")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("the socket {shown} is another user's: only that user and root may look")
                }
                _ => format!("cannot connect to {shown}: {e}"),
            })
        })?;
        _ = stream.set_read_timeout(Some(PATIENCE));
        let mut source = Source::Socket { stream: BufReader::new(stream), is_recording: false };
        let greeting = source.line()?;
        check(&greeting, &shown.to_string())?;
        Ok(source)
    }

    /// Asks for what the scheduler does: a line of JSON.
    pub(super) fn sched(&mut self) -> Result<String> {
        match self {
            Source::Socket { .. } => self.ask("sched"),
            Source::Http(address) => get(address, "/debug/sched"),
        }
    }

    /// Starts the flight recorder, or writes what it has to `path`. Returns what was done, in words.
    pub(super) fn snapshot(&mut self, path: &Path) -> String {
        let Source::Socket { is_recording, .. } = self else {
            return "a flight recorder needs the socket: MUNGO_DEBUG=listen".to_owned();
        };
        let was_recording = *is_recording;
        let request = if was_recording { format!("snapshot {}", path.display()) } else { "record".to_owned() };
        let answer = self.ask(&request).and_then(|line| {
            let answer: Value = serde_json::from_str(&line).map_err(|e| failed(e.to_string()))?;
            match answer["error"].as_str() {
                Some(e) => Err(failed(e.to_owned())),
                None => Ok(answer["events"].as_u64().unwrap_or(0)),
            }
        });
        if let (Ok(_), Source::Socket { is_recording, .. }) = (&answer, &mut *self) {
            *is_recording = true;
        }
        match answer {
            Ok(_) if !was_recording => {
                "the last ten seconds are recorded from now on; r again writes them".to_owned()
            }
            Ok(events) => format!("{events} events in {}", path.display()),
            Err(e) => format!("no snapshot: {e}"),
        }
    }

    /// Ends the flight recorder, if it was started here. Programs of this version end it when we are gone as well.
    pub(super) fn forget(&mut self) {
        if let Source::Socket { is_recording: true, .. } = self {
            _ = self.ask("forget"); // a program that has ended records nothing
        }
    }

    fn ask(&mut self, request: &str) -> Result<String> {
        if let Source::Socket { stream, .. } = self {
            let sent = stream.get_mut().write_all(format!("{request}\n").as_bytes());
            sent.map_err(|_| failed("the program has ended".to_owned()))?;
        }
        self.line()
    }

    fn line(&mut self) -> Result<String> {
        let Source::Socket { stream, .. } = self else { unreachable!("HTTP has no lines") };
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(0) => Err(failed("the program has ended".to_owned())),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                Err(failed("the program has ended".to_owned()))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(failed(format!(
                "the program has not answered for {} s: it is stopped, perhaps",
                PATIENCE.as_secs()
            ))),
            Err(e) => Err(failed(format!("the program's answer cannot be read: {e}"))),
            Ok(_) => Ok(line),
        }
    }
}

/// Checks what a program said first.
fn check(greeting: &str, shown: &str) -> Result<()> {
    let greeting: Value = serde_json::from_str(greeting)
        .map_err(|_| failed(format!("{shown} is no socket of mungo: it does not say so")))?;
    if let Some(why) = greeting["error"].as_str() {
        return Err(failed(format!("the program at {shown} says: {why}")));
    }
    if greeting["protocol"].as_u64().is_none() {
        return Err(failed(format!("{shown} is no socket of mungo: it does not say so")));
    }
    check_protocol(&greeting)
}

/// Checks the version of the protocol that a program speaks.
pub(super) fn check_protocol(said: &Value) -> Result<()> {
    let version = said["mungo"].as_str().unwrap_or("?");
    match said["protocol"].as_u64() {
        Some(PROTOCOL) => Ok(()),
        Some(other) => {
            let age = if other < PROTOCOL { "an older" } else { "a newer" };
            Err(failed(format!(
                "the program speaks {age} version of the protocol ({other}, this is {PROTOCOL}): use the `mungo` of \
                 its version, {version}"
            )))
        }
        None => Err(failed(format!(
            "the program does not say which version of the protocol it speaks: use the `mungo` of its version, \
             {version}"
        ))),
    }
}

/// Returns the path of a process's socket.
fn socket_of(pid: u32) -> Result<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let Ok(metadata) = fs::metadata(&process) else {
        return Err(failed(format!("there is no process with the number {pid}")));
    };
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let variable = |name: &str| {
        let text = String::from_utf8_lossy(&environment).into_owned();
        text.split('\0').find_map(|item| item.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let debug = variable("MUNGO_DEBUG").unwrap_or_default();
    let listen = debug.split(',').map(str::trim).filter_map(|item| item.strip_prefix("listen")).next_back();
    let named =
        listen.and_then(|value| value.trim().strip_prefix('=')).map(str::trim).filter(|path| !path.is_empty());
    let path = match (named, variable("XDG_RUNTIME_DIR").filter(|dir| dir.starts_with('/'))) {
        (Some(path), _) => {
            let path = path.replace("%p", &pid.to_string());
            fs::read_link(process.join("cwd")).unwrap_or_default().join(path)
        }
        (None, Some(dir)) => Path::new(&dir).join(format!("mungo/{pid}.sock")),
        (None, None) => PathBuf::from(format!("/tmp/mungo-{}/{pid}.sock", metadata.uid())),
    };
    let is_hidden = match path.try_exists() {
        Ok(true) => return Ok(path),
        Ok(false) => false,
        Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
    };
    // What another user's process was started with cannot be read: then this is not where its socket is, perhaps.
    let us = fs::metadata("/proc/self").map_or(0, |us| us.uid());
    let is_foreign = us != 0 && us != metadata.uid();
    Err(failed(match uses_mungo(&process) {
        Ok(true) if !is_foreign && !is_hidden => {
            format!("process {pid} does not listen: start it with MUNGO_DEBUG=listen")
        }
        Ok(false) => format!("process {pid} is a program without mungo, or it has not started a runtime yet"),
        _ => format!("process {pid} is another user's: only that user and root may look"),
    }))
}

/// Returns whether a process has the thread that each runtime has.
fn uses_mungo(process: &Path) -> io::Result<bool> {
    for task in fs::read_dir(process.join("task"))? {
        let name = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        if name.trim() == "mungo-monitor" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns `HOST:PORT`, if the target is such or an address of HTTP.
fn http_address(target: &str) -> Option<String> {
    let address = target.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or(rest));
    match address {
        Some(address) => Some(address.to_owned()),
        None => {
            let (_, port) = target.rsplit_once(':').filter(|_| !target.contains('/'))?;
            port.parse::<u16>().ok().map(|_| target.to_owned())
        }
    }
}

/// Connects to the first address at which a program listens: `localhost` is `::1` too.
fn connect_to_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Gets a page.
fn get(address: &str, path: &str) -> Result<String> {
    let of = |e: io::Error| failed(format!("cannot ask {address}: {e}"));
    let resolved = address.to_socket_addrs().map_err(of)?;
    let mut stream = connect_to_any(resolved).map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            failed(format!("nothing listens at {address}: the program has ended?"))
        }
        _ => of(e),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(of)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").map_err(of)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(of)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(failed(format!("{address}{path} is not served by mungo::debug::http"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_apart() {
        assert_eq!(http_address("127.0.0.1:8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(http_address("http://host:1/debug/sched").as_deref(), Some("host:1"));
        assert_eq!(http_address("/tmp/a:1"), None);
        assert_eq!(http_address("socket"), None);
    }

    #[test]
    fn all_addresses_of_a_name_are_tried() {
        let bind = || std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let (listener, closed) = (bind(), bind());
        let [open, none] = [&listener, &closed].map(|l| l.local_addr().expect("an address"));
        drop(closed);
        let stream = connect_to_any([none, open].into_iter()).expect("the second one listens");
        assert_eq!(stream.peer_addr().expect("an address"), open);
        let refused = connect_to_any([none].into_iter()).expect_err("no other one");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect_to_any(std::iter::empty()).expect_err("no address").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn greetings_are_checked() {
        assert!(check(r#"{"mungo":"0.1.0","protocol":1}"#, "x").is_ok());
        let complaint = |greeting: &str| check(greeting, "x").unwrap_err().to_string();
        assert!(complaint(r#"{"mungo":"0.0.9","protocol":0}"#).contains("an older version"));
        assert!(complaint(r#"{"mungo":"9","protocol":2}"#).contains("a newer version"));
        assert!(complaint("SSH-2.0").contains("x is no socket of mungo"));
        assert!(complaint(r#"{"error":"refused: too many"}"#).contains("says: refused: too many"));
    }
}
