//! The commands of the workshop.
fn main() {}
