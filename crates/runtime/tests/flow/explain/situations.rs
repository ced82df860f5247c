//! Stuck situations.

use base64::Engine as _;
use keleustes_apiserver::{FaultRule, InjectedFault};
use serde_json::{Value, json};

use super::{Stuck, deployment, pod, template};
use crate::test_cluster::{TestCluster, wait};

const WORKLOADS: [&str; 2] = ["deployment-controller", "replicaset-controller"];

/// A Deployment whose pods exist; the status of each is set.
async fn deployment_with_pods(replicas: i32, status: &Value) -> Stuck {
    let stuck = Stuck::new(&WORKLOADS, &[deployment("RollingUpdate", replicas)]).await;
    wait(std::time::Duration::from_secs(2)).await;
    set_status(&stuck, status);
    stuck
}

fn set_status(stuck: &Stuck, status: &Value) {
    for pod in stuck.cluster.server.objects("pods") {
        let mut pod = Value::clone(&pod);
        pod["status"] = status.clone();
        stuck.put(pod);
    }
}

fn refuse_pods(cluster: &TestCluster, fault: InjectedFault) {
    cluster.faults.add(FaultRule::new(fault).method(http::Method::POST).target("/pods"));
}

#[tokio::test(start_paused = true)]
async fn quota_is_exhausted() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": "shop", "name": "small"},
        "spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
    let controllers = [WORKLOADS[0], WORKLOADS[1], "resourcequota-controller"];
    let stuck = Stuck::new(&controllers, &[quota.clone(), deployment("RollingUpdate", 3)]).await;
    stuck.names_cause("quota", "deployment/web", "exceeded quota: small").await;
    stuck.names_cause("quota-itself", "quota/small", "exhausted: pods is at its limit of 1").await;
}

#[tokio::test(start_paused = true)]
async fn webhook_refuses_the_pods() {
    let cluster = TestCluster::new();
    let denied = "admission webhook \"policy.example.com\" denied the request: image any:1 has no signature";
    refuse_pods(&cluster, InjectedFault::status(403, "Forbidden", denied));
    let stuck = Stuck::on(cluster, &WORKLOADS, &[deployment("RollingUpdate", 2)]).await;
    stuck.names_cause("webhook", "deploy/web", "admission webhook \"policy.example.com\" denied").await;
}

#[tokio::test(start_paused = true)]
async fn api_server_fails_every_write() {
    let cluster = TestCluster::new();
    refuse_pods(&cluster, InjectedFault::status(500, "InternalError", "etcdserver: no leader"));
    let stuck = Stuck::on(cluster, &WORKLOADS, &[deployment("RollingUpdate", 1)]).await;
    stuck.names_cause("api-server-fails", "deployment/web", "etcdserver: no leader").await;
}

#[tokio::test(start_paused = true)]
async fn old_pods_are_still_terminating() {
    let stuck = Stuck::new(&WORKLOADS, &[deployment("Recreate", 1)]).await;
    wait(std::time::Duration::from_secs(2)).await;
    let old = Value::clone(&stuck.cluster.server.objects("pods")[0]);
    stuck.change("pods", old["metadata"]["name"].as_str().unwrap(), |pod| {
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:32Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        pod["metadata"]["finalizers"] = json!([]);
    });
    stuck.change("deployments", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("any:2");
        web["metadata"]["generation"] = json!(2);
    });
    stuck.put(node("n1", "True"));
    wait(std::time::Duration::from_secs(60)).await;
    stuck.names_cause("old-pods-terminating", "deployment/web", "terminating for").await;
}

#[tokio::test(start_paused = true)]
async fn pods_cannot_be_scheduled() {
    let status = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]});
    let stuck = deployment_with_pods(3, &status).await;
    stuck
        .names_cause("unschedulable", "deployment/web", "0/3 nodes are available: 3 Insufficient cpu.")
        .await;
}

#[tokio::test(start_paused = true)]
async fn image_cannot_be_pulled() {
    let status = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"any:1\""}}}]});
    let stuck = deployment_with_pods(2, &status).await;
    for pod in stuck.cluster.server.objects("pods") {
        stuck.change("pods", pod["metadata"]["name"].as_str().unwrap(), |pod| {
            pod["spec"]["nodeName"] = json!("n1");
        });
    }
    stuck.put(node("n1", "True"));
    stuck.names_cause("image-pull", "deployment/web", "ImagePullBackOff").await;
}

#[tokio::test(start_paused = true)]
async fn container_crashes() {
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}}]});
    let stuck = deployment_with_pods(1, &status).await;
    stuck.names_cause("crash-loop", "deployment/web", "CrashLoopBackOff, 7 restarts").await;
}

