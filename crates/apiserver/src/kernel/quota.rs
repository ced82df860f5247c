//! ResourceQuota admission: an object is charged to the quotas of its namespace before it is stored, and refused if it
//! exceeds one of them.
//!
//! Parity: k8s.io/apiserver/pkg/admission/plugin/resourcequota.

use jiff::Timestamp;
use keleustes_objects::quota::{
    DeviceClasses, Evaluator, OldestClaims, PodUsageOptions, is_ignored_by_quota, is_terminating,
    missing_resources, object_count_alias, object_count_name, persistent_volume_claim_matches_scope,
    persistent_volume_claim_usage, pod_matches_scope, pod_usage, resource_claim_usage, service_usage,
    verified_pod,
};
use keleustes_objects::{
    DeviceClass, InternedStr, Key, PersistentVolumeClaim, Pod, Quantity, ResourceClaim, ResourceList,
    ResourceQuota, ScopeRequirement, Service,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::fields::{FieldSet, ManagedFieldsEntry, Operation, record_update};
use super::metadata::meta_str;
use super::request::Target;
use super::resources::{self, Resource};
use super::status::{ApiResult, Status};
use super::{Kernel, prepare, seconds};

/// A write that may be charged.
pub(crate) struct Charge<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: Option<&'a str>,
    /// The stored object, if it is an update.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
    pub(crate) dry_run: bool,
    pub(crate) now: Timestamp,
}

impl<'a> Charge<'a> {
    /// An update of a stored object.
    pub(crate) fn of_update(
        target: &'a Target,
        objects: [&'a Value; 2],
        dry_run: bool,
        now: Timestamp,
    ) -> Self {
        let (resource, subresource) = (target.resource.stored(), target.subresource.as_deref());
        let [old, new] = objects;
        Self { resource, subresource, old: Some(old), new, dry_run, now }
    }
}

/// An object that quotas may limit.
enum Charged {
    Pod(Box<Pod>),
    Service(Box<Service>),
    PersistentVolumeClaim(Box<PersistentVolumeClaim>),
    ResourceClaim(Box<ResourceClaim>),
    Counted { group: String, plural: String },
}

impl Kernel {
    /// Charges a write to the quotas of its namespace.
    pub(crate) fn charge_quotas(&mut self, charge: &Charge<'_>) -> ApiResult<()> {
        let quotas = resources::by_path("", "v1", "resourcequotas");
        let namespace = meta_str(charge.new, "namespace").to_owned();
        let Some(quotas) = quotas.filter(|_| !namespace.is_empty() && charge.is_handled()) else {
            return Ok(());
        };
        let all = self.store.values(quotas, Some(&namespace));
        if all.is_empty() {
            return Ok(());
        }
        let devices = self.device_context(charge.resource, &namespace);
        // Every object must fit all quotas in form before its usage is compared with any.
        let mut limiting = Vec::new();
        for stored in all {
            let Ok(quota) = serde_json::from_value::<ResourceQuota>((*stored).clone()) else { continue };
            if charge.is_limited_by(&quota, &devices)? {
                limiting.push((stored, quota));
            }
        }
        let mut updated = Vec::new();
        for (stored, quota) in limiting {
            if let Some(used) = charge.usage_after(&quota, &devices)? {
                let mut charged = (*stored).clone();
                charged["status"]["used"] = json!(used);
                let reset_fields = prepare::reset_fields(quotas, Some("status"));
                record_update(quotas.node(), &stored, &mut charged, &charge.manager(), reset_fields, false);
                updated.push(charged);
            }
        }
        for quota in updated.into_iter().filter(|_| !charge.dry_run) {
            let event = self.store.put(quotas, quota);
            self.publish(&event, charge.now);
        }
        Ok(())
    }

    /// What the usage of a ResourceClaim depends on; empty for other kinds.
    fn device_context(&self, resource: &Resource, namespace: &str) -> DeviceContext {
        if Evaluator::of(resource.group, resource.plural) != Some(Evaluator::ResourceClaims) {
            return DeviceContext::default();
        }
        let classes: Vec<DeviceClass> = self.read_all("resource.k8s.io", "deviceclasses", None);
        DeviceContext {
            classes: DeviceClasses::of(classes.iter()),
            pods: self.read_all("", "pods", Some(namespace)),
            claims: self.read_all("resource.k8s.io", "resourceclaims", Some(namespace)),
        }
    }

