//! Services and their EndpointSlices.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{Event, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::heartbeats::Heartbeats;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A namespace with pods that have no kubelet: the scenario writes their status.
pub(crate) struct ServiceFixture<'w> {
    pub(crate) cluster: &'w TestCluster,
    pub(crate) name: String,
    pub(crate) nodes: Api<Node>,
    pub(crate) pods: Api<Pod>,
    pub(crate) services: Api<Service>,
    pub(crate) slices: Api<EndpointSlice>,
    heartbeats: Option<Heartbeats>,
}

impl<'w> ServiceFixture<'w> {
    /// Creates a namespace, and a node `{namespace}-{zone}` in each of these zones.
    pub(crate) async fn create(cluster: &'w TestCluster, zones: &[&str]) -> anyhow::Result<Self> {
        let name = cluster.namespace("services").await?;
        let mut fixture = Self {
            cluster,
            nodes: Api::all(cluster.admin.clone()),
            pods: cluster.api(&name),
            services: cluster.api(&name),
            slices: cluster.api(&name),
            heartbeats: None,
            name,
        };
        let mut nodes = Vec::new();
        for zone in zones {
            let node = json!({
                "metadata": {"name": fixture.node(zone), "labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"allocatable": {"cpu": "4", "pods": "1000"}, "conditions": [{"type": "Ready", "status": "True"}]},
            });
            nodes.push(cluster.create(&fixture.nodes, node).await?);
        }
        fixture.heartbeats = Some(Heartbeats::of(cluster, &nodes));
        Ok(fixture)
    }

    pub(crate) fn node(&self, zone: &str) -> String {
        format!("{}-{zone}", self.name)
    }

    pub(crate) async fn service(&self, spec: Value) -> anyhow::Result<Service> {
        let mut merged =
            json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        let parts = spec.as_object().context("a spec")?.clone();
        merged.as_object_mut().context("a spec")?.extend(parts);
        let metadata = json!({"name": "web", "labels": {"team": "x"}});
        self.cluster.create(&self.services, json!({"metadata": metadata, "spec": merged})).await
    }

    pub(crate) async fn change_service(&self, patch: Value) -> anyhow::Result<()> {
        self.services.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Creates a ready pod on the node of a zone.
    pub(crate) async fn pod(&self, name: &str, zone: &str, ip: &str) -> anyhow::Result<()> {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": self.node(zone), "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "i"}]},
        });
        // Pods are rejected until the namespace has its ServiceAccount.
        let create = async || Ok(self.cluster.create(&self.pods, pod.clone()).await.map(Some)?);
        self.cluster.eventually("a pod", create).await?;
        self.status(name, json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]})).await?;
        self.ready(name, true).await
    }

    pub(crate) async fn ready(&self, name: &str, ready: bool) -> anyhow::Result<()> {
        let status = if ready { "True" } else { "False" };
        self.status(name, json!({"conditions": [{"type": "Ready", "status": status}]})).await
    }

    pub(crate) async fn status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete_pod(&self, name: &str) -> anyhow::Result<()> {
        self.pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// The slices of the Service that the controller manages, sorted by name.
    pub(crate) async fn managed(&self) -> anyhow::Result<Vec<EndpointSlice>> {
        let ours = format!("{SERVICE_NAME}=web,{MANAGED_BY}=endpointslice-controller.k8s.io");
        Ok(self.slices.list(&ListParams::default().labels(&ours)).await?.items)
    }

    /// The conditions (`r` ready, `s` serving, `t` terminating) and hints of each pod in all slices.
    pub(crate) async fn endpoints(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut endpoints = BTreeMap::new();
        for endpoint in
            self.managed().await?.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default())
        {
            let name = endpoint.target_ref.and_then(|target| target.name).context("a pod")?;
            let conditions = endpoint.conditions.unwrap_or_default();
            let conditions =
                [(conditions.ready, 'r'), (conditions.serving, 's'), (conditions.terminating, 't')];
            let mut text: String = conditions
                .into_iter()
                .filter(|(holds, _)| *holds == Some(true))
                .map(|(_, word)| word)
                .collect();
            let hints = endpoint.hints.unwrap_or_default();
            hints.for_zones.iter().flatten().for_each(|zone| text.push_str(&format!(" zone {}", zone.name)));
            hints.for_nodes.iter().flatten().for_each(|node| text.push_str(&format!(" node {}", node.name)));
            ensure!(endpoints.insert(name.clone(), text).is_none(), "{name} is listed twice");
        }
        Ok(endpoints)
    }

    pub(crate) async fn endpoints_become(&self, wanted: &[(&str, &str)]) -> anyhow::Result<()> {
        let wanted: BTreeMap<_, _> =
            wanted.iter().map(|(pod, state)| ((*pod).to_owned(), (*state).to_owned())).collect();
        let seen = std::cell::RefCell::new(None);
        let asked = self.cluster.eventually("the endpoints", async || {
            let there = self.endpoints().await?;
            let is_so = there == wanted;
            *seen.borrow_mut() = Some(there);
            Ok(is_so.then_some(()))
        });
        asked.await.with_context(|| format!("wanted {wanted:?}, last seen {:?}", seen.borrow()))?;
        self.cluster.checkpoint("the endpoints are correct").await;
        Ok(())
    }

    /// How many endpoints each slice has, fewest first.
    pub(crate) async fn sizes_become(&self, wanted: &[usize]) -> anyhow::Result<Vec<EndpointSlice>> {
        self.cluster
            .eventually(&format!("slices of {wanted:?}"), async || {
                let slices = self.managed().await?;
                let mut sizes: Vec<_> =
                    slices.iter().map(|slice| slice.endpoints.iter().flatten().count()).collect();
                sizes.sort_unstable();
                Ok((sizes == wanted).then_some(slices))
            })
            .await
    }

    /// Waits until exactly these slices exist, each written as its address type and addresses.
    pub(crate) async fn slices_become(&self, wanted: &[&str]) -> anyhow::Result<()> {
        let describe = |slice: EndpointSlice| {
            let endpoints = slice.endpoints.into_iter().flatten();
            let mut words: Vec<_> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
            words.sort();
            words.insert(0, slice.address_type);
            words.join(" ")
        };
        let reached = async || {
            let mut slices: Vec<_> = self.managed().await?.into_iter().map(describe).collect();
            slices.sort();
            Ok((slices == wanted).then_some(()))
        };
        self.cluster.eventually(&format!("slices {wanted:?}"), reached).await?;
        self.cluster.checkpoint("the slices are correct").await;
        Ok(())
    }

    /// The reasons of the events about the Service.
    pub(crate) async fn reasons(&self) -> anyhow::Result<Vec<String>> {
        let events = self.cluster.api::<Event>(&self.name).list(&ListParams::default()).await?;
        let about =
            events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("Service"));
        Ok(about.filter_map(|event| Some(format!("{} {}", event.type_?, event.reason?))).collect())
    }

    /// Deletes the nodes, which would affect other scenarios.
    pub(crate) async fn clean_up(self) -> anyhow::Result<()> {
        self.cluster.checkpoint("the end of the scenario").await;
        let pods = self.pods.list(&ListParams::default()).await?;
        try_join_all(pods.iter().map(|pod| pod.name_any()).map(async |name| self.delete_pod(&name).await))
            .await?;
        // The controller reports endpoints on missing nodes, so that pods are deleted first.
        let none_left = async || Ok(self.endpoints().await?.is_empty().then_some(()));
        self.cluster.eventually("the last endpoint to be removed", none_left).await?;
        drop(self.heartbeats);
        let nodes = self.nodes.list(&ListParams::default()).await?;
        for node in nodes.iter().filter(|node| node.name_any().starts_with(&self.name)) {
            self.nodes.delete(&node.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// Proves EPS-31, EPS-33, EPS-34, EPS-35, EPS-36, EPS-60, EPS-64, EPS-66.
pub(crate) async fn service_lists_its_pods_as_endpoints(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    let service = fixture.service(json!({})).await?;
    let placeholder = fixture.sizes_become(&[0]).await?;
    ensure!(placeholder[0].ports.iter().flatten().next().is_none(), "an empty slice has no ports");
    fixture.pod("p1", "z1", "10.0.0.1").await?;
    fixture.pod("p2", "z1", "10.0.0.2").await?;
    fixture.endpoints_become(&[("p1", "rs"), ("p2", "rs")]).await?;
    fixture.ready("p2", false).await?;
    fixture.endpoints_become(&[("p1", "rs"), ("p2", "")]).await?;

    let slices = fixture.managed().await?;
    ensure!(
        slices.len() == 1 && slices[0].name_any() == placeholder[0].name_any(),
        "the empty slice is reused"
    );
    let uid = fixture.pods.get("p1").await?.uid();
    let slice = serde_json::to_value(&slices[0])?;
    let endpoint = slice["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|endpoint| endpoint["targetRef"]["name"] == "p1");
    let wanted = json!({
        "addresses": ["10.0.0.1"],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": fixture.node("z1"), "zone": "z1",
        "targetRef": {"kind": "Pod", "namespace": fixture.name, "name": "p1", "uid": uid},
    });
    ensure!(endpoint == Some(&wanted), "{endpoint:?} is not {wanted}");
    ensure!(
        slice["ports"] == json!([{"name": "http", "port": 8080, "protocol": "TCP"}]),
        "{}",
        slice["ports"]
    );
    ensure!(slice["addressType"] == "IPv4" && slice["metadata"]["generateName"] == "web-", "{slice}");
    let labels = json!({SERVICE_NAME: "web", MANAGED_BY: "endpointslice-controller.k8s.io", "team": "x"});
    ensure!(slice["metadata"]["labels"] == labels, "{}", slice["metadata"]["labels"]);
    let owner = json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": service.uid(),
                        "controller": true, "blockOwnerDeletion": true}]);
    ensure!(slice["metadata"]["ownerReferences"] == owner, "{}", slice["metadata"]["ownerReferences"]);

    fixture.pods.delete("p1", &DeleteParams::default()).await?;
    fixture.endpoints_become(&[("p1", "st"), ("p2", "")]).await?;
    fixture.status("p1", json!({"phase": "Succeeded"})).await?;
    fixture.endpoints_become(&[("p2", "")]).await?;
    fixture.change_service(json!({"spec": {"publishNotReadyAddresses": true}})).await?;
    fixture.endpoints_become(&[("p2", "r")]).await?;
    fixture.delete_pod("p2").await?;
    fixture.sizes_become(&[0]).await?;
    fixture.clean_up().await
}

/// Proves EPS-54, EPS-55, EPS-59, EPS-93.
pub(crate) async fn endpoint_slices_are_packed_and_reused(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    fixture.pod("p000", "z1", "10.0.1.0").await?;
    let more = (1..120).map(async |n| fixture.pod(&format!("p{n:03}"), "z1", &format!("10.0.1.{n}")).await);
    join_all(more).await.into_iter().collect::<anyhow::Result<()>>()?;
    fixture.service(json!({})).await?;
    let packed = fixture.sizes_become(&[20, 100]).await?;
    let names = |slices: &[EndpointSlice]| slices.iter().map(|slice| slice.name_any()).collect::<Vec<_>>();

    fixture
        .change_service(json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 9090}]}}))
        .await?;
    cluster
        .eventually("the new port", async || {
            let slices = fixture.managed().await?;
            let ports = slices.iter().flat_map(|slice| slice.ports.iter().flatten());
            Ok(ports.into_iter().all(|port| port.port == Some(9090)).then_some(()))
        })
        .await?;
    let again = fixture.sizes_become(&[20, 100]).await?;
    ensure!(names(&again) == names(&packed), "{:?} were replaced by {:?}", names(&packed), names(&again));

    let deleted = (0..30).map(async |n| fixture.delete_pod(&format!("p{n:03}")).await);
    join_all(deleted).await.into_iter().collect::<anyhow::Result<()>>()?;
    cluster
        .eventually("fewer endpoints", async || Ok((fixture.endpoints().await?.len() == 90).then_some(())))
        .await?;
    cluster.settle().await;
    ensure!(fixture.managed().await?.len() == 2, "slices are not merged");
    fixture.clean_up().await
}

