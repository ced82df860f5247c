//! Endpoints that a user writes are mirrored in EndpointSlices.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Endpoints, Event, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;

/// Waits until exactly these mirrored slices exist: address type, addresses (in brackets if not ready), ports.
async fn mirrored_become(
    cluster: &TestCluster,
    namespace: &str,
    wanted: &[&str],
) -> anyhow::Result<Vec<EndpointSlice>> {
    mirrored_become_with(cluster, namespace, wanted, |_| true).await
}

/// The same, and each of them is right.
async fn mirrored_become_with(
    cluster: &TestCluster,
    namespace: &str,
    wanted: &[&str],
    is_right: impl Fn(&EndpointSlice) -> bool,
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
        Ok((found == wanted && slices.iter().all(&is_right)).then_some(slices))
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
    let names =
        |slices: &[EndpointSlice]| slices.iter().map(|slice| slice.name_any()).collect::<BTreeSet<_>>();
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
    let is_new = |slice: &EndpointSlice| slice.name_any() != name;
    mirrored_become_with(cluster, &namespace, &["IPv4 192.0.2.3 :81"], is_new).await?;

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

/// Endpoints `web` of a Service `web` without selector.
struct MirrorFixture<'w> {
    cluster: &'w TestCluster,
    name: String,
    services: Api<Service>,
    endpoints: Api<Endpoints>,
    slices: Api<EndpointSlice>,
}

impl<'w> MirrorFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let name = cluster.namespace("mirrored").await?;
        let (services, endpoints, slices) = (cluster.api(&name), cluster.api(&name), cluster.api(&name));
        Ok(Self { cluster, name, services, endpoints, slices })
    }

    async fn service(&self) -> anyhow::Result<()> {
        let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
        self.cluster.create(&self.services, service).await.map(drop)
    }

    async fn endpoints(&self, metadata: Value, subsets: Value) -> anyhow::Result<Endpoints> {
        let mut object = json!({"metadata": metadata, "subsets": subsets});
        object["metadata"]["name"] = json!("web");
        self.cluster.create(&self.endpoints, object).await
    }

    async fn patch(&self, patch: Value) -> anyhow::Result<()> {
        self.endpoints.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn patch_slice(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.slices.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn slices_become(&self, wanted: &[&str]) -> anyhow::Result<Vec<EndpointSlice>> {
        mirrored_become(self.cluster, &self.name, wanted).await
    }
}

/// A subset with a port.
fn subset(ready: &[&str], port: u16) -> Value {
    let addresses: Vec<_> = ready.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"addresses": addresses, "ports": [{"name": "p", "port": port, "protocol": "TCP"}]})
}

/// Proves EPSM-22, EPSM-47, EPSM-48, EPSM-63.
pub(crate) async fn a_thousand_addresses_of_a_subset_are_mirrored(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = MirrorFixture::create(cluster).await?;
    let address = |n: usize| format!("192.0.{}.{}", n / 250, n % 250);
    let (mut ready, mut not_ready): (Vec<_>, Vec<_>) =
        ((0..998).map(address).collect(), (998..1005).map(address).collect());
    let list = |ips: &[String]| ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
    let large = json!({"addresses": list(&ready), "notReadyAddresses": list(&not_ready),
        "ports": [{"name": "p", "port": 80, "protocol": "TCP"}]});
    let others = subset(&["198.51.100.1"], 81);
    fixture.endpoints(json!({}), json!([large, others])).await?;
    fixture.service().await?;
    ready.sort();
    not_ready.sort();
    // Those that are not ready come last, in the order of their texts.
    let mut listed: Vec<_> = not_ready[..2].iter().map(|ip| format!("({ip})")).chain(ready).collect();
    listed.sort();
    let large = format!("IPv4 {} :80", listed.join(" "));
    fixture.slices_become(&[&large, "IPv4 198.51.100.1 :81"]).await?;
    let message = "TooManyAddressesToMirror A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 5 addresses were skipped";
    let reported = async || {
        let events = cluster.api::<Event>(&fixture.name).list(&ListParams::default()).await?;
        let mut texts = events.into_iter().filter(|event| event.type_.as_deref() == Some("Warning"));
        Ok(texts.find(|event| {
            [event.reason.as_deref(), event.message.as_deref()].map(Option::unwrap_or_default).join(" ")
                == message
        }))
    };
    cluster.eventually("an event", reported).await?;
    fixture.patch(json!({"subsets": [subset(&["192.0.0.1"], 80)]})).await?;
    fixture.slices_become(&["IPv4 192.0.0.1 :80"]).await?;
    Ok(())
}

