//! The state of a cluster, line by line, without values that differ between any two clusters.
//!
//! It covers the namespaces that the scenario created or names, all objects in them, the cluster-scoped objects that
//! appeared since the scenario began, the few that every manager keeps from its start on, and events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{Discovery, Scope, verbs};
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::TestCluster;
use crate::normalize::{HASH, Normalizer, RANDOM, TIME, UID};

static NORMALIZER: LazyLock<Normalizer> = LazyLock::new(|| {
    Normalizer::new(&[
        TIME,
        // The name under which a provisioner records events ends in a random identity.
        (r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "_IDENTITY"),
        // The directory that local-path-provisioner names after claim UID, namespace and claim; an underscore is no word
        // boundary.
        (r"/pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_([a-z-]+)-[a-z0-9]{5}_", "/pvc-UID_$2-RANDOM_"),
        UID,
        RANDOM,
        HASH,
        (r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----(\\n)?", "CERTIFICATE"),
        // In references to other objects, such as the active Jobs of a CronJob or the claim of a volume, and in the
        // status of a StorageVersionMigration.
        (r#""resourceVersion":"\d+""#, r#""resourceVersion":"VERSION""#),
        (r#"\.resourceVersion "\d+""#, r#".resourceVersion "VERSION""#),
        // The digest of the client certificate with which a CertificateSigningRequest was created.
        (r"\bX509SHA256=[0-9a-f]{64}\b", "X509SHA256=DIGEST"),
        // The name of a ClusterTrustBundle has a digest of its certificates.
        (r"\b(kubernetes\.io:[a-z-]+):[0-9a-f]{24}\b", "$1:DIGEST"),
        // Addresses of the Service ranges.
        (r"\b10\.96(\.\d{1,3}){2}\b", "ADDRESS"),
        (r"\bfd00:96:[0-9a-f:]+", "ADDRESS"),
    ])
});

/// Metadata that describes the history of an object and not its state.
const HISTORY_FIELDS: &[&str] = &["uid", "resourceVersion", "creationTimestamp", "managedFields"];

/// Kinds that are not listed with the other objects: events have lines of their own, Namespaces are read by name, what
/// metrics-server measures changes all the time, and the API server makes up a ComponentStatus when it is asked.
const NOT_COMPARED: &[&str] = &["Event", "Namespace", "PodMetrics", "NodeMetrics", "ComponentStatus"];

/// Reads a cluster while a scenario runs in it.
pub(super) struct ClusterReader<'w> {
    cluster: &'w TestCluster,
    preexisting: Preexisting,
}

/// The objects of earlier scenarios and of the cluster itself. Scenarios run one after the other, so that an object which
/// is not among them belongs to the running scenario, whatever its name.
#[derive(Default)]
struct Preexisting {
    /// The UIDs of cluster-scoped objects: an object that is created again under the same name is a new one.
    uids: BTreeSet<String>,
    /// The names of nodes and of objects with events in the namespace `default`.
    names: BTreeSet<String>,
}

impl Preexisting {
    /// Whether a cluster-scoped object is not compared.
    fn contains(&self, object: &Value) -> bool {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        self.uids.contains(uid) && !is_kept_by_manager(object)
    }

    /// Whether a cluster-scoped object is one of the scenario's own. The API server keeps those of some kinds itself.
    fn is_left_behind(&self, object: &Value) -> bool {
        let is_of_api_server = ["APIService", "IPAddress"].iter().any(|kind| object["kind"] == *kind);
        !self.contains(object) && !is_kept_by_manager(object) && !is_of_api_server
    }
}

/// Whether every manager creates or maintains this object from its start on, which is sooner or later than a scenario
/// begins: the default ServiceCIDR, the trust bundle of the API server, and the aggregated roles of the cluster.
fn is_kept_by_manager(object: &Value) -> bool {
    let metadata = &object["metadata"];
    match object["kind"].as_str().unwrap_or_default() {
        "ClusterTrustBundle" => true,
        "ServiceCIDR" => metadata["name"] == "kubernetes",
        "ClusterRole" => {
            object["aggregationRule"].is_object()
                && metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        }
        _ => false,
    }
}

impl<'w> ClusterReader<'w> {
    /// Starts a comparison; existing cluster-scoped objects and events about them are left out.
    pub(super) async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let mut reader = Self { cluster, preexisting: Preexisting::default() };
        let kinds = reader.kinds().await?;
        let mut preexisting = Preexisting::default();
        for object in reader.cluster_scoped_objects(&kinds).await? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if object["kind"] == "Node" {
                preexisting.names.insert(text(&object["metadata"]["name"]));
            }
            preexisting.uids.insert(text(&object["metadata"]["uid"]));
        }
        let events = cluster.api::<Event>("default").list(&ListParams::default()).await?;
        preexisting.names.extend(events.into_iter().filter_map(|event| event.involved_object.name));
        reader.preexisting = preexisting;
        Ok(reader)
    }

    /// The state as sorted lines.
    pub(super) async fn lines(&self) -> anyhow::Result<Vec<String>> {
        let objects = self.objects().await?;
        Ok(normal_lines(objects, self.events().await?))
    }

    /// Deletes the cluster-scoped objects that appeared since the scenario began, whatever their finalizers: a repeated
    /// scenario creates some of them under the same names.
    pub(super) async fn delete_new_objects(&self) -> anyhow::Result<()> {
        for (kind, _) in self.kinds().await?.iter().filter(|(_, scope)| *scope == Scope::Cluster) {
            let api = self.cluster.dynamic(kind);
            let objects = list(&api, kind).await?.into_iter();
            for object in objects.filter(|object| self.preexisting.is_left_behind(object)) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                // A controller may delete it at the same time.
                let _ = api.delete(name, &DeleteParams::default()).await;
                let _ = api.patch(name, &PatchParams::default(), &released).await;
            }
        }
        Ok(())
    }

    async fn objects(&self) -> anyhow::Result<Vec<Value>> {
        let kinds = self.kinds().await?;
        let mut objects = self.namespaced_objects(&kinds).await?;
        let cluster_scoped = self.cluster_scoped_objects(&kinds).await?;
        objects.extend(cluster_scoped.into_iter().filter(|object| !self.preexisting.contains(object)));
        let namespaces: Api<Namespace> = Api::all(self.cluster.admin.clone());
        for name in self.cluster.namespaces() {
            objects.extend(namespaces.get_opt(&name).await?.map(serde_json::to_value).transpose()?);
        }
        Ok(objects)
    }

    /// The kinds that are compared, each in its most stable version: a group may serve a kind in an alpha version only.
    async fn kinds(&self) -> anyhow::Result<Vec<(ApiResource, Scope)>> {
        let served = Discovery::new(self.cluster.admin.clone()).run_aggregated().await?;
        let kinds = served.groups().flat_map(|group| group.resources_by_stability());
        let compared = kinds.filter(|(kind, can)| {
            can.supports_operation(verbs::LIST) && !NOT_COMPARED.contains(&kind.kind.as_str())
        });
        Ok(compared.map(|(kind, can)| (kind, can.scope)).collect())
    }

    async fn namespaced_objects(&self, kinds: &[(ApiResource, Scope)]) -> anyhow::Result<Vec<Value>> {
        let namespaces = self.cluster.namespaces();
        let mut lists = Vec::new();
        for (kind, _) in kinds.iter().filter(|(_, scope)| *scope == Scope::Namespaced) {
            let client = &self.cluster.admin;
            let in_one = |name: &String| (Api::namespaced_with(client.clone(), name, kind), kind);
            lists.extend(namespaces.iter().map(in_one));
        }
        list_all(lists).await
    }

    async fn cluster_scoped_objects(&self, kinds: &[(ApiResource, Scope)]) -> anyhow::Result<Vec<Value>> {
        let cluster_scoped = kinds.iter().filter(|(_, scope)| *scope == Scope::Cluster);
        list_all(cluster_scoped.map(|(kind, _)| (self.cluster.dynamic(kind), kind)).collect()).await
    }

    /// Events of managers, one line for each occurrence.
    async fn events(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for namespace in self.cluster.namespaces().iter().map(String::as_str).chain(["default"]) {
            for event in self.cluster.api::<Event>(namespace).list(&ListParams::default()).await? {
                let about = event.involved_object.name.as_deref().unwrap_or_default();
                let is_preexisting = namespace == "default" && self.preexisting.names.contains(about);
                if is_preexisting || is_from_api_server(&event) {
                    continue;
                }
                let times = event.count.unwrap_or(1).max(1);
                let line = event_line(&event);
                lines.extend((0..times).map(|_| line.clone()));
            }
        }
        Ok(lines)
    }
}

