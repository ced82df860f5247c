//! An embedded in-memory API server: a pure kernel and an HTTP face.
