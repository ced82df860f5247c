//! HorizontalPodAutoscalers.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::full_meta::spec_status_kind;
use crate::meta::null_is_default;
use crate::protobuf::FullMessage;
use crate::{ArcStr, Condition, InternedStr, Kind, LabelSelector, Quantity, Resource, Time};

spec_status_kind! {
    /// A HorizontalPodAutoscaler.
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
    Resource::built_in("autoscaling", "HorizontalPodAutoscaler"),
    WHOLE
}

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> =
    LazyLock::new(|| FullMessage::of(&HorizontalPodAutoscaler::RESOURCE, ""));

/// The spec of a HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HorizontalPodAutoscalerSpec {
    /// The object that is scaled.
    pub scale_target_ref: CrossVersionObjectReference,
    /// The minimum number of replicas; 1 if unset.
    pub min_replicas: Option<i32>,
    /// The maximum number of replicas.
    pub max_replicas: i32,
    /// What the number of replicas is computed from.
    #[serde(deserialize_with = "null_is_default")]
    pub metrics: Vec<MetricSpec>,
    /// Limits and tolerances of scaling in each direction.
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CrossVersionObjectReference {
    /// Kind.
    pub kind: InternedStr,
    /// Name.
    pub name: ArcStr,
    /// Group and version.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: InternedStr,
}

/// One metric of the spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSpec {
    /// The source: `Object`, `Pods`, `Resource`, `ContainerResource` or `External`.
    pub r#type: InternedStr,
    /// A metric of one object.
    pub object: Option<ObjectMetric>,
    /// A metric of every pod.
    pub pods: Option<NamedMetric>,
    /// A resource of all containers of every pod.
    pub resource: Option<ResourceMetric>,
    /// A resource of one container of every pod.
    pub container_resource: Option<ContainerResourceMetric>,
    /// A metric from outside the cluster.
    pub external: Option<NamedMetric>,
}

/// A metric of one object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMetric {
    /// The object.
    pub described_object: CrossVersionObjectReference,
    /// The metric.
    pub metric: MetricIdentifier,
    /// The target.
    pub target: MetricTarget,
}

/// A metric of pods, or an external one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedMetric {
    /// The metric.
    pub metric: MetricIdentifier,
    /// The target.
    pub target: MetricTarget,
}

/// A resource.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceMetric {
    /// The name of the resource.
    pub name: InternedStr,
    /// The target.
    pub target: MetricTarget,
}

/// A resource of one container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResourceMetric {
    /// The name of the resource.
    pub name: InternedStr,
    /// The name of the container.
    pub container: InternedStr,
    /// The target.
    pub target: MetricTarget,
}

/// The name of a metric and the selector of its series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricIdentifier {
    /// Name.
    pub name: ArcStr,
    /// Selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The target of a metric.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricTarget {
    /// `Utilization`, `Value` or `AverageValue`.
    pub r#type: InternedStr,
    /// The value.
    pub value: Option<Quantity>,
    /// The value per pod.
    pub average_value: Option<Quantity>,
    /// The percentage of the requests.
    pub average_utilization: Option<i32>,
}

/// Limits and tolerances of scaling.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HorizontalPodAutoscalerBehavior {
    /// Of scaling up.
    pub scale_up: Option<ScalingRules>,
    /// Of scaling down.
    pub scale_down: Option<ScalingRules>,
}

/// Limits and tolerance of scaling in one direction.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingRules {
    /// The window of recommendations that are considered.
    pub stabilization_window_seconds: Option<i32>,
    /// `Max`, `Min` or `Disabled`.
    pub select_policy: Option<InternedStr>,
    /// The policies.
    #[serde(deserialize_with = "null_is_default")]
    pub policies: Vec<ScalingPolicy>,
    /// The tolerance, as the text of a quantity.
    pub tolerance: Option<ArcStr>,
}

/// How much a target may be scaled within a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingPolicy {
    /// `Pods` or `Percent`.
    pub r#type: InternedStr,
    /// The amount.
    pub value: i32,
    /// The period.
    pub period_seconds: i32,
}

/// The status of a HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HorizontalPodAutoscalerStatus {
    /// The generation that the status is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the target was last scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    /// The replicas of the target.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// The replicas that the controller wants.
    #[serde(deserialize_with = "null_is_default")]
    pub desired_replicas: i32,
    /// The last values of the metrics, in the order of the spec. An empty type stands for a metric that failed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub current_metrics: Vec<MetricStatus>,
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The last value of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricStatus {
    /// The source; empty for a metric that failed.
    pub r#type: InternedStr,
    /// A metric of one object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<CurrentMetric>,
    /// A metric of every pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<CurrentMetric>,
    /// A resource of all containers of every pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<CurrentMetric>,
    /// A resource of one container of every pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_resource: Option<CurrentMetric>,
    /// A metric from outside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<CurrentMetric>,
}

/// What was measured; each source sets some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CurrentMetric {
    /// The metric, for objects, pods and external metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricIdentifier>,
    /// The name of the resource, for resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<InternedStr>,
    /// The name of the container, for a resource of one container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<InternedStr>,
    /// The value.
    pub current: MetricValueStatus,
    /// The object, for metrics of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub described_object: Option<CrossVersionObjectReference>,
}

/// A measured value. Quantities are texts; two notations of one value are equal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricValueStatus {
    /// The value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ArcStr>,
    /// The value per pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_value: Option<ArcStr>,
    /// The percentage of the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

impl PartialEq for MetricValueStatus {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |one: &Option<ArcStr>, other: &Option<ArcStr>| {
            let amount = |text: &Option<ArcStr>| text.as_ref().map(|text| Quantity::parse(text));
            one == other || amount(one) == amount(other)
        };
        is_same(&self.value, &other.value)
            && is_same(&self.average_value, &other.average_value)
            && self.average_utilization == other.average_utilization
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_autoscaler_is_decoded_and_its_status_written_back() {
        let status = json!({
            "observedGeneration": 3, "lastScaleTime": "2026-01-01T00:00:00Z", "currentReplicas": 2, "desiredReplicas": 3,
            "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "200m"}}},
                {"type": ""},
                {"type": "Object", "object": {"metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
                    "current": {"value": "10"}, "describedObject": {"kind": "Service", "name": "web", "apiVersion": "v1"}}}],
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "a", "generation": 3},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 0,
                "maxReplicas": 9,
                "metrics": [{"type": "External", "external": {"metric": {"name": "queue"},
                    "target": {"type": "AverageValue", "averageValue": "1500m"}}}],
                "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
                    "tolerance": "50m", "selectPolicy": "Max"}}},
            "status": status,
        }))
        .unwrap();
        let target = &autoscaler.spec.metrics[0].external.as_ref().unwrap().target;
        assert_eq!(target.average_value.map(Quantity::milli), Some(1500));
        assert_eq!(serde_json::to_value(&autoscaler.status).unwrap(), status);
        let bare: HorizontalPodAutoscaler = serde_json::from_value(
            json!({"metadata": {"name": "r"}, "spec": {"metrics": null}, "status": {"conditions": null}}),
        )
        .unwrap();
        assert_eq!(serde_json::to_value(&bare.status).unwrap(), json!({"desiredReplicas": 0}));
    }

    #[test]
    fn quantities_of_a_status_are_compared_by_value() {
        let value =
            |text: &str| MetricValueStatus { value: Some(text.into()), ..MetricValueStatus::default() };
        assert_eq!(value("1"), value("1000m"));
        assert_ne!(value("1"), value("1001m"));
        assert_ne!(value("1"), MetricValueStatus::default());
    }
}
