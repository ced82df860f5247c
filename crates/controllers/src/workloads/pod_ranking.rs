//! Which pods are deleted first on scale-down: the least useful ones, and of equals the youngest.
//!
//! Ages are compared by their order of magnitude, so that the choice among pods of about the same age is
//! close to random and a scale-down does not remove all pods of one age.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{InternedStr, Pod, PodPhase, Time, Uid};

/// The inputs of the ranking beside the pods themselves.
pub(crate) struct Ranking<'a> {
    /// The time from which ages are measured.
    pub(crate) now: Time,
    /// Active pods of related ReplicaSets per node: pods on the fullest nodes are deleted first.
    pub(crate) active_pods_per_node: &'a BTreeMap<InternedStr, usize>,
    /// Whether the pod-deletion-cost annotation counts.
    pub(crate) honor_deletion_cost: bool,
}

/// Sorts pods; the first to be deleted comes first.
pub(crate) fn sort_for_deletion(pods: &mut [Arc<Pod>], ranking: &Ranking<'_>) {
    let ready_times = SameTimePods::of(pods, |pod| pod.ready_since());
    let creation_times = SameTimePods::of(pods, |pod| pod.meta.creation_timestamp);
    pods.sort_by_cached_key(|pod| {
        let pods_on_node = ranking.active_pods_per_node.get(&pod.node_name).copied().unwrap_or(0);
        let ready_age = pod.is_ready().then(|| ready_times.age(pod.ready_since(), ranking.now));
        let (restarts, sidecar_restarts) = pod.max_restarts();
        (
            (!pod.node_name.is_empty(), phase_rank(pod.phase), pod.is_ready()),
            if ranking.honor_deletion_cost { deletion_cost(pod) } else { 0 },
            Reverse(pods_on_node),
            ready_age,
            (Reverse(restarts), Reverse(sidecar_restarts)),
            creation_times.age(pod.meta.creation_timestamp, ranking.now),
            pod.meta.uid.clone(),
        )
    });
}

/// The rank of a phase: pending before unknown before running.
pub(crate) fn phase_rank(phase: PodPhase) -> u8 {
    match phase {
        PodPhase::Unknown => 1,
        PodPhase::Running => 2,
        _ => 0,
    }
}

/// The value of the pod-deletion-cost annotation; 0 if it is not a plain number. Leading zeros are allowed
/// after a minus: the API server admits such numbers, and the original parses them.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.deletion_cost().unwrap_or_default();
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain).unwrap_or(0)
}

/// For each second, the smallest UID of the pods that became ready or were created in it.
///
/// Two pods whose ages differ but have the same magnitude are ordered by UID; two pods of exactly the same
/// age are ordered by the remaining criteria. To make one total order of both rules, the smallest UID stands
/// for all pods of a second.
struct SameTimePods(BTreeMap<Time, Uid>);

/// A sortable age: its magnitude, then the UID that stands for its second.
type Age = (i64, Option<Uid>);

impl SameTimePods {
    fn of(pods: &[Arc<Pod>], since: impl Fn(&Pod) -> Option<Time>) -> Self {
        let mut smallest: BTreeMap<Time, Uid> = BTreeMap::new();
        for pod in pods {
            let Some(since) = since(pod) else { continue };
            let uid = smallest.entry(since).or_insert_with(|| pod.meta.uid.clone());
            if pod.meta.uid < *uid {
                *uid = pod.meta.uid.clone();
            }
        }
        Self(smallest)
    }

    /// A pod without a time counts as the youngest.
    fn age(&self, since: Option<Time>, now: Time) -> Age {
        since.map_or((i64::MIN, None), |since| (magnitude(since, now), self.0.get(&since).cloned()))
    }
}

