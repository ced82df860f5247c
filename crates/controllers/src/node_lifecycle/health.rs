//! When the last heartbeat of a node was observed, on this process's own clock.
//!
//! Timestamps written by a node are never compared with the local clock, only with earlier ones of the same
//! node: any change is a heartbeat received now. So clock skew of nodes does no harm.

use std::time::Duration;

use keleustes_objects::{
    Condition, Conditions as _, FALSE, Lease, MicroTime, Node, TRUE, Time, UNKNOWN, Uid,
};
use keleustes_plan::Now;
use serde_json::{Value, json};

/// How long a node may go without heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriods {
    /// After the kubelet posted a status (`--node-monitor-grace-period`).
    pub monitor: Duration,
    /// Before the first status (`--node-startup-grace-period`).
    pub startup: Duration,
}

/// The status of the `Ready` condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    True,
    False,
    Unknown,
    /// A value outside the API.
    Other,
}

/// The status of a node's `Ready` condition, if it has one.
pub(super) fn ready(node: &Node) -> Option<Ready> {
    node.conditions.of_type("Ready").map(|ready| match ready.status.as_str() {
        TRUE => Ready::True,
        FALSE => Ready::False,
        UNKNOWN => Ready::Unknown,
        _ => Ready::Other,
    })
}

/// When the last heartbeat of a node was observed, and the timestamps it had then. Parity: nodeHealthData.
///
/// Lost on failover. The new leader treats every node with a status as if its heartbeat had just been
/// received, so an unreachable node gets its full grace period once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// UID of the node.
    pub(super) uid: Uid,
    probe_time: ProbeTime,
    /// `lastHeartbeatTime` of the `Ready` condition, if it has one.
    ready: Option<Option<Time>>,
    /// `renewTime` of the Lease, if it exists.
    lease: Option<Option<MicroTime>>,
}

/// A moment relative to the monotonic clock; it may lie before the clock's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProbeTime {
    at: Duration,
    /// How long before `at`.
    earlier: Duration,
}

impl ProbeTime {
    fn now(now: Now) -> Self {
        Self { at: now.monotonic, earlier: Duration::ZERO }
    }

    /// At a wall-clock time, or now if that is in the future.
    fn at(moment: Time, now: Now) -> Self {
        let seconds = u64::try_from(now.wall.seconds_since(moment)).unwrap_or(0);
        Self { at: now.monotonic, earlier: Duration::from_secs(seconds) }
    }

    fn ago(self, now: Now) -> Duration {
        now.monotonic.saturating_sub(self.at).saturating_add(self.earlier)
    }
}

impl Health {
    /// A node observed for the first time. Without status, its grace period starts at its creation; otherwise
    /// it counts as a heartbeat received now.
    fn first_observed(node: &Node, now: Now) -> Self {
        let probe_time = match (heartbeat(node), node.meta.creation_timestamp) {
            (None, Some(created_at)) => ProbeTime::at(created_at, now),
            _ => ProbeTime::now(now),
        };
        Self { uid: node.meta.uid.clone(), probe_time, ready: heartbeat(node), lease: None }
    }

    /// Compares a node and its Lease with `before`: any change is a heartbeat.
    pub(super) fn observe(last: Option<&Self>, node: &Node, lease: Option<&Lease>, now: Now) -> Self {
        let Some(last) = last.filter(|last| last.uid == node.meta.uid) else {
            let mut first = Self::first_observed(node, now);
            if let Some(lease) = lease {
                first.lease = Some(lease.renew_time);
                first.probe_time = ProbeTime::now(now);
            }
            return first;
        };
        let mut health = last.clone();
        if last.ready != heartbeat(node) {
            health.ready = heartbeat(node);
            health.probe_time = ProbeTime::now(now);
        }
        if let Some(lease) = lease.filter(|lease| last.is_before_renewal(lease)) {
            health.lease = Some(lease.renew_time);
            health.probe_time = ProbeTime::now(now);
        }
        health
    }

    /// Whether a Lease is the first one, or was renewed since. An earlier renewTime is a renewal, too: the clock of the node was set
    /// back, and would otherwise have to reach the earlier time again before its renewals count.
    pub(super) fn is_before_renewal(&self, lease: &Lease) -> bool {
        self.lease.is_none_or(|saved| lease.renew_time.is_some() && lease.renew_time != saved)
    }

