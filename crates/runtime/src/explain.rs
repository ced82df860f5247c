//! Explains an object: what each controller that handles it wants of it now and why, what it waits for, what it did, and
//! which object above or below is responsible.
//!
//! An explanation is computed on demand from the caches, from dry runs of the controllers that the object enqueues
//! (`dry_run`), from the queues and gates of running loops (`waiting`), from live reads of the object and its
//! neighbours (`neighbours`, judged by [`diagnosis`]) and from the [journal](crate::journal). Nothing is written. It
//! holds names, reasons, conditions and messages, and neither specs nor data.

mod attachments;
pub mod diagnosis;
pub(crate) mod dry_run;
mod explanation;
mod live_overview;
mod names;
mod neighbours;
mod search;
mod text;
mod waiting;

use std::collections::BTreeMap;

use keleustes_client::Call;
use keleustes_objects::{Key, Resource};
use keleustes_plan::Item;
use serde_json::Value;
use thiserror::Error;

pub use self::explanation::{
    Cause, ControllerExplanation, Explanation, ManagerState, ObjectLine, ObjectName, WantedEvent, WantedWrite,
};

pub use self::live_overview::{LiveOverview, WaitingItem};
pub use self::search::{FoundObject, SearchResult};

use self::diagnosis::{Finding, Weight};
use self::neighbours::Node;
use crate::caches::Caches;
use crate::clock::Clocks;
use crate::inspection::{Inspection, RegisteredController, RegisteredLoop, is_same};
use crate::journal::JournalEntry;
use crate::metrics::Metrics;
use crate::process_context::ProcessContext;

/// How many journal entries an explanation shows.
const DECISIONS_MAX: usize = 15;
/// How many of the planned writes of one item it shows.
const WRITES_MAX: usize = 20;
/// How many causes it shows.
const CAUSES_MAX: usize = 3;

/// Explains objects.
#[derive(Clone)]
pub struct Explainer {
    /// What runs in this process.
    pub inspection: Inspection,
    /// The shared caches.
    pub caches: Caches,
    /// The clocks.
    pub clocks: Clocks,
    /// The metrics.
    pub metrics: Metrics,
    /// Reads live, with the credentials of the manager. It cannot write.
    pub client: kube::Client,
    /// The Lease of the leader election, if there is one.
    pub lease: Option<Key>,
}

/// What is to be explained, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// A resource as kubectl takes it: `deployment`, `deploy`, `deployments.apps`, `deployments.v1.apps`.
    pub resource: String,
    /// The name.
    pub name: String,
    /// The namespace; ignored for cluster-scoped resources.
    pub namespace: String,
}

/// Why an object cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExplainError {
    /// The server serves no such resource.
    #[error("the server doesn't have a resource type \"{0}\"")]
    UnknownResource(String),
    /// The name or the namespace cannot be one.
    #[error("{0}")]
    Invalid(String),
    /// The API server could not be asked which resources it serves.
    #[error("the API server did not answer: {0}")]
    Unavailable(String),
}

impl Explainer {
    /// An explainer of what runs in a process; `lease` is the Lease of its leader election.
    #[must_use]
    pub fn new(process: &ProcessContext, lease: Option<Key>) -> Self {
        let factory = process.factory.with_write_fence(std::sync::Arc::new(|| false));
        Self {
            inspection: process.inspection.clone(),
            caches: process.caches.clone(),
            clocks: process.clocks.clone(),
            metrics: process.metrics.clone(),
            client: factory.root("explain"),
            lease,
        }
    }

    /// Explains an object.
    ///
    /// # Errors
    /// If it cannot be found out which object is meant. An object that does not exist is explained, too: controllers may
    /// have deleted it.
    pub async fn explain(&self, request: &ExplainRequest) -> Result<Explanation, ExplainError> {
        let resource = self.resource_named(&request.resource).await?;
        let key = names::key(&resource, request)?;
        let live = self.read_live(&resource, &key).await;
        let object = Node::new(&resource, &key, live.as_ref().ok().cloned().flatten());
        let dependents = self.below(&object).await;
        let owners = self.above(&object).await;
        let controllers = self.controllers_of(&object).await;
        let mut findings = self.findings(&object);
        if let Err(error) = &live {
            findings.push(Finding {
                weight: Weight::Passing,
                text: format!("it could not be read live: {error}"),
            });
        }
        findings.extend(self.observers_wait_for(&object));
        findings.extend(from_controllers(&controllers));
        let exists = object.json.is_some() || live.is_err() && object.is_cached;
        let (shown, not_shown) = neighbours::lines(&dependents.found);
        let causes = causes(&object, &findings, &dependents.found);
        Ok(Explanation {
            api_version: "explain.keleustes.dev/v1alpha1",
            kind: "Explanation",
            object: object.name(),
            exists,
            state: state(exists, &causes, &controllers),
            causes: causes.into_iter().map(|(_, cause)| cause).collect(),
            manager: self.manager_state().await,
            controllers,
            owners,
            dependents: shown,
            dependents_not_shown: not_shown + dependents.not_read,
            decisions: self.decisions_about(&resource, &key),
        })
    }