    fn read_all<T: DeserializeOwned>(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<T> {
        let resource = resources::by_path(group, "v1", plural);
        let objects = resource.map(|resource| self.store.values(resource, namespace)).unwrap_or_default();
        objects.iter().filter_map(|object| read(object)).collect()
    }
}

/// DeviceClasses, and the pods and ResourceClaims of the namespace.
#[derive(Default)]
struct DeviceContext {
    classes: DeviceClasses,
    pods: Vec<Pod>,
    claims: Vec<ResourceClaim>,
}

impl DeviceContext {
    /// A claim that the scheduler created for a pod's extended resources costs what the pod is not charged already.
    fn claim_usage(&self, claim: &ResourceClaim, options: PodUsageOptions) -> ResourceList {
        let by_key = |key: &Key| self.pods.iter().find(|pod| pod.meta.key == *key);
        let pod = verified_pod(claim, by_key, &OldestClaims::of(self.claims.iter()));
        let charged = pod.map(|pod| pod_usage(pod, options));
        resource_claim_usage(claim, &self.classes, charged.as_ref())
    }
}

impl Charge<'_> {
    /// The API server's entry in the `managedFields` of a quota, without fields.
    fn manager(&self) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            name: "kube-apiserver".to_owned(),
            operation: Operation::Update,
            api_version: "v1".to_owned(),
            subresource: "status".to_owned(),
            time: seconds(self.now),
            fields: FieldSet::new(),
        }
    }

    fn options(&self) -> PodUsageOptions {
        PodUsageOptions { pod_level_resources: true, now_nanoseconds: self.now.as_nanosecond() }
    }

    /// Whether such a write can raise usage.
    fn is_handled(&self) -> bool {
        let (group, plural) = (self.resource.group, self.resource.plural);
        if is_ignored_by_quota(group, plural) {
            return false;
        }
        match (Evaluator::of(group, plural), self.subresource) {
            (Some(Evaluator::Pods), None) => {
                let deadline = |pod: &Value| read::<Pod>(pod).is_some_and(|pod| is_terminating(&pod));
                self.old.is_none_or(|old| deadline(old) != deadline(self.new))
            }
            (Some(Evaluator::Pods), Some("resize")) => self.old.is_some(),
            (Some(Evaluator::PersistentVolumeClaims), Some("status")) => self.old.is_some(),
            (Some(Evaluator::Pods), _) => false,
            (Some(_), None) => true,
            (None, None) => self.old.is_none(),
            _ => false,
        }
    }

    /// Whether the quota limits the new object, which then must state what the quota restricts.
    fn is_limited_by(&self, quota: &ResourceQuota, devices: &DeviceContext) -> ApiResult<bool> {
        let hard = quota.status.hard.clone().unwrap_or_default();
        let used = quota.status.used.clone().unwrap_or_default();
        let Some(object) = self.charged(self.new) else { return Ok(false) };
        if !object.is_limited_by(quota, devices, self.options()) {
            return Ok(false);
        }
        let restricted: Vec<&str> = hard
            .names()
            .map(InternedStr::as_str)
            .filter(|name| object.is_charged_to(name, devices))
            .collect();
        if let Charged::Pod(pod) = &object
            && let Some(missing) = missing_resources(pod, restricted.iter().copied())
        {
            return Err(
                self.refuse(&format!("failed quota: {}: must specify {missing}", quota.meta.key.name))
            );
        }
        if restricted.iter().any(|name| used.amount(name).is_none()) {
            let (name, restricted) = (&quota.meta.key.name, restricted.join(","));
            return Err(self.refuse(&format!("status unknown for quota: {name}, resources: {restricted}")));
        }
        Ok(true)
    }

    /// The usage of a quota after the write; `None` if the write does not change it.
    fn usage_after(&self, quota: &ResourceQuota, devices: &DeviceContext) -> ApiResult<Option<ResourceList>> {
        let hard = quota.status.hard.clone().unwrap_or_default();
        let Some(object) = self.charged(self.new) else { return Ok(None) };
        let mut requested = object.usage(devices, self.options());
        let before = self.old.and_then(|old| self.charged(old));
        if let Some(before) = before.filter(|one| one.is_limited_by(quota, devices, self.options())) {
            requested = requested.minus_not_negative(&before.usage(devices, self.options()));
        }
        requested = requested.iter().filter(|(_, amount)| !amount.is_zero()).cloned().collect();
        requested.retain(|name| hard.amount(name).is_some());
        if requested.is_empty() {
            return Ok(None);
        }
        let mut new_usage = quota.status.used.clone().unwrap_or_default();
        new_usage.add_all(&requested);
        self.check_limits(quota, &hard, &requested, &new_usage)?;
        Ok(Some(new_usage))
    }

    fn check_limits(
        &self,
        quota: &ResourceQuota,
        hard: &ResourceList,
        requested: &ResourceList,
        new_usage: &ResourceList,
    ) -> ApiResult<()> {
        let is_exceeded = |name: &InternedStr| {
            requested.amount(name).is_some() && new_usage.amount(name) > hard.amount(name)
        };
        if self.subresource == Some("status") || !hard.names().any(is_exceeded) {
            return Ok(());
        }
        let used = quota.status.used.clone().unwrap_or_default();
        Err(self.refuse(&format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.meta.key.name,
            requested.masked(is_exceeded),
            used.masked(is_exceeded),
            hard.masked(is_exceeded)
        )))
    }

    fn refuse(&self, why: &str) -> Box<Status> {
        Status::forbidden(self.resource, meta_str(self.new, "name"), why)
    }

    fn charged(&self, object: &Value) -> Option<Charged> {
        let (group, plural) = (self.resource.group, self.resource.plural);
        Some(match Evaluator::of(group, plural) {
            Some(Evaluator::Pods) => Charged::Pod(Box::new(read(object)?)),
            Some(Evaluator::Services) => Charged::Service(Box::new(read(object)?)),
            Some(Evaluator::PersistentVolumeClaims) => {
                Charged::PersistentVolumeClaim(Box::new(read(object)?))
            }
            Some(Evaluator::ResourceClaims) => Charged::ResourceClaim(Box::new(read(object)?)),
            None => Charged::Counted { group: group.to_owned(), plural: plural.to_owned() },
        })
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

impl Charged {
    /// Whether a quota limits the object: it is in all scopes, and some limit names what it is charged to. An invalid
    /// scope matches nothing.
    fn is_limited_by(
        &self,
        quota: &ResourceQuota,
        devices: &DeviceContext,
        options: PodUsageOptions,
    ) -> bool {
        let is_in_scope = |scope: ScopeRequirement| match self {
            Self::Pod(pod) => pod_matches_scope(pod, &scope, options).unwrap_or(false),
            Self::PersistentVolumeClaim(claim) => {
                persistent_volume_claim_matches_scope(claim, &scope).unwrap_or(false)
            }
            _ => false,
        };
        let hard = quota.status.hard.as_ref();
        hard.is_some_and(|hard| hard.names().any(|name| self.is_charged_to(name, devices)))
            && quota.spec.scope_requirements().all(is_in_scope)
    }

    fn is_charged_to(&self, name: &str, devices: &DeviceContext) -> bool {
        let classes = &devices.classes;
        match self {
            Self::Pod(_) => Evaluator::Pods.matches(name, classes),
            Self::Service(_) => Evaluator::Services.matches(name, classes),
            Self::PersistentVolumeClaim(_) => Evaluator::PersistentVolumeClaims.matches(name, classes),
            Self::ResourceClaim(_) => Evaluator::ResourceClaims.matches(name, classes),
            Self::Counted { group, plural } => {
                name == object_count_name(group, plural) || object_count_alias(group, plural) == Some(name)
            }
        }
    }

    fn usage(&self, devices: &DeviceContext, options: PodUsageOptions) -> ResourceList {
        match self {
            Self::Pod(pod) => pod_usage(pod, options),
            Self::Service(service) => service_usage(service),
            Self::PersistentVolumeClaim(claim) => persistent_volume_claim_usage(claim),
            Self::ResourceClaim(claim) => devices.claim_usage(claim, options),
            Self::Counted { group, plural } => {
                let alias = object_count_alias(group, plural).map(InternedStr::from);
                let names = [Some(InternedStr::from(&*object_count_name(group, plural))), alias];
                names.into_iter().flatten().map(|name| (name, Quantity::from_whole(1))).collect()
            }
        }
    }
}