/// The power of two below an age in nanoseconds; -1 for a time that is not in the past.
fn magnitude(since: Time, now: Time) -> i64 {
    let seconds = now.unix_seconds().saturating_sub(since.unix_seconds());
    let nanoseconds = seconds.saturating_mul(1_000_000_000);
    if nanoseconds <= 0 { -1 } else { i64::from(nanoseconds.ilog2()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A bound, running pod, ready for one day and created two days ago. The current time is 08:00:00.
    fn pod(uid: &str) -> Value {
        json!({
            "metadata": {"name": uid, "namespace": "a", "uid": uid, "creationTimestamp": "2027-01-13T08:00:00Z"},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}],
                     "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-14T08:00:00Z"}],
            },
        })
    }

    fn pod_with(pointer: &str, value: impl Into<Value>) -> Value {
        let (mut pod, (parent, field)) = (pod("b"), pointer.rsplit_once('/').unwrap());
        pod.pointer_mut(parent).unwrap()[field] = value.into();
        pod
    }

    fn order(pods: [Value; 2], active_pods_per_node: &BTreeMap<InternedStr, usize>) -> [String; 2] {
        let mut pods = pods.map(|pod| Arc::new(serde_json::from_value::<Pod>(pod).unwrap()));
        let now = Time::from_unix_seconds(1_800_000_000);
        sort_for_deletion(&mut pods, &Ranking { now, active_pods_per_node, honor_deletion_cost: true });
        pods.map(|pod| pod.meta.uid.to_string())
    }

    /// Checks that `b` is deleted before a plain pod `a` in spite of its larger UID, for both input orders.
    #[track_caller]
    fn assert_deleted_first(b: Value) {
        assert_deleted_before(b, pod("a"));
    }

    #[track_caller]
    fn assert_deleted_before(b: Value, a: Value) {
        let active_pods_per_node =
            BTreeMap::from([(InternedStr::from("full"), 3), (InternedStr::from("n"), 2)]);
        assert_eq!(order([a.clone(), b.clone()], &active_pods_per_node), ["b", "a"]);
        assert_eq!(order([b, a], &active_pods_per_node), ["b", "a"]);
    }

    /// Proves RS-45, RS-46, RS-47, INF-111, INF-112.
    #[test]
    fn unbound_pending_and_unready_pods_are_deleted_first() {
        assert_deleted_first(pod_with("/spec/nodeName", ""));
        for phase in ["Pending", "Unknown", "Running"] {
            // An unbound pod is deleted first whatever its phase.
            let mut a = pod("a");
            a["status"]["phase"] = json!("Pending");
            let mut b = pod_with("/spec/nodeName", "");
            b["status"]["phase"] = json!(phase);
            assert_deleted_before(b, a);
        }
        assert_deleted_first(pod_with("/status/phase", "Pending"));
        assert_deleted_first(pod_with("/status/phase", "Unknown"));
        let mut unknown = pod("a");
        unknown["status"]["phase"] = json!("Unknown");
        assert_deleted_before(pod_with("/status/phase", "Pending"), unknown.clone());
        // An unknown phase counts as pending.
        assert_deleted_before(pod_with("/status/phase", ""), unknown);
        assert_deleted_first(pod_with("/status/conditions/0/status", "False"));
    }

    /// Proves RS-48, INF-114.
    #[test]
    fn pods_with_lower_deletion_cost_are_deleted_first() {
        let costing = |text: &str| {
            pod_with("/metadata/annotations", json!({"controller.kubernetes.io/pod-deletion-cost": text}))
        };
        for (text, cost) in [
            ("-1", -1),
            ("-05", -5),
            ("0", 0),
            ("7", 7),
            ("2147483647", i32::MAX),
            ("+7", 0),
            ("07", 0),
            ("", 0),
            ("7x", 0),
            ("2147483648", 0),
        ] {
            let pod: Pod = serde_json::from_value(costing(text)).unwrap();
            assert_eq!(deletion_cost(&pod), cost, "{text}");
        }
        assert_deleted_first(costing("-1"));
        // An unready pod is deleted first whatever its cost.
        let mut unready = pod_with("/status/conditions/0/status", "False");
        unready["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "9"});
        assert_deleted_first(unready);
    }

    /// Proves RS-49.
    #[test]
    fn pods_on_the_fullest_node_are_deleted_first() {
        assert_deleted_first(pod_with("/spec/nodeName", "full"));
    }

    /// Proves RS-51, RS-53, INF-115, INF-116.
    #[test]
    fn younger_pods_are_deleted_first_by_magnitude_of_age() {
        const READY: &str = "/status/conditions/0/lastTransitionTime";
        assert_deleted_first(pod_with(READY, "2027-01-15T07:00:00Z"));
        assert_deleted_first(pod_with(READY, Value::Null));
        assert_deleted_first(pod_with("/metadata/creationTimestamp", "2027-01-15T07:00:00Z"));
        assert_deleted_first(pod_with("/metadata/creationTimestamp", Value::Null));
        // A time in the future counts as the youngest age.
        assert_deleted_first(pod_with(READY, "2027-01-15T09:00:00Z"));
        // The ready time is compared before the creation time.
        let mut young = pod("a");
        young["metadata"]["creationTimestamp"] = json!("2027-01-15T07:00:00Z");
        assert_deleted_before(pod_with(READY, "2027-01-15T07:00:00Z"), young);
        // The ages differ by one minute in a day: the same magnitude, so the UID decides.
        let older = |at: &str| [pod("a"), pod_with(READY, at)];
        assert_eq!(order(older("2027-01-14T08:01:00Z"), &BTreeMap::new()), ["a", "b"]);
        assert_eq!(order(older("2027-01-14T07:59:00Z"), &BTreeMap::new()), ["a", "b"]);
    }

    /// Proves RS-52, INF-117.
    #[test]
    fn pods_with_more_restarts_are_deleted_first() {
        let restarts = |list: &str, name: &str, count: u32| {
            let mut status = pod("b")["status"].take();
            status[list] = json!([{"name": name, "restartCount": count}]);
            pod_with("/status", status)
        };
        assert_deleted_first(restarts("containerStatuses", "c", 3));
        assert_deleted_first(restarts("initContainerStatuses", "s", 3));
        // Restarts of init containers that terminate do not count.
        assert_eq!(
            order([pod("a"), restarts("initContainerStatuses", "i", 3)], &BTreeMap::new()),
            ["a", "b"]
        );
        let mut regular = pod("a");
        regular["status"]["initContainerStatuses"] = json!([{"name": "s", "restartCount": 9}]);
        assert_deleted_before(restarts("containerStatuses", "c", 1), regular);
        // Restarts are compared before the creation time.
        let mut young = pod("a");
        young["metadata"]["creationTimestamp"] = json!("2027-01-15T07:00:00Z");
        assert_deleted_before(restarts("containerStatuses", "c", 1), young);
    }
}
