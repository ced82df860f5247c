//! LimitRanger: a new pod gets the defaults of its namespace's LimitRanges, and pods and claims beyond their limits are
//! refused.
//!
//! Parity: plugin/pkg/admission/limitranger. Where Go's order of maps decides on the order of several violations, names
//! are sorted here.

use keleustes_objects::quota::total_of_containers;
use keleustes_objects::{Container, Pod, Quantity, ResourceList};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kernel;
use super::admission::name_for_message;
use super::metadata::{is_terminating, meta_mut, meta_str};
use super::resources::{self, Resource, Strategy};
use super::status::{ApiResult, Status};

/// Says which defaults a pod got.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Amounts up to this are compared in thousandths, larger ones in whole units.
const WHOLE_UNITS_MAX: i64 = i64::MAX / 1000;

/// One entry of a LimitRange.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LimitRangeItem {
    #[serde(rename = "type")]
    limit_type: String,
    max: ResourceList,
    min: ResourceList,
    default: ResourceList,
    default_request: ResourceList,
    max_limit_request_ratio: ResourceList,
}

/// What an entry is compared with: the requests and limits of a container, or of a pod.
struct Amounts<'a> {
    requests: &'a ResourceList,
    limits: &'a ResourceList,
}

impl Kernel {
    /// Sets the default requests and limits of a pod's containers.
    pub(crate) fn set_limit_range_defaults(&self, pod: &mut Value) {
        for items in self.limit_ranges(meta_str(pod, "namespace")) {
            let (mut requests, mut limits) = (ResourceList::default(), ResourceList::default());
            for item in items.iter().filter(|item| item.limit_type == "Container") {
                item.default_request.iter().for_each(|(name, amount)| requests.set(name.clone(), *amount));
                item.default.iter().for_each(|(name, amount)| limits.set(name.clone(), *amount));
            }
            let mut set = Vec::new();
            for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
                for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
                {
                    set.extend(fill(container, "requests", "request", what, &requests));
                    set.extend(fill(container, "limits", "limit", what, &limits));
                }
            }
            if !set.is_empty() {
                let annotations = meta_mut(pod).entry("annotations").or_insert_with(|| json!({}));
                if !annotations.is_object() {
                    *annotations = json!({});
                }
                annotations[ANNOTATION] = json!(format!("LimitRanger plugin set: {}", set.join("; ")));
            }
        }
    }

    /// Refuses a pod or claim that violates a LimitRange.
    pub(crate) fn check_limit_ranges(
        &self,
        resource: &Resource,
        old: Option<&Value>,
        new: &Value,
    ) -> ApiResult<()> {
        if old.is_some_and(is_terminating) {
            return Ok(());
        }
        for items in self.limit_ranges(meta_str(new, "namespace")) {
            let violations = match resource.strategy {
                Strategy::Pod => pod_violations(&items, new),
                Strategy::PersistentVolumeClaim => claim_violations(&items, new),
                _ => Vec::new(),
            };
            if let Some(why) = aggregate(violations) {
                return Err(Status::forbidden(resource, name_for_message(new), &why));
            }
        }
        Ok(())
    }

    fn limit_ranges(&self, namespace: &str) -> Vec<Vec<LimitRangeItem>> {
        let Some(kind) = resources::by_path("", "v1", "limitranges") else { return Vec::new() };
        let items = |range: &Value| Vec::deserialize(range.pointer("/spec/limits")?).ok();
        self.store.values(kind, Some(namespace)).iter().filter_map(|range| items(range)).collect()
    }
}

