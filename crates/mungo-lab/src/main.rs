//! The `mungo` command.
fn main() {}
