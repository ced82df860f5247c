//! Tells tests what happens to a graph, one line for everything that is set in motion.

use keleustes_objects::{Key, ObjectMeta, PartialObjectMeta, TypeMeta, Uid};
use serde_json::{Value, json};

use super::super::identity::Identity;
use super::{Graph, GraphEffects};

/// A graph and what happens to it. Every step must leave the links as they should be.
pub(crate) struct Story {
    pub(crate) graph: Graph,
}

impl Default for Story {
    fn default() -> Self {
        Self { graph: Graph::new(7) }
    }
}

/// An object as it is on the wire.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) line: TypeMeta,
    metadata: Value,
}

/// An object: `apiVersion Kind`, `namespace/name` and uid.
pub(crate) fn object(line: &str, key: &str, uid: &str) -> Seen {
    let (api_version, kind) = line.split_once(' ').unwrap();
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let metadata = json!({"namespace": namespace, "name": name, "uid": uid, "ownerReferences": []});
    Seen { line: TypeMeta::new(api_version, kind), metadata }
}

impl Seen {
    pub(crate) fn owned(self, line: &str, name: &str, uid: &str) -> Self {
        self.referring(line, name, uid, false)
    }

    pub(crate) fn blocking(self, line: &str, name: &str, uid: &str) -> Self {
        self.referring(line, name, uid, true)
    }

    fn referring(mut self, line: &str, name: &str, uid: &str, blocks: bool) -> Self {
        let (api_version, kind) = line.split_once(' ').unwrap();
        let reference = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
            "blockOwnerDeletion": blocks});
        self.metadata["ownerReferences"].as_array_mut().unwrap().push(reference);
        self
    }

    pub(crate) fn deleted(mut self, finalizers: &[&str]) -> Self {
        self.metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.metadata["finalizers"] = json!(finalizers);
        self
    }

    pub(crate) fn meta(&self) -> ObjectMeta {
        serde_json::from_value::<PartialObjectMeta>(json!({"metadata": self.metadata})).unwrap().meta
    }
}

impl Story {
    pub(crate) fn saw(&mut self, seen: &Seen) -> Vec<String> {
        self.step(|graph, ripple| graph.apply_update(&seen.line, &seen.meta(), ripple))
    }

    pub(crate) fn lost(&mut self, seen: &Seen) -> Vec<String> {
        self.step(|graph, ripple| graph.apply_delete(&seen.line, &seen.meta(), ripple))
    }

    pub(crate) fn saw_all(&mut self, line: &str, all: &[Seen], unreadable: &[&str]) -> Vec<String> {
        let (api_version, kind) = line.split_once(' ').unwrap();
        let metas: Vec<ObjectMeta> = all.iter().map(Seen::meta).collect();
        let unreadable: Vec<Key> = unreadable.iter().map(|key| key.parse().unwrap()).collect();
        let line = TypeMeta::new(api_version, kind);
        self.step(|graph, ripple| graph.apply_list(&line, metas.iter(), &unreadable, ripple))
    }

    /// The API has no such object.
    pub(crate) fn absent(&mut self, line: &str, key: &str, uid: &str) -> Vec<String> {
        let seen = object(line, key, uid);
        let identity = Identity { line: seen.line.clone(), key: seen.meta().key, uid: Uid::from(uid) };
        self.step(|graph, ripple| graph.process_virtual_delete(&identity, ripple))
    }

    pub(crate) fn requeue_all(&mut self) -> Vec<String> {
        self.step(|graph, ripple| graph.requeue_all(ripple))
    }

    /// A node with its states, dependents after an arrow.
    pub(crate) fn node(&self, uid: &str) -> String {
        let uid = Uid::from(uid);
        let Some(node) = self.graph.node(&uid) else { return "none".to_owned() };
        let states = [
            (node.is_virtual, " virtual"),
            (node.being_deleted, " beingDeleted"),
            (node.deleting_dependents, " deletingDependents"),
        ];
        let mut text = node.identity.to_string();
        states.iter().filter(|(is, _)| *is).for_each(|(_, state)| text.push_str(state));
        let dependents = self.graph.dependents(&uid);
        let names: Vec<_> = dependents.iter().map(|node| node.identity.uid.to_string()).collect();
        if !names.is_empty() {
            text.push_str(" <- ");
            text.push_str(&names.join(" "));
        }
        text
    }

    fn step(&mut self, step: impl FnOnce(&mut Graph, &mut GraphEffects)) -> Vec<String> {
        let mut ripple = GraphEffects::default();
        step(&mut self.graph, &mut ripple);
        self.graph.assert_links();
        lines(&ripple)
    }
}

/// What was set in motion, one line each.
pub(crate) fn lines(ripple: &GraphEffects) -> Vec<String> {
    let checks = ripple.checks.iter().map(|check| {
        let is_virtual = if check.is_virtual { "virtual " } else { "" };
        let slowly = if check.slowly { " slowly" } else { "" };
        format!("check {is_virtual}{}{slowly}", check.uid)
    });
    let attempts_to_orphan = ripple.attempts_to_orphan.iter().map(|uid| format!("orphan {uid}"));
    let events = ripple.events.iter().map(|event| {
        let about = &event.involved_object;
        format!("{} {} on {}: {}", event.event_type.as_str(), event.reason, about.uid, event.message)
    });
    checks.chain(attempts_to_orphan).chain(events).collect()
}

impl Graph {
    /// The invariant of the links, and that nothing is kept that nobody needs.
    fn assert_links(&self) {
        for (at, slot) in self.slots.all() {
            assert_eq!(self.slots.find(&slot.uid), Some(at), "{} is found", slot.uid);
            for reference in slot.owners.as_slice() {
                let owner = &self.slots[reference.owner];
                assert!(owner.dependents.iter().any(|one| one == at), "{} knows {}", owner.uid, slot.uid);
            }
            for dependent in slot.dependents.iter() {
                let refers = self.slots[dependent].owners.to(at).next().is_some();
                assert!(refers, "{} refers to {}", self.slots[dependent].uid, slot.uid);
            }
            assert!(!slot.is_absent() || !slot.dependents.is_empty(), "{} is kept for nobody", slot.uid);
        }
    }
}