    /// What each controller that handles the object wants of it, and what it waits for.
    async fn controllers_of(&self, object: &Node) -> Vec<ControllerExplanation> {
        let mut explained = Vec::new();
        for controller in self.inspection.controllers() {
            let observed = object.uid().zip(controller.observer.as_ref());
            let work = observed.map(|(uid, observer)| observer.work_for(&uid)).unwrap_or_default();
            for a_loop in &controller.loops {
                for item in self.items_for(a_loop, &object.resource, &object.key) {
                    explained.push(self.controller_of(&controller, a_loop, &item).await);
                }
                for (_, item) in work.items.iter().filter(|(queue, _)| *queue == a_loop.queue) {
                    let mut found = self.controller_of(&controller, a_loop, item).await;
                    found.waiting.extend(work.waits_for.iter().cloned());
                    explained.push(found);
                }
            }
        }
        explained
    }

    /// What keeps controllers that observe all kinds from their work for an object. Their items are not named after it.
    fn observers_wait_for(&self, object: &Node) -> Vec<Finding> {
        let Some(uid) = object.uid() else { return Vec::new() };
        let mut found = Vec::new();
        for controller in self.inspection.controllers() {
            let Some(observer) = &controller.observer else { continue };
            for (queue, item) in observer.work_for(&uid).items {
                let Some(a_loop) = self.inspection.running_loop(controller.name, queue) else { continue };
                found.extend(self.waiting_in(&a_loop, item.key()));
            }
        }
        found.retain(|finding| finding.weight > Weight::Passing);
        found
    }

    /// What a controller wants of an item, and what it waits for.
    async fn controller_of(
        &self,
        controller: &RegisteredController,
        a_loop: &RegisteredLoop,
        item: &Item,
    ) -> ControllerExplanation {
        let dry_run = self.dry_run(controller, a_loop, item, None).await;
        let mut waiting = self.waiting(controller.name, a_loop.queue, item);
        if let Some(delay) = dry_run.requeue_after {
            let left = diagnosis::duration(delay.duration.as_secs().cast_signed());
            waiting.insert(0, format!("it waits for {} ({left})", delay.reason));
        }
        ControllerExplanation {
            controller: controller.name,
            queue: a_loop.queue,
            item: item.to_string(),
            writes: dry_run.writes.iter().take(WRITES_MAX).map(WantedWrite::of).collect(),
            writes_not_shown: dry_run.writes.len().saturating_sub(WRITES_MAX),
            events: dry_run.events,
            error: dry_run.error,
            not_computed: dry_run.not_computed,
            waiting,
        }
    }

    /// The latest journal entries about an object, and about the items that are named after it.
    fn decisions_about(&self, resource: &Resource, key: &Key) -> Vec<JournalEntry> {
        let (name, namespace) = (key.name.as_str(), &*key.namespace);
        let shown = resource.to_string();
        let keyed: Vec<_> = self
            .inspection
            .controllers()
            .iter()
            .filter(|controller| controller.loops.iter().any(|a_loop| a_loop.is_keyed_by(resource)))
            .map(|controller| controller.name)
            .collect();
        let item = key.to_string();
        let about = |entry: &JournalEntry| {
            let is_object = entry.resource == shown || entry.resource == *resource.kind;
            let names_it = entry.name == name && entry.namespace == namespace;
            let is_item = entry.item == item || entry.item.split(' ').next() == Some(item.as_str());
            is_object && names_it || keyed.contains(&entry.controller.as_str()) && is_item
        };
        self.inspection.journal().latest(DECISIONS_MAX, about)
    }