/// Proves EPSM-8, EPSM-32, EPSM-61, EPSM-79.
pub(crate) async fn mirrored_slices_need_a_service_and_endpoints(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = MirrorFixture::create(cluster).await?;
    let subsets = json!([subset(&["192.0.2.1"], 80)]);
    let slice = "IPv4 192.0.2.1 :80";
    fixture.endpoints(json!({}), subsets.clone()).await?;
    cluster.settle().await;
    fixture.slices_become(&[]).await?;
    fixture.service().await?;
    fixture.slices_become(&[slice]).await?;
    let leader = |value: Value| json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": value}}});
    fixture.patch(leader(json!(""))).await?;
    fixture.slices_become(&[]).await?;
    fixture.patch(leader(Value::Null)).await?;
    fixture.slices_become(&[slice]).await?;
    fixture
        .patch(json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "True"}}}))
        .await?;
    let labelled = async || {
        let slices = fixture.slices.list(&ListParams::default()).await?.items;
        let has =
            |slice: &EndpointSlice| slice.labels().contains_key("endpointslice.kubernetes.io/skip-mirror");
        Ok((slices.len() == 1 && slices.iter().all(has)).then_some(()))
    };
    cluster.eventually("another word than true to be a label like any other", labelled).await?;
    cluster.checkpoint("the label is copied").await;

    // The slices of Endpoints that are created again belong to the new ones.
    fixture.endpoints.delete("web", &DeleteParams::default()).await?;
    let again = fixture.endpoints(json!({}), subsets).await?;
    let is_owned = |slice: &EndpointSlice| {
        slice.owner_references().first().map(|owner| &owner.uid) == again.metadata.uid.as_ref()
    };
    mirrored_become_with(cluster, &fixture.name, &[slice], is_owned).await?;
    // A deleted Service takes its Endpoints along, also those that a user wrote.
    fixture.services.delete("web", &DeleteParams::default()).await?;
    fixture.slices_become(&[]).await?;
    let gone = async || Ok(fixture.endpoints.get_opt("web").await?.is_none().then_some(()));
    cluster.eventually("the Endpoints to be deleted", gone).await?;
    fixture.service().await?;
    cluster.settle().await;
    fixture.slices_become(&[]).await?;
    Ok(())
}

/// Proves EPSM-31, EPSM-59, EPSM-71.
pub(crate) async fn tampered_mirrored_slices_are_repaired(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = MirrorFixture::create(cluster).await?;
    let annotations =
        json!({"note": "y", "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"});
    fixture.service().await?;
    fixture
        .endpoints(
            json!({"annotations": annotations}),
            json!([subset(&["192.0.2.1", "192.0.2.2"], 80), subset(&["192.0.2.1"], 81)]),
        )
        .await?;
    let whole = ["IPv4 192.0.2.1 192.0.2.2 :80", "IPv4 192.0.2.1 :81"];
    let slices = fixture.slices_become(&whole).await?;
    let names: BTreeSet<_> = slices.iter().map(|slice| slice.name_any()).collect();
    let name = slices[0].name_any();
    ensure!(slices[0].annotations().keys().collect::<Vec<_>>() == ["note"], "{:?}", slices[0].annotations());

    fixture.patch_slice(&name, json!({"endpoints": [{"addresses": ["192.0.2.99"]}]})).await?;
    fixture.slices_become(&whole).await?;
    fixture.patch_slice(&name, json!({"metadata": {"labels": {"by": "hand"}}})).await?;
    let repaired = async || Ok((!fixture.slices.get(&name).await?.labels().contains_key("by")).then_some(()));
    cluster.eventually("the labels of the Endpoints", repaired).await?;
    // An annotation alone does not raise the generation of a slice, so that it stays until the Endpoints change.
    fixture.patch_slice(&name, json!({"metadata": {"annotations": {"by": "hand"}}})).await?;
    cluster.settle().await;
    ensure!(
        fixture.slices.get(&name).await?.annotations().contains_key("by"),
        "nothing enqueues the Endpoints"
    );
    let foreign = json!({"metadata": {"name": "foreign", "labels": {"kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "example.com"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.77"]}]});
    cluster.create(&fixture.slices, foreign).await?;
    let relabel = json!({"metadata": {"labels": {"team": "z"}, "annotations": {"note": null}}});
    fixture.patch(relabel).await?;
    let is_copied = |slice: &EndpointSlice| {
        slice.labels().get("team").is_some_and(|team| team == "z") && slice.annotations().is_empty()
    };
    let slices = mirrored_become_with(cluster, &fixture.name, &whole, is_copied).await?;
    let kept: BTreeSet<_> = slices.iter().map(|slice| slice.name_any()).collect();
    ensure!(kept == names, "{kept:?} are not {names:?}");
    fixture.endpoints.delete("web", &DeleteParams::default()).await?;
    fixture.slices_become(&[]).await?;
    fixture.slices.get("foreign").await.context("a slice of another manager")?;
    Ok(())
}
