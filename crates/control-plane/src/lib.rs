//! Builds and runs a real control plane for tests.
