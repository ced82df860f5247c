//! An object read as protobuf equals the same object read as JSON.

use anyhow::{Context as _, ensure};
use http::header::ACCEPT;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Endpoints, ReplicationController, ResourceQuota};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keleustes_objects::{Key, Kind, protobuf};
use kube::client::Body;
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::TestCluster;
use crate::certificates::{RequestFixture, request_for};

/// A pod template with fields of every shape: null and zero pointers, quantities, ports by number and by
/// name, times, inlined structs, and strings that JSON escapes.
fn template() -> Value {
    let env = json!([
        {"name": "EMPTY"},
        {"name": "QUOTED", "value": "\"a\"\n<b> \u{2028} ü"},
        {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": false}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
    ]);
    let context = json!({
        "privileged": false, "runAsUser": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let container = json!({
        "name": "c", "image": "registry.example/web:1", "args": ["", "x"], "env": env, "securityContext": context,
        "envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}],
        "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
        "resources": {"limits": {"cpu": "1", "memory": "128Mi"}, "requests": {"cpu": "0.1"}},
        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "initialDelaySeconds": 3},
        "readinessProbe": {"tcpSocket": {"port": 80}},
        "startupProbe": {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": 0}}},
        "volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": true}],
    });
    let expression = json!({"key": "zone", "operator": "In", "values": ["a", "b"]});
    let volumes = json!([
        {"name": "a", "configMap": {"name": "c", "defaultMode": 0, "items": [{"key": "k", "path": "p"}]}},
        {"name": "b", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "d", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
        {"name": "f", "hostPath": {"path": "/f", "type": ""}},
    ]);
    json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"note": "\\ \"quoted\" \t"}},
        "spec": {
            "containers": [container], "volumes": volumes, "hostNetwork": false, "enableServiceLinks": false,
            "initContainers": [{"name": "i", "image": "registry.example/i:1", "restartPolicy": "Always"}],
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "securityContext": {"fsGroup": 0, "supplementalGroups": [1, 2], "sysctls": [{"name": "a", "value": "1"}]},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm":
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}}]},
            },
            "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}}}],
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a", "b"]}],
            "dnsConfig": {"options": [{"name": "ndots", "value": "1"}], "searches": ["example"]},
            "readinessGates": [{"conditionType": "example.com/ready"}],
        },
    })
}

pub(crate) async fn a_deployment_is_the_same_in_both_encodings(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace("encodings").await?;
    let deployments = cluster.api::<Deployment>(&namespace);
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}});
    let spec = json!({
        "replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "strategy": strategy, "template": template(),
    });
    cluster.create(&deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    cluster
        .eventually("a status with conditions", async || {
            let status = deployments.get("web").await?.status;
            Ok(status.is_some_and(|status| status.conditions.is_some()).then_some(()))
        })
        .await?;
    cluster.settle().await;

    same_in_both_encodings::<keleustes_objects::Deployment>(cluster, &namespace, "web").await
}

pub(crate) async fn an_endpoint_slice_is_the_same_in_both_encodings(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("encodings").await?;
    let endpoints = json!([
        {"addresses": ["10.0.0.7"], "conditions": {"ready": true, "serving": true, "terminating": false},
         "nodeName": "n1", "zone": "a", "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]},
         "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab"}},
        {"addresses": ["10.0.0.9"], "hostname": "h", "deprecatedTopology": {"rack": "\"7\""},
         "targetRef": {"kind": "Node", "name": "n", "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "f"}},
        {"addresses": ["10.0.0.8"], "conditions": {"ready": false}},
    ]);
    let ports = json!([
        {"name": "", "protocol": "TCP", "port": 80},
        {"name": "http", "protocol": "TCP", "appProtocol": "http"},
    ]);
    let slice = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"note": "\\ \"quoted\" \t"}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    cluster.create(&cluster.api::<EndpointSlice>(&namespace), slice).await?;
    cluster.settle().await;
    same_in_both_encodings::<keleustes_objects::EndpointSlice>(cluster, &namespace, "web").await
}

pub(crate) async fn endpoints_are_the_same_in_both_encodings(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace("encodings").await?;
    let subsets = json!([
        {"addresses": [
            {"ip": "10.0.0.7", "nodeName": "n1", "hostname": "h",
             "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab"}},
            {"ip": "2001:db8::1", "targetRef": {"kind": "Node", "name": "n", "apiVersion": "v1", "fieldPath": "f"}}],
         "ports": [{"name": "http", "port": 80, "appProtocol": "http"}, {"name": "dns", "port": 53, "protocol": "UDP"}]},
        {"notReadyAddresses": [{"ip": "10.0.0.8"}], "ports": [{"port": 81}]},
        {"addresses": [{"ip": "10.0.0.9"}]},
    ]);
    let metadata =
        json!({"name": "web", "labels": {"app": "web"}, "annotations": {"note": "\\ \"quoted\" \t"}});
    let endpoints = json!({"metadata": metadata, "subsets": subsets});
    cluster.create(&cluster.api::<Endpoints>(&namespace), endpoints).await?;
    cluster.settle().await;
    same_in_both_encodings::<keleustes_objects::Endpoints>(cluster, &namespace, "web").await
}

