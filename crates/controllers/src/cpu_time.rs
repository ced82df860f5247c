//! The CPU time of a test, for what must not take longer than its input is large.

/// The CPU time of this thread so far. Elapsed time says nothing on a busy machine.
#[expect(clippy::disallowed_methods, reason = "tests measure how long a decision takes")]
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
