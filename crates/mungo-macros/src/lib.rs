//! `#[mungo::main]` and `#[mungo::test]`.