/// Objects and events as sorted lines.
fn normal_lines(objects: Vec<Value>, events: Vec<String>) -> Vec<String> {
    // The UID of an existing object is replaced by its kind and name.
    let mut names: BTreeMap<String, String> = objects.iter().filter_map(name_by_uid).collect();
    names.extend(objects.iter().filter_map(random_attachment));
    let mut lines = Vec::new();
    for object in objects {
        let name = title(&object);
        flatten(&without_history(object), &name, &mut lines);
    }
    let normalized = |line: String| NORMALIZER.apply(&with_names(&line, &names));
    let mut lines: Vec<_> = lines.into_iter().map(normalized).collect();
    lines.extend(deduplicated(events.into_iter().map(normalized)));
    lines.sort();
    lines
}

async fn list_all(lists: Vec<(Api<DynamicObject>, &ApiResource)>) -> anyhow::Result<Vec<Value>> {
    let listed = stream::iter(lists).map(async |(api, kind)| list(&api, kind).await).buffer_unordered(4);
    Ok(listed.try_collect::<Vec<_>>().await?.into_iter().flatten().collect())
}

async fn list(api: &Api<DynamicObject>, kind: &ApiResource) -> anyhow::Result<Vec<Value>> {
    let listed = match api.list(&ListParams::default()).await {
        Ok(listed) => listed,
        // A resource that was just defined, or whose API service is unavailable, cannot be listed in either
        // cluster.
        Err(kube::Error::Api(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("listing {}", kind.plural)),
    };
    let mut objects = Vec::new();
    for mut object in listed {
        // Items of lists carry no type.
        object.types =
            Some(kube::api::TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
        objects.push(serde_json::to_value(object)?);
    }
    Ok(objects)
}

/// Whether kube-apiserver recorded the event: its repair controllers race with its own watches, and while it starts it may find
/// its default ServiceCIDR not yet complete.
fn is_from_api_server(event: &Event) -> bool {
    let source = event.source.as_ref().and_then(|source| source.component.as_deref());
    // The field that names the recorder depends on the events API version.
    let mut recorders = [source, event.reporting_component.as_deref()].into_iter().flatten();
    recorders.any(|recorder| {
        recorder.ends_with("-repair-controller") || recorder == "kubernetes-service-cidr-controller"
    })
}

/// An event as one line.
fn event_line(event: &Event) -> String {
    let about = &event.involved_object;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let source = event.source.clone().unwrap_or_default();
    format!(
        "event on {} {}: {} {}: {} (by {}, reported by {}, action {:?})",
        text(&about.kind),
        text(&about.name),
        text(&event.type_),
        text(&event.reason),
        text(&event.message),
        text(&source.component),
        text(&event.reporting_component),
        text(&event.action),
    )
}

/// Equal lines become one with a suffix: how often something was retried depends on timing.
fn deduplicated(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    for line in lines {
        *counts.entry(line).or_default() += 1;
    }
    let entry = |(line, count)| if count == 1 { line } else { format!("{line} several times") };
    counts.into_iter().map(entry).collect()
}

/// Kind and name of an object.
fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn name_by_uid(object: &Value) -> Option<(String, String)> {
    Some((object["metadata"]["uid"].as_str()?.to_owned(), format!("<{}>", title(object))))
}

/// The name of a VolumeAttachment, and what replaces it, if it cannot be the same in two clusters: it is a digest of volume,
/// driver and node, any of which may have a random name.
fn random_attachment(object: &Value) -> Option<(String, String)> {
    let spec = &object["spec"];
    let hashed = [&spec["source"]["persistentVolumeName"], &spec["attacher"], &spec["nodeName"]];
    let is_random = |value: &Value| value.as_str().is_some_and(|name| NORMALIZER.apply(name) != name);
    if object["kind"] != "VolumeAttachment" || !hashed.into_iter().any(is_random) {
        return None;
    }
    Some((object["metadata"]["name"].as_str()?.to_owned(), "csi-DIGEST".to_owned()))
}

/// A line with UIDs replaced by kind and name, and names of attachments that are random.
fn with_names(line: &str, names: &BTreeMap<String, String>) -> String {
    static REPLACED: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = format!(r"{}|\bcsi-[0-9a-f]{{64}}\b", UID.0);
        Regex::new(&pattern).unwrap_or_else(|error| panic!("{error}"))
    });
    let name =
        |found: &regex::Captures<'_>| names.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned());
    REPLACED.replace_all(line, name).into_owned()
}

