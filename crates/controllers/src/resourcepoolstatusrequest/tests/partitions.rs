//! Partitions, their types, costs and the counters that are left.

use super::*;

/// A slice of pool `p` that declares `d/type` and shares 10 units of counter `mem` of set `set`.
fn partitioned(devices: Value) -> Value {
    let mut slice = slice("s", "p", devices);
    slice["spec"]["partitionTypeAttribute"] = json!("d/type");
    slice["spec"]["sharedCounters"] = json!([{"name": "set", "counters": {"mem": {"value": "10"}}}]);
    slice
}

/// A partition of this type that takes so much memory.
fn partition(name: &str, kind: &str, memory: &str) -> Value {
    json!({"name": name, "attributes": {"type": {"string": kind}},
        "consumesCounters": [{"counterSet": "set", "counters": {"mem": {"value": memory}}}]})
}

fn summary(devices: Value) -> Value {
    asking(json!({})).with_slices([partitioned(devices)]).pool()["partitionSummary"].clone()
}

fn error(slices: impl IntoIterator<Item = Value>) -> Value {
    let pool = asking(json!({})).with_slices(slices).pool();
    assert_eq!(pool["partitionSummary"], Value::Null, "no summary beside an error");
    assert!(pool["totalDevices"].is_number(), "the counts stay");
    pool["validationError"].clone()
}

fn entry(attribute: &str, kind: &str, total: u32, allocatable: u32) -> Value {
    json!({"attribute": attribute, "type": kind, "total": total, "allocatable": allocatable})
}

/// Proves RPSR-27, RPSR-28, RPSR-29.
#[test]
fn groups_are_fitted_into_the_counters_independently() {
    let devices = || {
        json!([partition("l1", "large", "6"), partition("l2", "large", "6"), partition("s1", "small", "3"),
            partition("s2", "small", "3"), partition("s3", "small", "3"), partition("s4", "small", "3"),
            {"name": "no-counters", "attributes": {"type": {"string": "large"}}}])
    };
    assert_eq!(summary(devices()), json!([entry("d/type", "large", 2, 1), entry("d/type", "small", 4, 3)]));
    let used = |results: &[(&str, Value)]| {
        let fixture = asking(json!({})).with_slices([partitioned(devices())]);
        let fixture = fixture.with::<PoolClaim>(claim("a", "c", results));
        fixture.with::<PoolClaim>(claim("b", "c2", results)).pool()["partitionSummary"].clone()
    };
    // A device that two claims use is deducted once; one with admin access not at all.
    let expected = json!([entry("d/type", "large", 2, 1), entry("d/type", "small", 4, 2)]);
    assert_eq!(used(&[("s1", json!({})), ("l1", json!({"adminAccess": true}))]), expected);
    let all = ["s1", "s2", "s3", "s4"].map(|name| (name, json!({})));
    assert_eq!(
        used(&all),
        json!([entry("d/type", "large", 2, 0), entry("d/type", "small", 4, 0)]),
        "negative"
    );
    // A missing set or counter does not fit.
    let mut missing = partition("m", "m", "1");
    missing["consumesCounters"][0]["counterSet"] = json!("other");
    let mut counter = partition("n", "n", "1");
    counter["consumesCounters"][0]["counters"] = json!({"cores": {"value": "1"}});
    let expected = json!([entry("d/type", "m", 1, 0), entry("d/type", "n", 1, 0)]);
    assert_eq!(summary(json!([counter, missing])), expected);
    assert_eq!(summary(json!([{"name": "x"}])), Value::Null, "no partition");
    let plain = asking(json!({})).with_slices([slice("s", "p", json!([partition("a", "t", "1")]))]).pool();
    assert_eq!((&plain["partitionSummary"], &plain["validationError"]), (&Value::Null, &Value::Null));
}

