//! mungo.

#[allow(dead_code)] // until the runtime asks it
mod cpus;