/// Proves EPS-67, EPS-119, EPS-121.
pub(crate) async fn tampered_endpoint_slices_are_repaired(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    fixture.service(json!({})).await?;
    fixture.pod("p1", "z1", "10.0.0.1").await?;
    fixture.endpoints_become(&[("p1", "rs")]).await?;
    let first_slice =
        async || anyhow::Ok(fixture.managed().await?.into_iter().next().context("a slice")?.name_any());
    let patch_first_slice = async |patch: Value| -> anyhow::Result<()> {
        let name = first_slice().await?;
        fixture.slices.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    };
    patch_first_slice(json!({"endpoints": [{"addresses": ["10.9.9.9"]}]})).await?;
    fixture.endpoints_become(&[("p1", "rs")]).await?;
    patch_first_slice(json!({"metadata": {"labels": {"by": "hand"}}})).await?;
    cluster
        .eventually("the labels of the Service", async || {
            let slices = fixture.managed().await?;
            Ok(slices.iter().all(|slice| !slice.labels().contains_key("by")).then_some(()))
        })
        .await?;
    fixture.slices.delete(&first_slice().await?, &DeleteParams::default()).await?;
    fixture.endpoints_become(&[("p1", "rs")]).await?;
    if cluster.runs_original() || cluster.is_compared() {
        // The original waits for the slice it wrote to reappear, for fifteen retries.
        return fixture.clean_up().await;
    }
    let unmanaged = first_slice().await?;
    patch_first_slice(json!({"metadata": {"labels": {MANAGED_BY: null}}})).await?;
    fixture.endpoints_become(&[("p1", "rs")]).await?;
    ensure!(fixture.slices.get_opt(&unmanaged).await?.is_some(), "slices of other managers are not touched");
    fixture.clean_up().await
}

