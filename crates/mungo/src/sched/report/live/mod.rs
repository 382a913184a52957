//! `MUNGO_DEBUG=listen=PATH`: a Unix socket that says what the scheduler does, for `mungo top` and other clients.
//!
//! A thread of its own listens, and each client has one: they answer while every P is busy. None of them keeps the
//! program alive or could wake a goroutine, and the deadlock detector does not count them ([`threads`]). The protocol
//! is in `docs/live.md`: a line of words is asked, a line of JSON is the answer.

mod json;
mod serve;
pub(crate) mod snapshot;

use crate::debug_env;
use crate::sys::say::say;
use crate::sys::thread;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Once, OnceLock};

/// The version of the protocol. It grows when a client of the version before would misunderstand an answer.
pub(crate) const PROTOCOL: u32 = 1;

static THREADS: AtomicI64 = AtomicI64::new(0);
/// The socket's path and the process that made it, which is not a fork of it.
static BOUND: OnceLock<(PathBuf, u32)> = OnceLock::new();

/// Returns the number of threads that serve clients: none of them could wake a goroutine.
pub(crate) fn threads() -> i64 {
    THREADS.load(Relaxed)
}

/// Begins to listen if `MUNGO_DEBUG` asks for it; once for the process. What is wrong is said on stderr.
pub(crate) fn start_as_asked() {
    static STARTED: Once = Once::new();
    let Some(asked) = &debug_env::get().listen else { return };
    STARTED.call_once(|| {
        let path = match asked.as_str() {
            "" => default_path(),
            path => Ok(PathBuf::from(path.replace("%p", &std::process::id().to_string()))),
        };
        let bound = path.and_then(|path| bind(&path).map(|listener| (listener, path)));
        let started = bound.and_then(|(listener, path)| {
            _ = BOUND.set((path, std::process::id()));
            // SAFETY: a function without arguments, which stays.
            unsafe { libc::atexit(remove) };
            start_thread("mungo-live", move || serve::accept(&listener))
        });
        if let Err(e) = started {
            say!("mungo: MUNGO_DEBUG: cannot listen: {e}");
        }
    });
}

/// Starts a thread that the deadlock detector does not count.
fn start_thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            THREADS.fetch_sub(1, Relaxed);
        }
    }
    THREADS.fetch_add(1, Relaxed);
    let counted = Counted;
    let body = move || {
        let _counted = counted;
        body();
    };
    thread::own(|| std::thread::Builder::new().name(name.to_owned()).spawn(body)).map(drop)
}

/// Returns where a program with `MUNGO_DEBUG=listen` listens: a folder of the user's own, and a file for each process.
fn default_path() -> io::Result<PathBuf> {
    // SAFETY: no memory involved.
    let user = unsafe { libc::geteuid() };
    let folder = default_folder(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), user);
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(of_file("make", &folder, &e)),
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(&folder).map_err(|e| of_file("look at", &folder, &e))?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        let why = format!("{} is not a folder of this user's own; name a path", folder.display());
        return Err(io::Error::other(why));
    }
    Ok(folder.join(format!("{}.sock", std::process::id())))
}

fn default_folder(runtime_dir: Option<&OsStr>, user: u32) -> PathBuf {
    match runtime_dir.map(Path::new).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("mungo"),
        None => PathBuf::from(format!("/tmp/mungo-{user}")),
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let left_behind = std::fs::symlink_metadata(path)
        .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()));
    if left_behind {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::other(format!("another program listens at {}", path.display())));
        }
        _ = std::fs::remove_file(path);
    }
    let listener = UnixListener::bind(path).map_err(|e| of_file("listen at", path, &e))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|e| of_file("protect", path, &e))?;
    Ok(listener)
}

fn of_file(doing: &str, path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot {doing} {}: {e}", path.display()))
}

/// Removes the socket, at the end of the process.
extern "C" fn remove() {
    if let Some((path, pid)) = BOUND.get()
        && *pid == std::process::id()
    {
        _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folder_is_the_users() {
        assert_eq!(default_folder(Some(OsStr::new("/run/user/7")), 7), Path::new("/run/user/7/mungo"));
        assert_eq!(default_folder(Some(OsStr::new("relative")), 7), Path::new("/tmp/mungo-7"));
        assert_eq!(default_folder(None, 7), Path::new("/tmp/mungo-7"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
        let path = std::env::temp_dir().join(format!("mungo-live-{}.sock", std::process::id()));
        drop(bind(&path).unwrap()); // leaves the file
        // Another test may start a child just now, which has the listener until it executes its program.
        while UnixStream::connect(&path).is_ok() {
            std::thread::yield_now();
        }
        let listener = bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(bind(&path).unwrap_err().to_string().contains("another program listens"));
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        let error = bind(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(error.contains("cannot listen at /nowhere/at/all"), "{error}");
    }
}
