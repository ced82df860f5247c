//! Keeps a ServiceCIDR until no Service address depends on it, and sets its Ready condition.
//!
//! A finalizer holds a deleted ServiceCIDR while an IPAddress of the API server's allocator lies in no other one. The
//! finalizer is removed 10 s after the deletion at the earliest, when the allocators have observed it.
//!
//! Parity: pkg/controller/servicecidrs/.

use std::net::IpAddr;
use std::time::Duration;

use keleustes_objects::{Conditions as _, ErrorReason, FALSE, IpAddress, Key, ServiceCidr, TRUE, Time};
use keleustes_plan::{
    Change, Controller, Effects, Grant, InvolvedObject, Loop, Outcome, PatchKind, Plan, PlannedEvent, View,
    Write,
};
use serde_json::json;

use crate::cidr::Cidr;

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new(NAME)
        .service_account("service-cidrs-controller")
        .event_component(NAME)
        .may_write(&[
            Grant {
                group: GROUP,
                resource: "servicecidrs",
                verbs: &["get", "list", "watch", "patch", "update"],
            },
            Grant { group: GROUP, resource: "servicecidrs/finalizers", verbs: &["patch", "update"] },
            Grant { group: GROUP, resource: "servicecidrs/status", verbs: &["patch", "update"] },
            Grant { group: GROUP, resource: "ipaddresses", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            // The queue is named after what the original meant to watch.
            Loop::deciding("ipaddresses", decide)
                .workers(5)
                .max_retries(15)
                .keyed_by::<ServiceCidr>()
                .enqueue_on::<ServiceCidr>(service_cidr_changed)
                .enqueue_on::<IpAddress>(ip_address_changed),
        )
}

/// The name, which is also the field manager of the status.
const NAME: &str = "service-cidr-controller";
const GROUP: &str = "networking.k8s.io";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
const IP_FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

/// How long after the deletion the allocators of all API servers have observed it.
const DELETION_GRACE: Duration = Duration::from_secs(10);

/// A new ServiceCIDR may cover a terminating one, or be covered by it; any other change concerns only itself. One that
/// was deleted and created again between two lists is new.
fn service_cidr_changed(change: &Change<ServiceCidr>, view: &View<'_>, enqueue: &mut Effects) {
    let latest = change.latest();
    enqueue.add(&latest.meta.key);
    let is_new = change.old().is_none_or(|old| old.meta.uid != latest.meta.uid);
    if !is_new || change.is_deletion() {
        return;
    }
    let ranges = ranges(latest);
    let overlaps = |other: &ServiceCidr| {
        self::ranges(other).iter().any(|range| ranges.iter().any(|new| new.overlaps(range)))
    };
    for other in
        view.all::<ServiceCidr>().filter(|other| other.meta.key != latest.meta.key && overlaps(other))
    {
        enqueue.add(&other.meta.key);
    }
}

/// An address that is added or deleted concerns the ServiceCIDRs that contain it.
fn ip_address_changed(change: &Change<IpAddress>, view: &View<'_>, enqueue: &mut Effects) {
    if change.old().is_some() == change.new().is_some() {
        return;
    }
    let Some(address) = managed_address(change.latest()) else { return };
    containing(view, address).for_each(|range| enqueue.add(&range.meta.key));
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(range) = view.get::<ServiceCidr>(item) else { return Plan::none() };
    let now = view.now();
    let Some(deleted_at) = range.meta.deletion_timestamp else {
        return keep_ready(range, now.wall);
    };
    if is_blocked(view, range) {
        let blocked = Ready {
            status: FALSE,
            reason: "Terminating",
            message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                      ServiceCIDR",
        };
        return blocked.write(range, now.wall).map_or_else(Plan::none, Plan::of);
    }
    let grace_ends =
        i128::from(deleted_at.unix_seconds()) * 1_000_000_000 + DELETION_GRACE.as_nanos() as i128;
    let remaining = u64::try_from(grace_ends - now.wall_nanoseconds())
        .unwrap_or_else(|_| if grace_ends > now.wall_nanoseconds() { u64::MAX } else { 0 });
    if remaining > 0 {
        let mut plan = Plan::none();
        plan.requeue_after(
            Duration::from_nanos(remaining),
            "the grace period before its finalizer is removed",
        );
        return plan;
    }
    remove_finalizer(range)
}

/// Adds the finalizer before the condition says that the range can be used.
fn keep_ready(range: &ServiceCidr, now: Time) -> Plan {
    let mut plan = Plan::none();
    if !has_finalizer(range) {
        let body = json!({"metadata": {"finalizers": [FINALIZER]}});
        plan.push(
            Write::patch(range, PatchKind::Strategic, body)
                .ignoring_errors(&[ErrorReason::NotFound])
                .because("the ServiceCIDR lacks the finalizer"),
        );
    }
    let ready = Ready { status: TRUE, reason: "", message: "Kubernetes Service CIDR is ready" };
    if let Some(write) = ready.write(range, now) {
        let involved = InvolvedObject::of(range);
        plan.push(write.record_on_outcome(move |outcome| {
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            let event = || PlannedEvent::warning(involved.clone(), "KubernetesServiceCIDRError", message);
            matches!(outcome, Outcome::Failed(_)).then(event)
        }));
    }
    plan
}

fn remove_finalizer(range: &ServiceCidr) -> Plan {
    if !has_finalizer(range) {
        return Plan::none();
    }
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    let write = Write::patch(range, PatchKind::Strategic, body).ignoring_errors(&[ErrorReason::NotFound]);
    Plan::of(write.because("no IPAddress depends on the ServiceCIDR"))
}

/// A Ready condition.
struct Ready {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

impl Ready {
    /// Applies the condition; `None` if the object has it already.
    fn write(&self, range: &ServiceCidr, now: Time) -> Option<Write> {
        let Self { status, reason, message } = *self;
        let is_current = range.conditions.of_type("Ready").is_some_and(|current| {
            (&*current.status, &*current.reason, current.message.as_str()) == (status, reason, message)
        });
        // The empty reason is sent: the field is required.
        let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now});
        let write = Write::apply(range, NAME, json!({"status": {"conditions": [condition]}}));
        (!is_current)
            .then(|| write.on_subresource("status").because(format!("its Ready condition is not {status}")))
    }
}

