//! An open file.

use crate::sched::threads::blocking::blocking;
use std::fmt;
use std::fs::{Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An open file, as [`std::fs::File`]; each operation is announced as [blocking](crate::blocking()).
///
/// ```
/// use mungo::fs::File;
/// use std::io::{Read, Seek, Write};
///
/// let path = std::env::temp_dir().join(format!("mungo-doc-file-{}", std::process::id()));
/// let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
/// file.write_all(b"hello")?;
/// file.sync_all()?;
/// file.rewind()?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// mungo::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// ```
pub struct File(std::fs::File);

impl File {
    /// Opens a file to read from it.
    ///
    /// ```
    /// assert!(mungo::fs::File::open("Cargo.toml")?.metadata()?.is_file());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| std::fs::File::open(path)).map(File)
    }

    /// Opens a file to write to it; makes it, or empties it.
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-create-{}", std::process::id()));
    /// mungo::fs::write(&path, "old")?;
    /// let file = File::create(&path)?;
    /// assert_eq!(file.metadata()?.len(), 0, "emptied");
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| std::fs::File::create(path)).map(File)
    }

    /// Makes a file that must not exist.
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-create-new-{}", std::process::id()));
    /// File::create_new(&path)?;
    /// let again = File::create_new(&path).unwrap_err();
    /// assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| std::fs::File::create_new(path)).map(File)
    }

    /// Returns options for other ways to open a file.
    ///
    /// ```
    /// use mungo::fs::File;
    /// use std::io::Read;
    ///
    /// let mut file = File::options().read(true).open("Cargo.toml")?;
    /// let mut text = String::new();
    /// file.read_to_string(&mut text)?;
    /// assert!(text.starts_with("[package]"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until content and metadata are on the disk.
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-sync-all-{}", std::process::id()));
    /// let mut file = File::create(&path)?;
    /// std::io::Write::write_all(&mut file, b"kept")?;
    /// file.sync_all()?;
    /// assert_eq!(file.metadata()?.len(), 4);
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// Waits until the content is on the disk.
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-sync-data-{}", std::process::id()));
    /// let mut file = File::create(&path)?;
    /// std::io::Write::write_all(&mut file, b"kept")?;
    /// file.sync_data()?;
    /// assert_eq!(mungo::fs::read(&path)?, b"kept");
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Cuts the file off, or fills it with zeros.
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-set-len-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// file.set_len(3)?;
    /// assert_eq!(mungo::fs::read(&path)?, [0; 3]);
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.0.set_len(size))
    }

    /// Returns size, times, kind.
    ///
    /// ```
    /// let metadata = mungo::fs::File::open("Cargo.toml")?.metadata()?;
    /// assert!(metadata.is_file() && metadata.len() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Changes the file's permissions.
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-permissions-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// let mut permissions = file.metadata()?.permissions();
    /// permissions.set_readonly(true);
    /// file.set_permissions(permissions)?;
    /// assert!(file.metadata()?.permissions().readonly());
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Makes another handle of the same open file.
    ///
    /// ```
    /// use std::io::{Read, Seek};
    ///
    /// let mut file = mungo::fs::File::open("Cargo.toml")?;
    /// let mut clone = file.try_clone()?;
    /// file.read_exact(&mut [0; 7])?;
    /// assert_eq!(clone.stream_position()?, 7, "they share the place");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.try_clone().map(File)
    }

    /// Reads at a place, as [`FileExt::read_at`].
    ///
    /// ```
    /// let file = mungo::fs::File::open("Cargo.toml")?;
    /// let mut part = [0; 7];
    /// assert_eq!(file.read_at(&mut part, 1)?, 7);
    /// assert_eq!(&part, b"package");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.read_at(buf, offset))
    }

    /// Writes at a place, as [`FileExt::write_at`].
    ///
    /// ```
    /// use mungo::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-write-at-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// file.write_at(b"world", 6)?;
    /// file.write_at(b"hello ", 0)?;
    /// assert_eq!(mungo::fs::read(&path)?, b"hello world");
    /// mungo::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.write_at(buf, offset))
    }

    /// Returns std's type.
    ///
    /// ```
    /// let file: std::fs::File = mungo::fs::File::open("Cargo.toml")?.into_std();
    /// assert!(file.metadata()?.is_file());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_std(self) -> std::fs::File {
        self.0
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        blocking(|| (&self.0).read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        blocking(|| (&self.0).read_vectored(bufs))
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        blocking(|| (&self.0).read_to_end(buf))
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        blocking(|| (&self.0).read_to_string(buf))
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        blocking(|| (&self.0).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(|| (&self.0).write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        blocking(|| (&self.0).flush())
    }
}

impl Seek for &File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        (&self.0).seek(pos) // no disk involved
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        (&*self).seek(pos)
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(file)
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> std::fs::File {
        file.0
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File(fd.into())
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.0.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Options for opening a file, as [`std::fs::OpenOptions`].
///
/// ```
/// let file = mungo::fs::OpenOptions::new().read(true).open("Cargo.toml")?;
/// assert!(file.metadata()?.len() > 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

macro_rules! switches {
    ($($name:ident)*) => {$(
        #[doc = concat!("As [`std::fs::OpenOptions::", stringify!($name), "`].")]
        pub fn $name(&mut self, yes: bool) -> &mut OpenOptions {
            self.0.$name(yes);
            self
        }
    )*};
}

impl OpenOptions {
    /// Makes options of which nothing is allowed yet.
    ///
    /// ```
    /// let error = mungo::fs::OpenOptions::new().open("Cargo.toml").unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "neither read nor write");
    /// ```
    #[allow(clippy::new_without_default)] // as std's
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    switches! { read write append truncate create create_new }

    /// Opens the file.
    ///
    /// ```
    /// let file = mungo::fs::OpenOptions::new().read(true).open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| self.0.open(path)).map(File)
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    /// Takes std's options, for what only those have, as modes and flags.
    fn from(options: std::fs::OpenOptions) -> OpenOptions {
        OpenOptions(options)
    }
}
