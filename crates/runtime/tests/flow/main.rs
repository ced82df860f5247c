//! Controllers at work in the embedded world: what caches, gate, executor and loops promise together.
#![allow(clippy::unwrap_used, reason = "in a test, a failed assumption is a failed test")]

mod caches;
mod dynamic;
mod evictions;
mod executor;
mod faults;
mod garbage;
mod gate;
mod loops;
mod metadata;
mod monitors;
mod namespaces;
mod outages;
mod pace;
mod words;
mod world;
