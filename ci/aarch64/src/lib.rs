//! Nothing: the package is there for its tests, which are those of the crate `mungo`.
