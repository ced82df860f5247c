//! Kinds of the metrics APIs, which real clusters have from metrics-server and adapters behind the aggregation layer.

use super::super::resources::Resource;

/// The group of the usage of pods and nodes.
pub(crate) const RESOURCE_METRICS: &str = "metrics.k8s.io";
/// The group of metrics that describe no object of the cluster.
pub(crate) const EXTERNAL_METRICS: &str = "external.metrics.k8s.io";

const READ: Option<&[&str]> = Some(&["get", "list"]);

pub(super) const KINDS: &[Resource] = &[
    Resource {
        namespaced: false,
        only_verbs: READ,
        ..Resource::new(RESOURCE_METRICS, "v1beta1", "nodes", "", "NodeMetrics", "NodeMetricsList")
    },
    Resource {
        only_verbs: READ,
        ..Resource::new(RESOURCE_METRICS, "v1beta1", "pods", "", "PodMetrics", "PodMetricsList")
    },
    // Stands for every metric: their names come from stored objects.
    Resource {
        only_verbs: Some(&["get"]),
        ..Resource::new(
            EXTERNAL_METRICS,
            "v1beta1",
            "externalmetrics",
            "",
            "ExternalMetricValueList",
            "ExternalMetricValueList",
        )
    },
];
