//! Files: [`std::fs`], announced as [blocking](crate::blocking()), so that the P moves on while the disk works.
//!
//! std's own functions may be used in goroutines as well. The difference is how soon the P moves on: after some twenty
//! microseconds with these, after about a millisecond with std's.
//!
//! ```
//! use mungo::fs;
//!
//! let dir = std::env::temp_dir().join(format!("mungo-doc-fs-{}", std::process::id()));
//! let worker = mungo::go(move || {
//!     fs::create_dir_all(&dir)?;
//!     fs::write(dir.join("a"), "hello")?;
//!     fs::rename(dir.join("a"), dir.join("b"))?;
//!     assert_eq!(fs::copy(dir.join("b"), dir.join("c"))?, 5);
//!     assert_eq!(fs::metadata(dir.join("c"))?.len(), 5);
//!     assert_eq!(fs::read(dir.join("c"))?, b"hello");
//!     let names: Vec<_> = fs::read_dir(&dir)?.into_iter().map(|entry| entry.file_name()).collect();
//!     assert_eq!(names.len(), 2);
//!     let text = fs::read_to_string(dir.join("b"))?;
//!     fs::remove_file(dir.join("b"))?;
//!     fs::remove_dir_all(&dir)?;
//!     std::io::Result::Ok(text)
//! });
//! assert_eq!(worker.join().unwrap()?, "hello");
//! # std::io::Result::Ok(())
//! ```

mod file;

pub use file::{File, OpenOptions};
pub use std::fs::{DirEntry, FileType, Metadata, Permissions};

use crate::sched::threads::blocking::blocking;
use std::io;
use std::path::{Path, PathBuf};

macro_rules! announced {
    ($($name:ident($($arg:ident: $Arg:ty),*) -> $Result:ty;)*) => {$(
        #[doc = concat!("As [`std::fs::", stringify!($name), "`]. The [module](self) has an example.")]
        pub fn $name($($arg: $Arg),*) -> io::Result<$Result> {
            blocking(|| std::fs::$name($($arg),*))
        }
    )*};
}

announced! {
    canonicalize(path: impl AsRef<Path>) -> PathBuf;
    copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> u64;
    create_dir(path: impl AsRef<Path>) -> ();
    create_dir_all(path: impl AsRef<Path>) -> ();
    exists(path: impl AsRef<Path>) -> bool;
    hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> ();
    metadata(path: impl AsRef<Path>) -> Metadata;
    read(path: impl AsRef<Path>) -> Vec<u8>;
    read_link(path: impl AsRef<Path>) -> PathBuf;
    read_to_string(path: impl AsRef<Path>) -> String;
    remove_dir(path: impl AsRef<Path>) -> ();
    remove_dir_all(path: impl AsRef<Path>) -> ();
    remove_file(path: impl AsRef<Path>) -> ();
    rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> ();
    set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> ();
    symlink_metadata(path: impl AsRef<Path>) -> Metadata;
    write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> ();
}

/// Returns the entries of a directory, all at once, where [`std::fs::read_dir`] reads on while it is iterated over.
///
/// ```
/// let entries = mungo::fs::read_dir(".")?;
/// assert!(entries.iter().any(|entry| entry.file_name() == "Cargo.toml"));
/// # std::io::Result::Ok(())
/// ```
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
    blocking(|| std::fs::read_dir(path)?.collect())
}