    /// Whether this process leads, and the holder of the Lease.
    pub async fn manager_state(&self) -> ManagerState {
        ManagerState { leads: self.inspection.leads(), leader: self.leader().await }
    }

    /// The holder of the Lease, if it can be read.
    pub async fn leader(&self) -> Option<String> {
        match &self.lease {
            Some(lease) => self.holder_of(lease).await,
            None => None,
        }
    }

    async fn holder_of(&self, lease: &Key) -> Option<String> {
        let leases = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
        let found = self.read_live(&leases, lease).await.ok()??;
        let holder = found.pointer("/spec/holderIdentity")?.as_str()?;
        (!holder.is_empty()).then(|| holder.to_owned())
    }

    /// Reads one object live. The manager may list all resources, but get few of them; of Secrets only the metadata is
    /// read.
    async fn read_live(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, String> {
        let call = Call::list(resource, &key.namespace)
            .query("fieldSelector", format!("metadata.name={}", key.name))
            .query("limit", "1");
        let is_secret = resource.plural == "secrets" && resource.group.is_empty();
        let call = if is_secret { call.metadata_list_only() } else { call };
        let listed = call.send(&self.client).await.map_err(|error| error.to_string())?;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        let found = items.into_iter().find(|item| item["metadata"]["name"] == key.name.as_str());
        // Items of a list carry no type.
        Ok(found.map(|mut found| {
            found["kind"] = Value::from(resource.kind.to_string());
            found["apiVersion"] = Value::from(resource.api_version());
            found
        }))
    }
}

/// What controllers report is wrong with the object that they handle.
fn from_controllers(controllers: &[ControllerExplanation]) -> Vec<Finding> {
    let mut found = Vec::new();
    for controller in controllers {
        let events = controller.events.iter().filter(|event| event.warning);
        found.extend(events.map(|event| Finding {
            weight: Weight::Blocking,
            text: format!("{}: {} ({})", controller.controller, event.message, event.reason),
        }));
        found.extend(controller.error.iter().map(|error| Finding {
            weight: Weight::Blocking,
            text: format!("{}: {error}", controller.controller),
        }));
    }
    found
}

/// The findings about the object and all below it, as causes: the most likely first, and of equal ones the deepest.
fn causes(object: &Node, findings: &[Finding], below: &[Node]) -> Vec<(Weight, Cause)> {
    let own = findings.iter().map(|finding| (object, finding));
    let theirs =
        below.iter().flat_map(|node| node.findings.iter().take(2).map(move |finding| (node, finding)));
    let mut all: Vec<_> = own.chain(theirs).collect();
    all.sort_by_key(|(node, finding)| (std::cmp::Reverse(finding.weight), std::cmp::Reverse(node.depth)));
    let heaviest = all.first().map(|(_, finding)| finding.weight);
    let mut counted: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut causes: Vec<(Weight, Cause)> = Vec::new();
    for (node, finding) in all {
        // What follows from the heaviest is noise beside it.
        if heaviest.is_some_and(|heaviest| heaviest > Weight::Consequence)
            && finding.weight <= Weight::Consequence
        {
            continue;
        }
        let name = node.name();
        let same = counted.entry((name.kind.clone(), finding.text.clone())).or_default();
        *same += 1;
        if *same > 1 {
            let known = causes
                .iter_mut()
                .find(|(_, cause)| cause.object.kind == name.kind && cause.text == finding.text);
            if let Some((_, cause)) = known {
                cause.count = *same;
            }
        } else if causes.len() < CAUSES_MAX {
            let text = finding.text.clone();
            causes.push((finding.weight, Cause { object: name, path: node.path.clone(), text, count: 1 }));
        }
    }
    causes
}

fn state(exists: bool, causes: &[(Weight, Cause)], controllers: &[ControllerExplanation]) -> &'static str {
    let writes = controllers.iter().any(|controller| !controller.writes.is_empty());
    match causes.iter().map(|(weight, _)| *weight).max() {
        _ if !exists => "not found",
        Some(Weight::Blocking | Weight::Refused) => "blocked",
        Some(_) => "waiting",
        None if writes => "changing",
        None => "as wanted",
    }
}

/// Whether a kind is that of a node of the tree.
fn is_kind(node: &Node, resource: &Resource) -> bool {
    is_same(&node.resource, resource)
}
