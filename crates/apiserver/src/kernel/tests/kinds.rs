//! Every kind can be created, and comes back with kube-apiserver's defaults and fields.

use super::*;

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn workload(kind: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
}

#[test]
fn every_kind_can_be_listed() {
    let mut server = TestServer::new();
    let kinds: Vec<_> = server.kernel.registry.all().filter(|r| r.only_verbs.is_none()).collect();
    assert!(kinds.len() > 60);
    for kind in kinds {
        let base = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
        let (code, list) = server.get(&format!("{base}/{}/{}", kind.version, kind.plural));
        assert_eq!((code, list["kind"].as_str()), (200, Some(kind.list_kind)));
    }
}

#[test]
fn workloads_get_their_defaults() {
    let mut server = TestServer::new();
    let apps = "/apis/apps/v1/namespaces/default";
    let set = server.created(&format!("{apps}/daemonsets"), &workload("DaemonSet"));
    assert_eq!(set["metadata"]["annotations"], json!({"deprecated.daemonset.template.generation": "1"}));
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    );
    assert_eq!(
        set["status"],
        json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
    );
    let set = server.created(&format!("{apps}/statefulsets"), &workload("StatefulSet"));
    assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(set["status"], json!({"availableReplicas": 0, "replicas": 0}));
    let controller = json!({"metadata": {"name": "x"}, "spec": {"template": template()}});
    let controller = server.created("/api/v1/namespaces/default/replicationcontrollers", &controller);
    assert_eq!(controller["spec"]["selector"], json!({"a": "b"}));
    assert_eq!(controller["metadata"]["labels"], json!({"a": "b"}));
}

/// The deployment controller writes the revision annotation with the status, so that the generation does not
/// increase.
#[test]
fn annotation_change_in_a_status_update_keeps_the_generation() {
    let mut server = TestServer::new();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let mut made = server.created(path, &workload("Deployment"));
    made["metadata"]["annotations"] = json!({"by": "status"});
    let (_, updated) = server.put(&format!("{path}/x/status"), &made);
    assert_eq!(
        (&updated["metadata"]["annotations"]["by"], &updated["metadata"]["generation"]),
        (&json!("status"), &json!(1))
    );
    let mut respecified = updated;
    respecified["metadata"]["annotations"] = json!({"by": "wish"});
    assert_eq!(server.put(&format!("{path}/x"), &respecified).1["metadata"]["generation"], 2);
}

/// The real server compares specs by value.
#[test]
fn another_spelling_of_a_quantity_keeps_the_generation() {
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        let mut server = TestServer::new();
        let path = format!("/apis/apps/v1/namespaces/default/{}s", kind.to_lowercase());
        let limited = |mut object: Value, memory: &str| {
            object["spec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"limits": {"memory": memory}});
            object
        };
        let made = server.created(&path, &limited(workload(kind), "1Gi"));
        let (_, respelled) = server.put(&format!("{path}/x"), &limited(made, "1073741824"));
        assert_eq!(respelled["metadata"]["generation"], 1, "{kind}");
        let container = &respelled["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], "1073741824", "{kind}");
        if kind == "DaemonSet" {
            let annotations = &respelled["metadata"]["annotations"];
            assert_eq!(annotations["deprecated.daemonset.template.generation"], "1");
        }
        let (_, changed) = server.put(&format!("{path}/x"), &limited(respelled, "2Gi"));
        assert_eq!(changed["metadata"]["generation"], 2, "{kind}");
    }
}

#[test]
fn jobs_get_a_generated_selector() {
    let mut server = TestServer::new();
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let job = server.created("/apis/batch/v1/namespaces/default/jobs", &job);
    let uid = &job["metadata"]["uid"];
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"], "j");
    assert_eq!((&job["spec"]["completions"], &job["spec"]["backoffLimit"]), (&json!(1), &json!(6)));
    // Deleting a Job without propagation policy orphans its pods.
    let (_, marked) = server.delete("/apis/batch/v1/namespaces/default/jobs/j", &Value::Null);
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    let always = json!({"metadata": {"name": "k"}, "spec": {"template": super::kinds::template()}});
    assert_eq!(reason(&server.post("/apis/batch/v1/namespaces/default/jobs", &always)), (422, "Invalid"));
}

#[test]
fn template_of_a_job_may_change_in_words_and_not_in_value() {
    let mut server = TestServer::new();
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "1Gi"}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let job = server.created("/apis/batch/v1/namespaces/default/jobs", &job);
    let mut put = |memory: &str| {
        let mut job = job.clone();
        job["metadata"]["resourceVersion"].take();
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!(memory);
        server.put("/apis/batch/v1/namespaces/default/jobs/j", &job)
    };
    let (code, respelled) = put("1073741824");
    assert_eq!(code, 200, "{respelled}");
    let limits = &respelled["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["memory"], "1073741824");
    assert_eq!(reason(&put("2Gi")), (422, "Invalid"));
}

#[test]
fn volumes_get_protection_finalizers_and_a_default_class() {
    let mut server = TestServer::new();
    let class = json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/p"});
    server.created("/apis/storage.k8s.io/v1/storageclasses", &class);
    let claim = json!({"metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}});
    let claim = server.created("/api/v1/namespaces/default/persistentvolumeclaims", &claim);
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi");
    assert_eq!(claim["status"], json!({"phase": "Pending"}));
    let mut moved = claim.clone();
    moved["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/c";
    assert_eq!(reason(&server.put(path, &moved)), (422, "Invalid"));
    let mut bound = claim;
    bound["spec"]["volumeName"] = json!("pv");
    assert_eq!(server.put(path, &bound).0, 200);
}

#[test]
fn nodes_start_tainted_and_keep_their_status() {
    let mut server = TestServer::new();
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "2"}}});
    let node = server.created("/api/v1/nodes", &node);
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "2"}));
}