pub(crate) async fn workloads_and_policies_are_the_same_in_both_encodings(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace("encodings").await?;
    let mut pod_template = template();
    pod_template["spec"]["restartPolicy"] = json!("Never");
    let on_exit_codes = json!({"containerName": "c", "operator": "In", "values": [1, 7]});
    let job = json!({
        "parallelism": 0, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0, "maxFailedIndexes": 1,
        "podReplacementPolicy": "Failed", "suspend": true, "ttlSecondsAfterFinished": 0, "template": pod_template,
        "podFailurePolicy": {"rules": [
            {"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]},
        "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
    });
    let mut failing = job.clone();
    failing["podFailurePolicy"]["rules"][0] = json!({"action": "FailJob", "onExitCodes": on_exit_codes});
    cluster.create(&cluster.api::<Job>(&namespace), named(json!({"spec": job}))).await?;
    let cron_job = json!({
        "schedule": "0 0 1 1 *", "timeZone": "Etc/UTC", "suspend": false, "startingDeadlineSeconds": 0,
        "successfulJobsHistoryLimit": 0, "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": failing},
    });
    cluster.create(&cluster.api::<CronJob>(&namespace), named(json!({"spec": cron_job}))).await?;
    let external = json!({"metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "AverageValue", "averageValue": "1500m"}});
    let autoscaler = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}, "minReplicas": 2, "maxReplicas": 3,
        "metrics": [{"type": "External", "external": external}],
        "behavior": {"scaleDown": {"tolerance": "50m", "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]}},
    });
    let autoscalers = cluster.api::<HorizontalPodAutoscaler>(&namespace);
    cluster.create(&autoscalers, named(json!({"spec": autoscaler}))).await?;
    let budget = json!({"minAvailable": "50%", "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}});
    cluster.create(&cluster.api::<PodDisruptionBudget>(&namespace), named(json!({"spec": budget}))).await?;
    let high = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]});
    let quota = json!({"hard": {"pods": "0", "requests.cpu": "1500m"}, "scopeSelector": {"matchExpressions": [high]}});
    cluster.create(&cluster.api::<ResourceQuota>(&namespace), named(json!({"spec": quota}))).await?;
    let replicas =
        json!({"replicas": 0, "minReadySeconds": 1, "selector": {"app": "web"}, "template": template()});
    let controllers = cluster.api::<ReplicationController>(&namespace);
    cluster.create(&controllers, named(json!({"spec": replicas}))).await?;
    cluster.settle().await;
    same_in_both_encodings::<keleustes_objects::Job>(cluster, &namespace, NAME).await?;
    same_in_both_encodings::<keleustes_objects::CronJob>(cluster, &namespace, NAME).await?;
    same_in_both_encodings::<keleustes_objects::HorizontalPodAutoscaler>(cluster, &namespace, NAME).await?;
    same_in_both_encodings::<keleustes_objects::PodDisruptionBudget>(cluster, &namespace, NAME).await?;
    same_in_both_encodings::<keleustes_objects::ResourceQuota>(cluster, &namespace, NAME).await?;
    same_in_both_encodings::<keleustes_objects::ReplicationController>(cluster, &namespace, NAME).await
}

pub(crate) async fn a_signing_request_is_the_same_in_both_encodings(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let requests = RequestFixture::begin(cluster).await?;
    let request = request_for(&KeyPair::generate()?, "a", "b", &["example.com"])?;
    let usages = ["digital signature", "client auth"];
    let name = requests.create("both", "example.com/other", &usages, request).await?;
    cluster.settle().await;
    same_in_both_encodings::<keleustes_objects::CertificateSigningRequest>(cluster, "", &name).await
}

/// The name of the objects of one scenario.
const NAME: &str = "both-encodings";

/// The object with a name, labels and annotations.
fn named(mut object: Value) -> Value {
    object["metadata"] =
        json!({"name": NAME, "labels": {"app": "web"}, "annotations": {"note": "\\ \"quoted\" \t"}});
    object
}

/// Removes fields that are null: a null stands for a list without elements, which protobuf does not encode.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

async fn same_in_both_encodings<K: Kind>(
    cluster: &TestCluster,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    let path = K::RESOURCE.object_path(&Key::namespaced(namespace, name));
    let read = async |accept: &str| {
        let request = http::Request::get(&path).header(ACCEPT, accept).body(Body::empty())?;
        anyhow::Ok(cluster.admin.send(request).await?.into_body().collect_bytes().await?)
    };
    let mut wanted: Value = serde_json::from_slice(&read("application/json").await?)?;
    for field in ["kind", "apiVersion"] {
        wanted.as_object_mut().and_then(|object| object.remove(field));
    }
    wanted["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
    let bytes = read("application/vnd.kubernetes.protobuf").await?;
    let message = K::WHOLE.with_context(|| format!("{} have no complete protobuf schema", K::RESOURCE))?;
    let written = protobuf::to_json(protobuf::Envelope::open(&bytes)?.object, message);
    let written = written.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let written: Value = serde_json::from_str(&written)?;
    let (written, wanted) = (without_nulls(written), without_nulls(wanted));
    ensure!(written == wanted, "as protobuf:\n{written:#}\nas JSON:\n{wanted:#}");
    Ok(())
}
