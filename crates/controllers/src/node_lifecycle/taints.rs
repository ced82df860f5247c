//! Changes to the taints of nodes, made so that nobody else's change is lost.
//!
//! A node's taints are one list that several write to. So each patch names the state it was made from,
//! and if the node has moved on, it is read afresh and the change is made again, if it still makes sense.

use std::sync::Arc;

use keleustes_objects::taint_keys::{NOT_READY, UNREACHABLE};
use keleustes_objects::{
    ErrorReason, InternedStr, Key, NO_EXECUTE, Node, Object as _, ResourceVersion, Taint, Time,
};
use keleustes_plan::{Context, OnFailure, Outcome, PatchKind, Plan, Write};
use serde_json::{Value, json};

use super::health::{Ready, ready};

/// How often a change is made again because the node has moved on.
const TRIES: usize = 5;

/// The `NoExecute` taints that say that a node is lost.
const LOST: [&str; 2] = [NOT_READY, UNREACHABLE];

/// The `NoExecute` taint that the state of a node asks for.
pub(super) fn wanted(ready: Option<Ready>) -> Option<&'static str> {
    match ready? {
        Ready::False => Some(NOT_READY),
        Ready::Unknown => Some(UNREACHABLE),
        Ready::True | Ready::Other => None,
    }
}

/// Whether a node is said to be lost in another way than this one.
pub(super) fn has_other_no_execute_taint(node: &Node, key: &str) -> bool {
    LOST.iter().any(|lost| *lost != key && node.has_taint(lost, NO_EXECUTE))
}

/// Whether a node is said to be lost.
pub(super) fn is_lost(node: &Node) -> bool {
    LOST.iter().any(|lost| node.has_taint(lost, NO_EXECUTE))
}

/// What the `NoExecute` taints of a node are to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Neither of the two that say that it is lost.
    Clear,
    /// This one of the two, and not the other.
    Lost(&'static str),
}

/// A node whose taints are to change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) node: Arc<Node>,
    /// The state that the change is made from: the node's own, or the one that we have led it to since.
    pub(super) version: ResourceVersion,
    pub(super) goal: Goal,
}

impl Change {
    pub(super) fn of(node: &Arc<Node>, goal: Goal) -> Self {
        Self { node: node.clone(), version: node.meta.resource_version.clone(), goal }
    }

    /// The taints that the node is to have, if that is a change.
    fn taints(&self, now: Time) -> Option<Vec<Taint>> {
        let wanted = match self.goal {
            Goal::Clear => None,
            Goal::Lost(key) => Some(key),
        };
        let has = |key: &&str| self.node.has_taint(key, NO_EXECUTE);
        let missing: Vec<&str> = wanted.into_iter().filter(|key| !has(key)).collect();
        let superfluous: Vec<&str> =
            LOST.into_iter().filter(|key| Some(*key) != wanted && has(key)).collect();
        if missing.is_empty() && superfluous.is_empty() {
            return None;
        }
        Some(changed(&self.node.taints, NO_EXECUTE, &missing, &superfluous, now))
    }

    /// The same change to the node as it is now, if it still makes sense: a node that has come back
    /// meanwhile must not lose its pods.
    fn again(self, live: Node) -> Option<Self> {
        let still_lost = |key| wanted(ready(&live)) == Some(key);
        let makes_sense = live.meta.uid == self.node.meta.uid
            && match self.goal {
                Goal::Clear => true,
                Goal::Lost(key) => still_lost(key),
            };
        makes_sense.then(|| Self::of(&Arc::new(live), self.goal))
    }
}

/// Taints with some added, at this time, and some taken away. What tells taints apart is key and effect.
pub(super) fn changed(
    taints: &[Taint],
    effect: &str,
    add: &[&str],
    remove: &[&str],
    now: Time,
) -> Vec<Taint> {
    let stays = |taint: &&Taint| !add.iter().chain(remove).any(|key| taint.is(key, effect));
    let added = add.iter().map(|key| Taint {
        key: InternedStr::from(*key),
        value: InternedStr::default(),
        effect: InternedStr::from(effect),
        time_added: Some(now),
    });
    taints.iter().filter(stays).cloned().chain(added).collect()
}

/// Patches the taints of a node in this state and no other.
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

/// Makes changes, all at once, and tells the names of the nodes that are as they should be now.
pub(super) async fn settle(cx: &mut Context<'_>, changes: Vec<Change>, because: &'static str) -> Vec<Key> {
    let (mut settled, mut left) = (Vec::new(), changes);
    for _ in 0..TRIES {
        let now = cx.gather(|view| view.now().wall);
        let (mut plan, mut writes, mut sent) = (Plan::none(), Vec::new(), Vec::new());
        for change in left {
            match change.taints(now) {
                None => settled.push(change.node.key().clone()),
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
        let mut moved_on = Vec::new();
        for (change, outcome) in sent.into_iter().zip(cx.apply(plan).await.outcomes) {
            match outcome {
                Outcome::Done { .. } => settled.push(change.node.key().clone()),
                Outcome::Failed(failure) if failure.reason == ErrorReason::Conflict => moved_on.push(change),
                _ => {}
            }
        }
        let keys: Vec<Key> = moved_on.iter().map(|change| change.node.key().clone()).collect();
        let answers = cx.fetch_all::<Node>(&keys).await;
        let afresh = moved_on.into_iter().zip(answers);
        left = afresh.filter_map(|(change, live)| change.again(live.ok()??)).collect();
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: &Value) -> Arc<Node> {
        let json = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "7"}, "spec": {"taints": taints}});
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn lost(key: &str) -> Value {
        json!({"key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"})
    }

    fn reached(taints: &Value, goal: Goal) -> Option<Value> {
        let change = Change::of(&node(taints), goal);
        change.taints(Time::from_unix_seconds(1_800_000_000)).map(|taints| json!(taints))
    }

    /// Proves NLC-42.
    #[test]
    fn the_state_of_a_node_asks_for_one_taint_or_none() {
        assert_eq!(wanted(Some(Ready::False)), Some(NOT_READY));
        assert_eq!(wanted(Some(Ready::Unknown)), Some(UNREACHABLE));
        for none in [Some(Ready::True), Some(Ready::Other), None] {
            assert_eq!(wanted(none), None);
        }
    }

    /// Proves NLC-66, NLC-67, NLC-92.
    #[test]
    fn one_patch_adds_and_takes_away_and_leaves_others_alone() {
        let other = json!({"key": "gpu", "value": "yes", "effect": "NoExecute"});
        let no_schedule = json!({"key": NOT_READY, "effect": "NoSchedule"});
        let now = json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2027-01-15T08:00:00Z"});
        assert_eq!(
            reached(&json!([other, lost(NOT_READY), no_schedule]), Goal::Lost(UNREACHABLE)),
            Some(json!([other, no_schedule, now]))
        );
        assert_eq!(reached(&json!([lost(UNREACHABLE)]), Goal::Lost(UNREACHABLE)), None, "its time stays");
        assert_eq!(
            reached(&json!([lost(UNREACHABLE), lost(NOT_READY)]), Goal::Lost(UNREACHABLE)),
            Some(json!([lost(UNREACHABLE)]))
        );
        let by_a_user = json!({"key": NOT_READY, "value": "mine", "effect": "NoExecute"});
        assert_eq!(reached(&json!([by_a_user, other]), Goal::Clear), Some(json!([other])));
        assert_eq!(reached(&json!([other]), Goal::Clear), None);
        let twice = changed(
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
    fn a_patch_names_the_life_and_the_state_it_was_made_from() {
        let node = node(&json!([lost(NOT_READY)]));
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
