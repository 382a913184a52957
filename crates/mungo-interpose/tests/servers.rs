//! Clients of real servers, as their crates are: blocking, and unaware of goroutines. A server that is not installed
//! is skipped with a message. Each is started by its test, in a folder of its own and on a Unix socket there.

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{runtime, wait_until};
use mungo_interpose as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};

const GOROUTINES: usize = 1000;
const CONNECTIONS: usize = 100;

/// A server in a folder of its own. Both end with this.
struct Server {
    folder: PathBuf,
    process: Option<Child>,
}

impl Server {
    /// Makes the folder; it belongs to the user and group, if one is given.
    fn new(name: &str, owner: Option<(u32, u32)>) -> Server {
        let folder = std::env::temp_dir().join(format!("mungo-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let (user, group) = owner.unzip();
        std::os::unix::fs::chown(&folder, user, group).expect("to give the folder away");
        Server { folder, process: None }
    }

    fn start(&mut self, command: &mut Command) {
        let log = std::fs::File::create(self.folder.join("log")).expect("a log");
        let errors = log.try_clone().expect("a descriptor");
        let started = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        self.process = Some(started.expect("the server starts"));
    }

    /// Panics with the server's log if it has ended.
    fn check(&mut self) {
        if let Some(status) = self.process.as_mut().and_then(|p| p.try_wait().expect("a child")) {
            panic!("the server ended: {status}\n{}", std::fs::read_to_string(self.folder.join("log")).unwrap());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // SAFETY: a child that was not waited for. It ends its own processes, which SIGKILL would leave behind.
            unsafe { libc::kill(process.id() as i32, libc::SIGINT) };
            _ = process.wait();
        }
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Connections that are lent, by std's lock and condition.
struct Pool<T> {
    idle: Mutex<Vec<T>>,
    returned: Condvar,
}

impl<T> Pool<T> {
    fn new(all: Vec<T>) -> Pool<T> {
        Pool { idle: Mutex::new(all), returned: Condvar::new() }
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut idle = self.returned.wait_while(self.idle.lock().unwrap(), |idle| idle.is_empty()).unwrap();
        let mut one = idle.pop().unwrap();
        drop(idle);
        let result = f(&mut one);
        self.idle.lock().unwrap().push(one);
        self.returned.notify_one();
        result
    }
}

/// Returns the path of a program, of those in PATH and in folders that match.
fn program(name: &str, others: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).chain(others.iter().cloned()).map(|folder| folder.join(name));
    let found = found.find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no {name}");
    }
    found
}

/// Connects as often as it takes.
fn connect<T, E: std::fmt::Debug>(server: &mut Server, mut connect: impl FnMut() -> Result<T, E>) -> T {
    let mut connected = None;
    wait_until("the server answers", || {
        server.check();
        connected = connect().ok();
        connected.is_some()
    });
    connected.unwrap()
}

/// Runs `f` on two Ps, and looks that few threads were needed.
fn with_few_threads(f: impl FnOnce() + Send) {
    let runtime = runtime(2);
    runtime.run(f);
    let threads = runtime.metrics().threads;
    assert!(threads < 60, "{threads} threads");
}

#[test]
fn redis_serves_a_thousand_goroutines() {
    let Some(redis) = program("redis-server", &["/usr/sbin".into()]) else { return };
    let mut server = Server::new("redis", None);
    let socket = server.folder.join("socket");
    let folder = server.folder.clone();
    server.start(
        Command::new(redis)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(folder),
    );
    let client = redis::Client::open(format!("unix:{}", socket.display())).unwrap();
    drop(connect(&mut server, || client.get_connection()));
    with_few_threads(|| {
        let all = (0..CONNECTIONS).map(|_| client.get_connection().unwrap()).collect();
        let pool = Pool::new(all);
        mungo::scope(|s| {
            for i in 0..GOROUTINES {
                let pool = &pool;
                s.spawn(move || {
                    for round in 0..5 {
                        let key = format!("key {i}");
                        pool.with(|c| redis::cmd("SET").arg(&key).arg(round).exec(c)).unwrap();
                        let got: usize = pool.with(|c| redis::cmd("GET").arg(&key).query(c)).unwrap();
                        assert_eq!(got, round);
                        pool.with(|c| redis::cmd("INCR").arg("all").exec(c)).unwrap();
                    }
                });
            }
        });
        let all: usize = pool.with(|c| redis::cmd("GET").arg("all").query(c)).unwrap();
        assert_eq!(all, 5 * GOROUTINES);
        // One that waits for a list, which another goroutine fills.
        mungo::scope(|s| {
            let waits = s.spawn(|| {
                let blocked: (String, usize) =
                    pool.with(|c| redis::cmd("BLPOP").arg("list").arg(0).query(c)).unwrap();
                blocked.1
            });
            pool.with(|c| redis::cmd("RPUSH").arg("list").arg(7).exec(c)).unwrap();
            assert_eq!(waits.join().unwrap(), 7);
        });
    });
}

/// Returns the user and group that a server runs as which refuses to be root. `None`: as whoever runs this.
fn unprivileged() -> Option<(u32, u32)> {
    // SAFETY: no memory involved.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    of("postgres").or_else(|| of("nobody")).or(Some((65534, 65534)))
}

fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

#[test]
fn postgres_serves_a_thousand_goroutines() {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders: Vec<_> = versions.filter_map(|version| Some(version.ok()?.path().join("bin"))).collect();
    let (Some(initdb), Some(postgres)) = (program("initdb", &folders), program("postgres", &folders)) else {
        return;
    };
    let user = unprivileged();
    let mut server = Server::new("postgres", user);
    let data = server.folder.join("data");
    let mut make = as_user(&initdb, user);
    make.current_dir(&server.folder)
        .args(["--auth=trust", "--username=mungo", "--no-sync", "--pgdata"])
        .arg(&data);
    let made = make.stdin(Stdio::null()).output().expect("initdb starts");
    if !made.status.success() {
        eprintln!("skipped: initdb {}: {}", made.status, String::from_utf8_lossy(&made.stderr));
        return;
    }
    let folder = server.folder.clone();
    server.start(
        as_user(&postgres, user)
            .current_dir(&folder)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=110", "-D"])
            .arg(&data)
            .arg("-k")
            .arg(&folder),
    );
    let settings = format!("host={} user=mungo dbname=postgres", folder.display());
    let open = || postgres::Client::connect(&settings, postgres::NoTls);
    let mut first = connect(&mut server, open);
    first.batch_execute("CREATE TABLE counted (id INT PRIMARY KEY, n INT NOT NULL)").unwrap();
    first.execute("INSERT INTO counted SELECT g, 0 FROM generate_series(0, 99) g", &[]).unwrap();
    drop(first);
    with_few_threads(|| {
        let pool = Pool::new((0..CONNECTIONS).map(|_| open().unwrap()).collect());
        mungo::scope(|s| {
            for i in 0..GOROUTINES {
                let pool = &pool;
                s.spawn(move || {
                    let (row, text) = ((i % 100) as i32, format!("text {i}"));
                    pool.with(|c| c.execute("UPDATE counted SET n = n + 1 WHERE id = $1", &[&row])).unwrap();
                    let got = pool.with(|c| c.query_one("SELECT $1::TEXT, pg_sleep(0.002)", &[&text])).unwrap();
                    assert_eq!(got.get::<_, String>(0), text);
                });
            }
        });
        let sum = pool.with(|c| c.query_one("SELECT sum(n) FROM counted", &[])).unwrap();
        assert_eq!(sum.get::<_, i64>(0), GOROUTINES as i64);
    });
}
