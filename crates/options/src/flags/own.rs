//! Flags that the original does not have.

use crate::flag::FlagDefault::{Bool, Duration, Int32, Text};
use crate::flag::{Flag, flag};
use crate::go_text::GoDuration;

/// Sorted by name. `/flagz` shows them only if they are set, so that it otherwise equals the original's.
pub(super) const OWN: &[Flag] = &[
    flag(
        "allow-missing-controllers",
        Bool(false),
        "Lead even though controllers that --controllers asks for are not implemented or cannot start. Without it such a manager does not acquire the lease and reports that it is not ready, so that another manager leads.",
    ),
    flag(
        "decision-journal-bytes",
        Int32(4 << 20),
        "Memory for the latest decisions of the controllers, which explain and the live page show; less than 65536 keeps none.",
    ),
    flag(
        "lease-lock-file",
        Text(""),
        "File on a local volume that outlives the container, such as an emptyDir. The kernel's lock on it proves after a crash that the previous process on this machine has ended, so that its lease is taken over at once instead of after it expires.",
    ),
    flag(
        "shadow",
        Bool(false),
        "Run beside the leader without a Lease and write nothing: decide everything, compare it with what the leader does, and report differences. Service account credentials and leader election flags have no effect.",
    ),
    flag(
        "shadow-window",
        Duration(GoDuration::seconds(30)),
        "With --shadow, how long the leader may take to make a write that this process wants before it counts as a difference. At least one second.",
    ),
];
