//! The metrics of claims.

use keleustes_plan::{Change, Effects, Measurement};
use std::sync::Arc;

use super::*;
use crate::resourceclaim::metrics::ClaimCounts;

/// Counts these changes and returns the measurements, one line each.
fn measured(counts: &mut ClaimCounts, change: &Change<ResourceClaim>) -> Vec<String> {
    let mut queue = Effects::default();
    counts.observe(change, &mut queue);
    let line = |Measurement { labels, value, .. }: Measurement| format!("{} {value}", labels.join(","));
    queue.take_measurements().into_iter().map(line).collect()
}

fn decoded(json: Value) -> Arc<ResourceClaim> {
    Arc::new(serde_json::from_value(json).expect("a claim"))
}

/// Proves RCL-93, RCL-94, RCL-95.
#[test]
fn claims_are_counted_by_allocation_admin_access_and_source() {
    let mut counts = ClaimCounts::default();
    let mut added = |json: Value| measured(&mut counts, &Change::added(decoded(json)));
    assert_eq!(added(claim("one")), ["false,false, 1"]);
    assert_eq!(added(claim("two")), ["false,false, 2"]);
    // Delivered again.
    assert!(added(claim("two")).is_empty());
    assert_eq!(added(generated("three")), ["false,false,resource_claim_template 1"]);
    let mut extended = generated("four");
    extended["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] = json!("true");
    assert_eq!(added(extended.clone()), ["false,false,extended_resource 1"]);
    extended["metadata"]["name"] = json!("five");
    extended["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] = json!("yes");
    assert_eq!(added(extended), ["false,false,resource_claim_template 2"]);
    let mut empty = generated("six");
    empty["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] = json!("");
    assert_eq!(added(empty), ["false,false, 3"]);
    let mut admin = allocated(claim("seven"), &[]);
    admin["spec"]["devices"]["requests"] = json!([{"name": "r", "exactly": {"adminAccess": true}}]);
    assert_eq!(added(admin), ["true,true, 1"]);
    let mut list = claim("eight");
    list["spec"]["devices"]["requests"] =
        json!([{"name": "r", "firstAvailable": [{"name": "s", "adminAccess": true}]}]);
    assert_eq!(added(list), ["false,false, 4"]);
    // Allocated, then deleted.
    assert_eq!(added(allocated(claim("one"), &[])), ["false,false, 3", "true,false, 1"]);
    let gone = Change::deleted(decoded(allocated(claim("one"), &[])));
    assert_eq!(measured(&mut counts, &gone), ["true,false, 0"]);
}

/// Proves RCL-92.
#[test]
fn creations_are_counted_by_status_admin_access_and_owner() {
    let metric = "measure dynamic_resource_allocation_resourceclaim_creates_total";
    let mut admin = template();
    admin["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    let cluster = test_cluster().with::<Pod>(templated()).with::<ResourceClaimTemplate>(admin);
    let mut cluster = cluster.failing::<ResourceClaim>("create", "", ErrorReason::Invalid);
    assert!(cluster.pod().contains(&format!("{metric}{{failure,true,,Pod}} 1\n")));
    cluster.put::<ResourceClaimTemplate>(template());
    assert!(cluster.pod().contains(&format!("{metric}{{failure,false,,Pod}} 1\n")));
    // An adoption is no creation.
    cluster.put::<ResourceClaim>(generated("web-gpu-1"));
    assert!(!cluster.pod().contains(metric));
    let group = json!({"metadata": {"name": "g", "namespace": "a", "uid": "u-g"},
        "spec": {"resourceClaims": [from_template("gpu", "t")]}});
    let mut cluster = with_pod_groups().with::<PodGroup>(group).with::<ResourceClaimTemplate>(template());
    let transcript = cluster.reconcile(ClaimItem::PodGroup, "g");
    assert!(transcript.contains(&format!("{metric}{{success,false,scheduling.k8s.io,PodGroup}} 1\n")));
}
