//! Changes the taints of nodes without losing concurrent changes.
//!
//! A node's taints are one list with several writers. So each patch carries the resourceVersion it is based
//! on; on a conflict the node is read live, and the change is applied again if it still makes sense.

use std::sync::Arc;

use keleustes_objects::taint_keys::{NOT_READY, UNREACHABLE};
use keleustes_objects::{
    ErrorReason, InternedStr, Key, NO_EXECUTE, Node, Object as _, ResourceVersion, Taint, Time,
};
use keleustes_plan::{Context, OnFailure, Outcome, PatchKind, Plan, Write};
use serde_json::{Value, json};

use super::health::{Ready, ready};

/// Attempts to apply a change, with a live read after each conflict.
const PATCH_ATTEMPTS: usize = 5;

/// The `NoExecute` taints for unhealthy nodes.
const NO_EXECUTE_TAINTS: [&str; 2] = [NOT_READY, UNREACHABLE];

/// The `NoExecute` taint that the `Ready` condition requires.
pub(super) fn wanted_taint(ready: Option<Ready>) -> Option<&'static str> {
    match ready? {
        Ready::False => Some(NOT_READY),
        Ready::Unknown => Some(UNREACHABLE),
        Ready::True | Ready::Other => None,
    }
}

/// Whether a node has the other one of the two `NoExecute` taints.
pub(super) fn has_other_no_execute_taint(node: &Node, key: &str) -> bool {
    NO_EXECUTE_TAINTS
        .iter()
        .any(|no_execute_taint| *no_execute_taint != key && node.has_taint(no_execute_taint, NO_EXECUTE))
}

/// Whether a node has one of the two `NoExecute` taints.
pub(super) fn has_no_execute_taint(node: &Node) -> bool {
    NO_EXECUTE_TAINTS.iter().any(|no_execute_taint| node.has_taint(no_execute_taint, NO_EXECUTE))
}

/// The wanted `NoExecute` taints of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaintGoal {
    /// Neither of the two.
    Remove,
    /// This one, and not the other.
    Set(&'static str),
}

/// A change to the taints of one node.
#[derive(Clone, Debug)]
pub(super) struct TaintChange {
    pub(super) node: Arc<Node>,
    /// The resourceVersion that the change is based on: that of the cached node, or of this process's last
    /// write.
    pub(super) version: ResourceVersion,
    pub(super) goal: TaintGoal,
}

impl TaintChange {
    pub(super) fn of(node: &Arc<Node>, goal: TaintGoal) -> Self {
        Self { node: node.clone(), version: node.meta.resource_version.clone(), goal }
    }

    /// The new list of taints; `None` if nothing changes.
    fn taints(&self, now: Time) -> Option<Vec<Taint>> {
        let wanted_key = match self.goal {
            TaintGoal::Remove => None,
            TaintGoal::Set(key) => Some(key),
        };
        let has = |key: &&str| self.node.has_taint(key, NO_EXECUTE);
        let missing: Vec<&str> = wanted_key.into_iter().filter(|key| !has(key)).collect();
        let obsolete: Vec<&str> =
            NO_EXECUTE_TAINTS.into_iter().filter(|key| Some(*key) != wanted_key && has(key)).collect();
        if missing.is_empty() && obsolete.is_empty() {
            return None;
        }
        Some(updated_taints(&self.node.taints, NO_EXECUTE, &missing, &obsolete, now))
    }

    /// The same change on the live node, if it still makes sense: a node that has become ready must not lose
    /// its pods.
    fn rebased(self, live: Node) -> Option<Self> {
        let still_required = |key| wanted_taint(ready(&live)) == Some(key);
        let makes_sense = live.meta.uid == self.node.meta.uid
            && match self.goal {
                TaintGoal::Remove => true,
                TaintGoal::Set(key) => still_required(key),
            };
        makes_sense.then(|| Self::of(&Arc::new(live), self.goal))
    }
}

/// The taints with some added at `now` and some removed. A taint is identified by key and effect.
pub(super) fn updated_taints(
    taints: &[Taint],
    effect: &str,
    add: &[&str],
    remove: &[&str],
    now: Time,
) -> Vec<Taint> {
    let is_kept = |taint: &&Taint| !add.iter().chain(remove).any(|key| taint.is(key, effect));
    let added = add.iter().map(|key| Taint {
        key: InternedStr::from(*key),
        value: InternedStr::default(),
        effect: InternedStr::from(effect),
        time_added: Some(now),
    });
    taints.iter().filter(is_kept).cloned().chain(added).collect()
}

/// Patches the taints of a node with a resourceVersion precondition.
pub(super) fn patch(
    node: &Node,
    version: &ResourceVersion,
    taints: &[Taint],
    because: &'static str,
) -> Write {
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    let body = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
    Write::patch(node, PatchKind::Strategic, body).because(because)
}

