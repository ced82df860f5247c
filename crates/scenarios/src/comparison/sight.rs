//! What can be seen of a scenario in a world, line by line, without what no two clusters have in common.
//!
//! Seen are all objects in the namespaces that the scenario made, these namespaces, all nodes, and events.

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

use crate::World;
use crate::rules::{HASH, RANDOM, Rules, TIME, UID};

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    Rules::new(&[
        TIME,
        UID,
        RANDOM,
        HASH,
        (r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----(\\n)?", "CERTIFICATE"),
        // Of the ranges for Services.
        (r"\b10\.96(\.\d{1,3}){2}\b", "ADDRESS"),
        (r"\bfd00:96:[0-9a-f:]+", "ADDRESS"),
    ])
});

/// What says nothing of the state of an object, but of its history.
const HISTORY: &[&str] = &["uid", "resourceVersion", "creationTimestamp", "managedFields"];

/// A world that somebody looks at while a scenario is played in it.
pub(super) struct Sight<'w> {
    world: &'w World,
    /// Names of objects without a namespace that are of earlier scenarios: nodes, and whatever had events.
    before: BTreeSet<String>,
}

impl<'w> Sight<'w> {
    /// Looks on from now on.
    pub(super) async fn begin(world: &'w World) -> anyhow::Result<Self> {
        let events = world.api::<Event>("default").list(&ListParams::default()).await?;
        let nodes: Api<Node> = Api::all(world.admin.clone());
        let nodes = nodes.list_metadata(&ListParams::default()).await?;
        let mut before: BTreeSet<_> = nodes.items.iter().map(|node| node.name_any()).collect();
        before.extend(events.into_iter().filter_map(|event| event.involved_object.name));
        Ok(Self { world, before })
    }

    /// What there is, sorted.
    pub(super) async fn lines(&self) -> anyhow::Result<Vec<String>> {
        let objects = self.objects().await?;
        let events = self.events().await?;
        // A uid says which object is meant as long as that is there.
        let named: BTreeMap<String, String> = objects.iter().filter_map(named).collect();
        let mut lines = Vec::new();
        for object in objects {
            let name = title(&object);
            flatten(&stripped(object), &name, &mut lines);
        }
        let plain = |line: String| RULES.plain(&meant(&line, &named));
        let mut lines: Vec<_> = lines.into_iter().map(plain).collect();
        lines.extend(counted(events.into_iter().map(plain)));
        lines.sort();
        Ok(lines)
    }

    async fn objects(&self) -> anyhow::Result<Vec<Value>> {
        let client = &self.world.admin;
        let served = Discovery::new(client.clone()).run_aggregated().await?;
        let kinds: Vec<ApiResource> = served
            .groups()
            .flat_map(|group| group.recommended_resources())
            .filter(|(kind, can)| {
                can.scope == Scope::Namespaced && can.supports_operation(verbs::LIST) && kind.kind != "Event"
            })
            .map(|(kind, _)| kind)
            .collect();
        let namespaces = self.world.namespaces();
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
        for node in all.filter(|node| !self.before.contains(&node.name_any())) {
            objects.push(serde_json::to_value(node)?);
        }
        Ok(objects)
    }

    /// Events of managers, one line for each time they happened.
    async fn events(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for namespace in self.world.namespaces().iter().map(String::as_str).chain(["default"]) {
            for event in self.world.api::<Event>(namespace).list(&ListParams::default()).await? {
                let about = event.involved_object.name.as_deref().unwrap_or_default();
                let is_earlier = namespace == "default" && self.before.contains(about);
                if is_earlier || is_of_the_server(&event) {
                    continue;
                }
                let times = event.count.unwrap_or(1).max(1);
                let line = told(&event);
                lines.extend((0..times).map(|_| line.clone()));
            }
        }
        Ok(lines)
    }
}

