//! User actions about autoscalers: the load, which is an external metric, and the spec.

use keleustes_client::Call;
use keleustes_objects::{HorizontalPodAutoscaler, Key, Kind as _, Resource};
use serde_json::{Value, json};

use crate::user::SimulatedUser;

const AUTOSCALERS: Resource = HorizontalPodAutoscaler::RESOURCE;
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");

/// The load of one replica. All loads are multiples of it, and no autoscaler allows more than eight replicas: so no size
/// but the right one is within the tolerance of ten per cent.
pub(crate) const LOAD_PER_REPLICA: u32 = 10;

/// The name of the ConfigMap that holds the load of a Deployment.
#[must_use]
pub(crate) fn load_name(deployment: &str) -> String {
    format!("load-{deployment}")
}

/// The ConfigMap with a load for so many replicas.
fn load(deployment: &str, replicas: u8) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": load_name(deployment), "labels": {"load": deployment},
            "annotations": {"hollow.keleustes.io/external-metrics": "true"}},
        "data": {"load": (u32::from(replicas) * LOAD_PER_REPLICA).to_string()},
    })
}

/// An autoscaler of the Deployment with this name; each of five specs has other bounds, windows and policies.
#[must_use]
pub(crate) fn autoscaler(name: &str, spec: u8) -> Value {
    let rules = |window: u32, pods: u32, period: u32| {
        let policies = json!([{"type": "Pods", "value": pods, "periodSeconds": period}]);
        json!({"stabilizationWindowSeconds": window, "policies": policies})
    };
    // The lower change of the two counts. The percentages have no rounding errors as floating-point numbers.
    let least_of = |percent: u32, pods: u32| {
        let policies = json!([{"type": "Percent", "value": percent, "periodSeconds": 30},
            {"type": "Pods", "value": pods, "periodSeconds": 60}]);
        json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": policies})
    };
    let (min, max, behavior) = match spec % 5 {
        0 => (1, 4, json!({"scaleDown": {"stabilizationWindowSeconds": 0}})),
        1 => (2, 8, json!({"scaleUp": rules(0, 1, 30), "scaleDown": rules(0, 1, 30)})),
        2 => (1, 8, json!({"scaleUp": rules(30, 2, 60), "scaleDown": rules(60, 2, 60)})),
        3 => (3, 5, Value::Null),
        _ => (1, 8, json!({"scaleUp": least_of(50, 3), "scaleDown": least_of(25, 2)})),
    };
    let metric = json!({"name": "load", "selector": {"matchLabels": {"load": name}}});
    let target = json!({"type": "AverageValue", "averageValue": LOAD_PER_REPLICA.to_string()});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": min, "maxReplicas": max, "behavior": behavior,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
        },
    })
}

impl SimulatedUser {
    /// Creates or changes the autoscaler of a Deployment; deletes it if no spec is given.
    pub(crate) async fn set_autoscaler(&self, namespace: &str, name: &str, spec: Option<u8>) {
        let key = Key::namespaced(namespace, name);
        let Some(spec) = spec else { return self.delete(&AUTOSCALERS, &key).await };
        let body = autoscaler(name, spec);
        self.create(&AUTOSCALERS, namespace, &body).await;
        // Replaced as a whole: a merge would keep the rules of another behavior.
        let mut stored = self.send(&Call::get(&AUTOSCALERS, &key)).await;
        if !stored.is_null() {
            stored["spec"] = body["spec"].clone();
            self.send(&Call::replace(&AUTOSCALERS, &key, &stored)).await;
        }
    }

    /// Sets the load of a Deployment.
    pub(crate) async fn set_load(&self, namespace: &str, deployment: &str, replicas: u8) {
        let body = load(deployment, replicas);
        self.create(&CONFIG_MAPS, namespace, &body).await;
        self.merge(&CONFIG_MAPS, &Key::namespaced(namespace, load_name(deployment)), body).await;
    }
}
