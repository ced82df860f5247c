//! When a node was last heard of, by this process's own clock.
//!
//! Times that a node writes are never compared with ours, only with those it wrote before: whatever
//! changes is a sign of life, now. So clocks that go wrong on nodes do no harm.

use std::time::Duration;

use keleustes_objects::{
    Condition, Conditions as _, FALSE, Lease, MicroTime, Node, TRUE, Time, UNKNOWN, Uid,
};
use keleustes_plan::Now;
use serde_json::{Value, json};

/// How long a node may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriods {
    /// Once it has posted a status.
    pub monitor: Duration,
    /// Before that.
    pub startup: Duration,
}

/// What the `Ready` condition of a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    True,
    False,
    Unknown,
    /// Something that the API does not know.
    Other,
}

/// What the `Ready` condition of a node says, if it has one.
pub(super) fn ready(node: &Node) -> Option<Ready> {
    node.conditions.of_type("Ready").map(|ready| match ready.status.as_str() {
        TRUE => Ready::True,
        FALSE => Ready::False,
        UNKNOWN => Ready::Unknown,
        _ => Ready::Other,
    })
}

/// When a node was last heard of, and what it had written then.
///
/// With the process this is lost. In the next one every node that has a status begins as if just heard of,
/// so one that is silent has its full grace once more before anything is done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// The life that this is about.
    pub(super) uid: Uid,
    heard: Heard,
    /// The heartbeat of its `Ready` condition, if it has one.
    ready: Option<Option<Time>>,
    /// When its lease was renewed, if it has one.
    lease: Option<Option<MicroTime>>,
}

/// A moment on our monotonic clock, which may lie before the clock began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    at: Duration,
    /// How long before that moment.
    earlier: Duration,
}

impl Heard {
    fn now(now: Now) -> Self {
        Self { at: now.monotonic, earlier: Duration::ZERO }
    }

    /// At a moment of wall time, or now if it is yet to come.
    fn at(moment: Time, now: Now) -> Self {
        let seconds = u64::try_from(now.wall.seconds_since(moment)).unwrap_or(0);
        Self { at: now.monotonic, earlier: Duration::from_secs(seconds) }
    }

    fn ago(self, now: Now) -> Duration {
        now.monotonic.saturating_sub(self.at).saturating_add(self.earlier)
    }
}

impl Health {
    /// A node that is seen for the first time. One that never posted a status has been silent since it
    /// was created; of any other nobody knows, so it counts as heard of.
    fn first_seen(node: &Node, now: Now) -> Self {
        let heard = match (heartbeat(node), node.meta.creation_timestamp) {
            (None, Some(created_at)) => Heard::at(created_at, now),
            _ => Heard::now(now),
        };
        Self { uid: node.meta.uid.clone(), heard, ready: heartbeat(node), lease: None }
    }

    /// Looks at a node and its lease: whatever changed since `before` is a sign of life.
    pub(super) fn observe(before: Option<&Self>, node: &Node, lease: Option<&Lease>, now: Now) -> Self {
        let Some(before) = before.filter(|before| before.uid == node.meta.uid) else {
            let mut first = Self::first_seen(node, now);
            if let Some(lease) = lease {
                first.lease = Some(lease.renew_time);
                first.heard = Heard::now(now);
            }
            return first;
        };
        let mut health = before.clone();
        if before.ready != heartbeat(node) {
            health.ready = heartbeat(node);
            health.heard = Heard::now(now);
        }
        if let Some(lease) = lease
            && before.lease.is_none_or(|saved| is_newer(lease.renew_time, saved))
        {
            health.lease = Some(lease.renew_time);
            health.heard = Heard::now(now);
        }
        health
    }

    /// Whether it has been silent for longer than it may.
    pub(super) fn is_expired(&self, grace_periods: &GracePeriods, now: Now) -> bool {
        let grace = if self.ready.is_some() { grace_periods.monitor } else { grace_periods.startup };
        self.heard.ago(now) > grace
    }

    /// Takes note of a condition that we are about to write in its place: that is no sign of life.
    pub(super) fn expect_mark(&mut self, node: &Node) {
        self.ready.get_or_insert(node.meta.creation_timestamp);
    }

