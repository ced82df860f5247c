//! Decision tables.