async fn list(api: &Api<DynamicObject>, kind: &ApiResource) -> anyhow::Result<Vec<Value>> {
    let listed = match api.list(&ListParams::default()).await {
        Ok(listed) => listed,
        // What was defined a moment ago, or is served by somebody who is away, cannot be listed by either.
        Err(kube::Error::Api(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("listing {}", kind.plural)),
    };
    let mut objects = Vec::new();
    for mut object in listed {
        // Lists leave it to their head to say what they are of.
        object.types =
            Some(kube::api::TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
        objects.push(serde_json::to_value(object)?);
    }
    Ok(objects)
}

/// Whether an event was recorded by a part of kube-apiserver, which repairs addresses as its own watches happen to race.
fn is_of_the_server(event: &Event) -> bool {
    let source = event.source.as_ref().and_then(|source| source.component.as_deref());
    // Which of the two names the recorder is a matter of the API that it speaks.
    let mut recorders = [source, event.reporting_component.as_deref()].into_iter().flatten();
    recorders.any(|recorder| recorder.ends_with("-repair-controller"))
}

/// An event as one line.
fn told(event: &Event) -> String {
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

/// Equal lines become one that says whether there are several: how often something was tried depends on speed.
fn counted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    for line in lines {
        *counts.entry(line).or_default() += 1;
    }
    let told = |(line, count)| if count == 1 { line } else { format!("{line} several times") };
    counts.into_iter().map(told).collect()
}

/// Kind and name of an object.
fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn named(object: &Value) -> Option<(String, String)> {
    Some((object["metadata"]["uid"].as_str()?.to_owned(), format!("<{}>", title(object))))
}

/// A line with uids replaced by what they mean.
fn meant(line: &str, named: &BTreeMap<String, String>) -> String {
    static UIDS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(UID.0).unwrap_or_else(|error| panic!("{error}")));
    let name =
        |found: &regex::Captures<'_>| named.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned());
    UIDS.replace_all(line, name).into_owned()
}

/// An object without its history and without secrets.
fn stripped(mut object: Value) -> Value {
    let is = |kind: &str| object["kind"] == kind;
    let (is_secret, is_slice) = (is("Secret"), is("EndpointSlice"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !HISTORY.contains(&name.as_str()));
        // It counts writes of a slice, of which ours makes fewer.
        if is_slice {
            metadata.remove("generation");
        }
    }
    if is_secret && let Some(data) = object["data"].as_object_mut() {
        data.values_mut().for_each(|value| *value = json!("SECRET"));
    }
    object
}

/// One line for each leaf; the elements of a list are leaves, because what is said in one belongs together.
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
    fn objects_are_taken_apart_into_lines_that_two_clusters_can_share() {
        let uid = "0d3e5a0c-8b1c-4d9e-9b0a-1d2c3b4a5f60";
        let owner = json!({"kind": "Service", "name": "web", "uid": uid});
        let object = json!({
            "kind": "EndpointSlice",
            "metadata": {"name": "web-x2b5c", "uid": "u", "resourceVersion": "7", "ownerReferences": [owner]},
            "ports": [],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.96.3.4"]}],
        });
        let mut lines = Vec::new();
        flatten(&stripped(object.clone()), &title(&object), &mut lines);
        let named = BTreeMap::from([(uid.to_owned(), "<Service web>".to_owned())]);
        let mut plain: Vec<_> = lines.iter().map(|line| RULES.plain(&meant(line, &named))).collect();
        plain.sort();
        assert_eq!(
            plain,
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
    fn what_the_server_repairs_is_nobody_s_doing() {
        let event = |text| serde_json::from_value::<Event>(text).unwrap();
        let new = json!({"metadata": {}, "involvedObject": {}, "reportingComponent": "ipallocator-repair-controller"});
        let old = json!({"metadata": {}, "involvedObject": {}, "source": {"component": "portallocator-repair-controller"}});
        let other = json!({"metadata": {}, "involvedObject": {}, "source": {"component": "job-controller"}});
        assert!(is_of_the_server(&event(new)) && is_of_the_server(&event(old)));
        assert!(!is_of_the_server(&event(other)));
    }

    #[test]
    fn secrets_are_not_told() {
        let object = json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "c2VjcmV0"}});
        assert_eq!(stripped(object)["data"], json!({"token": "SECRET"}));
    }

    #[test]
    fn that_something_happened_again_is_told_and_not_how_often() {
        let lines = ["a", "b", "b", "b"].map(str::to_owned);
        assert_eq!(counted(lines.into_iter()), ["a", "b several times"]);
    }
}
