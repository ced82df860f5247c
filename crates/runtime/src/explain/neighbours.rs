//! The objects around an object: owners above; dependents, and what they refer to, below.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream;
use keleustes_objects::{Key, Resource, Uid};
use serde_json::Value;

use super::attachments::ListedAttachments;
use super::diagnosis::{self, Finding, Weight};
use super::explanation::{ObjectLine, ObjectName};
use super::{Explainer, is_kind};
use crate::inspection::is_same;

/// How many levels of owners and of dependents are followed.
const DEPTH_MAX: usize = 4;
/// How many objects below are read live.
const READ_MAX: usize = 40;
/// How many of them are shown.
const SHOWN_MAX: usize = 20;
/// How many live reads are in flight at once.
const READS_AT_ONCE: usize = 8;

const NODES: Resource = Resource::built_in("", "Node");
pub(super) const PODS: Resource = Resource::built_in("", "Pod");
pub(super) const CLAIMS: Resource = Resource::built_in("", "PersistentVolumeClaim");
const CLASSES: Resource = Resource::built_in("storage.k8s.io", "StorageClass");

/// One object of the tree.
pub(super) struct Node {
    pub(super) resource: Resource,
    pub(super) key: Key,
    /// The live object; `None` if there is none, or it was not read.
    pub(super) json: Option<Value>,
    pub(super) is_cached: bool,
    pub(super) depth: usize,
    /// The way from the explained object, both included.
    pub(super) path: Vec<String>,
    pub(super) findings: Vec<Finding>,
}

/// What is below an object.
pub(super) struct Below {
    pub(super) found: Vec<Node>,
    pub(super) not_read: usize,
}