/// Adds the defaults that a container lacks; says which.
fn fill(
    container: &mut Value,
    field: &str,
    noun: &str,
    what: &str,
    defaults: &ResourceList,
) -> Option<String> {
    let known = container["resources"][field].as_object().cloned().unwrap_or_default();
    let missing: Vec<_> = defaults.iter().filter(|(name, _)| !known.contains_key(name.as_str())).collect();
    if missing.is_empty() {
        return None;
    }
    let amounts = &mut container["resources"][field];
    if !amounts.is_object() {
        *amounts = json!({});
    }
    for (name, amount) in &missing {
        amounts[name.as_str()] = json!(amount);
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
    let container = container["name"].as_str().unwrap_or_default();
    Some(format!("{} {noun} for {what} {container}", names.join(", ")))
}

fn pod_violations(items: &[LimitRangeItem], pod: &Value) -> Vec<String> {
    let Ok(pod) = serde_json::from_value::<Pod>(pod.clone()) else { return Vec::new() };
    let containers = || pod.spec.containers().iter().chain(pod.spec.init_containers());
    let (requests, limits) = pod_amounts(&pod);
    let mut violations = Vec::new();
    for item in items {
        match item.limit_type.as_str() {
            "Container" => containers().for_each(|container: &Container| {
                let amounts = Amounts { requests: container.requests(), limits: container.limits() };
                item.check(&amounts, &mut violations);
            }),
            "Pod" => item.check(&Amounts { requests: &requests, limits: &limits }, &mut violations),
            _ => {}
        }
    }
    violations
}

/// The requests and limits of a pod as a whole.
fn pod_amounts(pod: &Pod) -> (ResourceList, ResourceList) {
    let mut requests = total_of_containers(&pod.spec, |container| Some(container.requests()));
    let mut limits = total_of_containers(&pod.spec, |container| Some(container.limits()));
    if let Some(own) = pod.spec.pod_level_resources() {
        let replace = |total: &mut ResourceList, own: &ResourceList| {
            let supported = own.iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
            supported.for_each(|(name, amount)| total.set(name.clone(), *amount));
        };
        replace(&mut requests, &own.requests);
        replace(&mut limits, &own.limits);
    }
    (requests, limits)
}

/// A claim has requests only.
fn claim_violations(items: &[LimitRangeItem], claim: &Value) -> Vec<String> {
    let requests = claim.pointer("/spec/resources/requests");
    let requests = requests.and_then(|requests| ResourceList::deserialize(requests).ok()).unwrap_or_default();
    let none = ResourceList::default();
    let amounts = Amounts { requests: &requests, limits: &none };
    let mut violations = Vec::new();
    for item in items.iter().filter(|item| item.limit_type == "PersistentVolumeClaim") {
        let below = |(name, bound)| item.below_minimum(name, bound, &amounts);
        violations.extend(pairs(&item.min).filter_map(below));
        for (name, bound) in pairs(&item.max) {
            let head = item.head("maximum", name, bound);
            violations.extend(match requests.amount(name) {
                None => Some(format!("{head}.  No request is specified")),
                Some(request) if is_more(request, bound) => Some(format!("{head}, but request is {request}")),
                Some(_) => None,
            });
        }
    }
    violations
}

fn pairs(list: &ResourceList) -> impl Iterator<Item = (&str, Quantity)> {
    list.iter().map(|(name, amount)| (name.as_str(), *amount))
}

impl LimitRangeItem {
    fn check(&self, amounts: &Amounts<'_>, violations: &mut Vec<String>) {
        violations
            .extend(pairs(&self.min).filter_map(|(name, bound)| self.below_minimum(name, bound, amounts)));
        violations
            .extend(pairs(&self.max).filter_map(|(name, bound)| self.above_maximum(name, bound, amounts)));
        let ratios = pairs(&self.max_limit_request_ratio);
        violations.extend(ratios.filter_map(|(name, bound)| self.above_ratio(name, bound, amounts)));
    }

    fn head(&self, bound_name: &str, name: &str, bound: Quantity) -> String {
        format!("{bound_name} {name} usage per {} is {bound}", self.limit_type)
    }

    fn below_minimum(&self, name: &str, bound: Quantity, amounts: &Amounts<'_>) -> Option<String> {
        let head = self.head("minimum", name, bound);
        match (amounts.requests.amount(name), amounts.limits.amount(name)) {
            (None, _) => Some(format!("{head}.  No request is specified")),
            (Some(request), _) if is_more(bound, request) => {
                Some(format!("{head}, but request is {request}"))
            }
            (_, Some(limit)) if is_more(bound, limit) => Some(format!("{head}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above_maximum(&self, name: &str, bound: Quantity, amounts: &Amounts<'_>) -> Option<String> {
        let head = self.head("maximum", name, bound);
        match (amounts.limits.amount(name), amounts.requests.amount(name)) {
            (None, _) => Some(format!("{head}.  No limit is specified")),
            (Some(limit), _) if is_more(limit, bound) => Some(format!("{head}, but limit is {limit}")),
            (_, Some(request)) if is_more(request, bound) => {
                Some(format!("{head}, but request is {request}"))
            }
            _ => None,
        }
    }

    fn above_ratio(&self, name: &str, bound: Quantity, amounts: &Amounts<'_>) -> Option<String> {
        let head = format!("{name} max limit to request ratio per {} is {bound}", self.limit_type);
        let given = |list: &ResourceList| list.amount(name).filter(|amount| !amount.is_zero());
        let Some(request) = given(amounts.requests) else {
            return Some(format!("{head}, but no request is specified or request is 0"));
        };
        let Some(limit) = given(amounts.limits) else {
            return Some(format!("{head}, but no limit is specified or limit is 0"));
        };
        let (request, limit) = comparable(request, limit);
        #[expect(clippy::cast_precision_loss, reason = "the original rounds as well")]
        let (ratio, most) = (limit as f64 / request as f64, bound.milli() as f64);
        (ratio * 1000.0 > most).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
    }
}

/// Two amounts in thousandths, or in whole units if one is too large for that.
fn comparable(one: Quantity, other: Quantity) -> (i64, i64) {
    if one.whole().max(other.whole()) <= WHOLE_UNITS_MAX {
        (one.milli(), other.milli())
    } else {
        (one.whole(), other.whole())
    }
}

fn is_more(one: Quantity, other: Quantity) -> bool {
    let (one, other) = comparable(one, other);
    one > other
}

/// The violations as one message, each once.
fn aggregate(violations: Vec<String>) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for violation in violations {
        if !all.contains(&violation) {
            all.push(violation);
        }
    }
    match all.len() {
        0 => None,
        1 => all.pop(),
        _ => Some(format!("[{}]", all.join(", "))),
    }
}