/// Proves RPSR-68.
#[test]
fn tighter_of_two_counter_sets_limits() {
    let device = |name: &str| {
        json!({"name": name, "attributes": {"type": {"string": "t"}}, "consumesCounters": [
            {"counterSet": "set", "counters": {"mem": {"value": "2"}}},
            {"counterSet": "cores", "counters": {"n": {"value": "4"}}}]})
    };
    let mut slice = partitioned(json!([device("a"), device("b"), device("c"), device("d")]));
    let cores = json!({"name": "cores", "counters": {"n": {"value": "9"}}});
    slice["spec"]["sharedCounters"].as_array_mut().unwrap().push(cores);
    let pool = asking(json!({})).with_slices([slice]).pool();
    assert_eq!(pool["partitionSummary"], json!([entry("d/type", "t", 4, 2)]));
}

/// Proves RPSR-25, RPSR-72.
#[test]
fn slices_declare_the_attribute_and_the_request_only_stands_in() {
    let of_two = |mut slice: Value, name: &str| {
        slice["metadata"]["name"] = json!(name);
        slice["spec"]["pool"]["resourceSliceCount"] = json!(2);
        slice
    };
    let silent = || {
        let mut slice = slice("s", "p", json!([partition("b", "silent", "1")]));
        slice["spec"]["sharedCounters"] = json!([{"name": "set", "counters": {"mem": {"value": "5"}}}]);
        slice
    };
    let declaring = of_two(partitioned(json!([partition("a", "t", "1")])), "s1");
    let mut other = of_two(silent(), "s2");
    other["spec"]["partitionTypeAttribute"] = json!("d/other");
    other["spec"]["devices"][0]["attributes"] = json!({"d/other": {"string": "u"}});
    let asks = || asking(json!({"defaultPartitionTypeAttribute": "d/type"}));
    let pool = asks().with_slices([declaring.clone(), other]).pool();
    assert_eq!(pool["partitionSummary"], json!([entry("d/other", "u", 1, 1), entry("d/type", "t", 1, 1)]));
    let pool = asks().with_slices([declaring, of_two(silent(), "s2")]).pool();
    assert_eq!(pool["partitionSummary"], json!([entry("d/type", "t", 1, 1)]), "the other slice is left out");
    assert_eq!(pool["validationError"], Value::Null);
    let pool = asks().with_slices([silent()]).pool();
    assert_eq!(pool["partitionSummary"], json!([entry("d/type", "silent", 1, 1)]));
    let pool = asking(json!({})).with_slices([silent()]).pool();
    assert_eq!(pool["partitionSummary"], Value::Null);
}

/// Proves RPSR-26, RPSR-31, RPSR-67.
#[test]
fn qualified_attribute_decides_and_only_strings_count() {
    let with = |attributes: Value| {
        let mut device = partition("x", "", "1");
        device["attributes"] = attributes;
        json!([device])
    };
    let kind = |attributes: Value| summary(with(attributes))[0]["type"].clone();
    assert_eq!(kind(json!({"type": {"string": "bare"}})), "bare");
    assert_eq!(kind(json!({"d/type": {"string": "full"}})), "full");
    assert_eq!(kind(json!({"type": {"string": "bare"}, "d/type": {"string": "full"}})), "full");
    let missing =
        r#"PartitionTypeMissing: device "x" in pool d/p does not carry partition type attribute "d/type""#;
    for attributes in [
        json!({}),
        json!({"d/type": {"int": 3}, "type": {"string": "bare"}}),
        json!({"type": {"bool": true}}),
        json!({"e/type": {"string": "other domain"}}),
    ] {
        assert_eq!(error([partitioned(with(attributes.clone()))]), missing, "{attributes}");
    }
    let mut elsewhere = partitioned(with(json!({"type": {"string": "bare"}})));
    elsewhere["spec"]["partitionTypeAttribute"] = json!("e/type");
    assert!(error([elsewhere]).as_str().unwrap().ends_with(r#"partition type attribute "e/type""#));
}

/// Proves RPSR-7, RPSR-30, RPSR-71.
#[test]
fn attribute_without_counters_is_a_final_error() {
    let mut declared = slice("s", "p", devices(&["x"]));
    declared["spec"]["partitionTypeAttribute"] = json!("d/type");
    let expected =
        "PartitionTypeMissing: pool d/p declares partitionTypeAttribute but publishes no sharedCounters";
    assert_eq!(error([declared.clone()]), expected);
    let status = asking(json!({})).with_slices([declared]).status();
    let condition = &status["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Complete"), &json!("True")));
    assert_eq!(condition["message"], "Calculated status for 1 pools (1 incomplete)");
    let by_request = asking(json!({"defaultPartitionTypeAttribute": "d/type"}));
    let slices = [slice("s", "p", devices(&["x"])), slice("e", "q", devices(&[]))];
    let pools = by_request.with_slices(slices).status()["pools"].clone();
    assert_eq!(pools[0]["validationError"], expected);
    assert_eq!(pools[1]["validationError"], Value::Null, "a pool without devices");
}