/// Applies changes in parallel and returns the keys of the nodes that have the wanted taints now.
pub(super) async fn apply_changes(
    cx: &mut Context<'_>,
    changes: Vec<TaintChange>,
    because: &'static str,
) -> Vec<Key> {
    let (mut applied, mut remaining) = (Vec::new(), changes);
    for _ in 0..PATCH_ATTEMPTS {
        let now = cx.gather(|view| view.now().wall);
        let (mut plan, mut writes, mut sent) = (Plan::none(), Vec::new(), Vec::new());
        for change in remaining {
            match change.taints(now) {
                None => applied.push(change.node.key().clone()),
                Some(taints) => {
                    let write = patch(&change.node, &change.version, &taints, because);
                    writes.push(write.on_failure(OnFailure::LogOnly));
                    sent.push(change);
                }
            }
        }
        if writes.is_empty() {
            break;
        }
        plan.push_parallel(writes);
        let mut conflicting = Vec::new();
        for (change, outcome) in sent.into_iter().zip(cx.apply(plan).await.outcomes) {
            match outcome {
                Outcome::Done { .. } => applied.push(change.node.key().clone()),
                Outcome::Failed(failure) if failure.reason == ErrorReason::Conflict => {
                    conflicting.push(change);
                }
                _ => {}
            }
        }
        let keys: Vec<Key> = conflicting.iter().map(|change| change.node.key().clone()).collect();
        let answers = cx.fetch_all::<Node>(&keys).await;
        let live_nodes = conflicting.into_iter().zip(answers);
        remaining = live_nodes.filter_map(|(change, live)| change.rebased(live.ok()??)).collect();
    }
    applied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: &Value) -> Arc<Node> {
        let json = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "7"}, "spec": {"taints": taints}});
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn no_execute_taint(key: &str) -> Value {
        json!({"key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"})
    }

    fn result(taints: &Value, goal: TaintGoal) -> Option<Value> {
        let change = TaintChange::of(&node(taints), goal);
        change.taints(Time::from_unix_seconds(1_800_000_000)).map(|taints| json!(taints))
    }

    /// Proves NLC-42.
    #[test]
    fn ready_condition_requires_one_taint_or_none() {
        assert_eq!(wanted_taint(Some(Ready::False)), Some(NOT_READY));
        assert_eq!(wanted_taint(Some(Ready::Unknown)), Some(UNREACHABLE));
        for none in [Some(Ready::True), Some(Ready::Other), None] {
            assert_eq!(wanted_taint(none), None);
        }
    }

    /// Proves NLC-66, NLC-67, NLC-92.
    #[test]
    fn one_patch_adds_and_removes_taints_and_keeps_others() {
        let other = json!({"key": "gpu", "value": "yes", "effect": "NoExecute"});
        let no_schedule = json!({"key": NOT_READY, "effect": "NoSchedule"});
        let now = json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2027-01-15T08:00:00Z"});
        assert_eq!(
            result(&json!([other, no_execute_taint(NOT_READY), no_schedule]), TaintGoal::Set(UNREACHABLE)),
            Some(json!([other, no_schedule, now]))
        );
        assert_eq!(
            result(&json!([no_execute_taint(UNREACHABLE)]), TaintGoal::Set(UNREACHABLE)),
            None,
            "timeAdded is kept"
        );
        assert_eq!(
            result(
                &json!([no_execute_taint(UNREACHABLE), no_execute_taint(NOT_READY)]),
                TaintGoal::Set(UNREACHABLE)
            ),
            Some(json!([no_execute_taint(UNREACHABLE)]))
        );
        let by_a_user = json!({"key": NOT_READY, "value": "mine", "effect": "NoExecute"});
        assert_eq!(result(&json!([by_a_user, other]), TaintGoal::Remove), Some(json!([other])));
        assert_eq!(result(&json!([by_a_user]), TaintGoal::Set(NOT_READY)), None, "a user's own one stays");
        assert_eq!(
            result(&json!([by_a_user, no_execute_taint(UNREACHABLE)]), TaintGoal::Set(NOT_READY)),
            Some(json!([by_a_user])),
            "also if another one is removed"
        );
        assert_eq!(result(&json!([other]), TaintGoal::Remove), None);
        let twice = updated_taints(
            &node(&json!([by_a_user])).taints,
            NO_EXECUTE,
            &[NOT_READY],
            &[],
            Time::from_unix_seconds(0),
        );
        assert_eq!(
            json!(twice),
            json!([{"key": NOT_READY, "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"}])
        );
    }

    /// Proves NLC-64, INF-120.
    #[test]
    fn patch_has_uid_and_resource_version_preconditions() {
        let node = node(&json!([no_execute_taint(NOT_READY)]));
        let write = patch(&node, &node.meta.resource_version, &[], "test");
        assert_eq!(
            (write.verb(), write.subresource(), write.target.uid.to_string()),
            ("patch", "", "n".to_owned())
        );
        let keleustes_plan::Action::Patch { body, form: PatchKind::Strategic, .. } = write.action else {
            panic!("a patch")
        };
        assert_eq!(body, json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": null}}));
    }
}
