//! Services and the slices of endpoints behind them.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{Event, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::World;
use crate::heartbeats::Heartbeats;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A namespace with pods that nobody runs: what kubelets would say of them is said by the scenario.
struct Town<'w> {
    world: &'w World,
    name: String,
    nodes: Api<Node>,
    pods: Api<Pod>,
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    alive: Option<Heartbeats>,
}

impl<'w> Town<'w> {
    /// A namespace, and nodes `{namespace}-{zone}` in these zones.
    async fn found(world: &'w World, zones: &[&str]) -> anyhow::Result<Self> {
        let name = world.namespace("services").await?;
        let mut town = Self {
            world,
            nodes: Api::all(world.admin.clone()),
            pods: world.api(&name),
            services: world.api(&name),
            slices: world.api(&name),
            alive: None,
            name,
        };
        let mut nodes = Vec::new();
        for zone in zones {
            let node = json!({
                "metadata": {"name": town.node(zone), "labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"allocatable": {"cpu": "4", "pods": "1000"}, "conditions": [{"type": "Ready", "status": "True"}]},
            });
            nodes.push(world.create(&town.nodes, node).await?);
        }
        town.alive = Some(Heartbeats::of(world, &nodes));
        Ok(town)
    }

    fn node(&self, zone: &str) -> String {
        format!("{}-{zone}", self.name)
    }

    async fn service(&self, spec: Value) -> anyhow::Result<Service> {
        let mut whole =
            json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        let parts = spec.as_object().context("a spec")?.clone();
        whole.as_object_mut().context("a spec")?.extend(parts);
        let metadata = json!({"name": "web", "labels": {"team": "x"}});
        self.world.create(&self.services, json!({"metadata": metadata, "spec": whole})).await
    }

    async fn change_service(&self, patch: Value) -> anyhow::Result<()> {
        self.services.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// A ready pod on the node of a zone.
    async fn pod(&self, name: &str, zone: &str, ip: &str) -> anyhow::Result<()> {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": self.node(zone), "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "i"}]},
        });
        // Until the namespace has its account, pods are refused.
        let create = async || Ok(self.world.create(&self.pods, pod.clone()).await.map(Some)?);
        self.world.eventually("a pod", create).await?;
        self.status(name, json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]})).await?;
        self.ready(name, true).await
    }

    async fn ready(&self, name: &str, ready: bool) -> anyhow::Result<()> {
        let status = if ready { "True" } else { "False" };
        self.status(name, json!({"conditions": [{"type": "Ready", "status": status}]})).await
    }

    async fn status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn end_pod(&self, name: &str) -> anyhow::Result<()> {
        self.pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// The slices of the Service that the manager manages, sorted by name.
    async fn managed(&self) -> anyhow::Result<Vec<EndpointSlice>> {
        let ours = format!("{SERVICE_NAME}=web,{MANAGED_BY}=endpointslice-controller.k8s.io");
        Ok(self.slices.list(&ListParams::default().labels(&ours)).await?.items)
    }

    /// What all slices together say of each pod: readiness, serving, terminating, and hints.
    async fn endpoints(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut endpoints = BTreeMap::new();
        for endpoint in
            self.managed().await?.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default())
        {
            let name = endpoint.target_ref.and_then(|target| target.name).context("a pod")?;
            let conditions = endpoint.conditions.unwrap_or_default();
            let told = [(conditions.ready, 'r'), (conditions.serving, 's'), (conditions.terminating, 't')];
            let mut text: String =
                told.into_iter().filter(|(holds, _)| *holds == Some(true)).map(|(_, word)| word).collect();
            let hints = endpoint.hints.unwrap_or_default();
            hints.for_zones.iter().flatten().for_each(|zone| text.push_str(&format!(" zone {}", zone.name)));
            hints.for_nodes.iter().flatten().for_each(|node| text.push_str(&format!(" node {}", node.name)));
            ensure!(endpoints.insert(name.clone(), text).is_none(), "{name} is listed twice");
        }
        Ok(endpoints)
    }

    async fn endpoints_become(&self, wanted: &[(&str, &str)]) -> anyhow::Result<()> {
        let wanted: BTreeMap<_, _> =
            wanted.iter().map(|(pod, told)| ((*pod).to_owned(), (*told).to_owned())).collect();
        let seen = std::cell::RefCell::new(None);
        let asked = self.world.eventually("the endpoints", async || {
            let there = self.endpoints().await?;
            let is_so = there == wanted;
            *seen.borrow_mut() = Some(there);
            Ok(is_so.then_some(()))
        });
        asked.await.with_context(|| format!("wanted {wanted:?}, last seen {:?}", seen.borrow()))?;
        self.world.stand_still("the endpoints are as they should be").await;
        Ok(())
    }

    /// How many endpoints each slice has, fewest first.
    async fn sizes_become(&self, wanted: &[usize]) -> anyhow::Result<Vec<EndpointSlice>> {
        self.world
            .eventually(&format!("slices of {wanted:?}"), async || {
                let slices = self.managed().await?;
                let mut sizes: Vec<_> =
                    slices.iter().map(|slice| slice.endpoints.iter().flatten().count()).collect();
                sizes.sort_unstable();
                Ok((sizes == wanted).then_some(slices))
            })
            .await
    }

    /// Waits until there are these slices and no others, each told as its family and its addresses.
    async fn slices_become(&self, wanted: &[&str]) -> anyhow::Result<()> {
        let told = |slice: EndpointSlice| {
            let endpoints = slice.endpoints.into_iter().flatten();
            let mut words: Vec<_> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
            words.sort();
            words.insert(0, slice.address_type);
            words.join(" ")
        };
        let so_far = async || {
            let mut slices: Vec<_> = self.managed().await?.into_iter().map(told).collect();
            slices.sort();
            Ok((slices == wanted).then_some(()))
        };
        self.world.eventually(&format!("slices {wanted:?}"), so_far).await?;
        self.world.stand_still("the slices are as they should be").await;
        Ok(())
    }

    /// The reasons of the events about the Service.
    async fn reasons(&self) -> anyhow::Result<Vec<String>> {
        let events = self.world.api::<Event>(&self.name).list(&ListParams::default()).await?;
        let about =
            events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("Service"));
        Ok(about.filter_map(|event| Some(format!("{} {}", event.type_?, event.reason?))).collect())
    }

    /// Leaves no nodes behind, which would concern others.
    async fn leave(self) -> anyhow::Result<()> {
        self.world.stand_still("all is done").await;
        let pods = self.pods.list(&ListParams::default()).await?;
        try_join_all(pods.iter().map(|pod| pod.name_any()).map(async |name| self.end_pod(&name).await))
            .await?;
        // Pods on a node that is gone are complained of.
        let none_left = async || Ok(self.endpoints().await?.is_empty().then_some(()));
        self.world.eventually("the last endpoint to go", none_left).await?;
        drop(self.alive);
        let nodes = self.nodes.list(&ListParams::default()).await?;
        for node in nodes.iter().filter(|node| node.name_any().starts_with(&self.name)) {
            self.nodes.delete(&node.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// Proves EPS-31, EPS-33, EPS-34, EPS-35, EPS-36, EPS-60, EPS-64, EPS-66.
pub(crate) async fn a_service_lists_its_pods(world: &World) -> anyhow::Result<()> {
    let town = Town::found(world, &["z1"]).await?;
    let service = town.service(json!({})).await?;
    let placeholder = town.sizes_become(&[0]).await?;
    ensure!(placeholder[0].ports.iter().flatten().next().is_none(), "an empty slice has no ports");
    town.pod("p1", "z1", "10.0.0.1").await?;
    town.pod("p2", "z1", "10.0.0.2").await?;
    town.endpoints_become(&[("p1", "rs"), ("p2", "rs")]).await?;
    town.ready("p2", false).await?;
    town.endpoints_become(&[("p1", "rs"), ("p2", "")]).await?;

    let slices = town.managed().await?;
    ensure!(
        slices.len() == 1 && slices[0].name_any() == placeholder[0].name_any(),
        "the empty slice was taken up"
    );
    let uid = town.pods.get("p1").await?.uid();
    let told = serde_json::to_value(&slices[0])?;
    let endpoint =
        told["endpoints"].as_array().into_iter().flatten().find(|told| told["targetRef"]["name"] == "p1");
    let wanted = json!({
        "addresses": ["10.0.0.1"],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": town.node("z1"), "zone": "z1",
        "targetRef": {"kind": "Pod", "namespace": town.name, "name": "p1", "uid": uid},
    });
    ensure!(endpoint == Some(&wanted), "{endpoint:?} is not {wanted}");
    ensure!(told["ports"] == json!([{"name": "http", "port": 8080, "protocol": "TCP"}]), "{}", told["ports"]);
    ensure!(told["addressType"] == "IPv4" && told["metadata"]["generateName"] == "web-", "{told}");
    let labels = json!({SERVICE_NAME: "web", MANAGED_BY: "endpointslice-controller.k8s.io", "team": "x"});
    ensure!(told["metadata"]["labels"] == labels, "{}", told["metadata"]["labels"]);
    let owner = json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": service.uid(),
                        "controller": true, "blockOwnerDeletion": true}]);
    ensure!(told["metadata"]["ownerReferences"] == owner, "{}", told["metadata"]["ownerReferences"]);

    town.pods.delete("p1", &DeleteParams::default()).await?;
    town.endpoints_become(&[("p1", "st"), ("p2", "")]).await?;
    town.status("p1", json!({"phase": "Succeeded"})).await?;
    town.endpoints_become(&[("p2", "")]).await?;
    town.change_service(json!({"spec": {"publishNotReadyAddresses": true}})).await?;
    town.endpoints_become(&[("p2", "r")]).await?;
    town.end_pod("p2").await?;
    town.sizes_become(&[0]).await?;
    town.leave().await
}

