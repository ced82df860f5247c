//! The usage of a namespace under one quota.

use keleustes_objects::quota::{
    Evaluator, OldestClaims, PodUsageOptions, persistent_volume_claim_matches_scope,
    persistent_volume_claim_usage, pod_matches_scope, pod_usage, resource_claim_usage, service_usage,
    verified_pod,
};
use keleustes_objects::{
    InternedStr, InvalidSelector, Kind, PersistentVolumeClaim, Pod, Quantity, Resource, ResourceClaim,
    ResourceList, ResourceQuota, ScopeRequirement, Service,
};
use keleustes_plan::View;

use super::{MonitoredObjects, device_classes};

/// What is used, by the names of the quota that something computes, and why some of them could not be computed.
pub(super) struct Usage {
    pub(super) used: ResourceList,
    pub(super) errors: Vec<String>,
}

/// Computes the usage of the namespace of a quota. If one evaluator fails, its names are left out, also those that
/// another evaluator could compute a part of.
pub(super) fn compute(
    quota: &ResourceQuota,
    view: &View<'_>,
    monitored: &MonitoredObjects,
    options: PodUsageOptions,
) -> Usage {
    let evaluation = Evaluation::of(quota, view, options);
    let hard = quota.spec.hard.clone().unwrap_or_default();
    let (mut used, mut failed, mut errors) = (ResourceList::default(), Vec::new(), Vec::new());
    for evaluator in Evaluator::ALL {
        let is_matched = |name: &&InternedStr| evaluator.matches(name, &evaluation.classes);
        let names: Vec<&InternedStr> = hard.names().filter(is_matched).collect();
        if names.is_empty() {
            continue;
        }
        let Some(sum) = evaluation.sum(evaluator) else {
            errors.push(not_synced(&ResourceClaim::RESOURCE));
            failed.extend(names);
            continue;
        };
        names.iter().for_each(|name| used.add((*name).clone(), Quantity::default()));
        used.add_all(&sum.masked(|name| names.contains(&name)));
    }
    for (name, counted) in hard.names().filter_map(|name| Some((name, monitored.counted_by(name)?))) {
        match counted.count(&evaluation.namespace) {
            Some(count) if evaluation.scopes.is_empty() => {
                used.add(name.clone(), Quantity::from_whole(i64::try_from(count).unwrap_or(i64::MAX)));
            }
            Some(_) => used.add(name.clone(), Quantity::default()),
            None => {
                errors.push(not_synced(&counted.resource));
                failed.push(name);
            }
        }
    }
    used.retain(|name| !failed.contains(&name));
    Usage { used, errors }
}

fn not_synced(resource: &Resource) -> String {
    let Resource { group, version, plural, .. } = resource;
    format!("failed to list content: {group}/{version}, Resource={plural} not yet synced")
}

/// What all evaluators of one quota have in common.
struct Evaluation<'v> {
    view: &'v View<'v>,
    namespace: InternedStr,
    scopes: Vec<ScopeRequirement>,
    classes: keleustes_objects::quota::DeviceClasses,
    options: PodUsageOptions,
}

impl<'v> Evaluation<'v> {
    fn of(quota: &ResourceQuota, view: &'v View<'v>, options: PodUsageOptions) -> Self {
        Self {
            view,
            namespace: quota.meta.key.namespace.clone(),
            scopes: quota.spec.scope_requirements().collect(),
            classes: device_classes(view),
            options,
        }
    }

    /// The usage of all objects of one kind in the namespace; `None` if they are not known.
    fn sum(&self, evaluator: Evaluator) -> Option<ResourceList> {
        Some(match evaluator {
            Evaluator::Pods => self.sum_of::<Pod>(
                |pod, scope| pod_matches_scope(pod, scope, self.options),
                |pod| pod_usage(pod, self.options),
            ),
            Evaluator::Services => self.sum_of::<Service>(|_, _| Ok(false), service_usage),
            Evaluator::PersistentVolumeClaims => self.sum_of::<PersistentVolumeClaim>(
                persistent_volume_claim_matches_scope,
                persistent_volume_claim_usage,
            ),
            Evaluator::ResourceClaims => {
                self.view.store_if_synced::<ResourceClaim>()?;
                let claims = self.view.in_namespace::<ResourceClaim>(&self.namespace);
                let oldest = OldestClaims::of(claims.map(|claim| &**claim));
                self.sum_of::<ResourceClaim>(
                    |_, _| Ok(false),
                    |claim| self.resource_claim_usage(claim, &oldest),
                )
            }
        })
    }

    /// The sum over the objects that are in all scopes. A scope that cannot be evaluated ends the sum.
    ///
    /// Parity: `CalculateUsageStats` returns what it has counted so far, without an error.
    fn sum_of<T: Kind>(
        &self,
        matches: impl Fn(&T, &ScopeRequirement) -> Result<bool, InvalidSelector>,
        usage: impl Fn(&T) -> ResourceList,
    ) -> ResourceList {
        let mut sum = ResourceList::default();
        for object in self.view.in_namespace::<T>(&self.namespace) {
            let is_in_scope = self
                .scopes
                .iter()
                .try_fold(true, |all, scope| matches(object, scope).map(|matches| all && matches));
            match is_in_scope {
                Ok(true) => sum.add_all(&usage(object)),
                Ok(false) => {}
                Err(_) => break,
            }
        }
        sum
    }

    fn resource_claim_usage(&self, claim: &ResourceClaim, oldest: &OldestClaims) -> ResourceList {
        let pod = verified_pod(claim, |key| self.view.get::<Pod>(key).map(|pod| &**pod), oldest);
        let usage = pod.map(|pod| pod_usage(pod, self.options));
        resource_claim_usage(claim, &self.classes, usage.as_ref())
    }
}
