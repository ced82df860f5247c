//! Records the events of a scheduler and of kubelets on pods, so that `kubectl describe pod` reads as in a real cluster.
//!
//! It only watches pods: the events follow from the changes that hollow nodes write.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use keleustes_client::Call;
use keleustes_objects::Resource;
use kube::api::{ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

pub(crate) static EVENTS: Resource = Resource::built_in("", "Event");

/// A pod that is older when it is first observed has been running before this process.
const NEW_WITHIN_SECONDS: i64 = 30;
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// An event to record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    kind: &'static str,
    reason: &'static str,
    message: String,
    component: &'static str,
    /// The container; empty for the pod.
    container: String,
}

/// What was observed of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Observed {
    is_scheduled: bool,
    /// Why it is not.
    unschedulable: Option<String>,
    is_terminating: bool,
    /// How often each container has started.
    starts: BTreeMap<String, u64>,
    /// Containers that wait for their next start.
    backing_off: BTreeMap<String, u64>,
}

/// Records events until it is aborted.
pub async fn record_pod_events(client: Client) {
    let pods: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<PodKind>(&()));
    let mut observed: BTreeMap<String, Observed> = BTreeMap::new();
    loop {
        // The watch starts with all pods.
        if let Ok(stream) = pods.watch(&WatchParams::default(), "0").await {
            let mut stream = std::pin::pin!(stream);
            while let Some(Ok(change)) = stream.next().await {
                match change {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        let pod = serde_json::to_value(pod).unwrap_or_default();
                        for event in observe(&mut observed, &pod, Timestamp::now()) {
                            // An event that cannot be written is lost, as in a real cluster.
                            let namespace = text(&pod, "/metadata/namespace");
                            let object = event.object(&pod, Timestamp::now());
                            let _ = Call::create(&EVENTS, namespace, &object).send(&client).await;
                        }
                    }
                    WatchEvent::Deleted(pod) => {
                        observed.remove(&pod.metadata.uid.unwrap_or_default());
                    }
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
                }
            }
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

/// The pod resource of kube's dynamic API.
struct PodKind;

impl kube::Resource for PodKind {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;
    fn kind(&(): &()) -> std::borrow::Cow<'_, str> {
        "Pod".into()
    }
    fn group(&(): &()) -> std::borrow::Cow<'_, str> {
        "".into()
    }
    fn version(&(): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }
    fn plural(&(): &()) -> std::borrow::Cow<'_, str> {
        "pods".into()
    }
    fn meta(&self) -> &kube::core::ObjectMeta {
        unreachable!("only its type is used")
    }
    fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
        unreachable!("only its type is used")
    }
}

/// The events that follow from a changed pod.
fn observe(observed: &mut BTreeMap<String, Observed>, pod: &Value, now: Timestamp) -> Vec<PodEvent> {
    let uid = text(pod, "/metadata/uid").to_owned();
    let created: Option<Timestamp> = text(pod, "/metadata/creationTimestamp").parse().ok();
    let age = created.map(|created| now.as_second() - created.as_second());
    let is_new = age.is_some_and(|age| age < NEW_WITHIN_SECONDS);
    let is_known = observed.contains_key(&uid);
    let state = observed.entry(uid).or_default();
    let before = state.clone();
    update(state, pod);
    if is_known || is_new { differences(&before, state, pod) } else { Vec::new() }
}

fn update(state: &mut Observed, pod: &Value) {
    state.is_scheduled |= !text(pod, "/spec/nodeName").is_empty();
    let mut conditions = entries(pod, "/status/conditions");
    let unschedulable =
        conditions.find(|one| one["type"] == "PodScheduled" && one["reason"] == "Unschedulable");
    state.unschedulable = unschedulable.map(|one| text(one, "/message").to_owned());
    state.is_terminating |= !text(pod, "/metadata/deletionTimestamp").is_empty();
    for list in ["initContainerStatuses", "containerStatuses"] {
        for status in pod["status"][list].as_array().into_iter().flatten() {
            let name = status["name"].as_str().unwrap_or_default().to_owned();
            let restarts = status["restartCount"].as_u64().unwrap_or(0);
            let has_run = !status["state"]["running"].is_null() || !status["state"]["terminated"].is_null();
            if has_run {
                state.starts.insert(name.clone(), restarts + 1);
            }
            if status["state"]["waiting"]["reason"] == "CrashLoopBackOff" {
                state.backing_off.insert(name, restarts + 1);
            }
        }
    }
}

fn differences(before: &Observed, after: &Observed, pod: &Value) -> Vec<PodEvent> {
    let mut events = Vec::new();
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    if let Some(message) =
        after.unschedulable.as_ref().filter(|_| before.unschedulable != after.unschedulable)
    {
        events.push(PodEvent::new("Warning", "FailedScheduling", message).by("default-scheduler"));
    }
    if after.is_scheduled && !before.is_scheduled {
        let message = format!("Successfully assigned {namespace}/{name} to {}", text(pod, "/spec/nodeName"));
        events.push(PodEvent::new("Normal", "Scheduled", message).by("default-scheduler"));
    }
    for (container, starts) in &after.starts {
        if before.starts.get(container).is_none_or(|earlier| earlier < starts) {
            let image = image_of(pod, container);
            let pulled = format!(
                "Container image {image:?} already present on machine and can be accessed by the pod"
            );
            events.push(PodEvent::new("Normal", "Pulled", pulled).of(container));
            events.push(PodEvent::new("Normal", "Created", "Container created").of(container));
            events.push(PodEvent::new("Normal", "Started", "Container started").of(container));
        }
    }
    for (container, times) in &after.backing_off {
        if before.backing_off.get(container).is_none_or(|earlier| earlier < times) {
            let uid = text(pod, "/metadata/uid");
            let message =
                format!("Back-off restarting failed container {container} in pod {name}_{namespace}({uid})");
            events.push(PodEvent::new("Warning", "BackOff", message).of(container));
        }
    }
    if after.is_terminating && !before.is_terminating {
        for container in after.starts.keys().filter(|container| is_running(pod, container)) {
            let message = format!("Stopping container {container}");
            events.push(PodEvent::new("Normal", "Killing", message).of(container));
        }
    }
    events
}

