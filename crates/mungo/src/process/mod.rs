//! Child processes: [`std::process::Command`] for goroutines, and with a [context](crate::context) that ends the child.
//!
//! A goroutine that waits for a child, or reads what it writes, lets others run; no thread waits. Plain threads may use
//! the same values; there they block the thread.
//!
//! ```
//! use mungo::context::{Context, ContextError};
//! use mungo::process::Command;
//! use std::time::Duration;
//!
//! let output = Command::new("echo").arg("hello").output()?;
//! assert_eq!(output.stdout, b"hello\n");
//!
//! // A command that takes too long is killed, as by Go's exec.CommandContext.
//! let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(10));
//! let error = Command::new("sleep").arg("3600").context(&ctx).status().unwrap_err();
//! assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&ContextError::DeadlineExceeded));
//! # std::io::Result::Ok(())
//! ```
//!
//! # What differs from std
//!
//! * [`Command::context`] kills the child when the context is done; [`Command::stop_with`] asks it to end first.
//! * [`Child`]'s pipes are [`Pollable`]s, so that reads and writes wait without a thread, with deadlines and contexts.
//! * Settings that are not here (user, process group, `pre_exec`) are set by [`Command::as_std_mut`].

// How it is built, its invariants and what was rejected: README.md in this folder.

mod child;
mod command;
mod handle;

pub use child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use command::Command;
pub use std::process::{ExitCode, ExitStatus, Output, Stdio, abort, exit, id};

#[cfg(doc)]
use crate::net::Pollable;
