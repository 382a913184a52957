//! `mungo workloads` and `mungo policies`: what there is, with a line each; `mungo gdb-script`.

use crate::error::Result;
use crate::out::{Ink, Out};
use crate::{policy, workloads};

fn list<'a>(out: &Out, items: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Result<()> {
    let width = items.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in items {
        // All lines are folded as if the names were blanks.
        let about = out.fold(&" ".repeat(width + 2), about);
        out.line(format!("{}{}", out.paint(Ink::Heading, format!("{name:<width$}")), &about[width..]))?;
    }
    Ok(())
}

/// `mungo gdb-script`.
pub(crate) fn gdb_script(out: &Out) -> Result<()> {
    Ok(out.line(mungo::debug::GDB_SCRIPT.trim_end())?)
}

/// `mungo workloads`.
pub(crate) fn workloads(out: &Out) -> Result<()> {
    list(out, workloads::ALL.iter().map(|w| (w.name(), w.about())))
}

/// `mungo policies`.
pub(crate) fn policies(out: &Out) -> Result<()> {
    let all = policy::all();
    list(out, all.iter().map(|(name, about)| (name.as_str(), *about)))
}