/// An object without history fields, secret values and what keys and certificates encode.
fn without_history(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !HISTORY_FIELDS.contains(&name.as_str()));
        // The generation counts writes of a slice, and ours writes fewer.
        if kind == "EndpointSlice" {
            metadata.remove("generation");
        }
    }
    match kind.as_str() {
        "Secret" => {
            let data = object["data"].as_object_mut();
            data.into_iter().flat_map(|data| data.values_mut()).for_each(|value| *value = json!("SECRET"));
        }
        // Base64 of a request for a random key, and of its certificate, which `cargo xtask judge-certificates` compares.
        "CertificateSigningRequest" => {
            for (path, word) in [("/spec/request", "REQUEST"), ("/status/certificate", "CERTIFICATE")] {
                object.pointer_mut(path).into_iter().for_each(|value| *value = json!(word));
            }
        }
        _ => {}
    }
    object
}

/// One line for each leaf; list elements are leaves, because their fields belong together.
fn flatten(value: &Value, path: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => flatten_fields(fields, path, lines),
        Value::Array(elements) if !elements.is_empty() => {
            lines.extend(elements.iter().map(|element| format!("{path}[] {element}")));
        }
        leaf => lines.push(format!("{path} {leaf}")),
    }
}

fn flatten_fields(fields: &Map<String, Value>, path: &str, lines: &mut Vec<String>) {
    for (name, value) in fields {
        let dot = if path.contains(" .") { "." } else { " ." };
        flatten(value, &format!("{path}{dot}{name}"), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_lines_that_two_clusters_share() {
        let uid = "0d3e5a0c-8b1c-4d9e-9b0a-1d2c3b4a5f60";
        let owner = json!({"kind": "Service", "name": "web", "uid": uid});
        let object = json!({
            "kind": "EndpointSlice",
            "metadata": {"name": "web-x2b5c", "uid": "u", "resourceVersion": "7", "ownerReferences": [owner]},
            "ports": [],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.96.3.4"]}],
        });
        let service = json!({"kind": "Service", "metadata": {"name": "web", "uid": uid}});
        let mut normal = normal_lines(vec![object, service], Vec::new());
        normal.retain(|line| line.starts_with("EndpointSlice"));
        assert_eq!(
            normal,
            [
                r#"EndpointSlice web-RANDOM .endpoints[] {"addresses":["10.0.0.1"]}"#,
                r#"EndpointSlice web-RANDOM .endpoints[] {"addresses":["ADDRESS"]}"#,
                r#"EndpointSlice web-RANDOM .kind "EndpointSlice""#,
                r#"EndpointSlice web-RANDOM .metadata.name "web-RANDOM""#,
                r#"EndpointSlice web-RANDOM .metadata.ownerReferences[] {"kind":"Service","name":"web","uid":"<Service web>"}"#,
                "EndpointSlice web-RANDOM .ports []",
            ]
        );
    }

    #[test]
    fn events_of_the_api_server_are_recognized() {
        let event = |text| serde_json::from_value::<Event>(text).unwrap();
        let new = json!({"metadata": {}, "involvedObject": {}, "reportingComponent": "ipallocator-repair-controller"});
        let old = json!({"metadata": {}, "involvedObject": {}, "source": {"component": "portallocator-repair-controller"}});
        let other = json!({"metadata": {}, "involvedObject": {}, "source": {"component": "job-controller"}});
        assert!(is_from_api_server(&event(new)) && is_from_api_server(&event(old)));
        assert!(!is_from_api_server(&event(other)));
    }

    #[test]
    fn secret_values_are_hidden() {
        let object = json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "c2VjcmV0"}});
        assert_eq!(without_history(object)["data"], json!({"token": "SECRET"}));
    }

    #[test]
    fn requests_and_certificates_are_hidden() {
        let object = json!({"kind": "CertificateSigningRequest", "metadata": {"name": "csr-x2b5c-node"},
            "spec": {"request": "TFMw", "extra": {"authentication.kubernetes.io/credential-id":
                [format!("X509SHA256={}", "0f".repeat(32))]}},
            "status": {"certificate": "TFMx", "conditions": [{"type": "Approved"}]}});
        assert_eq!(
            normal_lines(vec![object.clone()], Vec::new()),
            [
                r#"CertificateSigningRequest csr-RANDOM-node .kind "CertificateSigningRequest""#,
                r#"CertificateSigningRequest csr-RANDOM-node .metadata.name "csr-RANDOM-node""#,
                r#"CertificateSigningRequest csr-RANDOM-node .spec.extra.authentication.kubernetes.io/credential-id[] "X509SHA256=DIGEST""#,
                r#"CertificateSigningRequest csr-RANDOM-node .spec.request "REQUEST""#,
                r#"CertificateSigningRequest csr-RANDOM-node .status.certificate "CERTIFICATE""#,
                r#"CertificateSigningRequest csr-RANDOM-node .status.conditions[] {"type":"Approved"}"#,
            ]
        );
        // Whether there is a certificate shows.
        let mut pending = object;
        pending["status"] = json!({});
        assert!(!normal_lines(vec![pending], Vec::new()).iter().any(|line| line.contains("certificate ")));
    }

    #[test]
    fn provisioned_volume_is_named_after_its_claim() {
        let uid = "0d3e5a0c-8b1c-4d9e-9b0a-1d2c3b4a5f60";
        let claim = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "uid": uid}});
        let volume = json!({
            "kind": "PersistentVolume", "metadata": {"name": format!("pvc-{uid}"), "uid": "v"},
            "spec": {"claimRef": {"name": "data", "uid": uid, "resourceVersion": "7"}},
        });
        let title = "PersistentVolume pvc-<PersistentVolumeClaim data>";
        let of_volume = |lines: Vec<String>, title: &str| -> Vec<String> {
            lines.into_iter().filter_map(|line| Some(line.strip_prefix(title)?.to_owned())).collect()
        };
        let lines = of_volume(normal_lines(vec![claim, volume.clone()], Vec::new()), title);
        assert_eq!(
            lines,
            [
                r#" .kind "PersistentVolume""#,
                r#" .metadata.name "pvc-<PersistentVolumeClaim data>""#,
                r#" .spec.claimRef.name "data""#,
                r#" .spec.claimRef.resourceVersion "VERSION""#,
                r#" .spec.claimRef.uid "<PersistentVolumeClaim data>""#,
            ]
        );
        // The claim of a released volume is gone.
        let lines = of_volume(normal_lines(vec![volume], Vec::new()), "PersistentVolume pvc-UID");
        assert_eq!(lines[1], r#" .metadata.name "pvc-UID""#);
        assert_eq!(lines[4], r#" .spec.claimRef.uid "UID""#);
    }

    #[test]
    fn digest_in_the_name_of_an_attachment_counts_unless_its_input_is_random() {
        let name = format!("csi-{}", "0f".repeat(32));
        let attachment = |volume: &str, node: &str| {
            json!({"kind": "VolumeAttachment", "metadata": {"name": name, "uid": "a"},
                "spec": {"attacher": "driver.example.com", "nodeName": node,
                    "source": {"persistentVolumeName": volume}}})
        };
        let title = |object: Value| {
            normal_lines(vec![object], Vec::new())[0].split(" .").next().unwrap_or_default().to_owned()
        };
        assert_eq!(title(attachment("attach", "attach-0")), format!("VolumeAttachment {name}"));
        assert_eq!(title(attachment("attach", "attach-x2b5c-0")), "VolumeAttachment csi-DIGEST");
        let uid = "0d3e5a0c-8b1c-4d9e-9b0a-1d2c3b4a5f60";
        assert_eq!(title(attachment(&format!("pvc-{uid}"), "n")), "VolumeAttachment csi-DIGEST");
    }

    #[test]
    fn digests_addresses_and_directories_are_replaced() {
        let replaced = |name: &str| NORMALIZER.apply(name);
        let digest = "0123456789abcdef01234567";
        assert_eq!(
            replaced(&format!("kubernetes.io:kube-apiserver-serving:{digest}")),
            "kubernetes.io:kube-apiserver-serving:DIGEST"
        );
        assert_eq!(replaced("IPAddress 10.96.3.4 .kind"), "IPAddress ADDRESS .kind");
        assert_eq!(replaced("IPAddress fd00:96::1a2b .kind"), "IPAddress ADDRESS .kind");
        assert_eq!(
            replaced(r#"StorageVersionMigration m .status.resourceVersion "4711""#),
            r#"StorageVersionMigration m .status.resourceVersion "VERSION""#
        );
        assert_eq!(
            replaced("/opt/pvc-59fe41b2-2875-4348-b81d-4b15355916b5_local-path-776fg_data-web-0"),
            "/opt/pvc-UID_local-path-RANDOM_data-web-0"
        );
        // Addresses that a scenario chose are compared.
        assert_eq!(replaced("IPAddress 172.30.1.5 .kind"), "IPAddress 172.30.1.5 .kind");
    }

    #[test]
    fn cluster_scoped_objects_that_were_there_before_are_left_out() {
        let preexisting = Preexisting { uids: BTreeSet::from(["old".to_owned()]), ..Preexisting::default() };
        let object =
            |kind: &str, name: &str, uid: &str| json!({"kind": kind, "metadata": {"name": name, "uid": uid}});
        assert!(preexisting.contains(&object("PersistentVolume", "static-fit", "old")));
        // The same name, created again.
        assert!(!preexisting.contains(&object("PersistentVolume", "static-fit", "new")));
        // What a manager keeps is compared always, because it may begin to exist before a scenario or after.
        assert!(!preexisting.contains(&object("ServiceCIDR", "kubernetes", "old")));
        assert!(preexisting.contains(&object("ServiceCIDR", "ranges-x2b5c-used", "old")));
        assert!(!preexisting.contains(&object("ClusterTrustBundle", "b", "old")));
        let mut role = object("ClusterRole", "view", "old");
        assert!(preexisting.contains(&role));
        let mut left_behind = ["PersistentVolume", "IPAddress", "ClusterTrustBundle"].into_iter();
        assert_eq!(
            left_behind.find(|kind| preexisting.is_left_behind(&object(kind, "n", "new"))),
            Some("PersistentVolume")
        );
        assert_eq!(left_behind.find(|kind| preexisting.is_left_behind(&object(kind, "n", "new"))), None);
        role["aggregationRule"] = json!({"clusterRoleSelectors": []});
        assert!(preexisting.contains(&role), "left behind by another scenario");
        role["metadata"]["labels"] = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        assert!(!preexisting.contains(&role));
    }

    #[test]
    fn repeated_events_become_one_line() {
        let lines = ["a", "b", "b", "b"].map(str::to_owned);
        assert_eq!(deduplicated(lines.into_iter()), ["a", "b several times"]);
    }
}
