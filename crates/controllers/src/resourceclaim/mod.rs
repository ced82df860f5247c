//! Creates ResourceClaims from the templates that pods and PodGroups name, and releases claims whose consumers are done.
//!
//! The queue has three kinds of items. A pod's item creates the claims that its templates ask for, records their names in
//! the pod's status, and reserves allocated claims for a pod that was bound without the scheduler. A PodGroup's item does the
//! first two for the claims that its pods share. A claim's item removes the reservations of consumers that are gone or done,
//! deallocates a claim after its last consumer, and deletes a generated claim whose pod will not run any more.
//!
//! The gate replaces the original's cache of own creations: a pod is not reconciled before the cache holds the claims that
//! were created for it, so a creation whose record was lost is adopted and never repeated.
//!
//! Parity: pkg/controller/resourceclaim.

mod bind_target;
mod claim;
mod creation;
mod deleted_objects;
mod enqueue;
pub(crate) mod indexes;
mod metrics;
pub(crate) mod names;
pub(crate) mod owner;
mod pod;
mod pod_group;
mod work;

use keleustes_objects::{Key, Pod, PodGroup, PodParts, ResourceClaim, ResourceClaimTemplate};
use keleustes_plan::{
    Context, Controller, Grant, Loop, Memory, QueueItem, ReconcileError, Reconciler, Requeue,
};

use deleted_objects::DeletedObjects;
use enqueue::Enqueuer;
use metrics::ClaimCounts;

/// Options of the resource claim controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceClaimOptions {
    /// The number of workers.
    pub workers: usize,
    /// The feature gate `DRAAdminAccess`.
    pub enable_admin_access: bool,
    /// The feature gate `DRAPrioritizedList`.
    pub enable_prioritized_list: bool,
    /// The feature gate `GenericWorkload`: pods may be members of PodGroups.
    pub enable_generic_workload: bool,
    /// The feature gate `DRAWorkloadResourceClaims`: PodGroups have claims of their own.
    pub enable_workload_claims: bool,
}

impl Default for ResourceClaimOptions {
    fn default() -> Self {
        Self {
            workers: 50,
            enable_admin_access: true,
            enable_prioritized_list: true,
            enable_generic_workload: false,
            enable_workload_claims: false,
        }
    }
}

/// The field manager of the names in `status.resourceClaimStatuses`.
const FIELD_MANAGER: &str = "ResourceClaimController";
/// The finalizer that the scheduler puts on a claim when it allocates it.
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";
/// The API group of PodGroups.
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// Builds the controller.
#[must_use]
pub fn controller(options: &ResourceClaimOptions) -> Controller {
    Controller::new("resourceclaim-controller")
        .service_account("resource-claim-controller")
        .event_component("resource_claim")
        .may_write(if options.enable_workload_claims { WITH_POD_GROUPS } else { &WITH_POD_GROUPS[..6] })
        .metrics([&metrics::CREATED, &metrics::CLAIMS])
        .with_loop(the_loop(*options))
}

const WITH_POD_GROUPS: &[Grant] = &[
    Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
    Grant { group: "", resource: "pods/finalizers", verbs: &["update"] },
    Grant { group: "", resource: "pods/status", verbs: &["patch", "update"] },
    Grant {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["create", "delete", "get", "list", "watch", "patch", "update"],
    },
    Grant { group: "resource.k8s.io", resource: "resourceclaims/status", verbs: &["patch", "update"] },
    Grant { group: "resource.k8s.io", resource: "resourceclaims/binding", verbs: &["patch", "update"] },
    // The role has the rest only with the gate.
    Grant { group: SCHEDULING_GROUP, resource: "podgroups", verbs: &["get", "list", "watch"] },
    Grant { group: SCHEDULING_GROUP, resource: "podgroups/status", verbs: &["patch", "update"] },
];

fn the_loop(options: ResourceClaimOptions) -> Loop {
    let deleted = Memory::<DeletedObjects>::default();
    let counts = Memory::<ClaimCounts>::default();
    let enqueuer = Enqueuer { options, deleted: deleted.clone() };
    let (of_pods, of_claims, of_templates, of_groups) =
        (enqueuer.clone(), enqueuer.clone(), enqueuer.clone(), enqueuer);
    let mut the_loop = Loop::reconciling("resource_claim", ClaimReconciler { options, deleted })
        .workers(options.workers)
        .enqueue_on::<Pod>(move |change, view, queue| of_pods.pod_changed(change, view, queue))
        .enqueue_on::<ResourceClaim>(move |change, view, queue| {
            counts.with(|counts| counts.observe(change, queue));
            of_claims.claim_changed(change, view, queue);
        })
        .enqueue_on::<ResourceClaimTemplate>(move |change, view, queue| {
            of_templates.template_changed(change, view, queue);
        })
        .reads_pod_parts(PodParts::RESOURCE_CLAIMS.and(PodParts::POD_GROUP))
        .reads_index(indexes::PODS_BY_CLAIM)
        .reads_index(indexes::PODS_BY_TEMPLATE)
        .reads_index(indexes::CLAIMS_BY_OWNER);
    if options.enable_workload_claims {
        the_loop = the_loop
            .enqueue_on::<PodGroup>(move |change, view, queue| {
                of_groups.pod_group_changed(change, view, queue);
            })
            .reads_index(indexes::PODS_BY_POD_GROUP)
            .reads_index(indexes::POD_GROUPS_BY_CLAIM)
            .reads_index(indexes::POD_GROUPS_BY_TEMPLATE);
    } else if options.enable_generic_workload {
        // Only the pods of a PodGroup wait for it.
        the_loop = the_loop.starts_without::<PodGroup>();
    }
    the_loop
}

/// A queue item: an object of one of three kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimItem {
    Claim(Key),
    Pod(Key),
    PodGroup(Key),
}

impl QueueItem for ClaimItem {
    fn key(&self) -> Key {
        let (Self::Claim(key) | Self::Pod(key) | Self::PodGroup(key)) = self;
        key.clone()
    }

    fn text(&self) -> String {
        match self {
            Self::Claim(key) => format!("{key} kind=claim"),
            Self::Pod(key) => format!("{key} kind=pod"),
            Self::PodGroup(key) => format!("{key} kind=podgroup"),
        }
    }
}

struct ClaimReconciler {
    options: ResourceClaimOptions,
    deleted: Memory<DeletedObjects>,
}

impl Reconciler<ClaimItem> for ClaimReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &ClaimItem) -> Result<Requeue, ReconcileError> {
        match item {
            ClaimItem::Claim(key) => claim::reconcile(&self.options, &self.deleted, cx, key).await?,
            ClaimItem::Pod(key) => pod::reconcile(&self.options, cx, key).await?,
            ClaimItem::PodGroup(key) => pod_group::reconcile(&self.options, cx, key).await?,
        }
        Ok(Requeue::Forget)
    }
}

#[cfg(test)]
mod tests;