fn node(name: &str, ready: &str) -> Value {
    let (reason, message) = match ready {
        "True" => ("KubeletReady", "kubelet is posting ready status"),
        _ => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    };
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [
        {"type": "Ready", "status": ready, "reason": reason, "message": message,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

#[tokio::test(start_paused = true)]
async fn node_is_lost() {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
    let stuck = deployment_with_pods(1, &status).await;
    stuck.put(node("n1", "Unknown"));
    for pod in stuck.cluster.server.objects("pods") {
        stuck.change("pods", pod["metadata"]["name"].as_str().unwrap(), |pod| {
            pod["spec"]["nodeName"] = json!("n1");
        });
    }
    stuck.names_cause("lost-node", "deployment/web", "node/n1: the node is lost: Ready is Unknown").await;
}

#[tokio::test(start_paused = true)]
async fn selector_matches_nothing() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"selector": {"app": "wbe"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "type": "ClusterIP"}});
    let ready = json!({"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    let stuck = Stuck::new(&["endpointslice-controller"], &[service, pod("web-1", &ready)]).await;
    stuck.names_cause("selector", "svc/web", "its selector app=wbe matches no pod").await;
}

#[tokio::test(start_paused = true)]
async fn disruption_budget_forbids_evictions() {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "shop", "name": "web", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let stuck = Stuck::new(&["disruption-controller"], &[budget, pod("web-1", &ready)]).await;
    stuck.names_cause("disruption-budget", "pdb/web", "allows no evictions: 1 of 1 pods are healthy").await;
}

#[tokio::test(start_paused = true)]
async fn job_backs_off() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "shop", "name": "pay", "generation": 1},
        "spec": {"backoffLimit": 6, "completions": 1, "parallelism": 1, "completionMode": "NonIndexed", "suspend": false,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}, "manualSelector": true,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "any:1"}]}}}});
    let stuck = Stuck::new(&["job-controller"], &[job]).await;
    wait(std::time::Duration::from_secs(5)).await;
    let failed = json!({"phase": "Failed", "reason": "Error", "message": "exit code 3", "containerStatuses": [
        {"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": 3, "reason": "Error",
            "finishedAt": "2026-01-01T00:00:05Z"}}}]});
    set_status(&stuck, &failed);
    stuck.names_cause("job-backoff", "job/pay", "exit").await;
}

#[tokio::test(start_paused = true)]
async fn autoscaler_has_no_metrics() {
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"minReplicas": 1, "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    let controllers =
        ["deployment-controller", "replicaset-controller", "horizontal-pod-autoscaler-controller"];
    let stuck = Stuck::new(&controllers, &[deployment("RollingUpdate", 1), autoscaler]).await;
    wait(std::time::Duration::from_secs(40)).await;
    set_status(&stuck, &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    wait(std::time::Duration::from_secs(40)).await;
    stuck.names_cause("autoscaler", "hpa/web", "metrics").await;
}

#[tokio::test(start_paused = true)]
async fn claim_has_no_class() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"}});
    let mut user = pod(
        "web-1",
        &json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "pod has unbound immediate PersistentVolumeClaims"}]}),
    );
    user["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let stuck = Stuck::new(&["persistentvolume-binder-controller"], &[claim, user]).await;
    stuck.names_cause("claim-without-class", "pvc/data", "it names no StorageClass").await;
    stuck
        .names_cause("pod-of-claim-without-class", "pod/web-1", "persistentvolumeclaim/data: not bound")
        .await;
}

#[tokio::test(start_paused = true)]
async fn claim_names_a_class_that_does_not_exist() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem",
            "storageClassName": "fast"},
        "status": {"phase": "Pending"}});
    let stuck = Stuck::new(&["persistentvolume-binder-controller"], &[claim]).await;
    stuck.names_cause("claim-with-unknown-class", "pvc/data", "storageclass/fast: it does not exist").await;
}

#[tokio::test(start_paused = true)]
async fn claim_is_deleted_while_a_pod_uses_it() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "data",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""},
        "status": {"phase": "Bound"}});
    let mut user = pod("web-1", &json!({"phase": "Running"}));
    user["spec"]["nodeName"] = json!("n1");
    user["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let stuck = Stuck::new(&["persistentvolumeclaim-protection-controller"], &[claim, user]).await;
    stuck.names_cause("claim-in-use", "pvc/data", "a pod still uses the claim").await;
}

#[tokio::test(start_paused = true)]
async fn namespace_waits_for_a_foreign_finalizer() {
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "held",
        "finalizers": ["example.com/hold"]}, "data": {"a": "b"}});
    let stuck = Stuck::new(&["namespace-controller"], &[held]).await;
    let mut namespace = Value::clone(&stuck.cluster.server.object("namespaces", "", "shop").unwrap());
    namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    namespace["status"] = json!({"phase": "Terminating"});
    stuck.put(namespace);
    wait(std::time::Duration::from_secs(30)).await;
    stuck
        .names_cause("namespace-finalizer", "namespace/shop", "example.com/hold in 1 resource instances")
        .await;
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_a_dependent() {
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "shop", "name": "web", "uid": "set-uid",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template()}});
    let mut held = pod("web-1", &json!({"phase": "Running"}));
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    held["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
        "uid": "set-uid", "controller": true, "blockOwnerDeletion": true}]);
    let stuck = Stuck::new(&["replicaset-controller"], &[set, held]).await;
    stuck
        .names_cause(
            "foreground-deletion",
            "rs/web",
            "pod/web-1: terminating for 5s: finalizer example.com/hold",
        )
        .await;
}

