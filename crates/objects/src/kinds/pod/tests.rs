//! Decoding of pods, and the memory they take.

use super::*;

fn pod(json: serde_json::Value) -> Pod {
    serde_json::from_value(json).unwrap()
}

fn at(seconds: i64) -> Time {
    Time::from_unix_seconds(1_767_225_600 + seconds) // 2026-01-01T00:00:00Z
}

/// A running pod of a Deployment.
fn running(n: usize) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-5d4f8c7b9d-{n:05}"), "generateName": "web-5d4f8c7b9d-", "namespace": "shop",
            "uid": format!("5f0e0a5e-7a52-4d6c-9a6b-{n:012x}"), "resourceVersion": format!("{}", 1000 + n),
            "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9d"},
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9d",
                "uid": "11111111-7a52-4d6c-9a6b-0123456789ab", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": format!("node-{}", n % 500), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "serviceAccountName": "default", "priority": 0,
            "containers": [
                {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]},
                {"name": "log", "image": "log:1"}],
            "initContainers": [
                {"name": "setup", "image": "s:1"},
                {"name": "proxy", "image": "p:1", "restartPolicy": "Always", "ports": [{"name": "mesh", "containerPort": 15001}]}],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"sources": []}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "podIP": format!("10.0.{}.{}", n / 250 % 250, n % 250),
            "podIPs": [{"ip": format!("10.0.{}.{}", n / 250 % 250, n % 250)}], "hostIP": "192.168.0.1",
            "startTime": "2026-01-01T00:00:01Z", "qosClass": "BestEffort",
            "conditions": [
                {"type": "PodReadyToStartContainers", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:02Z"},
                {"type": "Initialized", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:02Z"},
                {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:05Z"},
                {"type": "ContainersReady", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:05Z"},
                {"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "initContainerStatuses": [
                {"name": "setup", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:02Z"}}},
                {"name": "proxy", "restartCount": 0, "state": {"running": {}}}],
            "containerStatuses": [
                {"name": "web", "restartCount": 0, "ready": true, "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}}},
                {"name": "log", "restartCount": 0, "ready": true, "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}}}],
        },
    })
}

#[test]
fn a_running_pod_is_decoded() {
    let pod = pod(running(7));
    assert!(pod.is_active() && pod.is_ready() && !pod.is_terminal() && !pod.is_terminating());
    assert_eq!((pod.phase.as_str(), pod.node_name.as_str()), ("Running", "node-7"));
    assert_eq!(pod.pod_ips()[0].to_string(), "10.0.0.7");
    assert_eq!(pod.spec.containers()[0].ports()[0].container_port, 8080);
    assert_eq!(pod.spec.sidecars()[0].ports()[0].protocol, "TCP");
    assert_eq!(pod.spec.tolerations()[0].toleration_seconds, Some(300));
    assert_eq!(pod.start_time(), Some(at(1)));
    assert_eq!(pod.condition("PodScheduled"), Some(ConditionStatus::True));
    assert_eq!(pod.condition("DisruptionTarget"), None);
    assert_eq!(pod.meta.controller_ref().map(|owner| owner.kind.as_str()), Some("ReplicaSet"));
    // It has none of the rare fields.
    assert_eq!((pod.rare.as_ref(), pod.max_restarts()), (None, (0, 0)));
}

/// Such a pod takes about 310 bytes: 216 of `Pod`, 48 of its name, 24 of the `Arc`, and its share of the interned
/// values.
#[test]
fn a_common_pod_is_small_and_shares_its_template_fields() {
    let (one, two) = (pod(running(1)), pod(running(2)));
    assert!(size_of::<Pod>() <= 216, "{} bytes", size_of::<Pod>());
    assert!(std::ptr::eq(&*one.spec, &*two.spec));
    assert!(std::ptr::eq(one.meta.owner_references.as_ptr(), two.meta.owner_references.as_ptr()));
    assert_eq!(one.meta.labels, two.meta.labels);
    assert!(one.rare.is_none());
}

/// A pod with fields of all parts, and the parts of it that are kept.
fn claiming(n: usize, parts: PodParts) -> Pod {
    let mut json = running(n);
    let spec = &mut json["spec"];
    spec["containers"][0]["resources"] =
        serde_json::json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
    spec["containers"][0]["envFrom"] = serde_json::json!([{"secretRef": {"name": "key"}}]);
    spec["volumes"] = serde_json::json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{n}")}}, {"name": "tmp", "ephemeral": {}}]);
    spec["resourceClaims"] = serde_json::json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    json["status"]["resourceClaimStatuses"] =
        serde_json::json!([{"name": "gpu", "resourceClaimName": format!("gpu-{n}")}]);
    Pod::read_parts(Encoded::Json(&json.to_string()), parts).unwrap()
}

#[test]
fn pods_of_a_template_share_their_spec_also_with_parts_left_out() {
    for parts in [PodParts::NONE, PodParts::VOLUME_CLAIMS, PodParts::ALL] {
        let (one, two) = (claiming(1, parts), claiming(2, parts));
        assert!(std::ptr::eq(&*one.spec, &*two.spec), "{parts:?}");
        assert_eq!(one.rare.is_some(), parts != PodParts::NONE, "{parts:?}");
    }
    let (none, all) = (claiming(1, PodParts::NONE), claiming(1, PodParts::ALL));
    assert_eq!(*none.spec, PodSpec::default().keeping(PodParts::NONE), "nothing of the template is stored");
    assert!(none.is_ready() && none.node_name == all.node_name && none.max_restarts() == all.max_restarts());
}

type Read = fn(&Pod) -> String;

fn text(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

/// What reads the fields of each part.
const READS: [(PodParts, &[Read]); 8] = [
    (PodParts::SECRET_NAMES, &[|pod| text(pod.spec.secret_names())]),
    (
        PodParts::RESOURCES,
        &[
            |pod| text(pod.spec.containers()[0].requests()),
            |pod| text(pod.spec.containers()[0].limits()),
            |pod| text(pod.spec.init_containers()),
            |pod| text(pod.spec.container("web")),
            |pod| text(pod.spec.overhead()),
            |pod| text(pod.spec.pod_level_requests()),
            |pod| text(pod.spec.pod_level_resources()),
            |pod| text(pod.spec.active_deadline_seconds()),
            |pod| text(pod.spec.priority_class_name()),
            |pod| text(pod.spec.has_cross_namespace_affinity()),
            |pod| text(pod.reported_resources()),
            |pod| text(pod.qos_class()),
            |pod| text(pod.start_time()),
        ],
    ),
    (PodParts::INLINE_VOLUMES, &[|pod| text(pod.spec.inline_volumes())]),
    (
        PodParts::VOLUME_CLAIMS,
        &[
            |pod| text(pod.used_claims().count()),
            |pod| text(pod.pvc_of_volume("data")),
            |pod| text(pod.persistent_volume_claims().count()),
            |pod| text(pod.spec.ephemeral_volumes()),
        ],
    ),
    (
        PodParts::RESOURCE_CLAIMS,
        &[
            |pod| text(pod.spec.resource_claims()),
            |pod| text(pod.resource_claim_statuses()),
            |pod| text(pod.extended_resource_claim()),
        ],
    ),
    (PodParts::POD_GROUP, &[|pod| text(pod.spec.pod_group_name())]),
    (
        PodParts::ENDPOINTS,
        &[
            |pod| text(pod.pod_ips()),
            |pod| text(pod.hostname()),
            |pod| text(pod.spec.subdomain()),
            |pod| text(pod.spec.containers()[0].ports()),
            |pod| text(pod.spec.sidecars()[0].ports()),
        ],
    ),
    (PodParts::TOLERATIONS, &[|pod| text(pod.spec.tolerations())]),
];

#[test]
fn reading_a_part_that_is_not_kept_panics() {
    let panics = |read: &Read, kept: PodParts| {
        let pod = claiming(1, kept);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&pod))).is_err()
    };
    for (part, of_part) in READS {
        let others = READS.iter().filter(|(other, _)| *other != part);
        let others = others.fold(PodParts::NONE, |others, (other, _)| others.and(*other));
        for (number, read) in of_part.iter().enumerate() {
            assert!(!panics(read, part), "{part:?} {number}");
            assert!(panics(read, others), "{part:?} {number}");
        }
    }
}

#[test]
fn a_ready_pod_becomes_available_after_min_ready_seconds() {
    let ready = pod(running(1));
    assert_eq!(ready.ready_since(), Some(at(5)));
    assert_eq!(ready.availability(0, at(0)), Availability::Now);
    assert_eq!(ready.availability(10, at(14)), Availability::At(at(15)));
    assert_eq!(ready.availability(10, at(15)), Availability::Now);
    let mut json = running(1);
    json["status"]["conditions"][2]["lastTransitionTime"] = serde_json::Value::Null;
    assert_eq!(pod(json.clone()).availability(10, at(99)), Availability::No);
    assert_eq!(pod(json.clone()).availability(0, at(99)), Availability::Now);
    json["status"]["conditions"][2]["status"] = "False".into();
    assert_eq!(pod(json).availability(0, at(99)), Availability::No);
}

#[test]
fn a_failed_job_pod_reports_exit_codes_reason_and_annotations() {
    let mut json = running(1);
    json["metadata"]["annotations"] = serde_json::json!({
        "batch.kubernetes.io/job-completion-index": "4",
        "batch.kubernetes.io/job-index-failure-count": "2",
        "controller.kubernetes.io/pod-deletion-cost": "-3",
    });
    json["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:30Z".into();
    json["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    json["spec"]["hostname"] = "sum-4".into();
    let status = &mut json["status"];
    status["phase"] = "Failed".into();
    status["reason"] = "Evicted".into();
    status["conditions"].as_array_mut().unwrap().push(serde_json::json!(
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "m", "observedGeneration": 2}));
    for (n, code) in [(0, 137), (1, 0)] {
        status["containerStatuses"][n]["state"] = serde_json::json!({"terminated": {"exitCode": code, "finishedAt": format!("2026-01-01T00:00:0{}Z", 7 - n)}});
    }
    status["containerStatuses"][1]["restartCount"] = 3.into();
    let unfinished = pod(json.clone());
    assert_eq!(unfinished.containers_finished_at(), None); // The sidecar is still running.
    json["status"]["initContainerStatuses"][1]["state"] =
        serde_json::json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:09Z"}});
    let pod = pod(json);
    assert_eq!(pod.containers_finished_at(), Some(at(9)));
    assert_eq!((pod.max_restarts(), pod.restarts()), ((3, 0), 3));
    let web = &pod.container_statuses()[0];
    assert_eq!((web.name.as_str(), web.terminated.as_ref().unwrap().exit_code), ("web", 137));
    assert_eq!((pod.completion_index(), pod.index_failure_count()), (Some("4"), Some("2")));
    assert_eq!((pod.deletion_cost(), pod.index_ignored_failure_count()), (Some("-3"), None));
    assert_eq!((pod.hostname(), pod.reason()), ("sum-4", "Evicted"));
    assert_eq!(pod.deletion_requested_at(), Some(at(60)));
    let target = pod.full_condition("DisruptionTarget").unwrap();
    assert_eq!((target.message.as_str(), target.observed_generation), ("m", Some(2)));
    assert_eq!(pod.condition("DisruptionTarget"), Some(ConditionStatus::True));
}

#[test]
fn an_unbound_daemon_pod_names_its_node() {
    let named = |terms: serde_json::Value, node: &str| {
        let affinity = serde_json::json!(
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        pod(serde_json::json!({"metadata": {"name": "a"}, "spec": {"affinity": affinity, "nodeName": node}}))
            .target_node()
            .map(|name| name.to_string())
    };
    let field = |values: &[&str]| serde_json::json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]});
    assert_eq!(named(serde_json::json!([field(&["n1"])]), ""), Some("n1".to_owned()));
    assert_eq!(named(serde_json::json!([field(&["n1"])]), "n2"), Some("n2".to_owned()));
    assert_eq!(named(serde_json::json!([field(&["n1", "n2"]), field(&["n3"])]), ""), None);
    assert_eq!(named(serde_json::json!([]), ""), None);
}

#[test]
fn a_stateful_set_pod_mounts_pvcs() {
    let mut json = running(1);
    json["spec"]["volumes"] = serde_json::json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}, {"name": "tmp", "emptyDir": {}}]);
    let pod = pod(json);
    assert_eq!(pod.pvc_of_volume("data").map(|claim| claim.as_str()), Some("data-db-0"));
    assert_eq!((pod.pvc_of_volume("tmp"), pod.persistent_volume_claims().count()), (None, 1));
}

