//! Forbids core dumps of this process, whose memory holds tokens and private keys.

use rustix::io::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of the size of a core dump in bytes. With 0 there is no file, but Linux still starts a handler such as
/// systemd-coredump or apport and hands it the memory; with exactly 1 it does neither. The process stays readable for tools of
/// its own user, such as debuggers and benchmarks, which `PR_SET_DUMPABLE` would shut out.
const LIMIT: u64 = 1;

/// Forbids core dumps. A lower limit that was set from outside stays.
///
/// # Errors
/// If the system refuses it.
pub(crate) fn forbid() -> Result<()> {
    let maximum = getrlimit(Resource::Core).maximum.map_or(LIMIT, |maximum| maximum.min(LIMIT));
    setrlimit(Resource::Core, Rlimit { current: Some(maximum), maximum: Some(maximum) })
}