    /// Whether the grace period has expired.
    pub(super) fn is_expired(&self, grace_periods: &GracePeriods, now: Now) -> bool {
        let grace = if self.ready.is_some() { grace_periods.monitor } else { grace_periods.startup };
        self.probe_time.ago(now) > grace
    }

    /// Records a condition that this process has written, so that it does not count as a heartbeat.
    pub(super) fn expect_unknown_condition(&mut self, node: &Node) {
        self.ready.get_or_insert(node.meta.creation_timestamp);
    }

    /// Restarts the grace period.
    pub(super) fn reset_probe_timestamp(&mut self, now: Now) {
        self.probe_time = ProbeTime::now(now);
    }
}

fn heartbeat(node: &Node) -> Option<Option<Time>> {
    node.conditions.of_type("Ready").map(|ready| ready.last_heartbeat_time)
}

/// The conditions set to `Unknown` when a kubelet stops posting status.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The status patch for a node without heartbeat; `None` if `Ready` is already `Unknown`.
/// `NetworkUnavailable` is not set by the kubelet, so it is left as it is.
pub(super) fn unknown_status(node: &Node, now: Time) -> Option<Value> {
    if ready(node) == Some(Ready::Unknown) {
        return None;
    }
    let conditions = KUBELET_CONDITIONS.iter().filter_map(|name| match node.conditions.of_type(name) {
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

    /// This many seconds after the clocks started; the wall time matters only for the age of nodes.
    fn at(seconds: u64) -> Now {
        Now {
            wall: Time::from_unix_seconds(1_800_000_000).plus_seconds(i64::try_from(seconds).unwrap()),
            wall_subsecond_nanoseconds: 0,
            monotonic: Duration::from_secs(seconds),
        }
    }

    fn node(conditions: &Value) -> Node {
        let metadata = json!({"name": "n", "uid": "n", "creationTimestamp": "2027-01-15T08:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    fn with_heartbeat(heartbeat: &str) -> Node {
        let time = format!("2026-01-01T00:00:{heartbeat}Z");
        node(&json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]))
    }

    fn lease(renewed_at: Option<&str>) -> Lease {
        let renewed_at = renewed_at.map(|time| format!("2026-01-01T00:00:{time}.000000Z"));
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"renewTime": renewed_at}})).unwrap()
    }

    /// The second at which the grace period of a node observed in these states expires.
    fn expires_at(observations: &[(u64, &Node, Option<&Lease>)]) -> u64 {
        let mut health = None;
        for (second, node, lease) in observations {
            health = Some(Health::observe(health.as_ref(), node, *lease, at(*second)));
        }
        let health = health.unwrap();
        (0..10_000).find(|second| health.is_expired(&GRACES, at(*second))).unwrap()
    }

    /// Proves NLC-18, NLC-20, NLC-24, NLC-79, NLC-83.
    #[test]
    fn first_observation_of_a_node_with_status_counts_as_heartbeat() {
        // Its heartbeat is a year old, which indicates a wrong clock, not a dead node.
        assert_eq!(expires_at(&[(100, &with_heartbeat("00"), None)]), 151);
        assert_eq!(
            expires_at(&[(100, &with_heartbeat("00"), None), (140, &with_heartbeat("00"), None)]),
            151
        );
    }

    /// Proves NLC-19.
    #[test]
    fn grace_period_of_a_node_without_status_starts_at_creation() {
        // It was created at second 0.
        assert_eq!(expires_at(&[(10, &node(&json!([])), None)]), 61);
        let other = node(&json!([{"type": "MemoryPressure", "status": "False"}]));
        assert_eq!(expires_at(&[(10, &other, None)]), 61);
        // It does not matter that the monotonic clock started later.
        let mut health =
            Health::observe(None, &node(&json!([])), None, Now { monotonic: Duration::ZERO, ..at(70) });
        assert!(health.is_expired(&GRACES, Now { monotonic: Duration::ZERO, ..at(70) }));
        health.reset_probe_timestamp(at(70));
        assert!(!health.is_expired(&GRACES, at(130)) && health.is_expired(&GRACES, at(131)));
    }

    /// Proves NLC-21.
    #[test]
    fn added_or_removed_ready_condition_is_a_heartbeat() {
        assert_eq!(expires_at(&[(10, &node(&json!([])), None), (40, &with_heartbeat("00"), None)]), 91);
        assert_eq!(expires_at(&[(10, &with_heartbeat("00"), None), (40, &node(&json!([])), None)]), 101);
        assert_eq!(expires_at(&[(10, &node(&json!([])), None), (40, &node(&json!([])), None)]), 61);
    }

    /// Proves NLC-22, NLC-83.
    #[test]
    fn changed_heartbeat_time_is_a_heartbeat_even_if_earlier() {
        assert_eq!(expires_at(&[(10, &with_heartbeat("30"), None), (40, &with_heartbeat("31"), None)]), 91);
        assert_eq!(expires_at(&[(10, &with_heartbeat("30"), None), (40, &with_heartbeat("29"), None)]), 91);
        let unready =
            node(&json!([{"type": "Ready", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:30Z"}]));
        assert_eq!(
            expires_at(&[(10, &with_heartbeat("30"), None), (40, &unready, None)]),
            61,
            "a changed condition status is no heartbeat"
        );
    }

    /// Proves NLC-23, NLC-83, NLC-84.
    #[test]
    fn renewed_lease_alone_is_a_heartbeat() {
        let (early, late) = (lease(Some("10")), lease(Some("20")));
        let (never, node_with_heartbeat) = (lease(None), with_heartbeat("00"));
        assert_eq!(
            expires_at(&[(10, &node_with_heartbeat, None), (40, &node_with_heartbeat, Some(&early))]),
            91
        );
        assert_eq!(
            expires_at(&[(10, &node_with_heartbeat, Some(&early)), (40, &node_with_heartbeat, Some(&late))]),
            91
        );
        assert_eq!(
            expires_at(&[(10, &node_with_heartbeat, Some(&early)), (40, &node_with_heartbeat, Some(&early))]),
            61
        );
        assert_eq!(
            expires_at(&[(10, &node_with_heartbeat, Some(&late)), (40, &node_with_heartbeat, Some(&early))]),
            91,
            "the clock of the node was set back"
        );
        assert_eq!(
            expires_at(&[(10, &node_with_heartbeat, Some(&late)), (40, &node_with_heartbeat, Some(&never))]),
            61,
            "a missing renewTime is no renewal"
        );
        assert_eq!(
            expires_at(&[(10, &node_with_heartbeat, Some(&early)), (40, &node_with_heartbeat, None)]),
            61
        );
        assert_eq!(expires_at(&[(10, &node(&json!([])), Some(&early))]), 71, "also without a status");
        assert_eq!(
            expires_at(&[
                (10, &node_with_heartbeat, None),
                (40, &node_with_heartbeat, Some(&never)),
                (45, &node_with_heartbeat, Some(&never))
            ]),
            91
        );
    }

    #[test]
    fn node_recreated_with_another_uid_starts_a_new_grace_period() {
        let mut other = with_heartbeat("00");
        other.meta.uid = "other".into();
        assert_eq!(expires_at(&[(10, &with_heartbeat("00"), None), (40, &other, None)]), 91);
    }

    #[test]
    fn condition_written_by_the_controller_is_no_heartbeat() {
        let without_status = node(&json!([]));
        let mut health = Health::observe(None, &without_status, None, at(61));
        health.expect_unknown_condition(&without_status);
        let marked = node(&json!([
            {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}
        ]));
        assert!(Health::observe(Some(&health), &marked, None, at(66)).is_expired(&GRACES, at(66)));
    }

    /// Proves NLC-25, NLC-26, NLC-27.
    #[test]
    fn conditions_of_a_node_without_heartbeat_become_unknown() {
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
        assert_eq!(
            unknown_status(&node(&json!([])), now),
            Some(json!({"conditions": KUBELET_CONDITIONS.map(never)}))
        );
    }

    /// Proves NLC-28.
    #[test]
    fn node_already_unknown_is_not_patched() {
        let known = node(&json!([{"type": "Ready", "status": "Unknown"}]));
        assert_eq!(unknown_status(&known, Time::from_unix_seconds(0)), None);
    }
}
