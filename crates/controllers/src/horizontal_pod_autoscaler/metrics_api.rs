//! Requests to the metrics APIs, and what their responses say. The servers behind them may be anybody's: every response
//! is limited in size, and one that cannot be understood is an error of the metric that asked for it.
//!
//! Parity: pkg/controller/podautoscaler/metrics/client.go and k8s.io/metrics/pkg/client.

use std::borrow::Cow;
use std::collections::BTreeMap;

use keleustes_objects::{
    ApiError, ArcStr, CrossVersionObjectReference, DiscoveredResources, ErrorReason, Key, Quantity, Resource,
    TextSelector, go_time, invalid_path_segment,
};
use keleustes_plan::ReadRequest;
use serde::{Deserialize, Deserializer};

use super::calculator::{SECOND, Sample, Samples};
use super::mapping;

const RESOURCE_METRICS: Resource = Resource::namespaced("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");
const CUSTOM_METRICS: &str = "custom.metrics.k8s.io";
const EXTERNAL_METRICS: &str = "external.metrics.k8s.io";

/// A namespace with ten thousand pods needs about 8 MB.
const RESPONSE_BYTES_MAX: usize = 32 << 20;

/// The versions of the custom metrics API that are understood.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The window of a custom metric that reports none.
const DEFAULT_WINDOW: i128 = 60 * SECOND;

/// Requests the usage of the selected pods.
pub(super) fn resource_request(namespace: &str, selector: &TextSelector) -> ReadRequest {
    limited(ReadRequest::collection(&RESOURCE_METRICS, namespace))
        .query("labelSelector", selector.to_string())
}

/// Requests a metric of the selected pods.
pub(super) fn pods_request(
    discovered: &DiscoveredResources,
    namespace: &str,
    metric: &str,
    selector: &TextSelector,
    metric_selector: &TextSelector,
) -> Result<ReadRequest, String> {
    let version = custom_version(discovered)?;
    let resource = mapping::preferred(discovered, "", "Pod")
        .map_err(|error| format!("unable to map kind Pod to resource: {error}"))?;
    let request = custom_request(version, namespace, resource.to_string(), "*", metric)?;
    let request = request.query("labelSelector", selector.to_string());
    Ok(request.query("metricLabelSelector", metric_selector.to_string()))
}

/// Requests a metric of one object.
pub(super) fn object_request(
    discovered: &DiscoveredResources,
    namespace: &str,
    object: &CrossVersionObjectReference,
    metric: &str,
    metric_selector: &TextSelector,
) -> Result<ReadRequest, String> {
    let version = custom_version(discovered)?;
    // An apiVersion that cannot be parsed counts as the core group.
    let group = mapping::group_of(&object.api_version).unwrap_or_default();
    let request = if object.kind == "Namespace" && group.is_empty() {
        // The HPA's own namespace, whatever the reference names: it must not reach beyond it.
        custom_request(version, namespace, "metrics".to_owned(), metric, "")?
    } else {
        let resource = mapping::preferred(discovered, group, &object.kind).map_err(|error| {
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            format!("unable to map kind {}{group} to resource: {error}", object.kind)
        })?;
        custom_request(version, namespace, resource.to_string(), &object.name, metric)?
    };
    Ok(request.query("metricLabelSelector", metric_selector.to_string()))
}

/// Requests the series of an external metric.
pub(super) fn external_request(
    namespace: &str,
    metric: &str,
    selector: &TextSelector,
) -> Result<ReadRequest, String> {
    check_segment(metric)?;
    let resource = metrics_resource(EXTERNAL_METRICS, "v1beta1", metric.to_owned());
    let request = limited(ReadRequest::collection(&resource, namespace));
    Ok(request.query("labelSelector", selector.to_string()))
}

fn custom_request(
    version: &'static str,
    namespace: &str,
    plural: String,
    name: &str,
    metric: &str,
) -> Result<ReadRequest, String> {
    for segment in [&*plural, name, metric] {
        check_segment(segment)?;
    }
    if name.is_empty() {
        return Err("resource name may not be empty".to_owned());
    }
    let resource = metrics_resource(CUSTOM_METRICS, version, plural);
    Ok(limited(ReadRequest::subresource(&resource, &Key::namespaced(namespace, name), metric)))
}

