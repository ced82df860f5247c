//! An object read as protobuf equals the same object read as JSON.

use anyhow::{Context as _, ensure};
use http::header::ACCEPT;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use keleustes_objects::{Key, Kind, protobuf};
use kube::client::Body;
use serde_json::{Value, json};

use crate::TestCluster;

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
    ensure!(written == wanted, "as protobuf:\n{written:#}\nas JSON:\n{wanted:#}");
    Ok(())
}
