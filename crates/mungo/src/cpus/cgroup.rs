//! One cgroup directory, one quota: reads `cpu.max` (v2) or `cpu.cfs_quota_us` and its period (v1).
//!
//! Invariant: a limit is finite and above zero, or it is `None`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file layout that a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A cgroup that holds us, directly or through cgroups below it.
// WHY NOT: keep the files open, as Go does, and save two system calls of three. A program that
// closes all its descriptors to become a daemon would hand our number to a stranger's file, and a
// `cpu.max` that appears later (the controller is enabled while we run) would never be seen.
#[derive(Debug)]
pub(super) struct Level {
    /// `cpu.max` or `cpu.cfs_quota_us`.
    quota_file: PathBuf,
    /// `cpu.cfs_period_us`; v2 has both numbers in one file.
    period_file: Option<PathBuf>,
    /// The limit in CPUs at the last reading that did not fail for a lack of resources.
    limit: Option<f64>,
}

impl Level {
    /// Makes the level of directory `dir`, not read yet.
    pub(super) fn new(version: Version, dir: &Path) -> Level {
        let (quota, period) = match version {
            Version::V1 => ("cpu.cfs_quota_us", Some("cpu.cfs_period_us")),
            Version::V2 => ("cpu.max", None),
        };
        Level { quota_file: dir.join(quota), period_file: period.map(|name| dir.join(name)), limit: None }
    }

    /// Returns the file to name when this level decides.
    pub(super) fn file(&self) -> &Path {
        &self.quota_file
    }

    /// Reads the files again and returns the limit in CPUs, `None` for unlimited.
    pub(super) fn refresh(&mut self) -> Option<f64> {
        let read = self.read();
        self.note(read)
    }

    /// Takes the outcome of a reading and returns the limit in CPUs. Files that are missing,
    /// forbidden or gone limit nothing; but a server that runs out of descriptors for a moment must
    /// not be given more Ps for it.
    fn note(&mut self, read: io::Result<Option<f64>>) -> Option<f64> {
        match read {
            Ok(limit) => self.limit = limit,
            Err(e) if is_transient(&e) => {}
            Err(_) => self.limit = None,
        }
        self.limit
    }

    fn read(&self) -> io::Result<Option<f64>> {
        let mut buf = [0; FILE_MAX];
        let text = read_small(&self.quota_file, &mut buf)?;
        let Some(period_file) = &self.period_file else {
            return Ok(parse_max(text));
        };
        // Unlimited is the common case and needs no period.
        let Some(quota @ 1..) = parse_number(text) else {
            return Ok(None);
        };
        let period = parse_number(read_small(period_file, &mut buf)?);
        Ok(period.and_then(|period| limit(quota, period)))
    }
}

/// Returns whether an error is about the state of this process or machine, and not about the file.
pub(super) fn is_transient(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Bytes of the largest file: room for two 64-bit numbers of 20 digits, a space, a line end, and
/// more.
const FILE_MAX: usize = 64;

/// Returns the content of a file in `/sys/fs/cgroup`, which comes whole from one `read`; empty, and
/// so without a meaning, when it does not fit.
fn read_small<'b>(path: &Path, buf: &'b mut [u8; FILE_MAX]) -> io::Result<&'b [u8]> {
    let mut file = File::open(path)?;
    loop {
        match file.read(buf) {
            Ok(FILE_MAX) => return Ok(&[]),
            Ok(len) => return Ok(&buf[..len]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Parses `cpu.max`: `$QUOTA $PERIOD`, both in microseconds, or `max $PERIOD`. Returns the limit in
/// CPUs.
fn parse_max(text: &[u8]) -> Option<f64> {
    let mut words = text.trim_ascii().split(|byte| *byte == b' ');
    // "max" is no number, so it fails to parse, which means unlimited.
    let quota = parse_number(words.next()?)?;
    let period = parse_number(words.next()?)?;
    limit(quota, period)
}

/// Parses a decimal number that stands alone. v1 has -1 for "no quota", so it is signed.
fn parse_number(text: &[u8]) -> Option<i64> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Returns quota over period, in CPUs. The kernel takes neither a quota nor a period below 1 ms, so
/// anything that is not positive is either v1's -1 or nonsense, and no limit.
fn limit(quota: i64, period: i64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Reads the whole file into `buf`, whose capacity is kept from call to call.
pub(super) fn read_into(path: &Path, buf: &mut Vec<u8>) -> io::Result<()> {
    buf.clear();
    File::open(path)?.read_to_end(buf)?;
    Ok(())
}

/// Returns `prefix` and `path` written one after the other, as `Path::join` would not do it for an
/// absolute `path`.
pub(super) fn prepend(prefix: &Path, path: &Path) -> PathBuf {
    let mut joined = OsString::from(prefix);
    joined.push(path);
    joined.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_max() {
        for (text, want) in [
            ("200000 100000\n", Some(2.0)),
            ("50000 100000\n", Some(0.5)),
            ("210000 100000", Some(2.1)),
            ("1500 1000 7\n", Some(1.5)),
            ("9223372036854775807 1\n", Some(i64::MAX as f64)),
            ("max 100000\n", None),
            ("max\n", None),
            ("100000\n", None),
            ("100000 \n", None),
            ("100000 max\n", None),
            ("100000us 100000\n", None),
            ("99999999999999999999 100000\n", None),
            ("0 100000\n", None),
            ("100000 0\n", None),
            ("-1 100000\n", None),
            ("100000 -100000\n", None),
            (" \n", None),
            ("", None),
            ("\u{fffd}\n", None),
        ] {
            assert_eq!(parse_max(text.as_bytes()), want, "{text:?}");
        }
        assert_eq!(parse_max(b"\xff\xfe 100000\n"), None);
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_number(b"-1\n"), Some(-1));
        assert_eq!(parse_number(b"250000\n"), Some(250_000));
        assert_eq!(parse_number(b"250000 100000\n"), None);
        assert_eq!(parse_number(b"\n"), None);
    }

    #[test]
    fn a_lack_of_descriptors_keeps_the_limit() {
        let mut level = Level::new(Version::V2, Path::new("/nowhere"));
        assert_eq!(level.note(Ok(Some(2.5))), Some(2.5));
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert_eq!(level.note(Err(io::Error::from_raw_os_error(errno))), Some(2.5));
        }
        for errno in [libc::ENOENT, libc::ENODEV, libc::EACCES] {
            assert_eq!(level.note(Ok(Some(2.5))), Some(2.5));
            assert_eq!(level.note(Err(io::Error::from_raw_os_error(errno))), None);
        }
    }
}
