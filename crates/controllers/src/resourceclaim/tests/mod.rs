//! Reconciles of pods, PodGroups and claims against a small cluster.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
mod claims;
mod descriptor;
mod enqueue;
mod metrics;
mod pod_groups;
mod pods;
mod reservations;

use keleustes_objects::{ApiError, ErrorReason, Key, Kind};
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

/// A loop with its cluster.
struct TestCluster {
    a_loop: Loop,
    rehearsal: RehearsalCluster,
    version: u32,
}

fn test_cluster() -> TestCluster {
    with_options(ResourceClaimOptions::default())
}

/// With the gates of PodGroups on.
fn with_pod_groups() -> TestCluster {
    with_options(ResourceClaimOptions {
        enable_generic_workload: true,
        enable_workload_claims: true,
        ..ResourceClaimOptions::default()
    })
}

fn with_options(options: ResourceClaimOptions) -> TestCluster {
    let a_loop = controller(&options).loops.remove(0);
    let rehearsal = RehearsalCluster::of(&a_loop);
    TestCluster { a_loop, rehearsal, version: 0 }
}

impl TestCluster {
    /// Puts an object into the cache and returns the enqueued items.
    fn put<T: Kind>(&mut self, mut json: Value) -> Vec<String> {
        self.version += 1;
        json["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.rehearsal.put::<T>(&self.a_loop, json)
    }

    fn take<T: Kind>(&mut self, name: &str) -> Vec<String> {
        self.rehearsal.take::<T>(&self.a_loop, &Key::namespaced("a", name))
    }

    fn with<T: Kind>(mut self, json: Value) -> Self {
        self.put::<T>(json);
        self
    }

    fn live<T: Kind>(mut self, json: Value) -> Self {
        self.rehearsal = self.rehearsal.with_live::<T>(json);
        self
    }

    fn failing<T: Kind>(mut self, verb: &str, name: &str, reason: ErrorReason) -> Self {
        let failure = ApiError::transport(reason, "refused");
        self.rehearsal = self.rehearsal.failing::<T>(verb, &Key::namespaced("a", name), failure);
        self
    }

    fn reconcile(&mut self, kind: fn(Key) -> ClaimItem, name: &str) -> String {
        self.rehearsal.reconcile(&self.a_loop, kind(Key::namespaced("a", name)))
    }

    fn pod(&mut self) -> String {
        self.reconcile(ClaimItem::Pod, "web")
    }

    fn claim(&mut self, name: &str) -> String {
        self.reconcile(ClaimItem::Claim, name)
    }

    fn bodies(&mut self, kind: fn(Key) -> ClaimItem, name: &str, beginning: &str) -> Vec<Value> {
        let item = kind(Key::namespaced("a", name));
        let bodies = self.rehearsal.bodies(&self.a_loop, item, beginning);
        bodies.into_iter().map(|(_, body)| body).collect()
    }

    fn outline(&mut self, kind: fn(Key) -> ClaimItem, name: &str) -> String {
        self.rehearsal.outline(&self.a_loop, kind(Key::namespaced("a", name)))
    }
}

/// Pod `a/web` with UID `u-web` and these entries.
fn pod(entries: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "u-web"},
        "spec": {"resourceClaims": entries},
        "status": {"phase": "Pending"},
    })
}

/// The pod with one entry `gpu` from template `t`.
fn templated() -> Value {
    pod(json!([from_template("gpu", "t")]))
}

/// The pod with its claim `web-gpu-1` recorded.
fn recorded() -> Value {
    let mut pod = templated();
    pod["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": "web-gpu-1"}]);
    pod
}

fn bound(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!("n");
    pod
}

fn with_phase(mut pod: Value, phase: &str) -> Value {
    pod["status"]["phase"] = json!(phase);
    pod
}

fn terminating(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    object
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn from_template(name: &str, template: &str) -> Value {
    json!({"name": name, "resourceClaimTemplateName": template})
}

fn direct(name: &str, claim: &str) -> Value {
    json!({"name": name, "resourceClaimName": claim})
}

/// Template `t` in namespace `a`.
fn template() -> Value {
    json!({
        "metadata": {"name": "t", "namespace": "a"},
        "spec": {
            "metadata": {"labels": {"l": "v"}, "annotations": {"k": "w"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}, "fromTheFuture": 1}]}},
        },
    })
}

/// A claim without an owner.
fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": format!("u-{name}")}, "spec": {"devices": {}}})
}

/// A claim that was generated for entry `gpu` of pod `a/web`.
fn generated(name: &str) -> Value {
    let mut claim = claim(name);
    claim["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "gpu"});
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u-web", "controller": true}]);
    claim
}

/// The claim allocated, protected by the scheduler's finalizer and reserved for these consumers.
fn allocated(mut claim: Value, consumers: &[Value]) -> Value {
    claim["metadata"]["finalizers"] = json!(["example.com/mine", "resource.kubernetes.io/delete-protection"]);
    claim["status"] = json!({
        "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}},
        "reservedFor": consumers,
        "devices": [{"driver": "d", "pool": "p", "device": "x"}],
    });
    claim
}

/// A reservation for a pod with UID `u-NAME`.
fn by_pod(name: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": format!("u-{name}")})
}

fn by_pod_group(name: &str) -> Value {
    json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": format!("u-{name}")})
}

/// The line of the event for entry `gpu` and the retry, with this error.
fn refused(error: &str) -> String {
    format!(
        "event Warning FailedResourceClaimCreation on Pod a/web uid=u-web: PodResourceClaim gpu: {error}\n\
         retry: PodResourceClaim gpu: {error}\n"
    )
}
