//! Scenarios that run against any world, and their runner for the real one.