/// Proves EPS-54, EPS-55, EPS-59, EPS-93.
pub(crate) async fn slices_are_packed_and_used_again(world: &World) -> anyhow::Result<()> {
    let town = Town::found(world, &["z1"]).await?;
    town.pod("p000", "z1", "10.0.1.0").await?;
    let more = (1..120).map(async |n| town.pod(&format!("p{n:03}"), "z1", &format!("10.0.1.{n}")).await);
    join_all(more).await.into_iter().collect::<anyhow::Result<()>>()?;
    town.service(json!({})).await?;
    let packed = town.sizes_become(&[20, 100]).await?;
    let names = |slices: &[EndpointSlice]| slices.iter().map(|slice| slice.name_any()).collect::<Vec<_>>();

    town.change_service(json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 9090}]}}))
        .await?;
    world
        .eventually("the new port", async || {
            let slices = town.managed().await?;
            let ports = slices.iter().flat_map(|slice| slice.ports.iter().flatten());
            Ok(ports.into_iter().all(|port| port.port == Some(9090)).then_some(()))
        })
        .await?;
    let again = town.sizes_become(&[20, 100]).await?;
    ensure!(names(&again) == names(&packed), "{:?} were replaced by {:?}", names(&packed), names(&again));

    let gone = (0..30).map(async |n| town.end_pod(&format!("p{n:03}")).await);
    join_all(gone).await.into_iter().collect::<anyhow::Result<()>>()?;
    world
        .eventually("fewer endpoints", async || Ok((town.endpoints().await?.len() == 90).then_some(())))
        .await?;
    world.settle().await;
    ensure!(town.managed().await?.len() == 2, "slices are not merged");
    town.leave().await
}