/// Whether removing the range would leave an address without one. A range that others contain completely is not
/// needed; then the addresses do not matter.
fn is_blocked(view: &View<'_>, range: &ServiceCidr) -> bool {
    let is_covered = |cidr: &Cidr| {
        let others = view.all::<ServiceCidr>().filter(|other| other.meta.key != range.meta.key);
        others.into_iter().any(|other| ranges(other).iter().any(|outer| outer.contains(cidr)))
    };
    let own = ranges(range);
    if own.iter().all(is_covered) {
        return false;
    }
    view.all::<IpAddress>().any(|object| {
        let family = object.meta.labels.value(IP_FAMILY).map_or("", |family| &**family);
        let is_of_family = |cidr: &Cidr| family == if cidr.is_ipv6() { "IPv6" } else { "IPv4" };
        own.iter().any(is_of_family)
            && managed_address(object).is_some_and(|address| is_last_range_of(view, &range.meta.key, address))
    })
}

/// Whether this ServiceCIDR, and no other, contains the address.
fn is_last_range_of(view: &View<'_>, key: &Key, address: IpAddr) -> bool {
    let mut found = containing(view, address).map(|range| &range.meta.key);
    found.next() == Some(key) && found.next().is_none()
}

/// The ServiceCIDRs that contain an address.
fn containing<'v>(view: &View<'v>, address: IpAddr) -> impl Iterator<Item = &'v ServiceCidr> {
    let contains =
        move |range: &&ServiceCidr| ranges(range).iter().any(|cidr| cidr.contains_service_address(address));
    view.all::<ServiceCidr>().map(|range| &**range).filter(contains)
}

/// The ranges of a ServiceCIDR; malformed ones are skipped.
fn ranges(range: &ServiceCidr) -> Vec<Cidr> {
    range.cidrs.iter().filter_map(|text| Cidr::parse_strictly(text)).collect()
}

/// The address of an IPAddress that the API server's allocator manages.
fn managed_address(object: &IpAddress) -> Option<IpAddr> {
    let is_managed = object.meta.labels.value(MANAGED_BY).is_some_and(|manager| &**manager == ALLOCATOR);
    object.meta.key.name.parse().ok().filter(|_| is_managed)
}

fn has_finalizer(range: &ServiceCidr) -> bool {
    range.meta.finalizers.iter().any(|finalizer| *finalizer == FINALIZER)
}

#[cfg(test)]
mod tests;