/// Proves EPS-72, EPS-74, EPS-75, EPS-84, EPS-87, EPS-103, EPS-106, EPS-127.
pub(crate) async fn endpoints_have_topology_hints(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1", "z2"]).await?;
    let (n1, n2) = (fixture.node("z1"), fixture.node("z2"));
    fixture.service(json!({"trafficDistribution": "PreferSameZone"})).await?;
    for (at, zone) in ["z1", "z1", "z1", "z2"].into_iter().enumerate() {
        fixture.pod(&format!("p{at}"), zone, &format!("10.0.0.{at}")).await?;
    }
    fixture
        .endpoints_become(&[
            ("p0", "rs zone z1"),
            ("p1", "rs zone z1"),
            ("p2", "rs zone z1"),
            ("p3", "rs zone z2"),
        ])
        .await?;
    fixture.change_service(json!({"spec": {"trafficDistribution": "PreferSameNode"}})).await?;
    let [on_n1, on_n2] = [("z1", &n1), ("z2", &n2)].map(|(zone, node)| format!("rs zone {zone} node {node}"));
    fixture.endpoints_become(&[("p0", &on_n1), ("p1", &on_n1), ("p2", &on_n1), ("p3", &on_n2)]).await?;
    fixture.ready("p2", false).await?;
    fixture.endpoints_become(&[("p0", &on_n1), ("p1", &on_n1), ("p2", ""), ("p3", &on_n2)]).await?;
    fixture.change_service(json!({"spec": {"trafficDistribution": null}})).await?;
    fixture.endpoints_become(&[("p0", "rs"), ("p1", "rs"), ("p2", ""), ("p3", "rs")]).await?;

    let others = fixture.nodes.list(&ListParams::default()).await?;
    let others: Vec<_> =
        others.iter().map(|node| node.name_any()).filter(|name| ![&n1, &n2].contains(&name)).collect();
    ensure!(others.is_empty(), "other nodes would change the zone hints: {others:?}");
    fixture.ready("p2", true).await?;
    fixture
        .change_service(json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}}))
        .await?;
    // With equal zones, three and one of four endpoints become two and two. Any of the three may get the
    // other zone.
    cluster
        .eventually("two for each zone", async || {
            let endpoints = fixture.endpoints().await?;
            let of =
                |zone: &str| endpoints.values().filter(|hint| **hint == format!("rs zone {zone}")).count();
            Ok(((of("z1"), of("z2")) == (2, 2)).then_some(()))
        })
        .await?;
    fixture
        .change_service(json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": null}}}))
        .await?;
    fixture.endpoints_become(&[("p0", "rs"), ("p1", "rs"), ("p2", "rs"), ("p3", "rs")]).await?;
    if cluster.processes.is_some() {
        for wanted in ["Normal TopologyAwareHintsEnabled", "Warning TopologyAwareHintsDisabled"] {
            let recorded =
                async || Ok(fixture.reasons().await?.iter().any(|reason| reason == wanted).then_some(()));
            cluster.eventually(wanted, recorded).await?;
        }
    }
    fixture.clean_up().await
}

/// Proves EPS-27, EPS-32, EPS-63.
pub(crate) async fn dual_stack_service_has_slices_of_both_families(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = ServiceFixture::create(cluster, &["z1"]).await?;
    fixture.service(json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]})).await?;
    fixture.slices_become(&["IPv4", "IPv6"]).await?;
    fixture.pod("both", "z1", "10.0.0.1").await?;
    fixture.status("both", json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00:1::1"}]})).await?;
    fixture.pod("one", "z1", "10.0.0.2").await?;
    fixture.slices_become(&["IPv4 10.0.0.1 10.0.0.2", "IPv6 fd00:1::1"]).await?;
    fixture.delete_pod("both").await?;
    fixture.slices_become(&["IPv4 10.0.0.2", "IPv6"]).await?;
    fixture.change_service(json!({"spec": {"ipFamilyPolicy": "SingleStack"}})).await?;
    fixture.slices_become(&["IPv4 10.0.0.2"]).await?;
    fixture.clean_up().await
}
