//! How many pods the controllers of pods wanted, at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::objects::{controller_ref, number, uid};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};

/// The kinds whose size a PodDisruptionBudget reads.
const KINDS: [&str; 4] = ["deployments", "replicasets", "replicationcontrollers", "statefulsets"];

/// Follows the sizes of owners of pods.
#[derive(Default)]
pub(super) struct OwnerSizes {
    /// By UID.
    owners: BTreeMap<String, Owner>,
}

#[derive(Default)]
struct Owner {
    /// The UID of the Deployment that controls it; empty if none ever did.
    parent: String,
    /// Every size, and since when.
    sizes: Vec<(Duration, i64)>,
}

impl Owner {
    /// The sizes that a cache can show.
    fn shown(&self, faults: &Faults, at: Duration) -> impl Iterator<Item = i64> {
        let ends = self.sizes.iter().skip(1).map(|(since, _)| Some(*since)).chain([None]);
        let known = move |end: &Option<Duration>| end.is_some_and(|end| faults.caches_know(end, at));
        self.sizes.iter().zip(ends).filter(move |(_, end)| !known(end)).map(|((_, size), _)| *size)
    }
}

impl OwnerSizes {
    pub(super) fn observe(&mut self, write: &ObservedWrite, server: &ApiServer) {
        let request = &write.request;
        if !KINDS.contains(&request.resource.as_str()) || !write.succeeded() {
            return;
        }
        let name = if request.name.is_empty() { text(&write.body, "/metadata/name") } else { &request.name };
        let Some(object) = server.object(&request.full_resource(), &request.namespace, name) else { return };
        let owner = self.owners.entry(uid(&object).to_owned()).or_default();
        if let Some(parent) = controller_ref(&object).filter(|parent| parent["kind"] == "Deployment") {
            text(parent, "/uid").clone_into(&mut owner.parent);
        }
        let size = number(&object, "/spec/replicas");
        if owner.sizes.last().is_none_or(|(_, last)| *last != size) {
            owner.sizes.push((write.at, size));
        }
    }

    /// The fewest and the most pods that these controllers, by UID, can be seen to want together. A ReplicaSet counts as its
    /// Deployment, and several of one Deployment count once, unless a cache does not show the Deployment.
    pub(super) fn wanted(&self, controllers: &BTreeSet<&str>, faults: &Faults, at: Duration) -> (i64, i64) {
        let mut groups: BTreeMap<&str, Vec<&Owner>> = BTreeMap::new();
        for uid in controllers {
            let Some(owner) = self.owners.get(*uid) else { continue };
            let group = if owner.parent.is_empty() { uid } else { owner.parent.as_str() };
            groups.entry(group).or_default().push(owner);
        }
        let (mut least, mut most) = (0, 0);
        for (root, members) in groups {
            let sizes = |owner: &Owner| owner.shown(faults, at).collect::<Vec<_>>();
            let parent = self.owners.get(root).filter(|_| !controllers.contains(root));
            let parent = parent.map(sizes).unwrap_or_default();
            let own: Vec<_> = members.iter().map(|member| sizes(member)).collect();
            let all = || parent.iter().chain(own.iter().flatten()).copied();
            let highest = |sizes: &Vec<i64>| sizes.iter().copied().max().unwrap_or_default();
            least += all().min().unwrap_or_default();
            most += highest(&parent) + own.iter().map(highest).sum::<i64>();
        }
        (least, most)
    }
}

/// The UID of a pod's controller; empty if it has none.
pub(super) fn controller_uid(pod: &Value) -> &str {
    controller_ref(pod).map_or("", |owner| text(owner, "/uid"))
}