#[test]
fn events_are_served_in_two_groups() {
    let mut server = TestServer::new();
    let (core, events) =
        ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    let watch = server.watch(&format!("{events}?watch=1"));
    let event = json!({"metadata": {"name": "e"}, "message": "m", "reason": "R", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    server.created(core, &event);
    let (_, seen) = server.get(&format!("{events}/e"));
    assert_eq!((&seen["note"], &seen["regarding"]["name"]), (&json!("m"), &json!("p")));
    assert!(seen.get("message").is_none());
    assert_eq!(seen["apiVersion"], "events.k8s.io/v1");
    let newer = json!({"metadata": {"name": "f"}, "note": "n", "reason": "R", "type": "Normal", "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "q", "namespace": "default"}});
    server.created(events, &newer);
    assert_eq!(server.get(&format!("{core}/f")).1["message"], "n");
    let (_, found) = server.get(&format!("{events}?fieldSelector=regarding.name=q"));
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    // Events written through events.k8s.io are immutable except for the series.
    assert_eq!(server.patch(&format!("{events}/f"), "merge-patch+json", &json!({"note": "changed"})).0, 422);
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let patched = server.patch(&format!("{events}/f"), "merge-patch+json", &series).1;
    assert_eq!(patched["series"]["count"], 2);
    let frames = server.kernel.take_frames(watch).unwrap();
    assert_eq!(frames[0].object["note"], "m");
    assert_eq!(frames.len(), 3);
}

#[test]
fn events_expire_after_their_ttl() {
    let mut server = TestServer::with(KernelOptions {
        event_ttl: Some(std::time::Duration::from_secs(60)),
        ..KernelOptions::default()
    });
    let path = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    let stored = server.created(path, &event);
    let watch = server.watch(&format!("{path}?watch=1&resourceVersion={}", version(&stored)));
    server.now += jiff::SignedDuration::from_secs(59);
    let mut again = stored;
    again["count"] = json!(2);
    assert_eq!(server.put(&format!("{path}/e"), &again).0, 200);
    server.now += jiff::SignedDuration::from_secs(59);
    assert_eq!(server.get(&format!("{path}/e")).0, 200);
    server.now += jiff::SignedDuration::from_secs(2);
    assert_eq!(server.get(&format!("{path}/e")).0, 404);
    assert_eq!(server.frames(watch), ["MODIFIED e", "DELETED e"]);
}

#[test]
fn empty_rule_list_of_a_network_policy_increases_the_generation() {
    let mut server = TestServer::new();
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let mut policy =
        server.created(policies, &json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}}}));
    assert_eq!(server.put(&format!("{policies}/p"), &policy).1["metadata"]["generation"], 1);
    policy["spec"]["ingress"] = json!([]);
    assert_eq!(server.put(&format!("{policies}/p"), &policy).1["metadata"]["generation"], 2);
}

