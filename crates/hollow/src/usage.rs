//! What pods use and what external metrics are: values that annotations and ConfigMaps set, because nothing runs.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::behaviour::annotations;
use crate::curve::Curve;

/// What a pod uses whose annotations say nothing, in nano cores and bytes.
const IDLE: (u64, u64) = (1_000_000, 8 << 20);

/// What a running pod uses, in nano cores and bytes: its own annotations [`annotations::CPU`] and [`annotations::MEMORY`],
/// else its share of the load that its controller's annotations [`annotations::CPU_LOAD`] and [`annotations::MEMORY_LOAD`]
/// divide between `ready` pods. `None` if its node has failed, so that nothing measures it.
#[must_use]
pub fn pod_usage(
    pod: &Value,
    controller: &Value,
    node: &Value,
    ready: u64,
    now: Timestamp,
) -> Option<(u64, u64)> {
    if annotation(node, annotations::FAILED) == Some("true") {
        return None;
    }
    // Milli units, and between how many pods they are divided.
    let milli = |own: &str, shared: &str| {
        let since_start = elapsed(pod["status"]["startTime"].as_str(), now);
        let since_creation = elapsed(controller["metadata"]["creationTimestamp"].as_str(), now);
        let own = value(pod, own, since_start).map(|milli| (milli, 1));
        own.or_else(|| Some((value(controller, shared, since_creation)?, ready)))
            .filter(|(_, shares)| *shares > 0)
    };
    let cpu = milli(annotations::CPU, annotations::CPU_LOAD);
    let cpu = cpu.map(|(milli, shares)| milli.saturating_mul(1_000_000) / shares);
    let memory = milli(annotations::MEMORY, annotations::MEMORY_LOAD);
    let memory = memory.map(|(milli, shares)| milli / 1000 / shares);
    Some((cpu.unwrap_or(IDLE.0), memory.unwrap_or(IDLE.1)))
}

/// The external metrics that a ConfigMap with the annotation [`annotations::EXTERNAL_METRICS`] defines: one for each entry
/// of its data, with the value in milli units.
#[must_use]
pub fn external_metrics(config_map: &Value, now: Timestamp) -> Vec<(String, i64)> {
    let since_creation = elapsed(config_map["metadata"]["creationTimestamp"].as_str(), now);
    let entries = external_entries(config_map);
    entries.filter_map(|(name, text)| Some((name.clone(), Curve::parse(text)?.at(since_creation)))).collect()
}

/// One sentence for each entry of such a ConfigMap that is no value.
#[must_use]
pub fn external_metric_problems(config_map: &Value) -> Vec<String> {
    let invalid = external_entries(config_map).filter(|(_, text)| Curve::parse(text).is_none());
    let problem = |(name, text): (&String, &str)| {
        format!("external metric {name} does not exist: {text:?} is no valid value, see docs/playground.md")
    };
    invalid.map(problem).collect()
}

fn external_entries(config_map: &Value) -> impl Iterator<Item = (&String, &str)> {
    let defines = annotation(config_map, annotations::EXTERNAL_METRICS) == Some("true");
    let data = config_map["data"].as_object().filter(|_| defines && config_map["kind"] == "ConfigMap");
    data.into_iter().flatten().filter_map(|(name, text)| Some((name, text.as_str()?)))
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// The value of an annotation in milli units; a malformed or negative one has no effect.
fn value(object: &Value, name: &str, elapsed: Duration) -> Option<u64> {
    let curve = Curve::parse(annotation(object, name)?).filter(|curve| curve.lowest() >= 0)?;
    u64::try_from(curve.at(elapsed)).ok()
}

fn elapsed(since: Option<&str>, now: Timestamp) -> Duration {
    let since = since.and_then(|text| text.parse::<Timestamp>().ok()).unwrap_or(now);
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
    fn object(annotations: Value) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"annotations": annotations, "creationTimestamp": "2026-01-02T03:03:05Z"},
            "status": {"startTime": "2026-01-02T03:03:35Z"}})
    }

    #[test]
    fn usage_is_that_of_the_pod_or_its_share_of_the_load() {
        let none = Value::Null;
        let usage = |pod: &Value, controller: &Value, ready| pod_usage(pod, controller, &none, ready, now());
        assert_eq!(usage(&none, &none, 1), Some((1_000_000, 8 << 20)), "idle");
        let busy =
            object(json!({"hollow.keleustes.io/cpu": "0s=0,1m=1", "hollow.keleustes.io/memory": "1Gi"}));
        assert_eq!(usage(&busy, &none, 1), Some((500_000_000, 1 << 30)), "half a minute after its start");
        let loaded = object(
            json!({"hollow.keleustes.io/cpu-load": "0s=0,2m=2", "hollow.keleustes.io/memory-load": "6Ki"}),
        );
        assert_eq!(usage(&none, &loaded, 3), Some((333_333_333, 2048)), "a minute after the creation");
        assert_eq!(usage(&none, &loaded, 0), Some((1_000_000, 8 << 20)), "an unready pod has no share");
        assert_eq!(usage(&busy, &loaded, 3), Some((500_000_000, 1 << 30)), "its own annotations count first");
        let negative = object(json!({"hollow.keleustes.io/cpu": "-1"}));
        assert_eq!(usage(&negative, &none, 1), Some((1_000_000, 8 << 20)));
        let failed = object(json!({"hollow.keleustes.io/failed": "true"}));
        assert_eq!(pod_usage(&busy, &none, &failed, 1, now()), None);
    }

    #[test]
    fn annotated_config_maps_define_external_metrics() {
        let mut map = object(json!({"hollow.keleustes.io/external-metrics": "true"}));
        map["data"] = json!({"queue": "0s=0,2m=10", "depth": "-3", "odd": "deep"});
        let wanted = [("depth".to_owned(), -3000), ("queue".to_owned(), 5000)];
        assert_eq!(external_metrics(&map, now()), wanted);
        assert_eq!(external_metric_problems(&map).len(), 1);
        assert!(external_metric_problems(&map)[0].contains("external metric odd"));
        map["metadata"]["annotations"] = json!({});
        assert_eq!(external_metrics(&map, now()), []);
    }
}