impl Node {
    pub(super) fn new(resource: &Resource, key: &Key, json: Option<Value>) -> Self {
        let name = ObjectName::new(resource, key).short();
        Self {
            resource: resource.clone(),
            key: key.clone(),
            is_cached: false,
            json,
            depth: 0,
            path: vec![name],
            findings: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> ObjectName {
        ObjectName::new(&self.resource, &self.key)
    }

    pub(super) fn uid(&self) -> Option<Uid> {
        let uid = self.json.as_ref()?.pointer("/metadata/uid")?.as_str()?;
        Some(Uid::from(uid))
    }

    pub(super) fn text(&self, pointer: &str) -> &str {
        let found = self.json.as_ref().and_then(|json| json.pointer(pointer));
        found.and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn child(&self, resource: &Resource, key: &Key) -> Self {
        let mut child = Self::new(resource, key, None);
        child.depth = self.depth + 1;
        child.path.splice(0..0, self.path.iter().cloned());
        child
    }
}

impl Explainer {
    /// What is wrong with an object, by itself and by what its controllers wait for.
    pub(super) fn findings(&self, node: &Node) -> Vec<Finding> {
        let mut findings = self.waiting_for(&node.resource, &node.key);
        if let Some(json) = &node.json {
            findings.extend(diagnosis::findings(json, self.clocks.now().wall));
            findings.extend(self.selects_nothing(node, json));
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        findings
    }

    /// A Service whose selector matches no pod has no endpoints.
    fn selects_nothing(&self, node: &Node, json: &Value) -> Option<Finding> {
        let selector = json.pointer("/spec/selector")?.as_object().filter(|labels| !labels.is_empty())?;
        if node.resource.kind != "Service" {
            return None;
        }
        let pods = self.caches.unfiltered_cache(&PODS)?;
        let (mut matching, mut terminating) = (0, 0);
        pods.for_each_meta(&mut |meta| {
            let is_selected = meta.key.namespace == node.key.namespace
                && selector
                    .iter()
                    .all(|(name, value)| meta.labels.value(name).map(|has| &**has) == value.as_str());
            matching += usize::from(is_selected);
            terminating += usize::from(is_selected && meta.deletion_timestamp.is_some());
        });
        let labels: Vec<_> = selector
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        let text = match (matching, terminating) {
            (0, _) => format!("its selector {} matches no pod of the namespace", labels.join(",")),
            (all, gone) if all == gone => format!("all {all} pods that it selects are terminating"),
            _ => return None,
        };
        Some(Finding { weight: Weight::Blocking, text })
    }

    /// The objects below an object, level by level: dependents by ownerReferences, and what pods refer to.
    pub(super) async fn below(&self, top: &Node) -> Below {
        let mut below = Below { found: Vec::new(), not_read: 0 };
        let mut seen: BTreeSet<String> = BTreeSet::from([top.path[0].clone()]);
        let listed = ListedAttachments::new();
        let mut level: Vec<Node> = self.children(top, &[top], &listed).await;
        for _ in 0..DEPTH_MAX {
            level.retain(|node| seen.insert(node.name().short()));
            let room = READ_MAX.saturating_sub(below.found.len());
            below.not_read += level.len().saturating_sub(room);
            level.truncate(room);
            let read = level.into_iter().map(|mut node| async move {
                node.json = self.read_live(&node.resource, &node.key).await.ok().flatten();
                node.findings.extend(self.findings(&node));
                if node.json.is_none() {
                    node.findings.extend(missing(&node));
                }
                node
            });
            let read: Vec<Node> = stream::iter(read).buffered(READS_AT_ONCE).collect().await;
            let above = below.found.len();
            below.found.extend(read);
            level = Vec::new();
            let reached: Vec<&Node> = std::iter::once(top).chain(&below.found).collect();
            for node in &below.found[above..] {
                level.extend(self.children(node, &reached, &listed).await);
            }
        }
        below
    }

    /// The objects one level below a node; `reached` are those that the explanation has reached so far.
    async fn children(&self, node: &Node, reached: &[&Node], listed: &ListedAttachments) -> Vec<Node> {
        // What belongs to the node of a pod says nothing about the pod.
        if is_kind(node, &NODES) && node.depth > 0 {
            return Vec::new();
        }
        let mut children = self.dependents(node);
        children.extend(self.observed_dependents(node).await);
        if is_kind(node, &PODS) {
            let at = node.text("/spec/nodeName");
            if !at.is_empty() {
                children.push(node.child(&NODES, &Key::cluster(at)));
            }
            let volumes = node.json.as_ref().and_then(|json| json.pointer("/spec/volumes")?.as_array());
            let claims = volumes.into_iter().flatten().filter_map(|volume| {
                volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str)
            });
            let key = |name: &str| Key::namespaced(node.key.namespace.clone(), name);
            children.extend(claims.map(|claim| node.child(&CLAIMS, &key(claim))));
        }
        if is_kind(node, &CLAIMS) && node.text("/status/phase") != "Bound" {
            let class = node.text("/spec/storageClassName");
            if !class.is_empty() {
                children.push(node.child(&CLASSES, &Key::cluster(class)));
            }
        }
        children.extend(self.attachments(node, reached, listed).await);
        children.extend(self.scale_target(node));
        children
    }

    /// What a HorizontalPodAutoscaler scales.
    fn scale_target(&self, node: &Node) -> Option<Node> {
        let (kind, name) = (node.text("/spec/scaleTargetRef/kind"), node.text("/spec/scaleTargetRef/name"));
        let known = self.caches.all();
        let cache = known.iter().find(|cache| cache.entry().resource().kind == kind && !name.is_empty())?;
        Some(node.child(cache.entry().resource(), &Key::namespaced(node.key.namespace.clone(), name)))
    }

    /// The cached objects with an ownerReference to an object; those that are terminating first.
    fn dependents(&self, owner: &Node) -> Vec<Node> {
        let Some(uid) = owner.uid() else { return Vec::new() };
        let mut found: Vec<(bool, Node)> = Vec::new();
        let mut searched: Vec<Resource> = Vec::new();
        for cache in self.caches.all() {
            let resource = cache.entry().resource();
            if searched.iter().any(|there| is_same(there, resource)) {
                continue;
            }
            let projection = cache.entry().projection();
            if projection.field_selector.is_none() && projection.namespace.is_empty() {
                searched.push(resource.clone());
            }
            cache.for_each_meta(&mut |meta| {
                if meta.owner_references.iter().any(|reference| reference.uid == uid) {
                    let child = owner.child(resource, &meta.key);
                    found.push((meta.deletion_timestamp.is_none(), child));
                }
            });
        }
        found.sort_by_key(|(is_kept, _)| *is_kept);
        found.into_iter().map(|(_, child)| child).collect()
    }

    /// The dependents that controllers observe, of kinds that no cache holds, too.
    async fn observed_dependents(&self, owner: &Node) -> Vec<Node> {
        let Some(uid) = owner.uid() else { return Vec::new() };
        let mut found = Vec::new();
        for controller in self.inspection.controllers() {
            let Some(observer) = &controller.observer else { continue };
            for (kind, key) in observer.work_for(&uid).dependents {
                let mapping = self.caches.rest_mapping();
                let mapped = mapping.mapping_for_kind(kind.group(), Some(kind.version()), kind.kind()).await;
                found.extend(mapped.ok().flatten().map(|mapped| owner.child(&mapped.resource, &key)));
            }
        }
        found
    }

    /// The owners, the closest first.
    pub(super) async fn above(&self, object: &Node) -> Vec<ObjectLine> {
        let mut lines = Vec::new();
        let mut reference = controller_ref(object);
        while let Some((resource_kind, name)) = reference.take().filter(|_| lines.len() < DEPTH_MAX) {
            let known = self.caches.all();
            let cache = known.iter().find(|cache| {
                let resource = cache.entry().resource();
                (resource.api_version(), &*resource.kind) == (resource_kind.0.clone(), &*resource_kind.1)
            });
            let Some(cache) = cache else { break };
            let resource = cache.entry().resource();
            let key = if resource.namespaced {
                Key::namespaced(object.key.namespace.clone(), name.as_str())
            } else {
                Key::cluster(name.as_str())
            };
            let json = self.read_live(resource, &key).await.ok().flatten();
            let mut owner = Node::new(resource, &key, json);
            owner.depth = lines.len() + 1;
            let mut findings = self.findings(&owner);
            if owner.json.is_none() {
                let text = "it does not exist: the garbage collector deletes what it owned".to_owned();
                findings.push(Finding { weight: Weight::Blocking, text });
            }
            lines.push(ObjectLine { object: owner.name(), depth: owner.depth, findings });
            reference = controller_ref(&owner);
        }
        lines
    }
}

/// Something that an object refers to and that does not exist.
fn missing(node: &Node) -> Option<Finding> {
    let is_reference = [&NODES, &CLAIMS, &CLASSES].iter().any(|resource| is_kind(node, resource));
    is_reference.then(|| Finding { weight: Weight::Refused, text: "it does not exist".to_owned() })
}

/// The apiVersion, kind and name of the controller of an object, or else of its first owner.
fn controller_ref(node: &Node) -> Option<((String, String), String)> {
    let references = node.json.as_ref()?.pointer("/metadata/ownerReferences")?.as_array()?;
    let is_controller = |reference: &&Value| reference["controller"] == Value::Bool(true);
    let reference = references.iter().find(is_controller).or_else(|| references.first())?;
    let text = |field: &str| reference[field].as_str().map(str::to_owned);
    Some(((text("apiVersion")?, text("kind")?), text("name")?))
}

/// The lines of the shown objects, and how many are not shown. Objects with findings are preferred.
pub(super) fn lines(below: &[Node]) -> (Vec<ObjectLine>, usize) {
    let line = |node: &Node| ObjectLine {
        object: node.name(),
        depth: node.depth,
        findings: node.findings.iter().take(2).cloned().collect(),
    };
    let mut chosen: Vec<_> = below.iter().enumerate().collect();
    if below.len() > SHOWN_MAX {
        chosen.sort_by_key(|(at, node)| (node.findings.is_empty(), *at));
        chosen.truncate(SHOWN_MAX);
    }
    // They were read level by level, and each is shown below its own parent.
    let positions: BTreeMap<&[String], usize> =
        below.iter().enumerate().map(|(at, node)| (node.path.as_slice(), at)).collect();
    chosen.sort_by_cached_key(|(_, node)| {
        let ends = 2..=node.path.len();
        ends.map(|end| positions.get(&node.path[..end]).copied()).collect::<Vec<_>>()
    });
    let shown: Vec<_> = chosen.into_iter().map(|(_, node)| line(node)).collect();
    let not_shown = below.len() - shown.len();
    (shown, not_shown)
}
