//! The VolumeAttachments of a claim's volume: which of them matter to a pod, and which keep it waiting.
//!
//! The rule is that of the attach-detach controller: a volume that one node only may have is attached to a node after every
//! other node has lost it (AD-26, AD-57).

use std::collections::BTreeSet;

use keleustes_client::Call;
use keleustes_objects::{Kind as _, Pod, PodParts, VolumeAttachment};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::diagnosis::{Finding, Weight};
use super::neighbours::{CLAIMS, Node, PODS};
use super::{Explainer, is_kind};

/// How many VolumeAttachments are listed if no cache holds them: the API server cannot select those of a volume.
const LISTED_MAX: &str = "500";

/// The VolumeAttachments that were listed for one explanation, because no cache holds them.
pub(super) type ListedAttachments = OnceCell<Vec<VolumeAttachment>>;
/// How many pods a finding names.
const PODS_NAMED_MAX: usize = 3;

/// A pod that uses a claim.
#[derive(Clone)]
struct ClaimUser {
    name: String,
    /// Its node; empty if it has none.
    node: String,
    /// Whether its containers may still start.
    may_start: bool,
}

impl ClaimUser {
    /// A pod that was read live, if it names the claim. The claim of an ephemeral volume has no other user.
    fn of(pod: &Node, claim: &Node) -> Option<Self> {
        let volumes = pod.json.as_ref()?.pointer("/spec/volumes")?.as_array()?;
        let names_claim = |volume: &Value| {
            volume["persistentVolumeClaim"]["claimName"].as_str() == Some(claim.key.name.as_str())
        };
        let is_pod = is_kind(pod, &PODS) && pod.key.namespace == claim.key.namespace;
        let is_terminated = matches!(pod.text("/status/phase"), "Succeeded" | "Failed");
        (is_pod && volumes.iter().any(names_claim)).then(|| Self {
            name: pod.key.name.to_string(),
            node: pod.text("/spec/nodeName").to_owned(),
            may_start: !is_terminated && pod.text("/metadata/deletionTimestamp").is_empty(),
        })
    }
}

impl Explainer {
    /// The VolumeAttachments of a bound claim's volume. If pods that use the claim are among the objects that the explanation
    /// has reached, only those that matter to these pods. What is wrong comes first.
    pub(super) async fn attachments(
        &self,
        claim: &Node,
        reached: &[&Node],
        listed: &ListedAttachments,
    ) -> Vec<Node> {
        let volume = claim.text("/spec/volumeName");
        if !is_kind(claim, &CLAIMS) || claim.text("/status/phase") != "Bound" || volume.is_empty() {
            return Vec::new();
        }
        let attachments = self.attachments_of(volume, listed).await;
        let cached = self.cached_users(claim);
        let asked: Vec<ClaimUser> = reached.iter().filter_map(|pod| ClaimUser::of(pod, claim)).collect();
        let users = if asked.is_empty() { cached.clone().unwrap_or_default() } else { asked.clone() };
        let attached: BTreeSet<&str> = attachments
            .iter()
            .filter(|attachment| attachment.attached)
            .map(|attachment| attachment.node_name.as_str())
            .collect();
        let waits = |user: &&ClaimUser| {
            user.may_start && !user.node.is_empty() && !attached.contains(user.node.as_str())
        };
        // A volume that many nodes may have waits for no other node.
        let waiting: Vec<&ClaimUser> =
            users.iter().filter(|user| is_for_one_node(claim) && waits(user)).collect();
        let mut found: Vec<(bool, Node)> = Vec::new();
        for attachment in &attachments {
            let node = attachment.node_name.as_str();
            if !asked.is_empty() && waiting.is_empty() && asked.iter().all(|user| user.node != node) {
                continue;
            }
            let mut child = claim.child(&VolumeAttachment::RESOURCE, &attachment.meta.key);
            if attachment.attached && !waiting.is_empty() {
                child.findings.push(attached_elsewhere((volume, node), cached.as_deref(), &waiting));
            }
            let is_fine = attachment.attached && child.findings.is_empty() && !is_failing(attachment);
            found.push((is_fine, child));
        }
        found.sort_by_key(|(is_fine, _)| *is_fine);
        found.into_iter().map(|(_, child)| child).collect()
    }

