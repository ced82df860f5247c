//! Endpoints of Services with pods.

use std::collections::BTreeMap;

use anyhow::ensure;
use futures::future::try_join_all;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::services::ServiceFixture;

/// The addresses in Endpoints, and whether they are ready.
fn listed(endpoints: &Value) -> BTreeMap<String, bool> {
    let mut listed = BTreeMap::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        for (field, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
            for address in subset[field].as_array().into_iter().flatten() {
                listed.insert(address["ip"].as_str().unwrap_or_default().to_owned(), is_ready);
            }
        }
    }
    listed
}

/// The addresses of ready endpoints in slices, with those of other endpoints that do not terminate.
async fn listed_by_slices(fixture: &ServiceFixture<'_>) -> anyhow::Result<BTreeMap<String, bool>> {
    let endpoints =
        fixture.managed().await?.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
    let listed = endpoints.filter_map(|endpoint| {
        let conditions = endpoint.conditions.unwrap_or_default();
        let is_terminating = conditions.terminating == Some(true);
        (!is_terminating).then(|| (endpoint.addresses[0].clone(), conditions.ready == Some(true)))
    });
    Ok(listed.collect())
}

async fn both_become(fixture: &ServiceFixture<'_>, wanted: &[(&str, bool)]) -> anyhow::Result<Value> {
    let wanted: BTreeMap<_, _> = wanted.iter().map(|(ip, is_ready)| ((*ip).to_owned(), *is_ready)).collect();
    let api: Api<Endpoints> = fixture.cluster.api(&fixture.name);
    let agree = async || {
        let Some(endpoints) = api.get_opt("web").await? else { return Ok(None) };
        let endpoints = serde_json::to_value(endpoints)?;
        let is_so = listed(&endpoints) == wanted && listed_by_slices(fixture).await? == wanted;
        Ok(is_so.then_some(endpoints))
    };
    let what = format!("Endpoints and slices with {wanted:?}");
    let endpoints = fixture.cluster.eventually(&what, agree).await?;
    fixture.cluster.checkpoint("Endpoints and slices agree").await;
    Ok(endpoints)
}