#[test]
fn node_addresses_are_unique() {
    let mut server = TestServer::new();
    let mut node = server.created("/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
    node["status"]["addresses"] = json!([address, address]);
    assert_eq!(reason(&server.put("/api/v1/nodes/n/status", &node)), (422, "Invalid"));
    node["status"]["addresses"] = json!([address]);
    assert_eq!(server.put("/api/v1/nodes/n/status", &node).0, 200);
}

#[test]
fn events_with_event_time_have_valid_names() {
    let mut server = TestServer::new();
    let event = json!({"metadata": {"name": "Not_Good"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "reportingController": "k.example/c",
        "reportingInstance": "c", "action": "Act", "reason": "Because", "type": "Normal", "note": "m"});
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let refused = server.post(path, &event);
    assert_eq!(reason(&refused), (422, "Invalid"));
    assert_eq!(refused.1["details"]["causes"][0]["field"], "metadata.name");
}

#[test]
fn terminating_resource_claim_cannot_be_reserved() {
    let mut server = TestServer::new();
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({"metadata": {"name": "c", "finalizers": ["x.io/one"]}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "d"}}]}}});
    server.created(path, &claim);
    let reserve = |names: &[&str]| {
        let users = names.iter().map(|name| json!({"resource": "pods", "name": name, "uid": name}));
        json!({"status": {"reservedFor": users.collect::<Vec<_>>(), "allocation": {"devices": {"results": [
            {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}]}}}})
    };
    let status = format!("{path}/c/status");
    assert_eq!(server.patch(&status, "merge-patch+json", &reserve(&["a"])).0, 200);
    server.delete(&format!("{path}/c"), &Value::Null);
    assert_eq!(server.patch(&status, "merge-patch+json", &reserve(&["a", "b"])).0, 422);
    assert_eq!(server.patch(&status, "merge-patch+json", &reserve(&[])).0, 200);
}

/// A status update cannot change the finalizers of a PersistentVolumeClaim, so the claim stays.
#[test]
fn status_update_without_finalizers_does_not_remove_a_claim() {
    let mut server = TestServer::new();
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({"metadata": {"name": "x", "finalizers": ["example.com/f"]},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}});
    let mut claim = server.created(path, &claim);
    server.delete(&format!("{path}/x"), &Value::Null);
    claim["metadata"] = json!({"name": "x"});
    assert_eq!(server.put(&format!("{path}/x/status"), &claim).0, 200);
    assert_eq!(server.get(&format!("{path}/x")).1["metadata"]["finalizers"], json!(["example.com/f"]));
}

#[test]
fn already_exists_error_names_the_storage_kind() {
    let mut server = TestServer::new();
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "x", "generateName": "x-"}, "reason": "R", "action": "A", "type": "Normal",
        "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "example.com/c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    server.created(path, &event);
    let (code, taken) = server.post(path, &event);
    assert_eq!((code, taken["details"].get("group")), (409, None));
}

