//! What the garbage collector has to do with one object, for explanations.

use keleustes_objects::Uid;
use keleustes_plan::ObservedWork;

use super::super::{ATTEMPT_TO_DELETE, ATTEMPT_TO_ORPHAN, NodeItem};
use super::slots::{Presence, Reference};
use super::{Graph, Node};

/// How many dependents are named.
const NAMED_MAX: usize = 5;
/// How many dependents are returned.
const DEPENDENTS_MAX: usize = 60;

impl Graph {
    /// The items that may lead to a write for an object now, what the object's deletion waits for, and its dependents.
    pub(crate) fn work_for(&self, uid: &Uid) -> ObservedWork {
        let Some(at) = self.existing_slot(uid) else { return ObservedWork::default() };
        let slot = &self.slots[at];
        let mut work = ObservedWork::default();
        if slot.flags.awaits_orphaning {
            work.items.push((ATTEMPT_TO_ORPHAN, NodeItem { uid: uid.clone(), is_virtual: false }.into()));
        }
        let loses_owner = slot.owners.as_slice().iter().any(|reference| !self.is_kept(reference));
        if slot.flags.deleting_dependents || loses_owner && !slot.flags.being_deleted {
            let is_virtual = slot.flags.presence == Presence::Virtual;
            work.items.push((ATTEMPT_TO_DELETE, NodeItem { uid: uid.clone(), is_virtual }.into()));
        }
        if slot.flags.deleting_dependents {
            work.waits_for.extend(waits_for(&self.blocking_dependents(uid)));
        }
        let dependents = slot.dependents.iter().take(DEPENDENTS_MAX).map(|at| &self.slots[at]);
        work.dependents = dependents.map(|slot| (slot.type_meta.clone(), slot.key.clone())).collect();
        work
    }

    /// Whether an owner exists and does not delete its dependents.
    fn is_kept(&self, reference: &Reference) -> bool {
        let owner = &self.slots[reference.owner];
        owner.is_observed() && !owner.flags.deleting_dependents
    }
}

fn waits_for(blocking: &[Node]) -> Option<String> {
    let name = |node: &Node| {
        let state = if node.being_deleted { " (terminating)" } else { "" };
        format!("{} {}{state}", node.identity.type_meta.kind().to_lowercase(), node.identity.key)
    };
    let named: Vec<_> = blocking.iter().take(NAMED_MAX).map(name).collect();
    let more = match blocking.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let line = format!("dependents with blockOwnerDeletion are left: {}{more}", named.join(", "));
    (!blocking.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::super::test_graph::{TestGraph, object};
    use super::*;

    fn queues(work: &ObservedWork) -> Vec<&'static str> {
        work.items.iter().map(|(queue, _)| *queue).collect()
    }

    #[test]
    fn object_with_an_existing_owner_needs_no_work() {
        let mut graph = TestGraph::default();
        graph.update(&object("apps/v1 ReplicaSet", "shop/web", "owner"));
        graph.update(&object("v1 Pod", "shop/web-1", "pod").owned("apps/v1 ReplicaSet", "web", "owner"));
        assert_eq!(graph.graph.work_for(&Uid::from("pod")), ObservedWork::default());
        let owner = graph.graph.work_for(&Uid::from("owner"));
        assert!(owner.items.is_empty() && owner.waits_for.is_empty());
        assert_eq!(owner.dependents.len(), 1);
        assert_eq!(graph.graph.work_for(&Uid::from("unknown")), ObservedWork::default());
    }

    #[test]
    fn object_without_its_owner_may_be_deleted() {
        let mut graph = TestGraph::default();
        let owner = object("apps/v1 ReplicaSet", "shop/web", "owner");
        graph.update(&owner);
        graph.update(&object("v1 Pod", "shop/web-1", "pod").owned("apps/v1 ReplicaSet", "web", "owner"));
        graph.delete(&owner);
        assert_eq!(queues(&graph.graph.work_for(&Uid::from("pod"))), [ATTEMPT_TO_DELETE]);
    }

    #[test]
    fn foreground_deletion_waits_for_its_blocking_dependents() {
        let mut graph = TestGraph::default();
        graph.update(&object("apps/v1 ReplicaSet", "shop/web", "owner").terminating(&["foregroundDeletion"]));
        for number in 0..7 {
            let pod = object("v1 Pod", &format!("shop/web-{number}"), &format!("pod-{number}"));
            let pod = pod.blocking("apps/v1 ReplicaSet", "web", "owner");
            graph.update(&if number == 0 { pod.terminating(&["example.com/hold"]) } else { pod });
        }
        let work = graph.graph.work_for(&Uid::from("owner"));
        assert_eq!(queues(&work), [ATTEMPT_TO_DELETE]);
        assert_eq!(
            work.waits_for,
            [
                "dependents with blockOwnerDeletion are left: pod shop/web-0 (terminating), pod shop/web-1, pod shop/web-2, \
              pod shop/web-3, pod shop/web-4 and 2 more"
            ]
        );
        assert_eq!(
            queues(&graph.graph.work_for(&Uid::from("pod-1"))),
            [ATTEMPT_TO_DELETE],
            "its owner deletes its dependents"
        );
        assert!(graph.graph.work_for(&Uid::from("pod-0")).items.is_empty(), "it is being deleted already");
    }

    #[test]
    fn orphaning_is_work_of_the_other_queue() {
        let mut graph = TestGraph::default();
        graph.update(&object("apps/v1 ReplicaSet", "shop/web", "owner").terminating(&["orphan"]));
        assert_eq!(queues(&graph.graph.work_for(&Uid::from("owner"))), [ATTEMPT_TO_ORPHAN]);
    }
}