    /// Gives it a fresh grace.
    pub(super) fn reset_probe_timestamp(&mut self, now: Now) {
        self.heard = Heard::now(now);
    }
}

fn heartbeat(node: &Node) -> Option<Option<Time>> {
    node.conditions.of_type("Ready").map(|ready| ready.last_heartbeat_time)
}

/// Whether a lease was renewed. Without a time it was not, and any time is later than none.
fn is_newer(renewed_at: Option<MicroTime>, saved: Option<MicroTime>) -> bool {
    renewed_at.is_some_and(|renewed_at| saved.is_none_or(|saved| saved < renewed_at))
}

/// The conditions that nobody can tell about a silent node.
const SILENCED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What is written about a silent node; nothing if it is known to be silent. The network of a node is
/// not its kubelet's to tell, so what is said about that stays.
pub(super) fn unknown_status(node: &Node, now: Time) -> Option<Value> {
    if ready(node) == Some(Ready::Unknown) {
        return None;
    }
    let conditions = SILENCED.iter().filter_map(|name| match node.conditions.of_type(name) {
        None => Some(json!({
            "type": name,
            "status": UNKNOWN,
            "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
            "lastHeartbeatTime": node.meta.creation_timestamp,
            "lastTransitionTime": now,
        })),
        Some(Condition { status, .. }) if status == UNKNOWN => None,
        Some(_) => Some(json!({
            "type": name,
            "status": UNKNOWN,
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now,
        })),
    });
    Some(json!({"conditions": conditions.collect::<Vec<_>>()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACES: GracePeriods =
        GracePeriods { monitor: Duration::from_secs(50), startup: Duration::from_secs(60) };

    /// So many seconds after the clocks began; wall time is of no account but for the age of nodes.
    fn at(seconds: u64) -> Now {
        Now {
            wall: Time::from_unix_seconds(1_800_000_000).plus_seconds(i64::try_from(seconds).unwrap()),
            monotonic: Duration::from_secs(seconds),
        }
    }

    fn node(conditions: &Value) -> Node {
        let metadata = json!({"name": "n", "uid": "n", "creationTimestamp": "2027-01-15T08:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    fn beating(heartbeat: &str) -> Node {
        let time = format!("2026-01-01T00:00:{heartbeat}Z");
        node(&json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]))
    }

    fn lease(renewed_at: Option<&str>) -> Lease {
        let renewed_at = renewed_at.map(|time| format!("2026-01-01T00:00:{time}.000000Z"));
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"renewTime": renewed_at}})).unwrap()
    }

    /// When a node that is looked at in these states and seconds begins to count as silent.
    fn silent_at(looks: &[(u64, &Node, Option<&Lease>)]) -> u64 {
        let mut health = None;
        for (second, node, lease) in looks {
            health = Some(Health::observe(health.as_ref(), node, *lease, at(*second)));
        }
        let health = health.unwrap();
        (0..10_000).find(|second| health.is_expired(&GRACES, at(*second))).unwrap()
    }

    /// Proves NLC-18, NLC-20, NLC-24, NLC-79, NLC-83.
    #[test]
    fn a_node_with_a_status_is_as_good_as_heard_of_when_it_is_first_seen() {
        // Its heartbeat is a year old, which says more about its clock than about its health.
        assert_eq!(silent_at(&[(100, &beating("00"), None)]), 151);
        assert_eq!(silent_at(&[(100, &beating("00"), None), (140, &beating("00"), None)]), 151);
    }

    /// Proves NLC-19.
    #[test]
    fn one_that_never_posted_a_status_is_silent_since_it_was_created() {
        // It was created at second 0.
        assert_eq!(silent_at(&[(10, &node(&json!([])), None)]), 61);
        let other = node(&json!([{"type": "MemoryPressure", "status": "False"}]));
        assert_eq!(silent_at(&[(10, &other, None)]), 61);
        // A clock that began after that does not matter.
        let mut health =
            Health::observe(None, &node(&json!([])), None, Now { monotonic: Duration::ZERO, ..at(70) });
        assert!(health.is_expired(&GRACES, Now { monotonic: Duration::ZERO, ..at(70) }));
        health.reset_probe_timestamp(at(70));
        assert!(!health.is_expired(&GRACES, at(130)) && health.is_expired(&GRACES, at(131)));
    }

    /// Proves NLC-21.
    #[test]
    fn a_ready_condition_that_comes_or_goes_is_a_sign_of_life() {
        assert_eq!(silent_at(&[(10, &node(&json!([])), None), (40, &beating("00"), None)]), 91);
        assert_eq!(silent_at(&[(10, &beating("00"), None), (40, &node(&json!([])), None)]), 101);
        assert_eq!(silent_at(&[(10, &node(&json!([])), None), (40, &node(&json!([])), None)]), 61);
    }

    /// Proves NLC-22, NLC-83.
    #[test]
    fn any_other_heartbeat_is_a_sign_of_life_also_an_earlier_one() {
        assert_eq!(silent_at(&[(10, &beating("30"), None), (40, &beating("31"), None)]), 91);
        assert_eq!(silent_at(&[(10, &beating("30"), None), (40, &beating("29"), None)]), 91);
        let unready =
            node(&json!([{"type": "Ready", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:30Z"}]));
        assert_eq!(silent_at(&[(10, &beating("30"), None), (40, &unready, None)]), 61, "a status is none");
    }

    /// Proves NLC-23, NLC-83, NLC-84.
    #[test]
    fn a_renewed_lease_is_a_sign_of_life_by_itself() {
        let (early, late) = (lease(Some("10")), lease(Some("20")));
        let (never, beat) = (lease(None), beating("00"));
        assert_eq!(silent_at(&[(10, &beat, None), (40, &beat, Some(&early))]), 91);
        assert_eq!(silent_at(&[(10, &beat, Some(&early)), (40, &beat, Some(&late))]), 91);
        assert_eq!(silent_at(&[(10, &beat, Some(&early)), (40, &beat, Some(&early))]), 61);
        assert_eq!(silent_at(&[(10, &beat, Some(&late)), (40, &beat, Some(&early))]), 61, "only forward");
        assert_eq!(silent_at(&[(10, &beat, Some(&early)), (40, &beat, None)]), 61);
        assert_eq!(silent_at(&[(10, &node(&json!([])), Some(&early))]), 71, "also without any status");
        assert_eq!(silent_at(&[(10, &beat, None), (40, &beat, Some(&never)), (45, &beat, Some(&never))]), 91);
    }

    #[test]
    fn another_life_of_the_name_begins_anew() {
        let mut other = beating("00");
        other.meta.uid = "other".into();
        assert_eq!(silent_at(&[(10, &beating("00"), None), (40, &other, None)]), 91);
    }

    #[test]
    fn what_we_write_ourselves_is_no_sign_of_life() {
        let silent = node(&json!([]));
        let mut health = Health::observe(None, &silent, None, at(61));
        health.expect_mark(&silent);
        let marked = node(&json!([
            {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}
        ]));
        assert!(Health::observe(Some(&health), &marked, None, at(66)).is_expired(&GRACES, at(66)));
    }

    /// Proves NLC-25, NLC-26, NLC-27.
    #[test]
    fn the_conditions_of_a_silent_node_say_that_nobody_can_tell() {
        let now = Time::from_unix_seconds(1_800_000_100);
        let posted = node(&json!([
            {"type": "NetworkUnavailable", "status": "False"},
            {"type": "DiskPressure", "status": "Unknown", "reason": "Mine"},
            {"type": "PIDPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        ]));
        let stopped = |name: &str| {
            json!({
                "type": name, "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2027-01-15T08:01:40Z",
            })
        };
        let never = |name: &str| {
            json!({
                "type": name, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": "2027-01-15T08:00:00Z", "lastTransitionTime": "2027-01-15T08:01:40Z",
            })
        };
        assert_eq!(
            unknown_status(&posted, now),
            Some(json!({"conditions": [stopped("Ready"), never("MemoryPressure"), stopped("PIDPressure")]}))
        );
        assert_eq!(unknown_status(&node(&json!([])), now), Some(json!({"conditions": SILENCED.map(never)})));
    }

    /// Proves NLC-28.
    #[test]
    fn a_node_that_is_known_to_be_silent_is_not_written_to() {
        let known = node(&json!([{"type": "Ready", "status": "Unknown"}]));
        assert_eq!(unknown_status(&known, Time::from_unix_seconds(0)), None);
    }
}
