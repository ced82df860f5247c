//! The usage of pods.
//!
//! Parity: pkg/quota/v1/evaluator/core/pods.go and k8s.io/component-helpers/resource.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{REQUESTS, is_extended_resource};
use crate::{Container, InternedStr, Pod, PodSpec, Quantity, ReportedResources, ResourceList};

/// What decides on the usage of pods beside the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodUsageOptions {
    /// The feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// The wall clock in nanoseconds since 1970.
    pub now_nanoseconds: i128,
}

/// The usage of a pod. Every pod counts as `count/pods`, all else only while it is charged.
#[must_use]
pub fn pod_usage(pod: &Pod, options: PodUsageOptions) -> ResourceList {
    let mut usage = ResourceList::default();
    if is_charged(pod, options.now_nanoseconds) {
        usage = compute_usage(&requests(pod, options), &limits(pod, options));
    }
    usage.set("count/pods", Quantity::from_whole(1));
    usage
}

/// Whether a pod uses computing resources: it is not finished, and not stuck in its deletion for longer than the grace
/// period, after which its node may be lost.
///
/// Parity: `QuotaV1Pod` adds the grace period to a deletionTimestamp that includes it already.
#[must_use]
pub fn is_charged(pod: &Pod, now_nanoseconds: i128) -> bool {
    let deletion = pod.meta.deletion_timestamp.zip(pod.deletion_grace_seconds());
    let is_overdue = deletion.is_some_and(|(deletion, grace)| {
        let expires = i128::from(deletion.unix_seconds()) + i128::from(grace);
        now_nanoseconds > expires * 1_000_000_000
    });
    !pod.is_terminal() && !is_overdue
}

/// Whether the resources that container statuses report have changed. A status that reports none has those of the
/// spec.
#[must_use]
pub fn reported_resources_changed(old: &Pod, new: &Pod) -> bool {
    if old.reported_resources().is_empty() && new.reported_resources().is_empty() {
        return false;
    }
    let containers = old.spec.containers().iter().chain(old.spec.init_containers());
    let mut in_both = containers.filter_map(|one| Some((one, new.spec.container(&one.name)?)));
    in_both.any(|(before, after)| old.actual_resources(before) != new.actual_resources(after))
}

/// The resources among `required` that containers do not state, as the end of an error message: `cpu for: a,b; …`.
/// `None` if all state them, or the pod as a whole states some.
#[must_use]
pub fn missing_resources<'a>(pod: &Pod, required: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_set_for_pod = pod.spec.pod_level_resources().is_some_and(|resources| {
        resources.requests.names().chain(resources.limits.names()).any(|name| is_pod_level(name))
    });
    let mut missing = BTreeMap::<&str, BTreeSet<&str>>::new();
    for name in required.filter(|name| REQUIRED.contains(name) && !is_set_for_pod) {
        for container in pod.spec.containers().iter().chain(pod.spec.init_containers()) {
            if compute_usage(container.requests(), container.limits()).amount(name).is_none() {
                missing.entry(name).or_default().insert(&container.name);
            }
        }
    }
    let parts = missing.iter().map(|(name, containers)| {
        format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
    });
    (!missing.is_empty()).then(|| parts.collect::<Vec<_>>().join("; "))
}

/// The resources that every container must state if a quota limits them.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The names that requests and limits are charged to.
fn compute_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = vec![(InternedStr::from("pods"), Quantity::from_whole(1))];
    let mut charge = |name: &str, amount: Quantity| usage.push((InternedStr::from(name), amount));
    for (name, amount) in requests.iter() {
        let is_compute = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if is_compute || name.starts_with("hugepages-") {
            charge(name, *amount);
            charge(&format!("{REQUESTS}{name}"), *amount);
        } else if is_extended_resource(name) {
            charge(&format!("{REQUESTS}{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter() {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            charge(&format!("limits.{name}"), *amount);
        }
    }
    usage.into_iter().collect()
}

/// The requests of a pod: what the spec requests, what is allocated and what containers have, whichever is largest.
fn requests(pod: &Pod, options: PodUsageOptions) -> ResourceList {
    let (spec, is_infeasible) = (&*pod.spec, pod.is_resize_infeasible());
    let mut total = ResourceList::default();
    if !is_infeasible {
        total = total_of_containers(spec, |container| Some(container.requests()));
    }
    if is_infeasible || !pod.reported_resources().is_empty() {
        let wanted = |container: &'_ Container| !is_infeasible && !container.requests().is_empty();
        let allocated = |container: &Container| report_of(pod, container)?.allocated.as_ref();
        let actual = |container: &Container| report_of(pod, container)?.requests.as_ref();
        total.max_all(&total_of_containers(spec, |container| {
            allocated(container).or(wanted(container).then_some(container.requests()))
        }));
        total.max_all(&total_of_containers(spec, |container| {
            let reported = actual(container).or_else(|| allocated(container));
            reported.or(wanted(container).then_some(container.requests()))
        }));
    }
    if let Some(resources) = spec.pod_level_resources().filter(|_| options.pod_level_resources) {
        replace_pod_level(&mut total, &resources.requests);
    }
    total.add_all(spec.overhead());
    total
}

/// The limits of a pod, by the same rules. Only a limit that is set grows by the overhead.
fn limits(pod: &Pod, options: PodUsageOptions) -> ResourceList {
    let (spec, is_infeasible) = (&*pod.spec, pod.is_resize_infeasible());
    let mut total = ResourceList::default();
    if !is_infeasible {
        total = total_of_containers(spec, |container| Some(container.limits()));
    }
    if is_infeasible || !pod.reported_resources().is_empty() {
        let actual = |container: &Container| report_of(pod, container)?.limits.as_ref();
        total.max_all(&total_of_containers(spec, |container| {
            actual(container).or((!is_infeasible).then_some(container.limits()))
        }));
    }
    if let Some(resources) = spec.pod_level_resources().filter(|_| options.pod_level_resources) {
        replace_pod_level(&mut total, &resources.limits);
    }
    for (name, amount) in spec.overhead().iter() {
        if total.amount(name).is_some_and(|limit| !limit.is_zero()) {
            total.add(name.clone(), *amount);
        }
    }
    total
}

fn report_of<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ReportedResources> {
    pod.reported_resources().iter().find(|report| report.name == container.name)
}

/// Whether a resource can be set for a pod as a whole.
fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn replace_pod_level(total: &mut ResourceList, set: &ResourceList) {
    for (name, amount) in set.iter().filter(|(name, _)| is_pod_level(name)) {
        total.set(name.clone(), *amount);
    }
}

/// The total of all containers and sidecars, or of an init container and the sidecars before it, if that is larger.
#[must_use]
pub fn total_of_containers<'a>(
    spec: &'a PodSpec,
    list: impl Fn(&'a Container) -> Option<&'a ResourceList>,
) -> ResourceList {
    let mut total = ResourceList::default();
    spec.containers().iter().filter_map(&list).for_each(|one| total.add_all(one));
    let (mut sidecars, mut initial) = (ResourceList::default(), ResourceList::default());
    for container in spec.init_containers() {
        let own = list(container);
        if container.is_sidecar {
            own.into_iter().for_each(|own| {
                total.add_all(own);
                sidecars.add_all(own);
            });
            initial.max_all(&sidecars);
        } else {
            let mut during = own.cloned().unwrap_or_default();
            during.add_all(&sidecars);
            initial.max_all(&during);
        }
    }
    total.max_all(&initial);
    total
}