/// The version of the custom metrics API: the preferred one if it is understood, else the first that is.
fn custom_version(discovered: &DiscoveredResources) -> Result<&'static str, String> {
    let served: Vec<_> = discovered.versions.iter().filter(|one| one.group == CUSTOM_METRICS).collect();
    if served.is_empty() {
        if let Some(error) = discovered.root_failure() {
            return Err(error.to_owned());
        }
        return Err(format!("no custom metrics API ({CUSTOM_METRICS}) registered"));
    }
    let known = |version: &str| CUSTOM_VERSIONS.into_iter().find(|known| *known == version);
    let preferred = served.iter().find(|one| one.preferred).and_then(|one| known(&one.version));
    let first = || served.iter().find_map(|one| known(&one.version));
    preferred.or_else(first).ok_or_else(|| "no known available metric versions found".to_owned())
}

fn metrics_resource(group: &'static str, version: &'static str, plural: String) -> Resource {
    Resource { plural: Cow::Owned(plural), ..Resource::namespaced(group, version, "", "MetricValueList") }
}

fn check_segment(segment: &str) -> Result<(), String> {
    match invalid_path_segment(segment) {
        Some(why) => Err(format!("invalid resource name {segment:?}: [{why}]")),
        None => Ok(()),
    }
}

fn limited(request: ReadRequest) -> ReadRequest {
    request.bytes_max(RESPONSE_BYTES_MAX).not_found_as_error()
}

/// The text of a failed read, as client-go words it: a response without a Status is described by its code.
pub(super) fn describe(request: &ReadRequest, error: &ApiError) -> String {
    let verb = if request.verb() == "list" { "get" } else { request.verb() };
    let about = |what: &str| {
        let name = if request.key.name.is_empty() { String::new() } else { format!(" {}", request.key.name) };
        format!("{what} ({verb} {}{name})", request.resource)
    };
    match (error.code, &*error.message) {
        (404, "404 page not found") => about("the server could not find the requested resource"),
        (503, "service unavailable" | "") => about("the server is currently unable to handle the request"),
        _ => error.to_string(),
    }
}

/// The usage of each pod: the sum over its containers, or that of one. A pod without it is left out.
pub(super) fn resource_samples(
    json: &str,
    namespace: &str,
    resource: &str,
    container: &str,
) -> Result<Samples, String> {
    let list: PodMetricsList = decode(json)?;
    if list.items.is_empty() {
        return Err("no metrics returned from resource metrics API".to_owned());
    }
    let mut samples = Samples::new();
    for item in list.items {
        if !belongs(&item.metadata.namespace, namespace) {
            continue;
        }
        if let Some(value) = item.usage(resource, container)? {
            let sample = Sample { timestamp: item.timestamp.0, window: item.window.0, value };
            samples.insert(item.metadata.name, sample);
        }
    }
    Ok(samples)
}

/// The values of a custom metric by the name of the object that they describe.
pub(super) fn pods_samples(json: &str, namespace: &str) -> Result<Samples, String> {
    let list: MetricValueList = decode(json)?;
    if list.items.is_empty() {
        return Err("no metrics returned from custom metrics API".to_owned());
    }
    let of_namespace =
        list.items.into_iter().filter(|item| belongs(&item.described_object.namespace, namespace));
    let sample = |item: MetricValue| {
        let seconds = item.window_seconds.or(item.window);
        let window = seconds.map_or(DEFAULT_WINDOW, |seconds| i128::from(seconds) * SECOND);
        let value = possible(item.value)?;
        Ok((item.described_object.name, Sample { timestamp: item.timestamp.0, window, value }))
    };
    of_namespace.map(sample).collect()
}

/// The value of a custom metric of one object.
pub(super) fn object_value(json: &str) -> Result<i64, String> {
    let list: MetricValueList = decode(json)?;
    match &list.items[..] {
        [one] => possible(one.value),
        items => Err(format!(
            "unable to fetch metrics from custom metrics API: the custom metrics API server returned {} results when we \
             asked for exactly one",
            items.len()
        )),
    }
}

/// The values of an external metric.
pub(super) fn external_values(json: &str) -> Result<Vec<i64>, String> {
    let list: ExternalMetricValueList = decode(json)?;
    if list.items.is_empty() {
        return Err("no metrics returned from external metrics API".to_owned());
    }
    list.items.iter().map(|item| possible(item.value)).collect()
}

/// A value in milli units. One beyond all numbers is nonsense, and scaling by it would fill the cluster or empty it. A
/// negative value may be meant: the metric is whatever its author measures.
fn possible(value: Quantity) -> Result<i64, String> {
    let milli = value.milli();
    if matches!(milli, i64::MIN | i64::MAX) {
        return Err("the metrics API reports an impossible value, beyond 9.2 * 10^15".to_owned());
    }
    Ok(milli)
}

