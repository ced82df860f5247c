//! The state of a cluster, line by line, without values that differ between any two clusters.
//!
//! It covers all objects in the namespaces that the scenario created, these namespaces, all nodes, and
//! events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, ResourceExt as _};
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::TestCluster;
use crate::normalize::{HASH, Normalizer, RANDOM, TIME, UID};

static NORMALIZER: LazyLock<Normalizer> = LazyLock::new(|| {
    Normalizer::new(&[
        TIME,
        // The name under which a provisioner records events ends in a random identity.
        (r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "_IDENTITY"),
        UID,
        RANDOM,
        HASH,
        (r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----(\\n)?", "CERTIFICATE"),
        // In references to other objects, such as the active Jobs of a CronJob.
        (r#""resourceVersion":"\d+""#, r#""resourceVersion":"VERSION""#),
        // Addresses of the Service ranges.
        (r"\b10\.96(\.\d{1,3}){2}\b", "ADDRESS"),
        (r"\bfd00:96:[0-9a-f:]+", "ADDRESS"),
    ])
});

/// Metadata that describes the history of an object and not its state.
const HISTORY_FIELDS: &[&str] = &["uid", "resourceVersion", "creationTimestamp", "managedFields"];

/// Kinds that are not listed with the other objects: events have lines of their own, and what metrics-server measures
/// changes all the time.
const NOT_COMPARED: &[&str] = &["Event", "PodMetrics"];

/// Reads a cluster while a scenario runs in it.
pub(super) struct ClusterReader<'w> {
    cluster: &'w TestCluster,
    /// Names of cluster-scoped objects of earlier scenarios: nodes, and objects with events.
    preexisting: BTreeSet<String>,
}

impl<'w> ClusterReader<'w> {
    /// Starts a comparison; existing nodes and events are left out.
    pub(super) async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let events = cluster.api::<Event>("default").list(&ListParams::default()).await?;
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        let nodes = nodes.list_metadata(&ListParams::default()).await?;
        let mut preexisting: BTreeSet<_> = nodes.items.iter().map(|node| node.name_any()).collect();
        preexisting.extend(events.into_iter().filter_map(|event| event.involved_object.name));
        Ok(Self { cluster, preexisting })
    }

    /// The state as sorted lines.
    pub(super) async fn lines(&self) -> anyhow::Result<Vec<String>> {
        let objects = self.objects().await?;
        let events = self.events().await?;
        // The UID of an existing object is replaced by its kind and name.
        let names: BTreeMap<String, String> = objects.iter().filter_map(name_by_uid).collect();
        let mut lines = Vec::new();
        for object in objects {
            let name = title(&object);
            flatten(&without_history(object), &name, &mut lines);
        }
        let normalized = |line: String| NORMALIZER.apply(&with_names(&line, &names));
        let mut lines: Vec<_> = lines.into_iter().map(normalized).collect();
        lines.extend(deduplicated(events.into_iter().map(normalized)));
        lines.sort();
        Ok(lines)
    }

    async fn objects(&self) -> anyhow::Result<Vec<Value>> {
        let client = &self.cluster.admin;
        let served = Discovery::new(client.clone()).run_aggregated().await?;
        let kinds: Vec<ApiResource> = served
            .groups()
            .flat_map(|group| group.recommended_resources())
            .filter(|(kind, can)| {
                can.scope == Scope::Namespaced
                    && can.supports_operation(verbs::LIST)
                    && !NOT_COMPARED.contains(&kind.kind.as_str())
            })
            .map(|(kind, _)| kind)
            .collect();
        let namespaces = self.cluster.namespaces();
        let mut lists: Vec<(Api<DynamicObject>, &ApiResource)> = Vec::new();
        for kind in &kinds {
            let in_one = |name: &String| (Api::namespaced_with(client.clone(), name, kind), kind);
            lists.extend(namespaces.iter().map(in_one));
        }
        let listed = stream::iter(lists)
            .map(async |(api, kind)| list(&api, kind).await)
            .buffer_unordered(4)
            .try_collect::<Vec<_>>();
        let mut objects: Vec<_> = listed.await?.into_iter().flatten().collect();
        let all: Api<Namespace> = Api::all(client.clone());
        for name in &namespaces {
            objects.extend(all.get_opt(name).await?.map(serde_json::to_value).transpose()?);
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let all = nodes.list(&ListParams::default()).await?.into_iter();
        for node in all.filter(|node| !self.preexisting.contains(&node.name_any())) {
            objects.push(serde_json::to_value(node)?);
        }
        Ok(objects)
    }

    /// Events of managers, one line for each occurrence.
    async fn events(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for namespace in self.cluster.namespaces().iter().map(String::as_str).chain(["default"]) {
            for event in self.cluster.api::<Event>(namespace).list(&ListParams::default()).await? {
                let about = event.involved_object.name.as_deref().unwrap_or_default();
                let is_preexisting = namespace == "default" && self.preexisting.contains(about);
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

/// Whether kube-apiserver recorded the event: its repair controllers race with its own watches.
fn is_from_api_server(event: &Event) -> bool {
    let source = event.source.as_ref().and_then(|source| source.component.as_deref());
    // The field that names the recorder depends on the events API version.
    let mut recorders = [source, event.reporting_component.as_deref()].into_iter().flatten();
    recorders.any(|recorder| recorder.ends_with("-repair-controller"))
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

/// A line with UIDs replaced by kind and name.
fn with_names(line: &str, names: &BTreeMap<String, String>) -> String {
    static UIDS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(UID.0).unwrap_or_else(|error| panic!("{error}")));
    let name =
        |found: &regex::Captures<'_>| names.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned());
    UIDS.replace_all(line, name).into_owned()
}

/// An object without history fields and secret values.
fn without_history(mut object: Value) -> Value {
    let is = |kind: &str| object["kind"] == kind;
    let (is_secret, is_slice) = (is("Secret"), is("EndpointSlice"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !HISTORY_FIELDS.contains(&name.as_str()));
        // The generation counts writes of a slice, and ours writes fewer.
        if is_slice {
            metadata.remove("generation");
        }
    }
    if is_secret && let Some(data) = object["data"].as_object_mut() {
        data.values_mut().for_each(|value| *value = json!("SECRET"));
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
        let mut lines = Vec::new();
        flatten(&without_history(object.clone()), &title(&object), &mut lines);
        let names = BTreeMap::from([(uid.to_owned(), "<Service web>".to_owned())]);
        let mut normal: Vec<_> =
            lines.iter().map(|line| NORMALIZER.apply(&with_names(line, &names))).collect();
        normal.sort();
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
    fn repeated_events_become_one_line() {
        let lines = ["a", "b", "b", "b"].map(str::to_owned);
        assert_eq!(deduplicated(lines.into_iter()), ["a", "b several times"]);
    }
}