/// Proves RPSR-32.
#[test]
fn costs_within_a_group_are_compared_as_canonical_text() {
    let costs = |one: &str, two: &str| {
        let mut slice = partitioned(json!([partition("a", "t", one), partition("b", "t", two)]));
        slice["spec"]["sharedCounters"] = json!([{"name": "set", "counters": {"mem": {"value": "10Gi"}}}]);
        asking(json!({})).with_slices([slice]).pool()["validationError"].clone()
    };
    for (one, two) in [("1024Mi", "1Gi"), ("1000m", "1")] {
        assert_eq!(costs(one, two), Value::Null, "{one} {two}");
    }
    let differ =
        r#"PartitionCostMismatch: devices of partition type "t" in pool d/p consume different counters"#;
    assert_eq!(costs("1Ki", "1024"), differ);
    assert_eq!(costs("1", "2"), differ);
}

/// Proves RPSR-33.
#[test]
fn too_many_groups_are_an_error() {
    let groups = |count: usize| -> Value {
        (0..count).map(|index| partition(&format!("x{index}"), &format!("t{index}"), "1")).collect()
    };
    assert_eq!(summary(groups(32)).as_array().map(Vec::len), Some(32));
    let expected = "PartitionSummaryOverCap: pool d/p has 33 partition types, exceeding the maximum of 32";
    assert_eq!(error([partitioned(groups(33))]), expected);
}

/// Proves RPSR-73.
#[test]
fn counters_of_one_set_in_several_slices_are_merged() {
    let share = |name: &str, counters: Value, devices: Value| {
        let mut slice = partitioned(devices);
        slice["metadata"]["name"] = json!(name);
        slice["spec"]["pool"]["resourceSliceCount"] = json!(2);
        slice["spec"]["sharedCounters"] = json!([{"name": "set", "counters": counters}]);
        slice
    };
    let mut device = partition("a", "t", "1");
    device["consumesCounters"][0]["counters"]["cores"] = json!({"value": "1"});
    let slices = |second: Value| {
        [share("s1", json!({"mem": {"value": "1"}}), json!([device])), share("s2", second, json!([]))]
    };
    let fits = |second: Value| {
        asking(json!({})).with_slices(slices(second)).pool()["partitionSummary"][0]["allocatable"].clone()
    };
    assert_eq!(fits(json!({"cores": {"value": "1"}})), 1);
    assert_eq!(fits(json!({"other": {"value": "1"}})), 0);
    // Of a counter that occurs twice one value is taken; the sum would fit.
    let half = [
        share("s1", json!({"mem": {"value": "2"}}), json!([partition("a", "t", "3")])),
        share("s2", json!({"mem": {"value": "2"}}), json!([])),
    ];
    assert_eq!(asking(json!({})).with_slices(half).pool()["partitionSummary"][0]["allocatable"], 0);
}
