//! `mungo run --threads`: the library that makes a program's threads goroutines, and whether it can.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's file, which the workspace builds beside this program.
const FILE: &str = "libmungo_preload.so";

/// Has `command`, which starts the program at `path`, load the library first.
pub(crate) fn add(command: &mut Command, path: &Path) -> Result<()> {
    if is_dynamic(path) == Some(false) {
        let message = "is statically linked: nothing can be loaded into it. Link it dynamically, or use the crate \
                       mungo-interpose in it";
        return Err(Error::Failed(format!("{} {message}", path.display())));
    }
    let mut list = find()?.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    command.env("LD_PRELOAD", list).env("MUNGO_THREADS", "goroutines");
    Ok(())
}

/// Returns where the library is.
fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|e| Error::Failed(format!("cannot find this program: {e}")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(FILE), folder.join("deps").join(FILE), folder.join("../lib").join(FILE)];
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let folder = folder.display();
        Error::Failed(format!(
            "{FILE} is not in {folder}: build it by `cargo build -p mungo-preload`, as this program was"
        ))
    })
}

/// Returns whether a program is started by the dynamic loader. `None`: it is no program for x86-64, or not readable.
fn is_dynamic(path: &Path) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let bytes = std::fs::read(path).ok()?;
    let number = |at: usize, len: usize| {
        let field = bytes.get(at..at + len)?;
        Some(field.iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte)))
    };
    // 64 bits, little-endian.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    Some((0..count).any(|i| number(table + i * size, 4) == Some(INTERPRETER as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_recognised() {
        let own = std::env::current_exe().expect("this test");
        assert_eq!(is_dynamic(&own), Some(cfg!(not(target_feature = "crt-static"))));
        assert_eq!(is_dynamic(Path::new("Cargo.toml")), None);
        assert_eq!(is_dynamic(Path::new("/nowhere/at/all")), None);
    }
}