/// A valid request for a client certificate, in base64.
fn signing_request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    base64::engine::general_purpose::STANDARD.encode(request)
}

#[tokio::test(start_paused = true)]
async fn signing_request_is_not_approved() {
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "web"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
            "request": signing_request(), "usages": ["client auth"], "username": "x"}});
    let stuck = Stuck::new(&["certificatesigningrequest-approving-controller"], &[request]).await;
    stuck.names_cause("signing-request", "csr/web", "it is neither approved nor denied").await;
}

/// An object with a finalizer that no controller removes, owned by the ReplicaSet `web`.
fn held_dependent(kind: &str, name: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set-uid", "controller": true,
        "blockOwnerDeletion": true});
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "shop", "name": name, "uid": "dependent-uid",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"], "ownerReferences": [owner]}})
}

/// A ReplicaSet in foreground deletion.
fn set_in_foreground_deletion() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "shop", "name": "web", "uid": "set-uid",
        "generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template()}})
}

/// The collector's dry run says what it waits for, also if that is of a kind that no cache holds.
#[tokio::test(start_paused = true)]
async fn garbage_collector_waits_for_a_dependent_of_another_kind() {
    let objects = [set_in_foreground_deletion(), held_dependent("ConfigMap", "settings")];
    let stuck = Stuck::new(&["replicaset-controller", "garbage-collector-controller"], &objects).await;
    let cause = "configmap/settings: terminating for 5s: finalizer example.com/hold";
    stuck.names_cause("foreground-deletion-of-any-kind", "rs/web", cause).await;
    let text = stuck.explain("rs", "web").await.text();
    let waits = "dependents with blockOwnerDeletion are left: configmap shop/settings (terminating)";
    assert!(text.contains(waits), "{text}");
}

#[tokio::test(start_paused = true)]
async fn garbage_collector_is_refused() {
    let cluster = TestCluster::new();
    let refused =
        InjectedFault::status(403, "Forbidden", "configmaps \"settings\" is forbidden: retained by policy");
    cluster.faults.add(FaultRule::new(refused).method(http::Method::DELETE).target("/configmaps"));
    let mut settings = held_dependent("ConfigMap", "settings");
    let meta = settings["metadata"].as_object_mut().unwrap();
    meta.remove("deletionTimestamp");
    meta.remove("finalizers");
    let stuck = Stuck::on(cluster, &["garbage-collector-controller"], &[settings]).await;
    stuck.names_cause("garbage-collector-refused", "configmap/settings", "retained by policy").await;
    let text = stuck.explain("configmap", "settings").await.text();
    assert!(text.contains("Wants:    delete configmaps settings because it has no solid owner"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn rollout_is_paused() {
    let mut paused = deployment("RollingUpdate", 2);
    paused["spec"]["paused"] = json!(true);
    let stuck = Stuck::new(&WORKLOADS, &[paused]).await;
    stuck.names_cause("paused", "deployment/web", "paused: `kubectl rollout resume`").await;
}

#[tokio::test(start_paused = true)]
async fn cron_job_is_suspended() {
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": "shop", "name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "suspend": true, "concurrencyPolicy": "Allow",
            "jobTemplate": {"spec": {"template": template()}}}});
    let stuck = Stuck::new(&["cronjob-controller"], &[job]).await;
    stuck.names_cause("cron-job-suspended", "cj/nightly", "suspended: spec.suspend is true").await;
}

#[tokio::test(start_paused = true)]
async fn pod_is_held_by_a_scheduling_gate() {
    let mut gated = pod("web-1", &json!({"phase": "Pending"}));
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
    let stuck = Stuck::new(&["replicaset-controller"], &[gated]).await;
    stuck.names_cause("scheduling-gate", "pod/web-1", "held by scheduling gates: example.com/quota").await;
}

#[tokio::test(start_paused = true)]
async fn watch_of_a_kind_fails() {
    let cluster = TestCluster::new();
    let stuck = Stuck::on(cluster, &WORKLOADS, &[deployment("RollingUpdate", 1)]).await;
    let failing = InjectedFault::status(403, "Forbidden", "pods is forbidden: no longer allowed");
    stuck.cluster.faults.add(FaultRule::new(failing).method(http::Method::GET).target("/pods?"));
    stuck.cluster.server.cut_watches();
    stuck.names_cause("watch-fails", "deployment/web", "the watch of pods fails").await;
}