fn entries<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    pod.pointer(list).and_then(Value::as_array).into_iter().flatten()
}

fn image_of<'a>(pod: &'a Value, container: &str) -> &'a str {
    let mut all = entries(pod, "/spec/containers").chain(entries(pod, "/spec/initContainers"));
    all.find(|one| one["name"] == container).and_then(|one| one["image"].as_str()).unwrap_or_default()
}

fn is_running(pod: &Value, container: &str) -> bool {
    entries(pod, "/status/containerStatuses")
        .any(|status| status["name"] == container && !status["state"]["running"].is_null())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl PodEvent {
    pub(crate) fn new(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, reason, message: message.into(), component: "kubelet", container: String::new() }
    }

    fn by(self, component: &'static str) -> Self {
        Self { component, ..self }
    }

    fn of(self, container: &str) -> Self {
        Self { container: container.to_owned(), ..self }
    }

    pub(crate) fn object(&self, pod: &Value, now: Timestamp) -> Value {
        let meta = &pod["metadata"];
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut involved = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": meta["namespace"], "name": meta["name"],
            "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
        });
        if !self.container.is_empty() {
            involved["fieldPath"] = format!("spec.containers{{{}}}", self.container).into();
        }
        let mut source = json!({"component": self.component});
        if self.component == "kubelet" {
            source["host"] = pod["spec"]["nodeName"].clone();
        }
        let suffix = format!("{:x}", now.as_nanosecond());
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": meta["namespace"], "name": format!("{}.{suffix}", text(pod, "/metadata/name"))},
            "involvedObject": involved, "type": self.kind, "reason": self.reason, "message": self.message,
            "source": source, "reportingComponent": self.component, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:10Z";

    fn pod(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c", "image": "any:1"}]}, "status": {},
        });
        change(&mut pod);
        pod
    }

    fn running(pod: &mut Value, restarts: u64) {
        pod["spec"]["nodeName"] = "hollow-0".into();
        pod["status"]["containerStatuses"] =
            json!([{"name": "c", "restartCount": restarts, "state": {"running": {}}}]);
    }

    fn reasons(observed: &mut BTreeMap<String, Observed>, pod: &Value) -> Vec<&'static str> {
        observe(observed, pod, NOW.parse().unwrap()).iter().map(|event| event.reason).collect()
    }

    #[test]
    fn pod_has_the_events_of_scheduler_and_kubelet_in_order() {
        let mut observed = BTreeMap::new();
        assert!(reasons(&mut observed, &pod(|_| {})).is_empty());
        let unschedulable = |message: &str| {
            let condition = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
            pod(|pod| pod["status"]["conditions"] = condition)
        };
        assert_eq!(reasons(&mut observed, &unschedulable("no node")), ["FailedScheduling"]);
        assert!(reasons(&mut observed, &unschedulable("no node")).is_empty(), "it is known");
        assert_eq!(reasons(&mut observed, &unschedulable("no claim")), ["FailedScheduling"]);
        let bound = pod(|pod| pod["spec"]["nodeName"] = "hollow-0".into());
        assert_eq!(reasons(&mut observed, &bound), ["Scheduled"]);
        let started = pod(|pod| running(pod, 0));
        assert_eq!(reasons(&mut observed, &started), ["Pulled", "Created", "Started"]);
        assert!(reasons(&mut observed, &started).is_empty(), "each event is recorded once");
        let waiting = pod(|pod| {
            running(pod, 0);
            pod["status"]["containerStatuses"][0]["state"] =
                json!({"waiting": {"reason": "CrashLoopBackOff"}});
        });
        assert_eq!(reasons(&mut observed, &waiting), ["BackOff"]);
        assert_eq!(reasons(&mut observed, &pod(|pod| running(pod, 1))), ["Pulled", "Created", "Started"]);
        let deleted = pod(|pod| {
            running(pod, 1);
            pod["metadata"]["deletionTimestamp"] = NOW.into();
        });
        assert_eq!(reasons(&mut observed, &deleted), ["Killing"]);
    }

    #[test]
    fn pod_of_an_earlier_run_gets_no_events_until_it_changes() {
        let mut observed = BTreeMap::new();
        let old = |restarts| {
            pod(|pod| {
                running(pod, restarts);
                pod["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z".into();
            })
        };
        assert!(reasons(&mut observed, &old(0)).is_empty());
        assert_eq!(reasons(&mut observed, &old(1)), ["Pulled", "Created", "Started"]);
    }

    #[test]
    fn event_names_node_and_container() {
        let pod = pod(|pod| running(pod, 0));
        let event = PodEvent::new("Normal", "Started", "Container started").of("c");
        let event = event.object(&pod, NOW.parse().unwrap());
        assert_eq!(event["source"], json!({"component": "kubelet", "host": "hollow-0"}));
        assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{c}");
    }
}