/// Proves EPS-67, EPS-119, EPS-121.
pub(crate) async fn spoilt_slices_are_repaired(world: &World) -> anyhow::Result<()> {
    let town = Town::found(world, &["z1"]).await?;
    town.service(json!({})).await?;
    town.pod("p1", "z1", "10.0.0.1").await?;
    town.endpoints_become(&[("p1", "rs")]).await?;
    let the_slice =
        async || anyhow::Ok(town.managed().await?.into_iter().next().context("a slice")?.name_any());
    let spoil = async |patch: Value| -> anyhow::Result<()> {
        let name = the_slice().await?;
        town.slices.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    };
    spoil(json!({"endpoints": [{"addresses": ["10.9.9.9"]}]})).await?;
    town.endpoints_become(&[("p1", "rs")]).await?;
    spoil(json!({"metadata": {"labels": {"by": "hand"}}})).await?;
    world
        .eventually("the labels of the Service", async || {
            let slices = town.managed().await?;
            Ok(slices.iter().all(|slice| !slice.labels().contains_key("by")).then_some(()))
        })
        .await?;
    town.slices.delete(&the_slice().await?, &DeleteParams::default()).await?;
    town.endpoints_become(&[("p1", "rs")]).await?;
    if world.runs_original() || world.is_compared() {
        // It waits for the slice it wrote to come back, until it gives up after fifteen tries.
        return town.leave().await;
    }
    let given_away = the_slice().await?;
    spoil(json!({"metadata": {"labels": {MANAGED_BY: null}}})).await?;
    town.endpoints_become(&[("p1", "rs")]).await?;
    ensure!(town.slices.get_opt(&given_away).await?.is_some(), "what belongs to others is left alone");
    town.leave().await
}