    /// The VolumeAttachments of a volume, from the cache if the attach-detach controller has one.
    async fn attachments_of(&self, volume: &str, listed: &ListedAttachments) -> Vec<VolumeAttachment> {
        let is_of_volume =
            |attachment: &&VolumeAttachment| attachment.persistent_volume_name.as_deref() == Some(volume);
        let cache = self.caches.unfiltered_cache(&VolumeAttachment::RESOURCE);
        let Some(cache) = cache.filter(|cache| cache.list_count() > 0) else {
            let listed = listed.get_or_init(|| self.list_attachments()).await;
            return listed.iter().filter(is_of_volume).cloned().collect();
        };
        let mut found = Vec::new();
        self.caches.reader(&[cache.entry().clone()]).with_view(&mut |view| {
            let all = view.all::<VolumeAttachment>().map(|attachment| &**attachment);
            found.extend(all.filter(is_of_volume).cloned());
        });
        found
    }

    async fn list_attachments(&self) -> Vec<VolumeAttachment> {
        let call = Call::list(&VolumeAttachment::RESOURCE, "").query("limit", LISTED_MAX);
        let Ok(mut listed) = call.send(&self.client).await else { return Vec::new() };
        let items = listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()
    }

    /// The cached pods that use a claim and are not terminated; `None` if no controller reads the claims of pods.
    fn cached_users(&self, claim: &Node) -> Option<Vec<ClaimUser>> {
        let cache = self.caches.unfiltered_cache(&PODS)?;
        let is_kept = cache.entry().pod_parts().contains(PodParts::VOLUME_CLAIMS) && cache.list_count() > 0;
        let entry = is_kept.then(|| cache.entry().clone())?;
        let mut users = Vec::new();
        self.caches.reader(&[entry]).with_view(&mut |view| {
            let pods = view.in_namespace::<Pod>(&claim.key.namespace);
            let uses = |pod: &Pod| pod.used_claims().any(|name| name == claim.key.name);
            let used_by = pods.filter(|pod| !pod.is_terminated() && uses(pod));
            users.extend(used_by.map(|pod| ClaimUser {
                name: pod.meta.key.name.to_string(),
                node: pod.node_name.to_string(),
                may_start: pod.meta.deletion_timestamp.is_none(),
            }));
        });
        Some(users)
    }
}

/// Whether no more than one node may have the volume of a bound claim. The binder copies the access modes of the volume.
fn is_for_one_node(claim: &Node) -> bool {
    let modes = claim.json.as_ref().and_then(|json| json.pointer("/status/accessModes")?.as_array());
    let allows_many = |mode: &Value| matches!(mode.as_str(), Some("ReadWriteMany" | "ReadOnlyMany"));
    modes.is_some_and(|modes| !modes.is_empty() && !modes.iter().any(allows_many))
}

fn is_failing(attachment: &VolumeAttachment) -> bool {
    attachment.attach_error.is_some()
        || attachment.detach_error.is_some()
        || attachment.meta.deletion_timestamp.is_some()
}

/// Another node has the volume for which pods wait.
fn attached_elsewhere(
    (volume, node): (&str, &str),
    users: Option<&[ClaimUser]>,
    waiting: &[&ClaimUser],
) -> Finding {
    let holders: Option<Vec<String>> = users
        .map(|users| users.iter().filter(|user| user.node == node).map(|user| user.name.clone()).collect());
    let used = match holders.as_deref() {
        None => String::new(),
        Some([]) => ", where no pod uses it".to_owned(),
        Some([pod]) => format!(", where pod {pod} uses it"),
        Some(pods) => format!(", where pods {} use it", names(pods)),
    };
    let waiting: Vec<String> =
        waiting.iter().map(|user| format!("{} on node {}", user.name, user.node)).collect();
    let waits = match waiting.as_slice() {
        [pod] => format!("pod {pod} waits"),
        pods => format!("pods {} wait", names(pods)),
    };
    let text = format!(
        "volume {volume} is attached to node {node}{used}; only one node may have it, and {waits} for the detach"
    );
    Finding { weight: Weight::Blocking, text }
}

/// Names, and how many more there are.
fn names(all: &[String]) -> String {
    let shown = all.iter().take(PODS_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(PODS_NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
