//! Which objects are charged, to which names, and how much.

#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use serde_json::{Value, json};

use super::*;
use crate::{
    DeviceClass, PersistentVolumeClaim, Pod, ResourceClaim, ResourceList, ScopeRequirement, Service, Time,
};

/// 2026-01-01T00:00:00Z.
const NOW: i64 = 1_767_225_600;

const OPTIONS: PodUsageOptions =
    PodUsageOptions { pod_level_resources: true, now_nanoseconds: NOW as i128 * 1_000_000_000 };

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

fn pod(spec: Value, status: Value) -> Pod {
    read(json!({"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": spec, "status": status}))
}

fn usage(spec: Value, status: Value) -> String {
    pod_usage(&pod(spec, status), OPTIONS).to_string()
}

/// A container with requests and limits.
fn container(name: &str, requests: Value, limits: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

/// The usage of one resource of a pod.
fn amount(pod: &Pod, name: &str) -> String {
    pod_usage(pod, OPTIONS).amount(name).map_or("none".to_owned(), |amount| amount.to_string())
}

/// Proves RQ-40, RQ-41.
#[test]
fn pod_names_are_matched() {
    let none = DeviceClasses::default();
    let matched = [
        "count/pods",
        "pods",
        "cpu",
        "requests.cpu",
        "limits.cpu",
        "memory",
        "limits.memory",
        "ephemeral-storage",
        "limits.ephemeral-storage",
        "hugepages-2Mi",
        "requests.hugepages-1Gi",
        "requests.example.com/gpu",
        "requests.deviceclass.resource.kubernetes.io/gpu",
    ];
    for name in matched {
        assert!(Evaluator::Pods.matches(name, &none), "{name}");
    }
    let others = [
        "count/pods.apps",
        "limits.hugepages-2Mi",
        "limits.example.com/gpu",
        "example.com/gpu",
        "requests.foo",
        "requests.kubernetes.io/x",
        "deviceclass.resource.kubernetes.io/gpu",
        "requests.storage",
        "services",
    ];
    for name in others {
        assert!(!Evaluator::Pods.matches(name, &none), "{name}");
    }
}

/// Proves RQ-42, RQ-43, RQ-44.
#[test]
fn charged_pod_uses_requests_and_limits_under_their_quota_names() {
    let spec = json!({"containers": [
        container("a", json!({"cpu": "500m", "hugepages-2Mi": "4Mi", "example.com/gpu": "1",
            "deviceclass.resource.kubernetes.io/fast": "2", "storage": "1", "requests.x/y": "1"}),
            json!({"cpu": "1", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"})),
        container("b", json!({"cpu": "250m", "ephemeral-storage": "1Gi"}), json!({"ephemeral-storage": "2Gi"}))]});
    assert_eq!(
        usage(spec.clone(), json!({})),
        "count/pods=1,cpu=750m,ephemeral-storage=1Gi,hugepages-2Mi=4Mi,limits.cpu=1,limits.ephemeral-storage=2Gi,\
         pods=1,requests.cpu=750m,requests.deviceclass.resource.kubernetes.io/fast=2,requests.ephemeral-storage=1Gi,\
         requests.example.com/gpu=1,requests.hugepages-2Mi=4Mi"
    );
    assert_eq!(usage(spec, json!({"phase": "Succeeded"})), "count/pods=1");
    assert_eq!(usage(json!({"containers": [{"name": "a"}]}), json!({})), "count/pods=1,pods=1");
}

/// Proves RQ-45, RQ-122.
#[test]
fn finished_and_overdue_pods_are_not_charged() {
    let charged = |phase: &str, deleted: i64, grace: Option<i64>, nanoseconds: i128| {
        let mut json = json!({"metadata": {"name": "p"}, "status": {"phase": phase},
            "spec": {"containers": [], "ephemeralContainers": [container("e", json!({"cpu": "1"}), json!({}))]}});
        if deleted != 0 {
            json["metadata"]["deletionTimestamp"] = json!(Time::from_unix_seconds(NOW + deleted));
        }
        json["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        let pod: Pod = read(json);
        assert_eq!(amount(&pod, "cpu"), "none", "ephemeral containers are not counted");
        is_charged(&pod, i128::from(NOW) * 1_000_000_000 + nanoseconds)
    };
    for (phase, is_charged) in [
        ("", true),
        ("Pending", true),
        ("Running", true),
        ("Unknown", true),
        ("Succeeded", false),
        ("Failed", false),
    ] {
        assert_eq!(charged(phase, 0, None, 0), is_charged, "{phase}");
    }
    // The grace period of 30 s is added to the deletionTimestamp.
    assert!(charged("Running", -30, Some(30), 0));
    assert!(!charged("Running", -30, Some(30), 1));
    assert!(charged("Running", -29, Some(30), 999_999_999));
    assert!(!charged("Running", -1, Some(0), 0));
    assert!(charged("Running", -9999, None, 0), "without a grace period it is charged until it is gone");
}

/// Proves RQ-46, RQ-104.
#[test]
fn resized_pod_uses_the_largest_of_wanted_allocated_and_actual() {
    let resized = |wanted: &str, allocated: Option<&str>, actual: Option<&str>| {
        let mut status = json!({"name": "a"});
        if let Some(allocated) = allocated {
            status["allocatedResources"] = json!({"cpu": allocated});
        }
        if let Some(actual) = actual {
            status["resources"] = json!({"requests": {"cpu": actual}});
        }
        let status = json!({"containerStatuses": [status, {"name": "gone", "allocatedResources": {"cpu": "9"}}],
            "allocatedResources": {"cpu": "99"}, "resources": {"requests": {"cpu": "99"}}});
        let spec = json!({"containers": [container("a", json!({"cpu": wanted}), json!({})),
            container("b", json!({"cpu": "1"}), json!({}))]});
        amount(&pod(spec, status), "cpu")
    };
    assert_eq!(resized("2", None, None), "3");
    assert_eq!(resized("2", Some("2"), Some("2")), "3");
    assert_eq!(resized("4", Some("2"), Some("2")), "5", "upwards, what is wanted counts at once");
    assert_eq!(resized("1", Some("3"), Some("3")), "4", "downwards, what is allocated counts");
    assert_eq!(resized("1", Some("1"), Some("3")), "4", "until the container has no more");
    assert_eq!(resized("1", Some("2"), None), "3");
    assert_eq!(resized("1", None, Some("2")), "3");
    assert_eq!(resized("1", Some("1"), Some("1")), "2");
}

/// Proves RQ-47.
#[test]
fn infeasible_resize_is_not_charged() {
    let resized = |condition: &str, reason: &str| {
        let status = json!({
            "conditions": [{"type": condition, "status": "False", "reason": reason}],
            "containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"},
                "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}]});
        let spec = json!({"containers": [container("a", json!({"cpu": "8"}), json!({"cpu": "9"})),
            container("b", json!({"cpu": "1"}), json!({"cpu": "1"}))]});
        let pod = pod(spec, status);
        format!("{} {}", amount(&pod, "cpu"), amount(&pod, "limits.cpu"))
    };
    assert_eq!(resized("PodResizePending", "Infeasible"), "2 3", "nor do specs count as fallback");
    assert_eq!(resized("PodResizePending", "Deferred"), "9 10");
    assert_eq!(resized("Other", "Infeasible"), "9 10");
}

/// Proves RQ-48, RQ-49.
#[test]
fn init_containers_count_with_the_sidecars_before_them() {
    let total = |init: &[(&str, bool)]| {
        let init: Vec<_> = init
            .iter()
            .enumerate()
            .map(|(at, (cpu, is_sidecar))| {
                let mut one = container(&format!("i{at}"), json!({"cpu": cpu}), json!({}));
                if *is_sidecar {
                    one["restartPolicy"] = json!("Always");
                }
                one
            })
            .collect();
        let containers =
            [container("a", json!({"cpu": "2"}), json!({})), container("b", json!({"cpu": "1"}), json!({}))];
        amount(&pod(json!({"containers": containers, "initContainers": init}), json!({})), "cpu")
    };
    assert_eq!(total(&[]), "3");
    assert_eq!(total(&[("2", false)]), "3");
    assert_eq!(total(&[("5", false), ("4", false)]), "5", "one at a time");
    assert_eq!(total(&[("1", true)]), "4", "a sidecar runs beside the containers");
    assert_eq!(total(&[("1", true), ("5", false)]), "6", "and beside later init containers");
    assert_eq!(total(&[("5", false), ("1", true)]), "5", "not beside earlier ones");
    assert_eq!(total(&[("1", true), ("3", false), ("2", true)]), "6");
    assert_eq!(total(&[("1", true), ("1", true), ("6", false)]), "8");
}

/// Proves RQ-50, RQ-51, RQ-123.
#[test]
fn pod_level_resources_replace_totals_and_overhead_is_added() {
    let spec = json!({
        "containers": [container("a", json!({"cpu": "1", "memory": "1Gi", "example.com/x": "1"}), json!({"memory": "2Gi"}))],
        "resources": {"requests": {"cpu": "3", "example.com/x": "7"}, "limits": {"cpu": "4"}},
        "overhead": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi"}});
    let with = pod_usage(&pod(spec.clone(), json!({})), OPTIONS).to_string();
    assert_eq!(
        with,
        "count/pods=1,cpu=3100m,ephemeral-storage=1Gi,limits.cpu=4100m,limits.memory=3Gi,memory=2Gi,pods=1,\
         requests.cpu=3100m,requests.ephemeral-storage=1Gi,requests.example.com/x=1,requests.memory=2Gi"
    );
    let off = PodUsageOptions { pod_level_resources: false, ..OPTIONS };
    let without = pod_usage(&pod(spec, json!({})), off);
    assert_eq!(
        (without.amount("cpu").unwrap().to_string(), without.amount("limits.cpu")),
        ("1100m".into(), None)
    );
    // A limit of zero does not grow either.
    let zero =
        json!({"containers": [container("a", json!({}), json!({"cpu": "0"}))], "overhead": {"cpu": "1"}});
    assert_eq!(amount(&pod(zero, json!({})), "limits.cpu"), "0");
}

fn requirement(scope: &str, operator: &str, values: &[&str]) -> ScopeRequirement {
    read(json!({"scopeName": scope, "operator": operator, "values": values}))
}

fn matches(pod: &Pod, scope: &str, operator: &str, values: &[&str]) -> Option<bool> {
    pod_matches_scope(pod, &requirement(scope, operator, values), OPTIONS).ok()
}

/// Proves RQ-52, RQ-53, RQ-55, RQ-56.
#[test]
fn scopes_match_pods() {
    let is =
        |spec: Value, status: Value, scope: &str| matches(&pod(spec, status), scope, "Exists", &[]).unwrap();
    let deadline = |seconds: Value| json!({"containers": [], "activeDeadlineSeconds": seconds});
    assert!(is(deadline(json!(0)), json!({}), "Terminating"));
    assert!(!is(deadline(json!(0)), json!({}), "NotTerminating"));
    assert!(!is(deadline(json!(-1)), json!({}), "Terminating"));
    assert!(is(deadline(Value::Null), json!({}), "NotTerminating"));
    let requests = |requests: Value| json!({"containers": [container("a", requests, json!({}))]});
    assert!(is(requests(json!({"cpu": "0", "ephemeral-storage": "1"})), json!({}), "BestEffort"));
    assert!(is(requests(json!({"cpu": "1m"})), json!({}), "NotBestEffort"));
    assert!(is(requests(json!({"cpu": "1m"})), json!({"qosClass": "BestEffort"}), "BestEffort"));
    assert!(!is(requests(json!({})), json!({"qosClass": "Burstable"}), "BestEffort"));
    let init =
        json!({"containers": [], "initContainers": [container("i", json!({}), json!({"memory": "1"}))]});
    assert!(!is(init.clone(), json!({}), "BestEffort"));
    let mut pod_level = init;
    pod_level["resources"] = json!({"limits": {}});
    assert!(is(pod_level, json!({}), "BestEffort"));
    let affinity = |kind: &str, when: &str, term: Value| {
        let spec = json!({"containers": [], "affinity": {kind: {when: [term]}}});
        is(spec, json!({}), "CrossNamespacePodAffinity")
    };
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    assert!(affinity("podAffinity", required, json!({"namespaces": ["b"]})));
    assert!(affinity("podAntiAffinity", required, json!({"namespaceSelector": {}})));
    assert!(affinity("podAffinity", preferred, json!({"podAffinityTerm": {"namespaces": ["b"]}})));
    assert!(!affinity("podAffinity", required, json!({"namespaces": [], "topologyKey": "x"})));
    assert!(!is(json!({"containers": []}), json!({}), "VolumeAttributesClass"));
    assert!(!is(json!({"containers": []}), json!({}), "Mystery"));
}

/// Proves RQ-54.
#[test]
fn priority_class_scope_is_a_label_selector() {
    let class = |name: &str| pod(json!({"containers": [], "priorityClassName": name}), json!({}));
    let (high, none) = (class("high"), class(""));
    let is = |pod: &Pod, operator: &str, values: &[&str]| matches(pod, "PriorityClass", operator, values);
    assert_eq!((is(&high, "Exists", &[]), is(&none, "Exists", &[])), (Some(true), Some(false)));
    assert_eq!((is(&high, "In", &["high", "x"]), is(&none, "In", &["high"])), (Some(true), Some(false)));
    assert_eq!(is(&high, "In", &["x"]), Some(false));
    assert_eq!((is(&high, "NotIn", &["high"]), is(&none, "NotIn", &["high"])), (Some(false), Some(true)));
    assert_eq!((is(&high, "DoesNotExist", &[]), is(&none, "DoesNotExist", &[])), (Some(false), Some(true)));
    let long = "x".repeat(64);
    assert_eq!(
        (is(&high, "In", &[&long]), is(&high, "Like", &["x"]), is(&high, "In", &[])),
        (None, None, None)
    );
}

fn service(spec: Value) -> String {
    service_usage(&read::<Service>(json!({"metadata": {"name": "s"}, "spec": spec}))).to_string()
}

/// Proves RQ-60, RQ-61.
#[test]
fn services_use_load_balancers_and_node_ports() {
    let counts = |load_balancers: i32, node_ports: i32| {
        format!(
            "count/services=1,services=1,services.loadbalancers={load_balancers},services.nodeports={node_ports}"
        )
    };
    let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30001}]);
    assert_eq!(service(json!({"type": "ClusterIP", "ports": ports})), counts(0, 0));
    assert_eq!(service(json!({"type": "ExternalName"})), counts(0, 0));
    assert_eq!(service(json!({"type": "NodePort", "ports": ports})), counts(0, 2));
    assert_eq!(service(json!({"type": "LoadBalancer", "ports": ports})), counts(1, 2));
    let suppressed = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false});
    assert_eq!(service(suppressed), counts(1, 1));
    let on = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": true});
    assert_eq!(service(on), counts(1, 2));
}

fn volume_claim(spec: Value, status: Value, annotations: Value) -> PersistentVolumeClaim {
    read(json!({"metadata": {"name": "c", "annotations": annotations}, "spec": spec, "status": status}))
}

/// Proves RQ-62, RQ-63, RQ-64.
#[test]
fn volume_claims_use_storage_by_class() {
    let usage = |spec: Value, status: Value, annotations: Value| {
        persistent_volume_claim_usage(&volume_claim(spec, status, annotations)).to_string()
    };
    let requests = |storage: &str| json!({"requests": {"storage": storage}});
    let counts = "count/persistentvolumeclaims=1,persistentvolumeclaims=1";
    assert_eq!(usage(json!({"storageClassName": ""}), json!({}), json!({})), counts);
    assert_eq!(
        usage(json!({"resources": requests("1Gi")}), json!({}), json!({})),
        format!("{counts},requests.storage=1Gi")
    );
    assert_eq!(
        usage(json!({"resources": requests("1500m"), "storageClassName": "a.b"}), json!({}), json!({})),
        format!(
            "a.b.storageclass.storage.k8s.io/persistentvolumeclaims=1,a.b.storageclass.storage.k8s.io/requests.storage=2,\
             {counts},requests.storage=2"
        )
    );
    let beta = json!({"volume.beta.kubernetes.io/storage-class": "old"});
    assert!(usage(json!({"storageClassName": "new"}), json!({}), beta).contains("old.storageclass"));
    let grown = |allocated: &str| {
        let status = json!({"allocatedResources": {"storage": allocated}});
        let claim = volume_claim(json!({"resources": requests("2Gi")}), status, json!({}));
        persistent_volume_claim_usage(&claim).amount("requests.storage").unwrap().to_string()
    };
    assert_eq!(
        (grown("1Gi"), grown("3Gi"), grown("2147483648500m")),
        ("2Gi".into(), "3Gi".into(), "2147483649".into())
    );
    let unrequested = volume_claim(json!({}), json!({"allocatedResources": {"storage": "1Gi"}}), json!({}));
    assert_eq!(persistent_volume_claim_usage(&unrequested).amount("requests.storage"), None);
    let names = DeviceClasses::default();
    let is = |name: &str| Evaluator::PersistentVolumeClaims.matches(name, &names);
    assert!(is("a.b.storageclass.storage.k8s.io/requests.storage") && is("requests.storage"));
    assert!(!is("a.storageclass.storage.k8s.io/limits.storage") && !is("limits.storage"));
}

/// Proves RQ-65, RQ-66.
#[test]
fn volume_attributes_classes_of_a_claim_are_a_scope() {
    let is = |claim: &PersistentVolumeClaim, scope: &str, operator: &str, values: &[&str]| {
        persistent_volume_claim_matches_scope(claim, &requirement(scope, operator, values)).ok()
    };
    let vac = "VolumeAttributesClass";
    let none = volume_claim(json!({"volumeAttributesClassName": ""}), json!({}), json!({}));
    assert_eq!((is(&none, vac, "Exists", &[]), is(&none, vac, "In", &["x"])), (Some(false), Some(false)));
    assert_eq!(
        (is(&none, vac, "NotIn", &["x"]), is(&none, vac, "DoesNotExist", &[])),
        (Some(true), Some(true))
    );
    let many = volume_claim(
        json!({"volumeAttributesClassName": "spec"}),
        json!({"currentVolumeAttributesClassName": "current",
            "modifyVolumeStatus": {"targetVolumeAttributesClassName": "target"}}),
        json!({}),
    );
    for class in ["spec", "current", "target"] {
        assert_eq!(is(&many, vac, "In", &[class]), Some(true), "{class}");
    }
    assert_eq!((is(&many, vac, "Exists", &[]), is(&many, vac, "In", &["x"])), (Some(true), Some(false)));
    assert_eq!(is(&many, vac, "NotIn", &["spec"]), Some(true), "another one satisfies it");
    assert_eq!(is(&many, vac, "NotIn", &["spec", "current", "target"]), Some(false));
    assert_eq!(is(&many, "Terminating", "Exists", &[]), Some(false));
    assert_eq!(is(&many, vac, "Like", &[]), None);
}

fn resource_claim(name: &str, created: i64, requests: Value, owner: Value) -> ResourceClaim {
    let created = Time::from_unix_seconds(NOW + created);
    read(json!({"metadata": {"name": name, "namespace": "a", "creationTimestamp": created,
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": owner},
        "spec": {"devices": {"requests": requests}}}))
}

fn device_class(name: &str, resource: &str, created: i64) -> DeviceClass {
    let created = Time::from_unix_seconds(NOW + created);
    read(
        json!({"metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource}}),
    )
}

/// Proves RQ-67, RQ-68, RQ-69, RQ-70.
#[test]
fn resource_claims_use_devices_by_class() {
    let classes = [device_class("gpu", "example.com/gpu", 0), device_class("nic", "", 0)];
    let classes = DeviceClasses::of(classes.iter());
    let usage = |requests: Value| {
        resource_claim_usage(&resource_claim("c", 0, requests, json!([])), &classes, None).to_string()
    };
    let exactly = |class: &str, mode: &str, count: i64| json!({"exactly": {"deviceClassName": class, "allocationMode": mode, "count": count}});
    assert_eq!(usage(json!([])), "count/resourceclaims.resource.k8s.io=1");
    assert_eq!(
        usage(json!([exactly("gpu", "ExactCount", 2), exactly("gpu", "All", 0)])),
        "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=34,\
         requests.deviceclass.resource.kubernetes.io/gpu=34,requests.example.com/gpu=34"
    );
    assert_eq!(
        usage(json!([exactly("nic", "Some", 7)])),
        "count/resourceclaims.resource.k8s.io=1,nic.deviceclass.resource.k8s.io/devices=0"
    );
    let one = |class: &str, count: i64| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
    let first = json!([{"firstAvailable": [one("gpu", 1), one("nic", 4), one("gpu", 3)]}, exactly("nic", "ExactCount", 1)]);
    assert_eq!(
        usage(first),
        "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=3,\
         nic.deviceclass.resource.k8s.io/devices=5,requests.deviceclass.resource.kubernetes.io/gpu=3,\
         requests.deviceclass.resource.kubernetes.io/nic=5,requests.example.com/gpu=3"
    );
}

/// Proves RQ-74, RQ-75.
#[test]
fn device_classes_decide_which_requests_are_matched() {
    let is = |classes: &[DeviceClass], name: &str| {
        Evaluator::ResourceClaims.matches(name, &DeviceClasses::of(classes.iter()))
    };
    assert!(
        is(&[], "count/resourceclaims.resource.k8s.io") && is(&[], "x.deviceclass.resource.k8s.io/devices")
    );
    let gpu = [device_class("gpu", "example.com/gpu", 0)];
    for name in ["requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gpu"] {
        assert!(is(&gpu, name) && !is(&[], name), "{name}");
    }
    assert!(!is(&gpu, "requests.example.com/other") && !is(&gpu, "example.com/gpu"));
    assert!(!is(&gpu, "requests.deviceclass.resource.kubernetes.io/other"));
    // Of two classes with one extended resource, the newer one counts, then the one with the lower name.
    let charged = |classes: &[DeviceClass]| {
        let requests = json!([{"exactly": {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 1}},
            {"exactly": {"deviceClassName": "b", "allocationMode": "ExactCount", "count": 2}}]);
        let claim = resource_claim("c", 0, requests, json!([]));
        let usage = resource_claim_usage(&claim, &DeviceClasses::of(classes.iter()), None);
        usage.amount("requests.example.com/x").unwrap().to_string()
    };
    let class = |name: &str, created: i64| device_class(name, "example.com/x", created);
    assert_eq!(charged(&[class("a", 0), class("b", 1)]), "2");
    assert_eq!(charged(&[class("a", 1), class("b", 0)]), "1");
    assert_eq!(charged(&[class("b", 0), class("a", 0)]), "1");
    assert_eq!(charged(&[class("b", 0)]), "2", "after a deletion the remaining class counts at once");
}

/// Proves RQ-71, RQ-72, RQ-73, RQ-125.
#[test]
fn extended_resources_of_a_pod_are_charged_once() {
    let owner = |uid: &str, kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "p", "uid": uid, "controller": true}]);
    let classes = DeviceClasses::of([device_class("gpu", "example.com/gpu", 0)].iter());
    let devices =
        json!([{"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}}]);
    let claim =
        |name: &str, created: i64, owner: Value| resource_claim(name, created, devices.clone(), owner);
    let spec = json!({"containers": [container("a", json!({"example.com/gpu": "2"}), json!({}))]});
    let named = |name: &str| json!({"extendedResourceClaimStatus": {"resourceClaimName": name}});
    let rest = |claim: &ResourceClaim, pod: &Pod, siblings: &[ResourceClaim]| {
        let found = |key: &crate::Key| (*key == pod.meta.key).then_some(pod);
        let oldest = OldestClaims::of(siblings.iter());
        let usage = verified_pod(claim, found, &oldest).map(|pod| pod_usage(pod, OPTIONS));
        let usage: ResourceList = resource_claim_usage(claim, &classes, usage.as_ref());
        usage.amount("requests.example.com/gpu").map_or(0, crate::Quantity::whole)
    };
    let own = claim("c", 0, owner("u", "Pod"));
    assert_eq!(rest(&own, &pod(spec.clone(), named("c")), &[]), 1, "two of three are charged to the pod");
    assert_eq!(rest(&own, &pod(spec.clone(), named("other")), &[]), 3);
    assert_eq!(
        rest(&claim("c", 0, owner("v", "Pod")), &pod(spec.clone(), named("c")), &[]),
        3,
        "another UID"
    );
    assert_eq!(rest(&claim("c", 0, owner("u", "Job")), &pod(spec.clone(), named("c")), &[]), 3);
    assert_eq!(rest(&claim("c", 0, json!([])), &pod(spec.clone(), named("c")), &[]), 3);
    let mut plain = own.clone();
    plain.is_extended_resource_claim = false;
    assert_eq!(rest(&plain, &pod(spec.clone(), named("c")), &[]), 3, "without the annotation");
    let mut finished = named("c");
    finished["phase"] = json!("Succeeded");
    assert_eq!(rest(&own, &pod(spec.clone(), finished), &[]), 3);
    // Until the pod names its claim, it is the oldest one, then the one with the lowest name.
    let unnamed = pod(spec, json!({}));
    let older = |name: &str, created: i64| claim(name, created, owner("u", "Pod"));
    assert_eq!(rest(&own, &unnamed, &[own.clone(), older("d", 1), older("e", 0)]), 1);
    assert_eq!(rest(&own, &unnamed, &[own.clone(), older("d", -1)]), 3);
    assert_eq!(rest(&own, &unnamed, &[own.clone(), older("b", 0)]), 3);
    assert_eq!(rest(&own, &unnamed, &[own.clone(), claim("b", -1, owner("v", "Pod"))]), 1, "of another pod");
    // Each claim of a namespace asks which one of its pod is the oldest. In quadratic time this takes many minutes.
    let many: Vec<_> = (0..100_000).map(|n| older(&format!("d-{:06}", 100_000 - n), n)).collect();
    let oldest = OldestClaims::of(many.iter());
    let is_charged = |claim: &&ResourceClaim| verified_pod(claim, |_| Some(&unnamed), &oldest).is_some();
    assert_eq!(many.iter().filter(is_charged).count(), 1);
    let big = json!({"containers": [container("a", json!({"example.com/gpu": "5"}), json!({}))]});
    assert_eq!(rest(&own, &pod(big, named("c")), &[]), 0, "nothing negative");
}

/// Proves RQ-37, RQ-38.
#[test]
fn counted_resources_have_a_name_and_some_an_alias() {
    assert_eq!(object_count_name("apps", "deployments"), "count/deployments.apps");
    assert_eq!(object_count_name("", "secrets"), "count/secrets");
    for (group, plural, has_alias) in [
        ("", "secrets", true),
        ("", "configmaps", true),
        ("", "resourcequotas", true),
        ("", "replicationcontrollers", true),
        ("", "endpoints", false),
        ("example.com", "secrets", false),
    ] {
        assert_eq!(object_count_alias(group, plural).is_some(), has_alias, "{plural}.{group}");
    }
}

/// Proves RQ-8, RQ-9.
#[test]
fn events_and_virtual_resources_are_ignored() {
    let authorization = "authorization.k8s.io";
    let ignored = [
        ("", "bindings"),
        ("", "componentstatuses"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        (authorization, "subjectaccessreviews"),
        (authorization, "selfsubjectaccessreviews"),
        (authorization, "localsubjectaccessreviews"),
        (authorization, "selfsubjectrulesreviews"),
    ];
    assert!(ignored.iter().all(|(group, plural)| is_ignored_by_quota(group, plural)));
    for (group, plural) in
        [("", "pods"), ("example.com", "events"), (authorization, "other"), ("apps", "bindings")]
    {
        assert!(!is_ignored_by_quota(group, plural), "{plural}.{group}");
    }
}

#[test]
fn a_change_of_reported_resources_is_noticed_and_one_of_the_spec_is_not() {
    let at = |wanted: &str, allocated: &str, actual: &str| {
        let status = json!({"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": actual}}}]});
        pod(json!({"containers": [container("a", json!({"cpu": wanted}), json!({}))]}), status)
    };
    assert!(!reported_resources_changed(&at("1", "1", "1"), &at("2", "1", "1")), "the spec");
    assert!(!reported_resources_changed(&at("2", "1", "1"), &at("2", "2", "1")), "what is allocated");
    assert!(!reported_resources_changed(&at("2", "2", "1"), &at("2", "2", "1000m")));
    assert!(reported_resources_changed(&at("2", "2", "1"), &at("2", "2", "2")));
    assert!(reported_resources_changed(&at("1", "1", "2"), &at("1", "1", "1")));
}

#[test]
fn containers_without_required_resources_are_named() {
    let spec = json!({"containers": [container("b", json!({}), json!({})), container("a", json!({"cpu": "1"}), json!({}))],
        "initContainers": [container("i", json!({"cpu": "1"}), json!({"memory": "1"}))]});
    let missing = |spec: &Value, required: &[&str]| {
        missing_resources(&pod(spec.clone(), json!({})), required.iter().copied())
    };
    assert_eq!(
        missing(&spec, &["limits.memory", "cpu", "pods", "requests.ephemeral-storage"]).as_deref(),
        Some("cpu for: b; limits.memory for: a,b")
    );
    assert_eq!(missing(&spec, &["pods"]), None);
    let mut pod_level = spec;
    pod_level["resources"] = json!({"limits": {"memory": "1Gi"}});
    assert_eq!(missing(&pod_level, &["cpu"]), None);
}
