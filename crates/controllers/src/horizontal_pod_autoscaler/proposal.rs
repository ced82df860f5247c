//! Turns one metric of the spec into a proposal: what to ask a metrics API for, and the number of replicas that follows
//! from its answer.
//!
//! Parity: pkg/controller/podautoscaler/horizontal.go, computeReplicasForMetric and what it calls.

use keleustes_objects::{
    ContainerResourceMetric, CurrentMetric, DiscoveredResources, InternedStr, LabelSelector, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, NamedMetric, ObjectMetric, Quantity, TextSelector,
};
use keleustes_plan::ReadRequest;

use super::calculator::{Calculated, Pods, Requested, Tolerances, for_value_per_pod};
use super::metrics_api;
use super::quantity::{binary, decimal};

/// What a metric proposes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The metric, for messages.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// Why a metric proposes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricFailure {
    /// The reason of the event and of the condition.
    pub(super) reason: &'static str,
    /// The text of the event and of the condition.
    pub(super) message: String,
    /// The text of the error of the reconcile.
    pub(super) error: String,
    /// Whether the spec is at fault, and not a server.
    pub(super) is_spec: bool,
}

/// A metric with a source, and how its target is meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// A resource of all containers.
    Resource(&'a InternedStr, Usage),
    /// A resource of one container.
    ContainerResource(&'a ContainerResourceMetric, Usage),
    /// A metric of every pod, with the target per pod.
    Pods(&'a NamedMetric, i64),
    /// A metric of one object.
    Object(&'a ObjectMetric, Target),
    /// An external metric.
    External(&'a NamedMetric, Target),
}

/// The target of a resource.
#[derive(Clone, Copy, Debug)]
pub(super) enum Usage {
    Average(i64),
    Utilization(i32),
}

/// The target of a value, in milli units.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Value(i64),
    PerPod(i64),
}

/// What the numbers of replicas depend on, beside the metric.
pub(super) struct Circumstances<'a> {
    pub(super) namespace: &'a str,
    pub(super) spec_replicas: i32,
    pub(super) status_replicas: i32,
    pub(super) tolerances: Tolerances,
}

impl<'a> Source<'a> {
    /// Understands a metric of the spec.
    pub(super) fn of(spec: &'a MetricSpec) -> Result<Self, MetricFailure> {
        let unset = "invalid resource metric source: neither an average utilization target nor an average value (usage) \
                     target was set";
        match (&*spec.r#type, spec) {
            ("Resource", MetricSpec { resource: Some(metric), .. }) => Usage::of(&metric.target)
                .map(|usage| Self::Resource(&metric.name, usage))
                .ok_or_else(|| resource_failure(&metric.name, None, unset.to_owned())),
            ("ContainerResource", MetricSpec { container_resource: Some(metric), .. }) => {
                Usage::of(&metric.target)
                    .map(|usage| Self::ContainerResource(metric, usage))
                    .ok_or_else(|| resource_failure(&metric.name, Some(&metric.container), unset.to_owned()))
            }
            ("Pods", MetricSpec { pods: Some(metric), .. }) => match metric.target.average_value {
                Some(target) => Ok(Self::Pods(metric, target.milli())),
                None => Err(pods_failure(
                    "invalid pods metric source: no average value target was set".to_owned(),
                )),
            },
            ("Object", MetricSpec { object: Some(metric), .. }) => {
                // The selector first: of two faults the original reports this one.
                TextSelector::of(metric.metric.selector.as_ref()).map_err(object_failure)?;
                let MetricTarget { r#type, value, average_value, .. } = &metric.target;
                match (&**r#type, value, average_value) {
                    ("Value", Some(value), _) => Ok(Self::Object(metric, Target::Value(value.milli()))),
                    ("AverageValue", _, Some(value)) => Ok(Self::Object(metric, Target::PerPod(value.milli()))),
                    _ => Err(object_failure(
                        "invalid object metric source: neither a value target nor an average value target was set"
                            .to_owned(),
                    )),
                }
            }
            ("External", MetricSpec { external: Some(metric), .. }) => {
                let target = &metric.target;
                let per_pod = target.average_value.map(|value| Target::PerPod(value.milli()));
                let target = per_pod.or_else(|| target.value.map(|value| Target::Value(value.milli())));
                target.map(|target| Self::External(metric, target)).ok_or_else(|| {
                    let message =
                        "invalid external metric source: neither a value target nor an average value target was set";
                    external_failure(metric, message.to_owned())
                })
            }
            (other, _) => {
                let message = format!("unknown metric source type {other:?}");
                Err(MetricFailure {
                    reason: "InvalidMetricSourceType",
                    error: message.clone(),
                    message,
                    is_spec: true,
                })
            }
        }
    }

    /// The request for the metric.
    pub(super) fn request(
        self,
        discovered: &DiscoveredResources,
        namespace: &str,
        selector: &TextSelector,
    ) -> Result<ReadRequest, MetricFailure> {
        match self {
            Self::Resource(..) | Self::ContainerResource(..) => {
                Ok(metrics_api::resource_request(namespace, selector))
            }
            Self::Pods(metric, _) => {
                let series = TextSelector::of(metric.metric.selector.as_ref()).map_err(pods_failure)?;
                metrics_api::pods_request(discovered, namespace, &metric.metric.name, selector, &series)
                    .map_err(|error| self.unreadable(namespace, &error))
            }
            Self::Object(metric, _) => {
                let series = TextSelector::of(metric.metric.selector.as_ref()).map_err(object_failure)?;
                let (object, name) = (&metric.described_object, &metric.metric.name);
                metrics_api::object_request(discovered, namespace, object, name, &series)
                    .map_err(|error| self.unreadable(namespace, &error))
            }
            Self::External(metric, target) => {
                let series = TextSelector::of(metric.metric.selector.as_ref())
                    .map_err(|error| external_failure_of(metric, target, error))?;
                metrics_api::external_request(namespace, &metric.metric.name, &series)
                    .map_err(|error| self.unreadable(namespace, &error))
            }
        }
    }

    /// The failure of a request for the metric.
    pub(super) fn unreadable(self, namespace: &str, error: &str) -> MetricFailure {
        let api = match self {
            Self::Resource(..) | Self::ContainerResource(..) => "resource",
            Self::Pods(..) | Self::Object(..) => "custom",
            Self::External(..) => "external",
        };
        self.failure(
            self.unobtainable(namespace, &format!("unable to fetch metrics from {api} metrics API: {error}")),
        )
    }

    /// The text of an error about the response.
    fn unobtainable(self, namespace: &str, error: &str) -> String {
        match self {
            Self::Resource(name, _) => format!("unable to get metrics for resource {name}: {error}"),
            Self::ContainerResource(metric, _) => {
                format!("unable to get metrics for resource {}: {error}", metric.name)
            }
            Self::Pods(metric, _) => format!("unable to get metric {}: {error}", metric.metric.name),
            Self::Object(metric, _) => {
                let object = &metric.described_object;
                let name = &metric.metric.name;
                format!("unable to get metric {name} on {} {namespace}/{}: {error}", object.kind, object.name)
            }
            Self::External(metric, _) => {
                let name = &metric.metric.name;
                let selector = go_text(metric.metric.selector.as_ref());
                format!("unable to get external metric {namespace}/{name}/{selector}: {error}")
            }
        }
    }

    fn failure(self, error: String) -> MetricFailure {
        match self {
            Self::Resource(name, usage) => resource_failure(name, None, usage.prefixed(name, &error)),
            Self::ContainerResource(metric, usage) => {
                resource_failure(&metric.name, Some(&metric.container), usage.prefixed(&metric.name, &error))
            }
            Self::Pods(..) => pods_failure(error),
            Self::Object(_, Target::Value(_)) => object_failure(error),
            Self::Object(metric, Target::PerPod(_)) => {
                let prefixed = format!("failed to get {} object metric: {error}", metric.metric.name);
                MetricFailure { error: object_failure(prefixed).error, ..object_failure(error) }
            }
            Self::External(metric, target) => external_failure_of(metric, target, error),
        }
    }

    /// The proposal that follows from the response.
    pub(super) fn propose(
        self,
        response: &str,
        pods: &Pods<'_>,
        circumstances: &Circumstances<'_>,
    ) -> Result<Proposal, MetricFailure> {
        let Circumstances { namespace, spec_replicas, status_replicas, tolerances } = *circumstances;
        let invalid = |error: String| self.failure(self.unobtainable(namespace, &error));
        let failed = |error: String| self.failure(error);
        let for_usage = |resource: &str, container: &str, usage| {
            let samples =
                metrics_api::resource_samples(response, namespace, resource, container).map_err(invalid)?;
            match usage {
                Usage::Average(target) => {
                    pods.for_average(spec_replicas, target, tolerances, samples, resource).map_err(failed)
                }
                Usage::Utilization(target) => {
                    let requested = Requested { resource, container };
                    pods.for_utilization(spec_replicas, target, tolerances, samples, requested)
                        .map_err(failed)
                }
            }
        };
        let for_target = |target, usage| match target {
            Target::Value(target) => pods.for_value(spec_replicas, target, tolerances, usage).map_err(failed),
            Target::PerPod(target) => Ok(for_value_per_pod(status_replicas, target, tolerances, usage)),
        };
        let calculated = match self {
            Self::Resource(name, usage) => for_usage(name, "", usage)?,
            Self::ContainerResource(metric, usage) => for_usage(&metric.name, &metric.container, usage)?,
            Self::Pods(_, target) => {
                let samples = metrics_api::pods_samples(response, namespace).map_err(invalid)?;
                pods.for_average(spec_replicas, target, tolerances, samples, "").map_err(failed)?
            }
            Self::Object(_, target) => {
                for_target(target, metrics_api::object_value(response).map_err(invalid)?)?
            }
            Self::External(_, target) => {
                let values = metrics_api::external_values(response).map_err(invalid)?;
                for_target(target, target.sum(&values).map_err(invalid)?)?
            }
        };
        Ok(Proposal { replicas: calculated.replicas, name: self.name(), status: self.status(calculated) })
    }

    /// The name of the metric in messages.
    fn name(self) -> String {
        let external = |metric: &keleustes_objects::MetricIdentifier| {
            format!("external metric {}({})", metric.name, go_text(metric.selector.as_ref()))
        };
        match self {
            Self::Resource(name, Usage::Utilization(_)) => {
                format!("{name} resource utilization (percentage of request)")
            }
            Self::ContainerResource(metric, Usage::Utilization(_)) => {
                format!("{} container resource utilization (percentage of request)", metric.name)
            }
            Self::Resource(name, Usage::Average(_)) => format!("{name} resource"),
            Self::ContainerResource(metric, Usage::Average(_)) => format!("{} resource", metric.name),
            Self::Pods(metric, _) => format!("pods metric {}", metric.metric.name),
            Self::Object(metric, Target::Value(_)) => {
                format!("{} metric {}", metric.described_object.kind, metric.metric.name)
            }
            Self::Object(metric, Target::PerPod(_)) => external(&metric.metric),
            Self::External(metric, _) => external(&metric.metric),
        }
    }

    fn status(self, calculated: Calculated) -> MetricStatus {
        let Calculated { usage, utilization, .. } = calculated;
        let average = |text: String| MetricValueStatus {
            average_value: Some(text.into()),
            average_utilization: utilization,
            ..MetricValueStatus::default()
        };
        let of_resource = |name: &str| average(if name == "memory" { binary(usage) } else { decimal(usage) });
        let of_target = |target| match target {
            Target::Value(_) => {
                MetricValueStatus { value: Some(decimal(usage).into()), ..MetricValueStatus::default() }
            }
            Target::PerPod(_) => average(decimal(usage)),
        };
        let typed = |r#type: &str| MetricStatus { r#type: r#type.into(), ..MetricStatus::default() };
        let current = |current| CurrentMetric { current, ..CurrentMetric::default() };
        match self {
            Self::Resource(name, _) => {
                let metric = CurrentMetric { name: Some(name.clone()), ..current(of_resource(name)) };
                MetricStatus { resource: Some(metric), ..typed("Resource") }
            }
            Self::ContainerResource(metric, _) => {
                let metric = CurrentMetric {
                    name: Some(metric.name.clone()),
                    container: Some(metric.container.clone()),
                    ..current(of_resource(&metric.name))
                };
                MetricStatus { container_resource: Some(metric), ..typed("ContainerResource") }
            }
            Self::Pods(metric, _) => {
                let metric =
                    CurrentMetric { metric: Some(metric.metric.clone()), ..current(average(decimal(usage))) };
                MetricStatus { pods: Some(metric), ..typed("Pods") }
            }
            Self::Object(metric, target) => {
                let metric = CurrentMetric {
                    metric: Some(metric.metric.clone()),
                    described_object: Some(metric.described_object.clone()),
                    ..current(of_target(target))
                };
                MetricStatus { object: Some(metric), ..typed("Object") }
            }
            Self::External(metric, target) => {
                let metric =
                    CurrentMetric { metric: Some(metric.metric.clone()), ..current(of_target(target)) };
                MetricStatus { external: Some(metric), ..typed("External") }
            }
        }
    }
}

impl Usage {
    fn of(target: &MetricTarget) -> Option<Self> {
        let average = target.average_value.map(Quantity::milli).map(Self::Average);
        average.or_else(|| target.average_utilization.map(Self::Utilization))
    }

    fn prefixed(self, resource: &str, error: &str) -> String {
        let what = match self {
            Self::Average(_) => "usage",
            Self::Utilization(_) => "utilization",
        };
        format!("failed to get {resource} {what}: {error}")
    }
}

impl Target {
    /// The sum of the series of an external metric.
    ///
    /// # Errors
    /// If no number of pods follows from it: it is beyond all numbers, or negative although it is to be divided among pods. The
    /// original takes both for the highest number, and fills the cluster.
    fn sum(self, values: &[i64]) -> Result<i64, String> {
        let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
        let is_possible = |sum: &i64| *sum >= 0 || matches!(self, Self::Value(_));
        i64::try_from(sum).ok().filter(is_possible).ok_or_else(|| {
            "the metrics API reports values with an impossible sum, negative or beyond 9.2 * 10^15".to_owned()
        })
    }
}

fn go_text(selector: Option<&LabelSelector>) -> String {
    selector.map_or("nil".to_owned(), LabelSelector::go_text)
}

fn resource_failure(name: &str, container: Option<&str>, message: String) -> MetricFailure {
    let (reason, what) = match container {
        None => ("FailedGetResourceMetric", format!("{name} resource")),
        Some(container) => ("FailedGetContainerResourceMetric", format!("{container} container")),
    };
    MetricFailure {
        reason,
        error: format!("failed to get {what} metric value: {message}"),
        message,
        is_spec: false,
    }
}

fn pods_failure(message: String) -> MetricFailure {
    let error = format!("failed to get pods metric value: {message}");
    MetricFailure { reason: "FailedGetPodsMetric", error, message, is_spec: false }
}

fn object_failure(message: String) -> MetricFailure {
    let error = format!("failed to get object metric value: {message}");
    MetricFailure { reason: "FailedGetObjectMetric", error, message, is_spec: false }
}

fn external_failure(metric: &NamedMetric, message: String) -> MetricFailure {
    let error = format!("failed to get {} external metric value: {message}", metric.metric.name);
    MetricFailure { reason: "FailedGetExternalMetric", error, message, is_spec: false }
}

fn external_failure_of(metric: &NamedMetric, target: Target, message: String) -> MetricFailure {
    let name = &metric.metric.name;
    let prefixed = match target {
        Target::PerPod(_) => format!("failed to get {name} external metric: {message}"),
        Target::Value(_) => format!("failed to get external metric {name}: {message}"),
    };
    MetricFailure { message, ..external_failure(metric, prefixed) }
}