/// Ports with the same number and protocol are one port, whichever manager sets them.
#[test]
fn duplicate_port_causes_a_warning_and_is_owned_as_a_whole() {
    let mut server = TestServer::new();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let mut made = workload("Deployment");
    made["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]);
    let by = |manager: &str| format!("{path}/x?fieldManager={manager}");
    assert_eq!(server.patch(&by("first"), "apply-patch+yaml", &made).0, 201);
    let ports = json!([{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80, "protocol": "UDP"}]);
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/ports", "value": ports}]);
    let request = Request::new(Method::PATCH, &by("second"), patch.to_string());
    let request = Request { content_type: "application/json-patch+json".to_owned(), ..request };
    let Reply::Document(document) = server.kernel.call(&request, server.now) else { panic!("a watch") };
    let warning = "spec.template.spec.containers[0].ports[1]: duplicate port definition with \
                   spec.template.spec.containers[0].ports[0]";
    assert!(document.warnings.iter().any(|updated| updated == warning), "{:?}", document.warnings);
    let object: Value = serde_json::from_slice(&document.body).unwrap();
    let owned = |manager: &str| {
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        entries.iter().find(|entry| entry["manager"] == manager).unwrap()["fieldsV1"].to_string()
    };
    assert!(owned("second").contains("f:ports") && !owned("first").contains("f:ports"));
}

#[test]
fn changed_annotations_of_a_pod_are_warned_about() {
    let odd = |object: &Value| match object["metadata"]["annotations"]["odd"].is_string() {
        true => vec!["odd".to_owned()],
        false => Vec::new(),
    };
    let mut server = TestServer::with(KernelOptions { warn_about: Some(odd), ..KernelOptions::default() });
    let path = "/api/v1/namespaces/default/pods";
    server.created(
        path,
        &json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    );
    let mut warnings = |metadata: Value| {
        let patch = json!({"metadata": metadata}).to_string();
        let request = Request::new(Method::PATCH, &format!("{path}/x"), patch);
        let request = Request { content_type: "application/merge-patch+json".to_owned(), ..request };
        let Reply::Document(document) = server.kernel.call(&request, server.now) else { panic!("a watch") };
        assert_eq!(document.code, 200);
        document.warnings
    };
    assert_eq!(warnings(json!({"labels": {"a": "b"}})), [""; 0]);
    assert_eq!(warnings(json!({"annotations": {"odd": "x"}})), ["odd"]);
    assert_eq!(warnings(json!({"labels": {"a": "c"}})), [""; 0], "it was there before");
}

#[test]
fn claim_expansion_requires_allow_volume_expansion() {
    let mut server = TestServer::new();
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |size: &str| {
        json!({"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c",
            "resources": {"requests": {"storage": size}}}})
    };
    server.created(path, &claim("1Gi"));
    let bound = json!({"status": {"phase": "Bound"}});
    assert_eq!(server.patch(&format!("{path}/x/status"), "merge-patch+json", &bound).0, 200);
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(server.patch(&format!("{path}/x"), "merge-patch+json", &more).0, 403);
    let class =
        json!({"metadata": {"name": "c"}, "provisioner": "example.com/p", "allowVolumeExpansion": true});
    server.created("/apis/storage.k8s.io/v1/storageclasses", &class);
    assert_eq!(server.patch(&format!("{path}/x"), "merge-patch+json", &more).0, 200);
}

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";

#[test]
fn storage_version_migration_ends_once_and_keeps_its_spec() {
    let mut server = TestServer::new();
    let migration = |group: &str, resource: &str| json!({"metadata": {"name": "m"}, "spec": {"resource": {"group": group, "resource": resource}}});
    for (group, resource) in [("", ""), ("a_b", "things"), ("", "1things"), ("", "Things")] {
        assert_eq!(server.post(MIGRATIONS, &migration(group, resource)).0, 422, "{group}/{resource}");
    }
    server.created(MIGRATIONS, &migration("example.com", "things"));
    let path = format!("{MIGRATIONS}/m");
    let merge = |server: &mut TestServer, path: &str, change: Value| {
        server.patch(path, "merge-patch+json", &change).0
    };
    assert_eq!(merge(&mut server, &path, json!({"spec": {"resource": {"resource": "others"}}})), 422);
    let status = format!("{path}/status");
    let condition = |r#type: &str, status: &str| json!({"type": r#type, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    assert_eq!(merge(&mut server, &status, json!({"status": {"resourceVersion": "01"}})), 422);
    assert_eq!(merge(&mut server, &status, json!({"status": {"resourceVersion": "12"}})), 200);
    assert_eq!(merge(&mut server, &status, json!({"status": {"resourceVersion": "13"}})), 422);
    let both =
        json!({"status": {"conditions": [condition("Succeeded", "True"), condition("Failed", "True")]}});
    assert_eq!(merge(&mut server, &status, both), 422);
    assert_eq!(
        merge(&mut server, &status, json!({"status": {"conditions": [condition("Failed", "True")]}})),
        200
    );
    assert_eq!(
        merge(&mut server, &status, json!({"status": {"conditions": [condition("Failed", "False")]}})),
        422
    );
}

#[test]
fn storage_versions_are_an_alpha_api() {
    const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    assert_eq!(TestServer::new().get(VERSIONS).0, 404);
    let mut server = TestServer::with(KernelOptions { gated_kinds: true, ..KernelOptions::default() });
    assert_eq!(server.post(VERSIONS, &json!({"metadata": {"name": "things"}})).0, 422);
    server.created(VERSIONS, &json!({"metadata": {"name": "example.com.things"}}));
    let mut merge = |status: Value| {
        let path = format!("{VERSIONS}/example.com.things/status");
        server.patch(&path, "merge-patch+json", &json!({"status": status})).0
    };
    let record = |id: &str, version: &str| json!({"apiServerID": id, "encodingVersion": version, "decodableVersions": ["v1", "v2"]});
    assert_eq!(merge(json!({"storageVersions": [record("a", "v1")]})), 422, "they agree on v1");
    assert_eq!(merge(json!({"storageVersions": [record("a", "v1")], "commonEncodingVersion": "v1"})), 200);
    assert_eq!(
        merge(json!({"storageVersions": [record("a", "v1"), record("b", "v2")]})),
        422,
        "they do not agree"
    );
    let two =
        json!({"storageVersions": [record("a", "v1"), record("b", "v2")], "commonEncodingVersion": null});
    assert_eq!(merge(two), 200);
    assert_eq!(
        merge(json!({"storageVersions": [record("a", "v1"), record("b", "v3")]})),
        422,
        "v3 is not decodable"
    );
    assert_eq!(merge(json!({"storageVersions": [record("a", "v1"), record("a", "v2")]})), 422, "twice");
}

