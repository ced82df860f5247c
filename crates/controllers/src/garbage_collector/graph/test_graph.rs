//! Test harness: applies events to a graph and renders the effects, one line each.

use keleustes_objects::{Key, ObjectMeta, PartialObjectMeta, TypeMeta, Uid};
use serde_json::{Value, json};

use super::super::identity::Identity;
use super::{Graph, GraphEffects};

/// A graph under test. Every step checks the link invariant.
pub(crate) struct TestGraph {
    pub(crate) graph: Graph,
}

impl Default for TestGraph {
    fn default() -> Self {
        Self { graph: Graph::new(7) }
    }
}

/// An object in wire form.
#[derive(Clone)]
pub(crate) struct TestObject {
    pub(crate) type_meta: TypeMeta,
    metadata: Value,
}

/// An object: `apiVersion Kind`, `namespace/name` and uid.
pub(crate) fn object(type_meta: &str, key: &str, uid: &str) -> TestObject {
    let (api_version, kind) = type_meta.split_once(' ').unwrap();
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let metadata = json!({"namespace": namespace, "name": name, "uid": uid, "ownerReferences": []});
    TestObject { type_meta: TypeMeta::new(api_version, kind), metadata }
}

impl TestObject {
    pub(crate) fn owned(self, type_meta: &str, name: &str, uid: &str) -> Self {
        self.referring(type_meta, name, uid, false)
    }

    pub(crate) fn blocking(self, type_meta: &str, name: &str, uid: &str) -> Self {
        self.referring(type_meta, name, uid, true)
    }

    fn referring(mut self, type_meta: &str, name: &str, uid: &str, blocks: bool) -> Self {
        let (api_version, kind) = type_meta.split_once(' ').unwrap();
        let reference = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
            "blockOwnerDeletion": blocks});
        self.metadata["ownerReferences"].as_array_mut().unwrap().push(reference);
        self
    }

    pub(crate) fn terminating(mut self, finalizers: &[&str]) -> Self {
        self.metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.metadata["finalizers"] = json!(finalizers);
        self
    }

    pub(crate) fn meta(&self) -> ObjectMeta {
        serde_json::from_value::<PartialObjectMeta>(json!({"metadata": self.metadata})).unwrap().meta
    }
}

impl TestGraph {
    pub(crate) fn update(&mut self, object: &TestObject) -> Vec<String> {
        self.step(|graph, effects| graph.apply_update(&object.type_meta, &object.meta(), effects))
    }

    pub(crate) fn delete(&mut self, object: &TestObject) -> Vec<String> {
        self.step(|graph, effects| graph.apply_delete(&object.type_meta, &object.meta(), effects))
    }

    pub(crate) fn list(&mut self, type_meta: &str, all: &[TestObject], unreadable: &[&str]) -> Vec<String> {
        let (api_version, kind) = type_meta.split_once(' ').unwrap();
        let metas: Vec<ObjectMeta> = all.iter().map(TestObject::meta).collect();
        let unreadable: Vec<Key> = unreadable.iter().map(|key| key.parse().unwrap()).collect();
        let type_meta = TypeMeta::new(api_version, kind);
        self.step(|graph, effects| graph.apply_list(&type_meta, metas.iter(), &unreadable, effects))
    }

    /// A live read finds no such object.
    pub(crate) fn virtual_delete(&mut self, type_meta: &str, key: &str, uid: &str) -> Vec<String> {
        let object = object(type_meta, key, uid);
        let identity =
            Identity { type_meta: object.type_meta.clone(), key: object.meta().key, uid: Uid::from(uid) };
        self.step(|graph, effects| graph.process_virtual_delete(&identity, effects))
    }

    pub(crate) fn requeue_all(&mut self) -> Vec<String> {
        self.step(|graph, effects| graph.requeue_all(effects))
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
        let mut effects = GraphEffects::default();
        step(&mut self.graph, &mut effects);
        self.graph.assert_links();
        lines(&effects)
    }
}

/// The effects, one line each.
pub(crate) fn lines(effects: &GraphEffects) -> Vec<String> {
    let attempts_to_delete = effects.attempts_to_delete.iter().map(|attempt| {
        let is_virtual = if attempt.is_virtual { "virtual " } else { "" };
        let rate_limited = if attempt.rate_limited { " rate-limited" } else { "" };
        format!("check {is_virtual}{}{rate_limited}", attempt.uid)
    });
    let attempts_to_orphan = effects.attempts_to_orphan.iter().map(|uid| format!("orphan {uid}"));
    let events = effects.events.iter().map(ToString::to_string);
    attempts_to_delete.chain(attempts_to_orphan).chain(events).collect()
}

impl Graph {
    /// The link invariant, and that no absent slot is kept without dependents.
    fn assert_links(&self) {
        for (at, slot) in self.slots.all() {
            assert_eq!(self.slots.find(&slot.uid), Some(at), "{} is indexed", slot.uid);
            for reference in slot.owners.as_slice() {
                let owner = &self.slots[reference.owner];
                assert!(
                    owner.dependents.iter().any(|one| one == at),
                    "{} lists dependent {}",
                    owner.uid,
                    slot.uid
                );
            }
            for dependent in slot.dependents.iter() {
                let refers = self.slots[dependent].owners.to(at).next().is_some();
                assert!(refers, "{} refers to {}", self.slots[dependent].uid, slot.uid);
            }
            assert!(
                !slot.is_absent() || !slot.dependents.is_empty(),
                "absent slot {} has no dependents",
                slot.uid
            );
        }
    }
}
