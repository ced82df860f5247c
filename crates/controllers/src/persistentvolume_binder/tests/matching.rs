//! The choice of a volume.

use super::*;
use crate::persistentvolume_binder::matching::{find_best_match, why_unsatisfied};

fn choose(claim: &Value, volumes: &[Value], is_delayed: bool) -> Result<Option<String>, String> {
    let claim: PersistentVolumeClaim = serde_json::from_value(claim.clone()).unwrap();
    let volumes: Vec<Arc<PersistentVolume>> =
        volumes.iter().map(|volume| Arc::new(serde_json::from_value(volume.clone()).unwrap())).collect();
    let found = find_best_match(&claim, &volumes, is_delayed).map_err(|error| error.to_string())?;
    Ok(found.map(|volume| volume.meta.key.name.to_string()))
}

#[track_caller]
fn check(claim: &Value, volumes: &[Value], expected: Option<&str>) {
    assert_eq!(choose(claim, volumes, false), Ok(expected.map(str::to_owned)));
}

fn modes(name: &str, modes: &[&str], size: &str) -> Value {
    with(volume(name), &[("/spec/accessModes", json!(modes)), ("/spec/capacity/storage", json!(size))])
}

/// Proves PVB-19.
#[test]
fn groups_are_tried_from_fewest_access_modes_to_most() {
    let many = modes("many", &["ReadWriteOnce", "ReadOnlyMany"], "1Gi");
    let few = modes("few", &["ReadWriteOnce", "ReadWriteOnce"], "9Gi");
    check(&claim(), &[many.clone(), few.clone()], Some("few"));
    let both = with(claim(), &[("/spec/accessModes", json!(["ReadOnlyMany", "ReadWriteOnce"]))]);
    check(&both, &[few.clone(), many.clone()], Some("many"));
    check(&with(claim(), &[("/spec/accessModes", json!(["ReadWriteMany"]))]), &[few, many.clone()], None);
    let none = modes("none", &[], "1Gi");
    check(&claim(), std::slice::from_ref(&none), None);
    check(&with(claim(), &[("/spec/accessModes", json!([]))]), &[many, none], Some("none"));
}

/// Proves PVB-20.
#[test]
fn reserved_volume_of_a_later_group_loses_to_a_match_of_an_earlier_one() {
    let reserved = with(
        modes("reserved", &["ReadWriteOnce", "ReadOnlyMany"], "1Gi"),
        &[("/spec/claimRef", json!({"namespace": "a", "name": "data"}))],
    );
    check(&claim(), &[reserved.clone(), volume("plain")], Some("plain"));
    check(&claim(), &[reserved], Some("reserved"));
}

/// Proves PVB-162.
#[test]
fn unknown_values_match_nothing_new() {
    let odd = modes("odd", &["ReadWriteOnce", "WriteNever"], "1Gi");
    check(&claim(), &[odd.clone()], Some("odd"));
    check(&with(claim(), &[("/spec/accessModes", json!(["WriteNever"]))]), &[odd], None);
    check(&claim(), &[with(volume("pv"), &[("/status/phase", json!("Ready"))])], None);
}

/// Proves PVB-21, PVB-154.
#[test]
fn unsuitable_volume_is_skipped_even_if_it_is_reserved() {
    let skipped = |changes: &[(&str, Value)]| {
        let candidate = with(volume("pv"), changes);
        check(&claim(), &[candidate.clone()], None);
        let reserved = with(candidate, &[("/spec/claimRef", bound_ref(""))]);
        check(&claim(), &[reserved, volume("other")], Some("other"));
    };
    skipped(&[("/spec/capacity/storage", json!("1Mi"))]);
    skipped(&[("/spec/capacity", Value::Null)]);
    skipped(&[("/spec/volumeMode", json!("Block"))]);
    skipped(&[("/spec/volumeAttributesClassName", json!("gold"))]);
    skipped(&[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))]);
    skipped(&[("/spec/accessModes", json!(["ReadOnlyMany"]))]);
    check(&claim(), &[with(volume("pv"), &[("/spec/claimRef", bound_ref("c-2"))])], None);
    let equal = [
        ("/spec/capacity/storage", json!("1024Mi")),
        ("/spec/volumeMode", json!("Filesystem")),
        ("/spec/volumeAttributesClassName", json!("")),
    ];
    check(&claim(), &[with(volume("pv"), &equal)], Some("pv"));
    let no_request = with(claim(), &[("/spec/resources", Value::Null)]);
    check(&no_request, &[with(volume("pv"), &[("/spec/capacity", Value::Null)])], Some("pv"));
}

/// Proves PVB-22, PVB-144.
#[test]
fn claim_ref_is_for_a_claim_of_the_same_namespace_name_and_uid() {
    let reference = |namespace: &str, name: &str, uid: &str| {
        let claim_ref = json!({"namespace": namespace, "name": name, "uid": uid});
        [with(volume("pv"), &[("/spec/claimRef", claim_ref), ("/status/phase", json!("Released"))])]
    };
    check(&claim(), &reference("a", "data", "c-1"), Some("pv"));
    check(&claim(), &reference("a", "data", ""), Some("pv"));
    check(&claim(), &reference("a", "data", "c-0"), None);
    check(&claim(), &reference("b", "data", ""), None);
    check(&claim(), &reference("a", "other", ""), None);
}