/// Whether an item is about the namespace that was asked for. A server that does not name one is believed.
fn belongs(found: &str, namespace: &str) -> bool {
    found.is_empty() || found == namespace
}

fn decode<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| {
        let unreadable = ApiError::transport(
            ErrorReason::UnreadableResponse,
            format!(
                "the response cannot be decoded: {}",
                keleustes_objects::decode_error_without_content(&error)
            ),
        );
        unreadable.to_string()
    })
}

#[derive(Deserialize)]
struct PodMetricsList {
    #[serde(default, deserialize_with = "null_is_default")]
    items: Vec<PodMetrics>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodMetrics {
    metadata: Described,
    timestamp: Timestamp,
    window: Window,
    #[serde(deserialize_with = "null_is_default")]
    containers: Vec<ContainerMetrics>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerMetrics {
    name: String,
    #[serde(deserialize_with = "null_is_default")]
    usage: BTreeMap<String, Quantity>,
}

impl PodMetrics {
    /// The usage in milli units; `None` if it is not reported. A negative one is nonsense, and scaling by it would remove
    /// pods that work; so is one beyond all numbers, and scaling by it would fill the cluster.
    fn usage(&self, resource: &str, container: &str) -> Result<Option<i64>, String> {
        let amounts: Option<Vec<i64>> = if container.is_empty() {
            let usages =
                self.containers.iter().map(|one| one.usage.get(resource).map(|amount| amount.milli()));
            usages.collect::<Option<Vec<_>>>().filter(|usages| !usages.is_empty())
        } else {
            let found = self.containers.iter().find(|one| one.name == container);
            found.and_then(|one| one.usage.get(resource)).map(|amount| vec![amount.milli()])
        };
        let Some(amounts) = amounts else { return Ok(None) };
        if amounts.iter().any(|amount| *amount < 0) {
            return Err(format!("negative usage of {resource} reported for pod {}", self.metadata.name));
        }
        if amounts.contains(&i64::MAX) {
            return Err(format!("impossible usage of {resource} reported for pod {}", self.metadata.name));
        }
        Ok(Some(amounts.into_iter().fold(0, i64::saturating_add)))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Described {
    #[serde(deserialize_with = "null_is_default")]
    namespace: String,
    #[serde(deserialize_with = "null_is_default")]
    name: ArcStr,
}

#[derive(Deserialize)]
struct MetricValueList {
    #[serde(default, deserialize_with = "null_is_default")]
    items: Vec<MetricValue>,
}

/// A value of the custom metrics API. `window` is that of v1beta1, `windowSeconds` that of v1beta2.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    #[serde(default, deserialize_with = "null_is_default")]
    described_object: Described,
    #[serde(default)]
    timestamp: Timestamp,
    #[serde(default)]
    window: Option<i64>,
    #[serde(default)]
    window_seconds: Option<i64>,
    value: Quantity,
}

#[derive(Deserialize)]
struct ExternalMetricValueList {
    #[serde(default, deserialize_with = "null_is_default")]
    items: Vec<ExternalMetricValue>,
}

#[derive(Deserialize)]
struct ExternalMetricValue {
    value: Quantity,
}

/// Nanoseconds since 1970; Go's zero time if it is unset.
struct Timestamp(i128);

impl Default for Timestamp {
    fn default() -> Self {
        Self(-62_135_596_800 * SECOND)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None | Some("") => Ok(Self::default()),
            Some(text) => go_time::parse_rfc3339(text)
                .map(Self)
                .ok_or_else(|| serde::de::Error::custom("a timestamp is no RFC 3339 time")),
        }
    }
}

/// A duration in nanoseconds.
#[derive(Default)]
struct Window(i128);

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::default());
        }
        go_duration(&text).map(Self).ok_or_else(|| serde::de::Error::custom("a window is no duration"))
    }
}

/// Parses a duration as Go's `time.ParseDuration` does, to nanoseconds.
fn go_duration(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", SECOND),
        ("m", 60 * SECOND),
        ("h", 3600 * SECOND),
    ];
    let (sign, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (if text.starts_with('-') { -1 } else { 1 }, rest),
        None => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len())];
        rest = &rest[number.len()..];
        let unit_length = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(name, _)| *name == &rest[..unit_length])?.1;
        rest = &rest[unit_length..];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 30 {
            return None;
        }
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = digits(fraction)?.checked_mul(unit)? / scale;
        total = total.checked_add(digits(whole)?.checked_mul(unit)?)?.checked_add(part)?;
    }
    i64::try_from(sign * total).ok().map(i128::from)
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
