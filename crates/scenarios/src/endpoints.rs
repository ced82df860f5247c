//! Endpoints: those of Services with pods, those that a user writes and that are mirrored, and the TTL of nodes.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
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

/// Waits until exactly these mirrored slices exist: address type, addresses (in brackets if not ready), ports.
async fn mirrored_become(
    cluster: &TestCluster,
    namespace: &str,
    wanted: &[&str],
) -> anyhow::Result<Vec<EndpointSlice>> {
    let slices: Api<EndpointSlice> = cluster.api(namespace);
    let ours = "kubernetes.io/service-name=web,endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io";
    let describe = |slice: &EndpointSlice| {
        let address = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
            let is_ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true);
            if is_ready { endpoint.addresses[0].clone() } else { format!("({})", endpoint.addresses[0]) }
        };
        let mut words: Vec<_> = slice.endpoints.iter().flatten().map(address).collect();
        words.sort();
        let ports: Vec<_> =
            slice.ports.iter().flatten().map(|port| port.port.unwrap_or(0).to_string()).collect();
        format!("{} {} :{}", slice.address_type, words.join(" "), ports.join(","))
    };
    let reached = async || {
        let slices = slices.list(&ListParams::default().labels(ours)).await?.items;
        let mut found: Vec<_> = slices.iter().map(describe).collect();
        found.sort();
        Ok((found == wanted).then_some(slices))
    };
    let slices = cluster.eventually(&format!("mirrored slices {wanted:?}"), reached).await?;
    cluster.checkpoint("the mirrored slices are correct").await;
    Ok(slices)
}

/// Proves EPSM-15, EPSM-20, EPSM-27, EPSM-34, EPSM-36, EPSM-37, EPSM-38, EPSM-39, EPSM-55, EPSM-57, EPSM-67, EPSM-80.
pub(crate) async fn custom_endpoints_are_mirrored(cluster: &TestCluster) -> anyhow::Result<()> {
    let namespace = cluster.namespace("custom").await?;
    let (services, endpoints): (Api<Service>, Api<Endpoints>) =
        (cluster.api(&namespace), cluster.api(&namespace));
    let port = |port: u16| json!([{"name": "p", "port": port, "protocol": "TCP"}]);
    let subsets = json!([
        {"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "hostname": "h"}, {"ip": "2001:db8::1"}], "ports": port(80)},
        {"notReadyAddresses": [{"ip": "192.0.2.1"}], "ports": port(80)},
    ]);
    let metadata = json!({"name": "web", "labels": {"team": "x"}, "annotations": {"note": "y"}});
    let created = cluster.create(&endpoints, json!({"metadata": metadata, "subsets": subsets})).await?;
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    cluster.create(&services, service).await?;
    let slices =
        mirrored_become(cluster, &namespace, &["IPv4 (192.0.2.1) 192.0.2.2 :80", "IPv6 2001:db8::1 :80"])
            .await?;
    let slice = serde_json::to_value(&slices[0])?;
    let owner = json!([{"apiVersion": "v1", "kind": "Endpoints", "name": "web", "uid": created.uid(),
                        "controller": true, "blockOwnerDeletion": true}]);
    ensure!(slice["metadata"]["ownerReferences"] == owner, "{}", slice["metadata"]);
    ensure!(slice["metadata"]["annotations"] == json!({"note": "y"}), "{}", slice["metadata"]);
    ensure!(slice["metadata"]["labels"]["team"] == "x", "{}", slice["metadata"]);

    let patch = async |patch: Value| {
        endpoints.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    let names = |slices: &[EndpointSlice]| {
        slices.iter().map(|slice| slice.name_any()).collect::<std::collections::BTreeSet<_>>()
    };
    let first = names(&slices);
    patch(
        json!({"subsets": [{"addresses": [{"ip": "192.0.2.3"}, {"ip": "2001:db8::1"}], "ports": port(81)}]}),
    )
    .await?;
    let slices =
        mirrored_become(cluster, &namespace, &["IPv4 192.0.2.3 :81", "IPv6 2001:db8::1 :81"]).await?;
    ensure!(names(&slices) == first, "the slices are reused: {:?} {first:?}", names(&slices));
    patch(json!({"subsets": [{"addresses": [{"ip": "192.0.2.3"}], "ports": port(81)}]})).await?;
    let slices = mirrored_become(cluster, &namespace, &["IPv4 192.0.2.3 :81"]).await?;
    let api: Api<EndpointSlice> = cluster.api(&namespace);
    let name = slices.first().context("a slice")?.name_any();
    api.delete(&name, &DeleteParams::default()).await?;
    let is_new = async || {
        let slices = mirrored_become(cluster, &namespace, &["IPv4 192.0.2.3 :81"]).await?;
        Ok((slices[0].name_any() != name).then_some(()))
    };
    cluster.eventually("another slice", is_new).await?;

    let skip =
        |value: Value| json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": value}}});
    patch(skip(json!("true"))).await?;
    mirrored_become(cluster, &namespace, &[]).await?;
    patch(skip(Value::Null)).await?;
    mirrored_become(cluster, &namespace, &["IPv4 192.0.2.3 :81"]).await?;
    let select = |selector: Value| Patch::Merge(json!({"spec": {"selector": selector}}));
    services.patch("web", &PatchParams::default(), &select(json!({"app": "none"}))).await?;
    mirrored_become(cluster, &namespace, &[]).await?;
    let emptied = async || {
        let found = endpoints.get("web").await?.subsets.unwrap_or_default();
        Ok(found.is_empty().then_some(()))
    };
    cluster.eventually("the Endpoints to list the selected pods", emptied).await?;
    services.patch("web", &PatchParams::default(), &select(Value::Null)).await?;
    patch(json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}]}]})).await?;
    mirrored_become(cluster, &namespace, &["IPv4 192.0.2.9 :"]).await?;
    endpoints.delete("web", &DeleteParams::default()).await?;
    mirrored_become(cluster, &namespace, &[]).await?;
    Ok(())
}

/// Proves TTL-10, TTL-11, TTL-24, TTL-28.
pub(crate) async fn nodes_have_their_ttl(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    let name = fixture.node("z1");
    let ttl_is_zero = async || {
        let node = fixture.nodes.get(&name).await?;
        let ttl = node.annotations().get("node.alpha.kubernetes.io/ttl").cloned();
        Ok((ttl.as_deref() == Some("0")).then_some(node))
    };
    cluster.eventually("the TTL", ttl_is_zero).await?;
    let annotations = json!({"node.alpha.kubernetes.io/ttl": "99", "note": "kept"});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    fixture.nodes.patch(&name, &PatchParams::default(), &patch).await?;
    let node = cluster.eventually("the TTL again", ttl_is_zero).await?;
    ensure!(node.annotations().get("note").is_some_and(|note| note == "kept"), "{:?}", node.annotations());
    fixture.clean_up().await
}
