//! Contexts.
