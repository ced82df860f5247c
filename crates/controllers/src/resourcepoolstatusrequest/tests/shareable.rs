//! Devices that several claims may share.

use super::*;

fn shareable(name: &str, capacity: Value) -> Value {
    json!({"name": name, "allowMultipleAllocations": true, "capacity": capacity})
}

fn summary(fixture: Fixture) -> Value {
    fixture.pool()["shareableSummary"].clone()
}

/// Proves RPSR-35, RPSR-36.
#[test]
fn capacities_are_summed_and_reduced_by_what_claims_consume() {
    let devices = json!([shareable("a", json!({"mem": {"value": "1Gi"}, "cores": {"value": "4"}})),
        shareable("b", json!({"mem": {"value": "512Mi"}})),
        {"name": "own", "capacity": {"mem": {"value": "8Gi"}, "disk": {"value": "1"}}}]);
    let fixture = || asking(json!({})).with_slices([slice("s", "p", devices.clone())]);
    let share = |memory: &str| json!({"consumedCapacity": {"mem": memory, "unlisted": "7"}});
    let used = fixture()
        .with::<PoolClaim>(claim("a", "c1", &[("a", share("256Mi")), ("own", share("256Mi"))]))
        .with::<PoolClaim>(claim("b", "c2", &[("a", share("128Mi"))]))
        .with::<PoolClaim>(claim(
            "b",
            "c3",
            &[("b", json!({"adminAccess": true, "consumedCapacity": {"mem": "1Gi"}}))],
        ))
        .with::<PoolClaim>(claim(
            "b",
            "c4",
            &[("b", json!({"pool": "q", "consumedCapacity": {"mem": "1Gi"}}))],
        ));
    let expected = json!({"fullyAvailableDevices": 1, "partiallyAvailableDevices": 1, "capacity": [
        {"name": "cores", "total": "4", "consumed": "0", "available": "4"},
        {"name": "mem", "total": "1536Mi", "consumed": "640Mi", "available": "896Mi"}]});
    assert_eq!(summary(used), expected);
    let exceeded = fixture().with::<PoolClaim>(claim("a", "c", &[("a", share("9Gi"))]));
    assert_eq!(summary(exceeded)["capacity"][1]["available"], "0");
    let none = asking(json!({})).with_slices([slice("s", "p", json!([{"name": "own", "capacity": {}}]))]);
    assert_eq!(summary(none), Value::Null);
}

/// Proves RPSR-37, RPSR-38.
#[test]
fn first_error_is_reported_and_a_valid_summary_stays() {
    let capacities = |count: usize| -> Value {
        (0..count)
            .map(|index| (format!("c{index:02}"), json!({"value": "1"})))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let pool = |count: usize, attribute: Option<&str>| {
        let mut slice = slice("s", "p", json!([shareable("a", capacities(count))]));
        slice["spec"]["partitionTypeAttribute"] = json!(attribute);
        asking(json!({})).with_slices([slice]).pool()
    };
    assert_eq!(pool(32, None)["shareableSummary"]["capacity"].as_array().map(Vec::len), Some(32));
    let over = pool(33, None);
    let expected =
        "ShareableSummaryOverCap: pool d/p has 33 shareable capacity keys, exceeding the maximum of 32";
    assert_eq!((&over["validationError"], &over["shareableSummary"]), (&json!(expected), &Value::Null));
    let both = pool(33, Some("d/type"));
    assert!(both["validationError"].as_str().unwrap().starts_with("PartitionTypeMissing:"));
    let partitions = pool(1, Some("d/type"));
    assert!(partitions["validationError"].as_str().unwrap().starts_with("PartitionTypeMissing:"));
    assert_eq!(partitions["shareableSummary"]["fullyAvailableDevices"], 1);
    assert_eq!(partitions["totalDevices"], 1);
}

/// A summary of partitions is dropped if the shareable devices have an error.
#[test]
fn error_of_shareable_devices_drops_the_partitions() {
    let capacities: serde_json::Map<_, _> =
        (0..33).map(|index| (format!("c{index}"), json!({"value": "1"}))).collect();
    let partition = json!({"name": "x", "attributes": {"type": {"string": "t"}},
        "consumesCounters": [{"counterSet": "set", "counters": {"mem": {"value": "1"}}}]});
    let mut slice = slice("s", "p", json!([partition, shareable("a", Value::Object(capacities))]));
    slice["spec"]["partitionTypeAttribute"] = json!("d/type");
    slice["spec"]["sharedCounters"] = json!([{"name": "set", "counters": {"mem": {"value": "10"}}}]);
    let pool = asking(json!({})).with_slices([slice]).pool();
    assert_eq!(pool["partitionSummary"], Value::Null);
    assert!(pool["validationError"].as_str().unwrap().starts_with("ShareableSummaryOverCap:"));
}