#[test]
fn device_taints_have_the_time_of_their_effect() {
    const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    let mut server = TestServer::new();
    let rule = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "None"}}});
    let time = |rule: &Value| rule["spec"]["taint"]["timeAdded"].as_str().unwrap_or_default().to_owned();
    assert_eq!(time(&server.created(RULES, &rule)), "2026-01-02T03:04:05Z");
    let mut patch = |second: u8, taint: Value| {
        server.now = format!("2026-01-02T03:05:{second:02}Z").parse().unwrap();
        let patch = json!({"spec": {"taint": taint}});
        let (code, rule) = server.patch(&format!("{RULES}/r"), "merge-patch+json", &patch);
        assert_eq!(code, 200, "{rule}");
        time(&rule)
    };
    assert_eq!(patch(1, json!({"value": "v"})), "2026-01-02T03:04:05Z");
    assert_eq!(patch(2, json!({"effect": "NoExecute"})), "2026-01-02T03:05:02Z");
    let chosen = json!({"effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
    assert_eq!(patch(3, chosen), "2026-01-01T00:00:00Z");
    assert_eq!(patch(4, json!({"timeAdded": null})), "2026-01-02T03:05:04Z");

    let devices = json!([{"name": "x", "taints": [{"key": "k", "effect": "NoExecute"}]}, {"name": "y"}]);
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "d", "allNodes": true, "devices": devices,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
    let mut stored = server.created(SLICES, &slice);
    let time = |slice: &Value| slice["spec"]["devices"][0]["taints"][0]["timeAdded"].clone();
    assert_eq!(time(&stored), "2026-01-02T03:05:04Z");
    server.now = "2026-01-02T03:06:00Z".parse().unwrap();
    stored["spec"]["devices"][0]["taints"] = json!([{"key": "other", "effect": "NoExecute"}]);
    let (_, stored) = server.put(&format!("{SLICES}/s"), &stored);
    assert_eq!(time(&stored), "2026-01-02T03:06:00Z");
}

#[test]
fn device_taint_rules_are_validated() {
    const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
    let mut server = TestServer::new();
    let rule = |selector: Value, taint: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
            "spec": {"deviceSelector": selector, "taint": taint}})
    };
    let taint = json!({"key": "k", "effect": "NoExecute"});
    for (selector, taint, field) in [
        (json!({"driver": ""}), &taint, "spec.deviceSelector.driver"),
        (json!({"driver": "Bad Driver"}), &taint, "spec.deviceSelector.driver"),
        (json!({"pool": "a//b"}), &taint, "spec.deviceSelector.pool"),
        (json!({"device": "a.b"}), &taint, "spec.deviceSelector.device"),
        (json!({}), &json!({"effect": "NoExecute"}), "spec.taint.key"),
        (json!({}), &json!({"key": "k", "value": "not a value!", "effect": "None"}), "spec.taint.value"),
        (json!({}), &json!({"key": "k"}), "spec.taint.effect"),
        (json!({}), &json!({"key": "k", "effect": "Odd"}), "spec.taint.effect"),
    ] {
        let (code, status) = server.post(RULES, &rule(selector.clone(), taint.clone()));
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(field)), "{status}");
    }
    let names = json!({"driver": "D.example.com", "pool": "a/b", "device": "x"});
    let stored = server.created(RULES, &rule(names.clone(), taint.clone()));
    let path = format!("{RULES}/r");
    let (code, status) = server.put(&path, &rule(names, taint));
    assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("metadata.resourceVersion")));
    let mut changed = stored;
    changed["status"]["conditions"] = json!([{"type": "EvictionInProgress", "status": "Odd", "reason": "R",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let (code, status) = server.put(&format!("{path}/status"), &changed);
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("status.conditions[0].status"))
    );
}
