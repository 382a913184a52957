#![doc = include_str!("README.md")]

pub(crate) mod classes;
pub(crate) mod enqueue;
pub(crate) mod global;
pub(crate) mod next;
pub(crate) mod thief;

pub(crate) use enqueue::{From, Why, enqueue, enqueue_all, enqueue_at_home};
