//! mungo.