/// Proves PVB-23, PVB-24, PVB-153.
#[test]
fn reserved_volume_is_taken_at_once_and_delayed_binding_takes_no_other() {
    for phase in ["Released", "Failed", "Available"] {
        let reserved = with(
            volume("reserved"),
            &[
                ("/spec/claimRef", bound_ref("")),
                ("/spec/capacity/storage", json!("100Gi")),
                ("/spec/storageClassName", json!("other")),
                ("/status/phase", json!(phase)),
            ],
        );
        let picky = with(claim(), &[("/spec/selector", json!({"matchLabels": {"no": "such"}}))]);
        for is_delayed in [false, true] {
            let chosen = choose(&picky, &[volume("plain"), reserved.clone()], is_delayed);
            assert_eq!(chosen, Ok(Some("reserved".to_owned())));
        }
    }
    let selected = annotated(claim(), &[(names::SELECTED_NODE, "n1")]);
    assert_eq!(choose(&selected, &[volume("plain")], true), Ok(None));
}

/// Proves PVB-25, PVB-145.
#[test]
fn other_volume_must_be_available_selected_and_of_the_class() {
    for phase in ["Pending", "Released", "Failed", "Bound", ""] {
        check(&claim(), &[with(volume("pv"), &[("/status/phase", json!(phase))])], None);
    }
    let picky = with(claim(), &[("/spec/selector", json!({"matchLabels": {"disk": "fast"}}))]);
    let labelled = with(volume("labelled"), &[("/metadata/labels", json!({"disk": "fast"}))]);
    check(&picky, &[volume("plain"), labelled], Some("labelled"));
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["nowhere"]}]}]}});
    check(&claim(), &[with(volume("pv"), &[("/spec/nodeAffinity", affinity)])], Some("pv"));
    let expression = json!({"matchExpressions": [{"key": "k", "operator": "Near"}]});
    let invalid = with(claim(), &[("/spec/selector", expression)]);
    assert!(choose(&invalid, &[volume("pv")], false).is_err());
    assert_eq!(choose(&invalid, &[modes("pv", &["ReadOnlyMany"], "1Gi")], false), Ok(None));
}

/// Proves PVB-17, PVB-163.
#[test]
fn classes_are_compared_as_strings_and_the_beta_annotation_wins() {
    let fast = with(volume("fast"), &[("/spec/storageClassName", json!("fast"))]);
    check(&claim(), &[fast.clone()], None);
    check(&with(claim(), &[("/spec/storageClassName", Value::Null)]), &[fast.clone()], None);
    let of_class = with(claim(), &[("/spec/storageClassName", json!("fast"))]);
    check(&of_class, &[volume("plain"), fast.clone()], Some("fast"));
    const BETA: &str = "volume.beta.kubernetes.io/storage-class";
    check(&annotated(of_class.clone(), &[(BETA, "")]), &[fast.clone(), volume("plain")], Some("plain"));
    check(
        &of_class,
        &[annotated(fast, &[(BETA, "slow")]), annotated(volume("b"), &[(BETA, "fast")])],
        Some("b"),
    );
}

/// Proves PVB-26, PVB-157.
#[test]
fn smallest_volume_wins_also_beyond_64_bits() {
    let sized = |name: &str, size: &str| modes(name, &["ReadWriteOnce"], size);
    check(&claim(), &[sized("c", "3Gi"), sized("a", "2000Mi"), sized("b", "2Gi")], Some("a"));
    let huge = with(claim(), &[("/spec/resources/requests/storage", json!("20E"))]);
    check(&huge, &[sized("big", "30E"), sized("small", "10E"), sized("fit", "21E")], Some("fit"));
    let unsatisfied = |claim: &Value, volume: Value| {
        why_unsatisfied(
            &serde_json::from_value(volume).unwrap(),
            &serde_json::from_value(claim.clone()).unwrap(),
        )
    };
    // Rounded integers saturate.
    assert_eq!(unsatisfied(&huge, sized("pv", "10E")), None);
}

/// Proves PVB-36, PVB-37.
#[test]
fn named_volume_is_checked_in_order() {
    let claim: PersistentVolumeClaim = serde_json::from_value(claim()).unwrap();
    let mut bad = with(
        volume("pv"),
        &[
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/spec/capacity/storage", json!("1Mi")),
            ("/spec/storageClassName", json!("fast")),
            ("/spec/volumeAttributesClassName", json!("gold")),
            ("/spec/volumeMode", json!("Block")),
            ("/spec/accessModes", json!(["ReadOnlyMany"])),
            ("/status/phase", json!("Failed")),
        ],
    );
    for (repaired, value, text) in [
        ("/metadata/deletionTimestamp", Value::Null, "the volume is marked for deletion \"pv\""),
        ("/spec/capacity/storage", json!("1Gi"), "requested PV is too small"),
        ("/spec/storageClassName", Value::Null, "storageClassName does not match"),
        ("/spec/volumeAttributesClassName", json!(""), "volumeAttributesClassName does not match"),
        ("/spec/volumeMode", Value::Null, "incompatible volumeMode"),
        ("/spec/accessModes", json!(["ReadWriteOnce"]), "incompatible accessMode"),
    ] {
        let volume: PersistentVolume = serde_json::from_value(bad.clone()).unwrap();
        assert_eq!(why_unsatisfied(&volume, &claim).as_deref(), Some(text));
        bad = with(bad, &[(repaired, value)]);
    }
    assert_eq!(why_unsatisfied(&serde_json::from_value(bad).unwrap(), &claim), None);
}
