//! The metrics APIs, computed from stored objects by functions that the embedder supplies: nothing runs here that could be
//! measured. What is served has the form in which metrics-server and the adapters behind the aggregation layer serve it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::metadata::{is_terminating, meta, meta_str};
use super::options::ListOptions;
use super::request::{Call, Verb};
use super::resources::by_name;
use super::status::{ApiResult, Status};
use super::store::SharedObject;
use super::table::metrics::EXTERNAL_METRICS;
use super::{Document, Kernel, seconds};

/// The time over which usage is measured, as metrics-server reports it.
const WINDOW: &str = "10s";

/// What a running pod uses, in nano cores and bytes; `None` if nothing is known. The arguments are the pod, its controller
/// and its node (null if there is none), and how many ready pods the controller has; 0 for a pod that is not one of them.
pub type UsageOfPod = fn(&Value, &Value, &Value, u64, Timestamp) -> Option<(u64, u64)>;

/// Where the values of the metrics APIs come from.
#[derive(Clone, Copy, Debug)]
pub struct MetricsSource {
    /// What a running pod uses.
    pub pod_usage: UsageOfPod,
    /// The external metrics that a ConfigMap defines: their names and values in milli units.
    pub external: fn(&Value, Timestamp) -> Vec<(String, i64)>,
}

/// The usage of one pod.
struct PodUsage {
    pod: SharedObject,
    cpu_nano: u64,
    memory_bytes: u64,
}

impl Kernel {
    /// Serves a read of `metrics.k8s.io` or `external.metrics.k8s.io`.
    pub(super) fn metrics(
        &self,
        call: &Call<'_>,
        source: MetricsSource,
        now: Timestamp,
    ) -> ApiResult<Document> {
        let options = ListOptions::parse(call)?;
        let target = &call.target;
        if target.resource.group == EXTERNAL_METRICS {
            return Ok(self.external_metrics(call, &options, source, now));
        }
        let named = |object: &SharedObject| match call.verb {
            Verb::Get => meta_str(object, "name") == target.name(),
            _ => options.selector.matches(target.resource, object),
        };
        let reading = Reading { kernel: self, source, now, ready: RefCell::default() };
        let items = match target.resource.plural {
            "nodes" => reading.nodes(named),
            _ => reading.pods(target.namespace.as_deref(), named),
        };
        let api_version = target.resource.api_version();
        if call.verb != Verb::Get {
            return Ok(Document::json(
                200,
                &json!({"kind": target.resource.list_kind, "apiVersion": api_version, "metadata": {}, "items": items}),
            ));
        }
        let Some(mut item) = items.into_iter().next() else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        item["kind"] = json!(target.resource.kind);
        item["apiVersion"] = json!(api_version);
        Ok(Document::json(200, &item))
    }

    /// One value for each ConfigMap of the namespace that defines the metric and has the selected labels.
    fn external_metrics(
        &self,
        call: &Call<'_>,
        options: &ListOptions,
        source: MetricsSource,
        now: Timestamp,
    ) -> Document {
        let (metric, namespace) = (call.target.name(), call.target.namespace());
        let mut items = Vec::new();
        for object in self.objects_of("configmaps", Some(namespace)) {
            if !options.selector.matches(call.target.resource, &object) {
                continue;
            }
            for (_, value) in (source.external)(&object, now).into_iter().filter(|(name, _)| name == metric) {
                items.push(json!({
                    "metricName": metric,
                    "metricLabels": meta(&object, "labels").cloned().unwrap_or_else(|| json!({})),
                    "timestamp": seconds(now),
                    "value": format!("{value}m"),
                }));
            }
        }
        let api_version = call.target.resource.api_version();
        Document::json(
            200,
            &json!({"kind": "ExternalMetricValueList", "apiVersion": api_version, "metadata": {}, "items": items}),
        )
    }

    fn objects_of(&self, resource: &str, namespace: Option<&str>) -> Vec<SharedObject> {
        let stored = by_name(resource).map(|resource| self.store.list(resource, namespace));
        stored.into_iter().flatten().map(|(_, object)| object.value()).collect()
    }
}

/// One read of resource metrics.
struct Reading<'a> {
    kernel: &'a Kernel,
    source: MetricsSource,
    now: Timestamp,
    /// The number of ready pods by the UID of their controller: counted once.
    ready: RefCell<BTreeMap<String, u64>>,
}

