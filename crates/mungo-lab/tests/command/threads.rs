//! `mungo run --threads`: a server in C, a thread for each connection, on goroutines.

use crate::{fails, mungo, scratch};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles the server. `None`: there is no C compiler.
fn server(name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/server.c");
    let to = scratch(name);
    let compiled =
        Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&to).arg(source).args(options).status();
    match compiled {
        Err(_) => {
            eprintln!("skipped: there is no C compiler (cc)");
            None
        }
        Ok(status) => {
            assert!(status.success(), "{status}");
            Some(to)
        }
    }
}

/// Builds the library, if no build of the workspace has done that.
fn build_library() {
    let folder = Path::new(env!("CARGO_BIN_EXE_mungo")).parent().expect("a folder");
    if folder.join("libmungo_preload.so").is_file() {
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "mungo-preload"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo").success());
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn a_server_with_a_thread_for_each_connection_needs_few() {
    const CONNECTIONS: usize = 400;
    let Some(program) = server("thread_server", &[]) else { return };
    build_library();
    let program = program.to_str().expect("a path of letters");
    let mut command = mungo(&["run", "--threads", program, &CONNECTIONS.to_string()]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    let numbers: Vec<u32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [port, pid] = numbers[..] else { panic!("not a port and a process: {line}") };
    let mut streams: Vec<_> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(("127.0.0.1", port as u16)).expect("a connection"))
        .collect();
    let mut answer = [0; 5];
    for _ in 0..3 {
        streams.iter_mut().for_each(|stream| stream.write_all(b"hello").expect("to be sent"));
        for stream in &mut streams {
            stream.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"hello");
        }
    }
    // All connections are served at this moment.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").count();
    assert!(threads < 60, "{threads} threads");
    drop(streams);
    line.clear();
    said.read_line(&mut line).expect("a line");
    assert!(child.wait().expect("a child").success());
    let figures: Vec<usize> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [served, ended, cleaned] = figures[..] else { panic!("not three figures: {line}") };
    assert!(served >= 3 * CONNECTIONS, "{served}");
    assert_eq!((ended, cleaned), (CONNECTIONS, CONNECTIONS), "destructors of keys, and clean-up functions");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn what_cannot_be_done_is_said() {
    build_library();
    let complaint = fails(&mut mungo(&["run", "--threads", "pingpong"]), 2);
    assert!(
        complaint.contains("--threads is for programs: give the path of one, as ./pingpong"),
        "{complaint}"
    );
    let complaint = fails(&mut mungo(&["run", "--threads", "./no/such/program"]), 1);
    assert!(complaint.contains("cannot start ./no/such/program"), "{complaint}");
    if let Some(program) = server("thread_server_static", &["-static"]) {
        let complaint =
            fails(&mut mungo(&["run", "--threads", program.to_str().expect("a path of letters")]), 1);
        assert!(complaint.contains("is statically linked"), "{complaint}");
    }
}

/// The main thread ends before the others, and the process after the last of them.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn the_process_ends_after_the_last_thread() {
    const PROGRAM: &str = "
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *work(void *argument) {
            usleep(50000);
            puts(\"done\");
            return argument;
        }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            pthread_detach(thread);
            pthread_exit(0);
        }";
    let source = scratch("ends_first.c");
    std::fs::write(&source, PROGRAM).expect("a file");
    let to = scratch("ends_first");
    let Ok(compiled) = Command::new("cc").args(["-pthread", "-o"]).arg(&to).arg(&source).status() else {
        eprintln!("skipped: there is no C compiler (cc)");
        return;
    };
    assert!(compiled.success());
    build_library();
    let output = mungo(&["run", "--threads", to.to_str().expect("letters")]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}