/// Proves EPS-72, EPS-74, EPS-75, EPS-84, EPS-87, EPS-103, EPS-106, EPS-127.
pub(crate) async fn clients_are_told_what_is_close(world: &World) -> anyhow::Result<()> {
    let town = Town::found(world, &["z1", "z2"]).await?;
    let (n1, n2) = (town.node("z1"), town.node("z2"));
    town.service(json!({"trafficDistribution": "PreferSameZone"})).await?;
    for (at, zone) in ["z1", "z1", "z1", "z2"].into_iter().enumerate() {
        town.pod(&format!("p{at}"), zone, &format!("10.0.0.{at}")).await?;
    }
    town.endpoints_become(&[
        ("p0", "rs zone z1"),
        ("p1", "rs zone z1"),
        ("p2", "rs zone z1"),
        ("p3", "rs zone z2"),
    ])
    .await?;
    town.change_service(json!({"spec": {"trafficDistribution": "PreferSameNode"}})).await?;
    let [on_n1, on_n2] = [("z1", &n1), ("z2", &n2)].map(|(zone, node)| format!("rs zone {zone} node {node}"));
    town.endpoints_become(&[("p0", &on_n1), ("p1", &on_n1), ("p2", &on_n1), ("p3", &on_n2)]).await?;
    town.ready("p2", false).await?;
    town.endpoints_become(&[("p0", &on_n1), ("p1", &on_n1), ("p2", ""), ("p3", &on_n2)]).await?;
    town.change_service(json!({"spec": {"trafficDistribution": null}})).await?;
    town.endpoints_become(&[("p0", "rs"), ("p1", "rs"), ("p2", ""), ("p3", "rs")]).await?;

    let others = town.nodes.list(&ListParams::default()).await?;
    let others: Vec<_> =
        others.iter().map(|node| node.name_any()).filter(|name| ![&n1, &n2].contains(&name)).collect();
    ensure!(others.is_empty(), "zones can be shared out only if nobody leaves nodes behind: {others:?}");
    town.ready("p2", true).await?;
    town.change_service(
        json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}}),
    )
    .await?;
    // Three and one of four are two and two, as the zones are alike. Which one of the three moves is open.
    world
        .eventually("two for each zone", async || {
            let told = town.endpoints().await?;
            let of = |zone: &str| told.values().filter(|hint| **hint == format!("rs zone {zone}")).count();
            Ok(((of("z1"), of("z2")) == (2, 2)).then_some(()))
        })
        .await?;
    town.change_service(json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": null}}}))
        .await?;
    town.endpoints_become(&[("p0", "rs"), ("p1", "rs"), ("p2", "rs"), ("p3", "rs")]).await?;
    if world.plane.is_some() {
        for wanted in ["Normal TopologyAwareHintsEnabled", "Warning TopologyAwareHintsDisabled"] {
            let told = async || Ok(town.reasons().await?.iter().any(|told| told == wanted).then_some(()));
            world.eventually(wanted, told).await?;
        }
    }
    town.leave().await
}

/// Proves EPS-27, EPS-32, EPS-63.
pub(crate) async fn a_service_of_two_families_has_slices_of_both(world: &World) -> anyhow::Result<()> {
    let town = Town::found(world, &["z1"]).await?;
    town.service(json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]})).await?;
    town.slices_become(&["IPv4", "IPv6"]).await?;
    town.pod("both", "z1", "10.0.0.1").await?;
    town.status("both", json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00:1::1"}]})).await?;
    town.pod("one", "z1", "10.0.0.2").await?;
    town.slices_become(&["IPv4 10.0.0.1 10.0.0.2", "IPv6 fd00:1::1"]).await?;
    town.end_pod("both").await?;
    town.slices_become(&["IPv4 10.0.0.2", "IPv6"]).await?;
    town.change_service(json!({"spec": {"ipFamilyPolicy": "SingleStack"}})).await?;
    town.slices_become(&["IPv4 10.0.0.2"]).await?;
    town.leave().await
}