/// Proves EP-19, EP-25, EP-30, EP-37, EP-47, EP-48, EP-59, EP-80.
pub(crate) async fn endpoints_and_slices_of_a_service_agree(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    fixture.service(json!({})).await?;
    both_become(&fixture, &[]).await?;
    fixture.pod("p1", "z1", "10.0.0.1").await?;
    both_become(&fixture, &[("10.0.0.1", true)]).await?;
    fixture.pod("p2", "z1", "10.0.0.2").await?;
    fixture.ready("p1", false).await?;
    let endpoints = both_become(&fixture, &[("10.0.0.1", false), ("10.0.0.2", true)]).await?;
    let uid = fixture.pods.get("p2").await?.uid();
    let wanted = json!({"ip": "10.0.0.2", "nodeName": fixture.node("z1"),
        "targetRef": {"kind": "Pod", "namespace": fixture.name, "name": "p2", "uid": uid}});
    let subset = &endpoints["subsets"][0];
    ensure!(subset["addresses"] == json!([wanted]), "{subset}");
    ensure!(subset["ports"] == json!([{"name": "http", "port": 8080, "protocol": "TCP"}]), "{subset}");
    let labels = json!({"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    ensure!(endpoints["metadata"]["labels"] == labels, "{}", endpoints["metadata"]);
    let trigger_time =
        &endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"];
    ensure!(trigger_time.is_null(), "the conditions have no times: {trigger_time}");

    let api: Api<Endpoints> = cluster.api(&fixture.name);
    api.delete("web", &DeleteParams::default()).await?;
    both_become(&fixture, &[("10.0.0.1", false), ("10.0.0.2", true)]).await?;
    fixture.change_service(json!({"spec": {"publishNotReadyAddresses": true}})).await?;
    both_become(&fixture, &[("10.0.0.1", true), ("10.0.0.2", true)]).await?;
    fixture.change_service(json!({"spec": {"publishNotReadyAddresses": false}})).await?;
    fixture.delete_pod("p2").await?;
    both_become(&fixture, &[("10.0.0.1", false)]).await?;
    fixture.change_service(json!({"metadata": {"labels": {"team": null, "new": "1"}}})).await?;
    let relabelled = async || {
        let labels = api.get("web").await?.labels().clone();
        Ok((labels.contains_key("new") && !labels.contains_key("team")).then_some(()))
    };
    cluster.eventually("the labels of the Service", relabelled).await?;

    let headless = json!({"metadata": {"name": "headless"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create(&fixture.services, headless).await?;
    let is_headless = async || {
        let labels = api.get_opt("headless").await?.map(|endpoints| endpoints.labels().clone());
        Ok(labels.filter(|labels| labels.contains_key("service.kubernetes.io/headless")))
    };
    cluster.eventually("the headless label", is_headless).await?;
    for name in ["web", "headless"] {
        fixture.services.delete(name, &DeleteParams::default()).await?;
        let gone = async || Ok(api.get_opt(name).await?.is_none().then_some(()));
        cluster.eventually("the Endpoints to be deleted", gone).await?;
    }
    fixture.clean_up().await
}

/// The ports of the pods of [`endpoints_have_a_thousand_addresses_at_most`], and the pods. Each of the first pods lacks one
/// of the ports, so that every port has a subset of its own with all other pods.
const PORTS: usize = 10;
const PODS: usize = 102;

/// Waits until the Endpoints `web` have these ready addresses and others of the pods of each port.
async fn subsets_become(
    fixture: &ServiceFixture<'_>,
    pods: std::ops::Range<usize>,
    (ready, not_ready): (usize, usize),
    is_ready: impl Fn(usize) -> bool,
    is_cut: bool,
) -> anyhow::Result<()> {
    let wanted: BTreeMap<usize, [Vec<String>; 2]> = (0..PORTS)
        .map(|port| {
            let addresses = |wanted: bool, count: usize| {
                let pods = pods.clone().filter(|pod| *pod != port && is_ready(*pod) == wanted);
                let mut addresses: Vec<_> = pods.map(pod_address).collect();
                addresses.sort();
                addresses.truncate(count);
                addresses
            };
            (8000 + port, [addresses(true, ready), addresses(false, not_ready)])
        })
        .collect();
    let api: Api<Endpoints> = fixture.cluster.api(&fixture.name);
    let reached = async || {
        let endpoints = serde_json::to_value(api.get("web").await?)?;
        let mut found = BTreeMap::new();
        for subset in endpoints["subsets"].as_array().into_iter().flatten() {
            let addresses = ["addresses", "notReadyAddresses"].map(|field| {
                let addresses = subset[field].as_array().into_iter().flatten();
                addresses.filter_map(|address| Some(address["ip"].as_str()?.to_owned())).collect::<Vec<_>>()
            });
            found.insert(usize::try_from(subset["ports"][0]["port"].as_u64().unwrap_or(0))?, addresses);
        }
        let annotation = &endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"];
        let is_right = found == wanted && *annotation == json!(is_cut.then_some("truncated"));
        let sizes: Vec<_> = found.values().map(|lists| (lists[0].len(), lists[1].len())).collect();
        if is_right { Ok(Some(())) } else { anyhow::bail!("{sizes:?} addresses, {annotation}") }
    };
    let what = format!("subsets with {ready} ready addresses and {not_ready} others");
    fixture.cluster.eventually(&what, reached).await?;
    fixture.cluster.checkpoint("the subsets are correct").await;
    Ok(())
}

fn pod_address(pod: usize) -> String {
    format!("10.1.0.{}", pod + 1)
}

/// Proves EP-54, EP-55, EP-56, EP-57, EP-97.
pub(crate) async fn endpoints_have_a_thousand_addresses_at_most(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    let name = |pod: usize| format!("p{pod:03}");
    let create = async |pod: usize| {
        let ports = (0..PORTS).filter(|port| *port != pod);
        let ports: Vec<_> =
            ports.map(|port| json!({"name": format!("p{port}"), "containerPort": 8000 + port})).collect();
        let object = json!({"metadata": {"name": name(pod), "labels": {"app": "web"}},
            "spec": {"nodeName": fixture.node("z1"), "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "i", "ports": ports}]}});
        // Pods are rejected until the namespace has its ServiceAccount.
        let create = async || Ok(Some(cluster.create(&fixture.pods, object.clone()).await?));
        cluster.eventually("a pod", create).await?;
        let status = json!({"phase": "Running", "podIP": pod_address(pod), "podIPs": [{"ip": pod_address(pod)}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        fixture.status(&name(pod), status).await
    };
    let created: Vec<_> = stream::iter(0..PODS).map(create).buffer_unordered(16).collect().await;
    created.into_iter().collect::<anyhow::Result<()>>()?;
    // So that the first endpoints have all pods, and one trigger time.
    cluster.settle().await;
    let ports = (0..PORTS).map(|port| {
        let name = format!("p{port}");
        json!({"name": name, "port": 80 + port, "targetPort": name})
    });
    fixture.service(json!({"ports": ports.collect::<Vec<_>>()})).await?;
    subsets_become(&fixture, 0..PODS, (100, 0), |_| true, true).await?;
    try_join_all((92..PODS).map(async |pod| fixture.ready(&name(pod), false).await)).await?;
    subsets_become(&fixture, 0..PODS, (91, 9), |pod| pod < 92, true).await?;
    fixture.delete_pod(&name(PODS - 1)).await?;
    subsets_become(&fixture, 0..PODS - 1, (91, 9), |pod| pod < 92, false).await?;
    fixture.clean_up().await
}

/// Proves EP-16, EP-70.
pub(crate) async fn leftover_endpoints_are_deleted_at_start(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace("leftovers").await?;
    let (services, endpoints): (Api<Service>, Api<Endpoints>) =
        (cluster.api(&namespace), cluster.api(&namespace));
    let service = json!({"metadata": {"name": "custom"}, "spec": {"ports": [{"port": 80}]}});
    cluster.create(&services, service).await?;
    let labels = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    let lock = json!({"control-plane.alpha.kubernetes.io/leader": "{}"});
    for metadata in [
        json!({"name": "old", "labels": labels}),
        json!({"name": "unlabelled"}),
        json!({"name": "lock", "annotations": lock}),
        json!({"name": "custom"}),
    ] {
        let subsets = json!([{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]);
        cluster.create(&endpoints, json!({"metadata": metadata, "subsets": subsets})).await?;
    }
    let names = async || {
        let all = endpoints.list_metadata(&ListParams::default()).await?.items;
        anyhow::Ok(all.iter().map(|one| one.name_any()).collect::<Vec<_>>())
    };
    cluster.settle().await;
    let found = names().await?;
    ensure!(found == ["custom", "lock", "old", "unlabelled"], "a running manager leaves {found:?} alone");
    cluster.checkpoint("Endpoints without Services").await;
    let _manager = cluster.own_manager(&["endpoints-controller"], &[]).await?;
    let deleted = async || {
        let found = names().await?;
        if found == ["custom", "lock"] { Ok(Some(())) } else { anyhow::bail!("{found:?}") }
    };
    cluster.eventually("the leftovers to be deleted", deleted).await?;
    cluster.checkpoint("the leftovers are deleted").await;
    Ok(())
}

/// Proves EP-27, EP-28, EP-29, EP-50, EP-51, EP-52, EP-96.
pub(crate) async fn endpoints_have_the_first_family_and_the_time_of_the_change(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    let api: Api<Endpoints> = cluster.api(&fixture.name);
    let created =
        serde_json::to_value(fixture.service(json!({})).await?)?["metadata"]["creationTimestamp"].clone();
    let endpoints_become = async |service: &str, wanted: &[(&str, bool)], time: Value| {
        let wanted: BTreeMap<_, _> = wanted.iter().map(|(ip, ready)| ((*ip).to_owned(), *ready)).collect();
        let reached = async || {
            let endpoints = serde_json::to_value(api.get(service).await?)?;
            let found =
                &endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"];
            let is_right = listed(&endpoints) == wanted && *found == time;
            if is_right { Ok(Some(())) } else { anyhow::bail!("{endpoints}") }
        };
        cluster.eventually(&format!("{service} with {wanted:?} since {time}"), reached).await?;
        cluster.checkpoint("the Endpoints are correct").await;
        anyhow::Ok(())
    };
    let status = |ips: &[&str], ready: &str, at: &str| {
        let all: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"phase": "Running", "podIP": ips[0], "podIPs": all,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at}]})
    };
    let pod = async |name: &str, ips: &[&str], at: &str| -> anyhow::Result<()> {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": fixture.node("z1"), "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "i"}]}});
        // Pods are rejected until the namespace has its ServiceAccount.
        let create = async || Ok(Some(cluster.create(&fixture.pods, pod.clone()).await?));
        cluster.eventually("a pod", create).await?;
        fixture.status(name, status(ips, "True", at)).await
    };
    let at = |second: u8| format!("2026-01-01T00:00:{second:02}Z");
    endpoints_become("web", &[], created).await?;
    pod("p1", &["10.0.0.1", "fd00::1"], &at(20)).await?;
    endpoints_become("web", &[("10.0.0.1", true)], json!(at(20))).await?;
    pod("p2", &["10.0.0.2", "fd00::2"], &at(10)).await?;
    endpoints_become("web", &[("10.0.0.1", true), ("10.0.0.2", true)], json!(at(10))).await?;
    fixture.status("p1", status(&["10.0.0.1", "fd00::1"], "False", &at(30))).await?;
    endpoints_become("web", &[("10.0.0.1", false), ("10.0.0.2", true)], json!(at(30))).await?;
    // A pod that leaves has no time, and one of the other family alone is not listed.
    fixture.delete_pod("p2").await?;
    endpoints_become("web", &[("10.0.0.1", false)], Value::Null).await?;
    pod("p3", &["fd00::3"], &at(40)).await?;
    cluster.settle().await;
    endpoints_become("web", &[("10.0.0.1", false)], Value::Null).await?;
    if cluster.processes.is_some() {
        // The embedded server has IPv4 only.
        let spec = json!({"selector": {"app": "web"}, "ipFamilies": ["IPv6"], "ports": [{"port": 80}]});
        let six =
            cluster.create(&fixture.services, json!({"metadata": {"name": "six"}, "spec": spec})).await?;
        let created = serde_json::to_value(six)?["metadata"]["creationTimestamp"].clone();
        endpoints_become("six", &[("fd00::1", false), ("fd00::3", true)], created).await?;
    }
    fixture.clean_up().await
}
