//! `mungo top`, and the socket that it asks.

use super::{fails, mungo, scratch, succeeds};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that keeps two Ps busy, and is ended with this.
struct Program {
    child: Child,
    socket: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_file(&self.socket);
    }
}

fn program(name: &str) -> Program {
    program_at(scratch(&format!("{name}.sock")), "pingpong")
}

fn program_at(socket: PathBuf, workload: &str) -> Program {
    let mut command = mungo(&["run", workload, "--duration", "60s", "--procs", "2"]);
    command.env("MUNGO_DEBUG", format!("listen={}", socket.display()));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let program = Program { child, socket };
    let start = Instant::now();
    while UnixStream::connect(&program.socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    program
}

fn once(target: &str) -> Value {
    let text = succeeds(&mut mungo(&["top", target, "--once", "--json", "--interval", "300ms"]));
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_program_is_watched_by_its_socket_and_by_its_number() {
    let program = program("watched");
    let pid = program.child.id();
    for target in [program.socket.display().to_string(), pid.to_string()] {
        let said = once(&target);
        assert_eq!((said["pid"].as_u64(), said["protocol"].as_u64()), (Some(pid.into()), Some(1)), "{said}");
        let runtimes = said["runtimes"].as_array().expect("runtimes");
        let busy = runtimes.iter().find(|r| r["procs"] == 2 && r["goroutines"].as_u64() > Some(0));
        let busy = busy.unwrap_or_else(|| panic!("{said}"));
        assert!(busy["rates"]["switches"].as_f64() > Some(0.0), "{busy}");
        assert_eq!(busy["ps"].as_array().map(Vec::len), Some(2), "{busy}");
        assert!(!busy["groups"].as_array().expect("groups").is_empty(), "{busy}");
    }
    let picture = succeeds(&mut mungo(&["top", &pid.to_string(), "--once", "--interval", "100ms"]));
    assert!(picture.contains(" goroutines, Ps ") && picture.contains("queue wait"), "{picture}");
    assert!(picture.contains("\nP0 ") && picture.contains("spawned at"), "{picture}");
}

#[test]
fn the_socket_answers_line_by_line_and_belongs_to_its_user() {
    let program = program("asked");
    let mode = std::fs::metadata(&program.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stream = UnixStream::connect(&program.socket).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut lines = BufReader::new(&stream).lines();
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(next()["protocol"], 1);
    let mut ask = |request: &str| {
        (&stream).write_all(format!("{request}\n").as_bytes()).expect("it reads");
        next()
    };
    assert!(ask("sched")["runtimes"].is_array());
    assert!(ask("waits")["dot"].as_str().is_some_and(|dot| dot.starts_with("digraph")));
    assert!(ask("nonsense")["error"].as_str().is_some_and(|e| e.contains("'nonsense' is not known")));
    assert!(ask("snapshot /tmp/x")["error"].as_str().is_some_and(|e| e.contains("record")));
    assert_eq!(ask("record")["events"], 0);
    let file = scratch("asked.trace");
    let written = ask(&format!("snapshot {}", file.display()));
    assert!(written["events"].as_u64().is_some(), "{written}");
    assert!(std::fs::metadata(&file).expect("a trace").len() > 0);
    assert!(ask("snapshot relative")["error"].as_str().is_some_and(|e| e.contains("absolute")));
    assert_eq!(ask("forget")["events"], 0);
}

/// A client of a program's socket.
struct Client(BufReader<UnixStream>);

impl Client {
    fn of(program: &Program) -> Client {
        let stream = UnixStream::connect(&program.socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let mut client = Client(BufReader::new(stream));
        client.line();
        client
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    fn ask(&mut self, request: &str) -> Value {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).expect("it reads");
        self.line()
    }

    /// Returns whether the program records.
    fn is_recorded(&mut self) -> bool {
        let answer = self.ask(&format!("snapshot {}", scratch("recorded.trace").display()));
        answer["error"].as_str().is_none_or(|e| !e.contains("nothing is recorded"))
    }
}

/// A `mungo top` that was killed cannot ask for the end.
#[test]
fn the_recorder_ends_with_the_last_client_that_wants_it() {
    let program = program("forgets");
    let (mut one, mut two, mut looker) = (Client::of(&program), Client::of(&program), Client::of(&program));
    assert!(!looker.is_recorded());
    for _ in 0..2 {
        assert_eq!([&mut one, &mut two].map(|client| client.ask("record")["events"].as_u64()), [Some(0); 2]);
    }
    assert_eq!(looker.ask("forget")["events"], 0);
    assert!(looker.is_recorded(), "another client wants it");
    drop(one);
    assert_eq!(two.ask("forget")["events"], 0);
    assert_eq!(two.ask("record")["events"], 0);
    drop(two);
    let start = Instant::now();
    while looker.is_recorded() {
        assert!(start.elapsed() < Duration::from_secs(60), "it records for good");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_socket_answers_while_every_p_computes() {
    let program = program_at(scratch("computes.sock"), "periodic");
    let said = once(&program.socket.display().to_string());
    let all = said["runtimes"].as_array().expect("runtimes");
    assert!(all.iter().any(|r| r["procs"] == 2), "{said}");
}

/// Becomes another user for a moment, this thread alone, and connects. Needs root.
fn connect_as_nobody(socket: &Path) -> std::io::Result<UnixStream> {
    let socket = socket.to_path_buf();
    let thread = std::thread::spawn(move || {
        // SAFETY: the kernel changes the calling thread, which ends soon; libc's function would change all.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        UnixStream::connect(socket)
    });
    thread.join().expect("no panic")
}

#[test]
fn the_socket_refuses_other_users() {
    // SAFETY: no memory involved.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    // In a folder that everybody may enter.
    let socket = std::env::temp_dir().join(format!("mungo-top-{}.sock", std::process::id()));
    let program = program_at(socket, "pingpong");
    let refused = connect_as_nobody(&program.socket).expect_err("mode 600");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    // A user who was let in by mistake is asked who he is.
    std::fs::set_permissions(&program.socket, std::fs::Permissions::from_mode(0o666)).expect("root may");
    let stream = connect_as_nobody(&program.socket).expect("everybody may connect");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut said = String::new();
    BufReader::new(&stream).read_line(&mut said).expect("a line");
    assert!(said.contains("refused: the socket is for the program's own user"), "{said}");
}

/// `mungo top` by another user says whose the program is, not that it does not listen.
#[test]
fn another_users_program_is_named_as_such() {
    // SAFETY: no memory involved.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become another user");
    }
    // In folders that everybody may enter: the program, the socket, and the command.
    let folder = std::env::temp_dir();
    let socket = folder.join(format!("mungo-foreign-{}.sock", std::process::id()));
    let program = program_at(socket, "pingpong");
    let command = folder.join(format!("mungo-foreign-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_mungo"), &command).expect("a copy");
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let (pid, path) = (program.child.id().to_string(), program.socket.display().to_string());
    let complaint = |target: &str| {
        let mut top = std::process::Command::new(&command);
        top.args(["top", target, "--once"]).current_dir("/").uid(65534).gid(65534);
        fails(&mut top, 1)
    };
    let (by_pid, by_path) = (complaint(&pid), complaint(&path));
    _ = std::fs::remove_file(&command);
    let why = "is another user's: only that user and root may look";
    assert!(by_pid.contains(&format!("process {pid} {why}")), "{by_pid}");
    assert!(by_path.contains(&format!("the socket {path} {why}")), "{by_path}");
}

#[test]
fn what_cannot_be_watched_is_said_in_a_line() {
    let complaint = |target: &str| fails(&mut mungo(&["top", target, "--once"]), 1);
    assert!(complaint("4194304").contains("there is no process with the number 4194304"));
    let own = std::process::id().to_string();
    assert!(complaint(&own).contains("is a program without mungo"), "{}", complaint(&own));
    assert!(complaint("/nowhere/at.sock").contains("there is no socket at /nowhere/at.sock"));
    assert!(complaint("127.0.0.1:1").contains("nothing listens at 127.0.0.1:1"));
    let plain = scratch("plain.sock");
    std::fs::write(&plain, "").expect("a file");
    assert!(complaint(&plain.display().to_string()).contains("nothing listens at"));
}

/// A terminal of 24 lines with 80 columns, for a program, and what came out of it.
struct Terminal {
    master: File,
    slave: File,
    said: Vec<u8>,
}

impl Terminal {
    fn new() -> Terminal {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the kernel writes two descriptors, and reads the size.
        let made =
            unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just made, and ours.
        let [master, slave] = [master, slave].map(|fd| unsafe { File::from_raw_fd(fd) });
        Terminal { master, slave, said: Vec::new() }
    }

    /// Starts a program in it, which shall not ask the terminal of the test.
    fn start(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.slave.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// Reads until this was said.
    fn wait_for(&mut self, words: &str) {
        let start = Instant::now();
        while !self.said.windows(words.len()).any(|said| said == words.as_bytes()) {
            let said = String::from_utf8_lossy(&self.said);
            assert!(start.elapsed() < Duration::from_secs(60), "no '{words}' in {said:?}");
            let mut poll = libc::pollfd { fd: self.master.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            if unsafe { libc::poll(&mut poll, 1, 1000) } > 0 {
                let mut bytes = [0; 4096];
                let n = self.master.read(&mut bytes).expect("the terminal is open");
                self.said.extend_from_slice(&bytes[..n]);
            }
        }
    }
}

/// The picture stays, with a remark, until the user has seen it; then the terminal is as before.
#[test]
fn a_program_that_ends_while_it_is_watched_is_said_to_have_ended() {
    let program = program("ends");
    let mut terminal = Terminal::new();
    let target = program.socket.display().to_string();
    let mut top = terminal.start(&mut mungo(&["top", &target, "--interval", "50ms"]));
    terminal.wait_for("q quit  space pause");
    terminal.wait_for("goroutines,");
    drop(program);
    terminal.wait_for("the program has ended; q quits");
    terminal.said.clear();
    terminal.master.write_all(b"\tq").expect("keys");
    terminal.wait_for("\x1b[?1049l");
    let mut complaint = String::new();
    top.stderr.take().expect("a pipe").read_to_string(&mut complaint).expect("text");
    assert_eq!(top.wait().expect("it ends").code(), Some(1));
    assert!(complaint.contains("the program has ended"), "{complaint}");
}

/// Says something to the next client.
fn says(path: &Path, words: &'static str) -> std::thread::JoinHandle<()> {
    _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        _ = client.write_all(words.as_bytes());
    })
}

#[test]
fn other_versions_and_ends_are_told_apart() {
    for (words, complaint) in [
        ("{\"mungo\":\"0.0.9\",\"protocol\":0}\n", "an older version of the protocol (0, this is 1)"),
        ("220 mail.example ESMTP\n", "is no socket of mungo"),
        ("{\"error\":\"refused: the socket is for the program's own user\"}\n", "refused: the socket is for"),
        ("{\"mungo\":\"0.1.0\",\"protocol\":1,\"pid\":1}\n", "the program has ended"),
    ] {
        let path = scratch("says.sock");
        let speaker = says(&path, words);
        let said = fails(&mut mungo(&["top", &path.display().to_string(), "--once"]), 1);
        speaker.join().expect("no panic");
        assert!(said.contains(complaint), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