impl Reading<'_> {
    fn pods(&self, namespace: Option<&str>, is_wanted: impl Fn(&SharedObject) -> bool) -> Vec<Value> {
        let usages = self.usages(namespace, is_wanted);
        usages.iter().map(|usage| self.item(&usage.pod, "containers", &containers(usage))).collect()
    }

    /// The usage of each node is that of its pods.
    fn nodes(&self, is_wanted: impl Fn(&SharedObject) -> bool) -> Vec<Value> {
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for usage in self.usages(None, |_| true) {
            let sum = sums.entry(node_name(&usage.pod).to_owned()).or_default();
            *sum = (sum.0.saturating_add(usage.cpu_nano), sum.1.saturating_add(usage.memory_bytes));
        }
        let nodes = self.kernel.objects_of("nodes", None).into_iter().filter(is_wanted);
        nodes
            .map(|node| {
                let (cpu, memory) = sums.get(meta_str(&node, "name")).copied().unwrap_or_default();
                self.item(&node, "usage", &amounts(cpu, memory))
            })
            .collect()
    }

    fn item(&self, about: &Value, field: &str, content: &Value) -> Value {
        let now = seconds(self.now);
        let mut metadata = json!({"name": meta_str(about, "name"), "creationTimestamp": now});
        for field in ["namespace", "labels"] {
            if let Some(value) = meta(about, field) {
                metadata[field] = value.clone();
            }
        }
        json!({"metadata": metadata, "timestamp": now, "window": WINDOW, field: content})
    }

    fn usages(&self, namespace: Option<&str>, is_wanted: impl Fn(&SharedObject) -> bool) -> Vec<PodUsage> {
        let pods = self.kernel.objects_of("pods", namespace).into_iter();
        pods.filter(|pod| pod["status"]["phase"] == "Running" && is_wanted(pod))
            .filter_map(|pod| {
                let controller = self.controller(&pod);
                let node =
                    by_name("nodes").and_then(|nodes| self.kernel.store.get(nodes, "", node_name(&pod)));
                let ready = if is_ready(&pod) { self.ready_pods(&controller) } else { 0 };
                let none = Value::Null;
                let node = node.as_deref().unwrap_or(&none);
                let (cpu_nano, memory_bytes) =
                    (self.source.pod_usage)(&pod, &controller, node, ready, self.now)?;
                Some(PodUsage { pod, cpu_nano, memory_bytes })
            })
            .collect()
    }

    fn controller(&self, pod: &Value) -> SharedObject {
        let owners = meta(pod, "ownerReferences").and_then(Value::as_array).into_iter().flatten();
        let found = owners.into_iter().find(|owner| owner["controller"] == true).and_then(|owner| {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let resource = self.kernel.registry.by_kind(text("apiVersion"), text("kind"))?;
            let found = self.kernel.store.get(resource, meta_str(pod, "namespace"), text("name"))?;
            (meta_str(&found, "uid") == text("uid")).then_some(found)
        });
        found.unwrap_or_default()
    }

    fn ready_pods(&self, controller: &Value) -> u64 {
        let uid = meta_str(controller, "uid");
        if uid.is_empty() {
            return 1;
        }
        *self.ready.borrow_mut().entry(uid.to_owned()).or_insert_with(|| {
            let Some(pods) = by_name("pods") else { return 0 };
            let stored = self.kernel.store.list(pods, Some(meta_str(controller, "namespace")));
            // Most pods of a namespace belong to others: their text is searched before it is parsed.
            let candidates = stored.iter().filter(|(_, pod)| pod.text().contains(uid));
            let ready = candidates.filter(|(_, pod)| {
                let pod = pod.value();
                let owners = meta(&pod, "ownerReferences").and_then(Value::as_array).into_iter().flatten();
                is_ready(&pod)
                    && owners.into_iter().any(|owner| owner["uid"] == uid && owner["controller"] == true)
            });
            u64::try_from(ready.count()).unwrap_or(u64::MAX)
        })
    }
}

fn node_name(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    !is_terminating(pod) && pod["status"]["phase"] == "Running" && conditions.into_iter().any(is_ready)
}

/// The usage of a pod, in equal parts for its containers; the first has the remainder.
fn containers(usage: &PodUsage) -> Value {
    let containers = usage.pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let count = u64::try_from(containers.len()).unwrap_or(1).max(1);
    let part = |total: u64, at: usize| total / count + if at == 0 { total % count } else { 0 };
    containers
        .iter()
        .enumerate()
        .map(|(at, container)| {
            let usage = amounts(part(usage.cpu_nano, at), part(usage.memory_bytes, at));
            json!({"name": container["name"], "usage": usage})
        })
        .collect()
}

/// Quantities in the units of metrics-server.
fn amounts(cpu_nano: u64, memory_bytes: u64) -> Value {
    json!({"cpu": format!("{cpu_nano}n"), "memory": format!("{}Ki", memory_bytes.div_ceil(1024))})
}