#[test]
fn a_pod_with_missing_or_unknown_fields_is_decoded() {
    let bare =
        pod(serde_json::json!({"metadata": {"name": "a"}, "spec": null, "status": {"podIP": "10.0.0.1",
        "podIPs": null, "conditions": null, "containerStatuses": null, "phase": "Dreaming"}}));
    assert_eq!((bare.phase, bare.pod_ips().len()), (PodPhase::Other, 1));
    assert!(bare.spec.containers().is_empty() && !bare.is_ready() && bare.target_node().is_none());
    assert_eq!(pod(serde_json::json!({"metadata": {"name": "a"}})).phase, PodPhase::Unset);
}

#[test]
fn conditions_keep_the_order_of_the_list() {
    let types = |types: &[&str]| {
        let conditions: Vec<_> =
            types.iter().map(|r#type| serde_json::json!({"type": r#type, "status": "False"})).collect();
        let pod = pod(serde_json::json!({"metadata": {"name": "p"}, "status": {"conditions": conditions}}));
        assert!(pod.conditions().all(|(_, status)| status == "False"));
        pod.conditions().map(|(r#type, _)| r#type.to_owned()).collect::<Vec<_>>()
    };
    for order in [
        &[
            "PodScheduled",
            "x",
            "Initialized",
            "y",
            "z",
            "ContainersReady",
            "Ready",
            "PodReadyToStartContainers",
        ][..],
        &["x", "PodReadyToStartContainers", "Ready"],
        &["Ready", "ContainersReady", "x"],
        &["x", "y"],
        &["Ready"],
        &[],
        // The second condition of a type keeps its place, too.
        &["Ready", "x", "Ready", "PodScheduled"],
    ] {
        assert_eq!(types(order), order);
    }
    // Positions beyond the fifteenth are not exact, but no condition is lost.
    let mut many: Vec<_> = (0..20).map(|n| format!("c{n:02}")).collect();
    many.extend(["Ready", "PodScheduled"].map(str::to_owned));
    let mut listed = types(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(listed[..15], many[..15]);
    listed.sort();
    many.sort();
    assert_eq!(listed, many);
}

/// A reference to a Secret of this name.
fn reference(name: &str) -> serde_json::Value {
    serde_json::json!({"name": name})
}

/// Proves LSTC-20.
#[test]
fn secrets_of_all_volume_kinds_are_found() {
    let with_reference = |name: &str| serde_json::json!({"secretRef": reference(name)});
    let volumes = [
        ("secret", serde_json::json!({"secretName": "secret"})),
        (
            "projected",
            serde_json::json!({"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "projected"}}]}),
        ),
        ("azureFile", serde_json::json!({"secretName": "azureFile", "shareName": "s"})),
        ("cephfs", with_reference("cephfs")),
        ("cinder", with_reference("cinder")),
        ("flexVolume", with_reference("flexVolume")),
        ("rbd", with_reference("rbd")),
        ("scaleIO", with_reference("scaleIO")),
        ("iscsi", with_reference("iscsi")),
        ("storageos", with_reference("storageos")),
        ("csi", serde_json::json!({"driver": "d", "nodePublishSecretRef": {"name": "csi"}})),
    ];
    for (kind, source) in volumes {
        let volume = serde_json::json!({"name": "v", kind: source});
        let pod = pod(serde_json::json!({"metadata": {"name": "p"}, "spec": {"volumes": [volume]}}));
        assert_eq!(pod.spec.secret_names(), [InternedStr::from(kind)], "{kind}");
    }
    let others = serde_json::json!([
        {"name": "v", "configMap": {"name": "x"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "x"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, {"name": "r", "rbd": {"pool": "x"}}]);
    let pod = pod(serde_json::json!({"metadata": {"name": "p"}, "spec": {"volumes": others}}));
    assert!(pod.spec.secret_names().is_empty());
}

/// Proves LSTC-19.
#[test]
fn secrets_of_all_containers_and_pull_secrets_are_found() {
    let env = |name: &str| {
        serde_json::json!([{"name": "a", "value": "x"}, {"name": "b", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
            {"name": "c", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}])
    };
    let env_from =
        |name: &str| serde_json::json!([{"configMapRef": {"name": "x"}}, {"secretRef": {"name": name}}]);
    let container = |name: &str| serde_json::json!({"name": name, "env": env(&format!("{name}-env")), "envFrom": env_from(&format!("{name}-from"))});
    let pod = pod(serde_json::json!({"metadata": {"name": "p"}, "spec": {
        "containers": [container("main")], "initContainers": [container("init")],
        "ephemeralContainers": [container("debug")],
        "imagePullSecrets": [{"name": "registry"}, {"name": ""}, {}]}}));
    let names: Vec<_> = pod.spec.secret_names().iter().map(InternedStr::as_str).collect();
    let wanted = ["debug-env", "debug-from", "init-env", "init-from", "main-env", "main-from", "registry"];
    assert_eq!(names, wanted);
}

#[test]
fn a_pod_is_terminated_when_it_is_terminal_or_terminating_without_running_containers() {
    let pod = |phase: &str, terminating: bool, of: &str, state: serde_json::Value| -> Pod {
        let mut pod = serde_json::json!({
            "metadata": {"name": "p", "namespace": "a"},
            "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                                 {"name": "tmp", "ephemeral": {}}, {"name": "e", "emptyDir": {}}]},
            "status": {"phase": phase, of: [{"name": "x", "state": state}]}});
        if terminating {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        serde_json::from_value(pod).unwrap()
    };
    let (running, ended) =
        (serde_json::json!({"running": {}}), serde_json::json!({"terminated": {"exitCode": 0}}));
    assert!(pod("Failed", false, "containerStatuses", running.clone()).is_terminated());
    assert!(pod("Succeeded", false, "containerStatuses", running.clone()).is_terminated());
    assert!(!pod("Running", false, "containerStatuses", ended.clone()).is_terminated());
    for of in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        assert!(!pod("Running", true, of, running.clone()).is_terminated(), "{of}");
        assert!(!pod("Running", true, of, serde_json::json!({})).is_terminated(), "{of}");
        assert!(pod("Running", true, of, ended.clone()).is_terminated(), "{of}");
        assert!(pod("Running", true, of, serde_json::json!({"waiting": {}})).is_terminated(), "{of}");
    }
    let claims: Vec<_> = pod("Running", false, "containerStatuses", running).used_claims().collect();
    assert_eq!(claims, ["c", "p-tmp"]);
}

#[test]
fn volumes_whose_labels_cannot_conflict_are_not_kept() {
    let spec = |claim: &str| {
        serde_json::json!({
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
                        {"name": "disk", "nfs": {"server": "s", "path": "/"}}, {"name": "two", "configMap": {}}],
            "securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}},
            "containers": [{"volumeMounts": [{"name": "two"}, {"name": "tmp"}]},
                           {"volumeMounts": [{"name": "two"}], "securityContext": {"seLinuxOptions": {"user": "u"}}}],
        })
    };
    let read = |spec: serde_json::Value| pod(serde_json::json!({"metadata": {"name": "p"}, "spec": spec}));
    let one = read(spec("one"));
    let volumes = &one.spec.selinux().volumes;
    let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["data", "two"]);
    assert_eq!(volumes[1].labels, [":::s0:c1,c2".into(), "u:::".into()].into());
    assert!(!volumes[0].is_mounted);
    assert_eq!(one.claim_of(&volumes[0]).as_deref(), Some("one"));
    assert!(Interned::eq(&one.spec, &read(spec("two")).spec), "pods with claims of their own share it");
    let bare = serde_json::json!({"volumes": null, "securityContext": null, "containers": [{"securityContext": null}]});
    assert_eq!(*read(bare).spec.selinux(), SelinuxSpec::default());
}
