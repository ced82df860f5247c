//! Reconciles of a pod: which claims are created, adopted and recorded.

use super::*;

const CREATE: &str = "create resourceclaims.resource.k8s.io a/ because Pod web needs claim gpu";
const COUNTED: &str =
    "measure dynamic_resource_allocation_resourceclaim_creates_total{success,false,,Pod} 1\n";

fn created_and_recorded() -> String {
    format!("{CREATE}\n{COUNTED}apply pods/status a/web because its claims were created\n")
}

/// Proves RCL-49, RCL-51.
#[test]
fn claim_is_a_copy_of_the_template_with_the_pod_as_owner() {
    let mut cluster = test_cluster().with::<Pod>(templated()).with::<ResourceClaimTemplate>(template());
    assert_eq!(cluster.outline(ClaimItem::Pod, "web"), created_and_recorded());
    let bodies = cluster.bodies(ClaimItem::Pod, "web", "create ");
    // Fields of the spec that this program does not know are copied.
    let expected = json!([{
        "metadata": {
            "generateName": "web-gpu-",
            "labels": {"l": "v"},
            "annotations": {"k": "w", "resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u-web", "controller": true}],
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}, "fromTheFuture": 1}]}},
    }]);
    assert_eq!(json!(bodies), expected);
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply pods/status ");
    let status = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu-new"}]});
    assert_eq!(applied, [json!({"metadata": {"uid": "u-web"}, "status": status})]);
    // The cached template is as before: a second pod's claim has only its own annotation.
    let mut other = pod(json!([from_template("nic", "t")]));
    other["metadata"] = json!({"name": "other", "namespace": "a", "uid": "u-other"});
    cluster.put::<Pod>(other);
    let bodies = cluster.bodies(ClaimItem::Pod, "other", "create ");
    assert_eq!(
        bodies[0]["metadata"]["annotations"],
        json!({"k": "w", "resource.kubernetes.io/pod-claim-name": "nic"})
    );
}

/// Proves RCL-40.
#[test]
fn nothing_is_created_for_a_pod_that_is_gone_or_terminating() {
    let mut cluster = test_cluster().with::<ResourceClaimTemplate>(template());
    assert_eq!(cluster.pod(), "");
    cluster.put::<Pod>(terminating(bound(templated())));
    assert_eq!(cluster.pod(), "");
}

/// Proves RCL-44, RCL-45, RCL-104, RCL-105, RCL-106, RCL-122.
#[test]
fn recorded_claim_that_is_missing_or_foreign_is_replaced() {
    let base = || test_cluster().with::<Pod>(recorded()).with::<ResourceClaimTemplate>(template());
    assert_eq!(base().with::<ResourceClaim>(generated("web-gpu-1")).pod(), "");
    assert_eq!(base().with::<ResourceClaim>(terminating(generated("web-gpu-1"))).pod(), "");
    const GET: &str = "get resourceclaims.resource.k8s.io a/web-gpu-1\n";
    assert_eq!(base().live::<ResourceClaim>(generated("web-gpu-1")).pod(), GET);
    // Deleted by another client: recreated at once under another name, which replaces the recorded one.
    let mut cluster = base();
    assert_eq!(cluster.outline(ClaimItem::Pod, "web"), format!("{GET}{}", created_and_recorded()));
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply ");
    let statuses = &applied[0]["status"]["resourceClaimStatuses"];
    assert_eq!(*statuses, json!([{"name": "gpu", "resourceClaimName": "web-gpu-new"}]));
    // A claim of another pod, cached or live, is left alone.
    let mut foreign = generated("web-gpu-1");
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("u-old");
    let outline = |mut cluster: TestCluster| cluster.outline(ClaimItem::Pod, "web");
    assert_eq!(outline(base().with::<ResourceClaim>(foreign.clone())), created_and_recorded());
    assert_eq!(outline(base().live::<ResourceClaim>(foreign)), format!("{GET}{}", created_and_recorded()));
    // A user's claim is looked for and not created; its owner does not matter.
    let mut cluster = test_cluster().with::<Pod>(pod(json!([direct("gpu", "web-gpu-1")])));
    assert_eq!(cluster.pod(), GET);
    cluster.put::<ResourceClaim>(claim("web-gpu-1"));
    assert_eq!(cluster.pod(), "");
}

/// Proves RCL-46, RCL-100, RCL-101.
#[test]
fn claim_that_was_created_and_not_recorded_is_adopted() {
    const ADOPTED: &str = "apply pods/status a/web because its claims were created\n";
    // The template is not needed for that.
    let mut cluster = test_cluster().with::<Pod>(templated());
    let mut other_entry = generated("web-nic-0");
    other_entry["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "nic"});
    let mut unmarked = generated("web-gpu-0");
    unmarked["metadata"]["annotations"] = json!({});
    let mut of_other_pod = generated("web-gpu-2");
    of_other_pod["metadata"]["ownerReferences"][0]["uid"] = json!("u-old");
    for no_candidate in [other_entry, unmarked, of_other_pod, in_namespace(generated("web-gpu-3"), "b")] {
        cluster.put::<ResourceClaim>(no_candidate);
        assert!(cluster.pod().contains("not found"));
    }
    cluster.put::<ResourceClaim>(terminating(generated("web-gpu-8")));
    cluster.put::<ResourceClaim>(generated("web-gpu-9"));
    assert_eq!(cluster.outline(ClaimItem::Pod, "web"), ADOPTED);
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply ");
    let statuses = &applied[0]["status"]["resourceClaimStatuses"];
    assert_eq!(*statuses, json!([{"name": "gpu", "resourceClaimName": "web-gpu-8"}]));
    // The second claim failed: the first is adopted on the retry, and both are recorded at once.
    let entries = json!([from_template("gpu", "t"), from_template("nic", "u")]);
    let mut cluster = test_cluster().with::<Pod>(pod(entries)).with::<ResourceClaimTemplate>(template());
    let first = cluster.pod();
    assert!(first.starts_with(CREATE) && !first.contains("apply"), "{first}");
    assert!(first.ends_with("\"u\" not found\n"), "{first}");
    cluster.put::<ResourceClaim>(generated("web-gpu-new"));
    let mut second = template();
    second["metadata"]["name"] = json!("u");
    cluster.put::<ResourceClaimTemplate>(second);
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply ");
    let statuses = &applied[0]["status"]["resourceClaimStatuses"];
    let both = json!([{"name": "gpu", "resourceClaimName": "web-gpu-new"}, {"name": "nic", "resourceClaimName": "web-nic-new"}]);
    assert_eq!(*statuses, both);
}

/// Proves RCL-55, RCL-102.
#[test]
fn names_that_were_recorded_before_are_applied_again() {
    let entries = json!([
        from_template("z", "t"),
        from_template("gpu", "t"),
        from_template("a", "t"),
        from_template("none", "t")
    ]);
    let mut pod = pod(entries);
    pod["status"]["resourceClaimStatuses"] = json!([
        {"name": "none"}, {"name": "z", "resourceClaimName": "web-z-1"}, {"name": "gpu", "resourceClaimName": "lost"}]);
    let mut of_z = generated("web-z-1");
    of_z["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "z"});
    let mut cluster =
        test_cluster().with::<Pod>(pod).with::<ResourceClaim>(of_z).with::<ResourceClaimTemplate>(template());
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply pods/status ");
    let names = json!([
        {"name": "a", "resourceClaimName": "web-a-new"}, {"name": "gpu", "resourceClaimName": "web-gpu-new"},
        {"name": "z", "resourceClaimName": "web-z-1"}]);
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0]["status"]["resourceClaimStatuses"], names);
}

/// Proves RCL-43, RCL-47, RCL-90, RCL-91, RCL-128.
#[test]
fn first_entry_that_fails_is_reported_and_ends_the_reconcile() {
    let entries = json!([from_template("gpu", "missing"), from_template("nic", "t")]);
    let mut cluster =
        test_cluster().with::<Pod>(bound(pod(entries))).with::<ResourceClaimTemplate>(template());
    let missing =
        "resource claim template \"missing\": resourceclaimtemplate.resource.k8s.io \"missing\" not found";
    // Every attempt is reported.
    assert_eq!(cluster.pod(), refused(missing));
    assert_eq!(cluster.pod(), refused(missing));
    let mut cluster = test_cluster().with::<Pod>(templated()).with::<ResourceClaimTemplate>(template());
    cluster = cluster.failing::<ResourceClaim>("create", "", ErrorReason::Forbidden);
    let failed = "measure dynamic_resource_allocation_resourceclaim_creates_total{failure,false,,Pod} 1\n";
    let error = refused("create ResourceClaim : refused");
    assert_eq!(cluster.pod(), format!("{CREATE} FAILED: refused\n{failed}{error}"));
    // A failed record is retried without an event.
    let mut cluster = test_cluster().with::<Pod>(templated()).with::<ResourceClaimTemplate>(template());
    cluster = cluster.failing::<Pod>("patch", "web", ErrorReason::Unavailable);
    let transcript = cluster.pod();
    assert!(!transcript.contains("event"), "{transcript}");
    assert!(transcript.ends_with("retry: update pod a/web ResourceClaimStatuses: refused\n"), "{transcript}");
}

/// Proves RCL-48.
#[test]
fn template_that_needs_a_disabled_feature_is_refused() {
    let mut admin = template();
    admin["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    let mut list = template();
    list["spec"]["spec"]["devices"]["requests"] = json!([{"name": "r", "firstAvailable": [{"name": "s"}]}]);
    let all = ResourceClaimOptions::default();
    let no_admin = ResourceClaimOptions { enable_admin_access: false, ..all };
    let no_list = ResourceClaimOptions { enable_prioritized_list: false, ..all };
    let reconcile = |options, template: &Value| {
        let cluster = with_options(options).with::<Pod>(templated());
        cluster.with::<ResourceClaimTemplate>(template.clone()).pod()
    };
    let no_feature = "admin access is requested, but the feature is disabled";
    assert_eq!(reconcile(no_admin, &admin), refused(no_feature));
    let no_feature = "template includes a prioritized list of subrequests, but the feature is disabled";
    assert_eq!(reconcile(no_list, &list), refused(no_feature));
    for (options, template) in [(all, &admin), (no_list, &admin), (all, &list), (no_admin, &list)] {
        assert!(reconcile(options, template).starts_with(CREATE));
    }
}

/// Proves RCL-123.
#[test]
fn failed_read_creates_no_second_claim() {
    for reason in [ErrorReason::Forbidden, ErrorReason::Unavailable, ErrorReason::ConnectionLost] {
        let mut cluster = test_cluster().with::<Pod>(recorded()).with::<ResourceClaimTemplate>(template());
        cluster = cluster.failing::<ResourceClaim>("get", "web-gpu-1", reason);
        let error = refused("checking claim existence: refused");
        assert_eq!(cluster.pod(), format!("get resourceclaims.resource.k8s.io a/web-gpu-1\n{error}"));
    }
}

/// Proves RCL-124.
#[test]
fn entry_of_an_unknown_source_is_an_error_after_earlier_entries() {
    let entries = json!([from_template("nic", "t"), {"name": "gpu"}, from_template("later", "t")]);
    let mut cluster = test_cluster().with::<Pod>(pod(entries)).with::<ResourceClaimTemplate>(template());
    let error = "checking for claim before creating it: pod \"a/web\", spec.resourceClaim \"gpu\": none of the \
                 supported fields are set";
    let transcript = cluster.outline(ClaimItem::Pod, "web");
    let created = "create resourceclaims.resource.k8s.io a/ because Pod web needs claim nic\n";
    assert_eq!(transcript, format!("{created}{COUNTED}{}", refused(error)));
}

/// Proves RCL-112, RCL-119, RCL-120, RCL-121.
#[test]
fn terminal_pod_gets_neither_claims_nor_reservations() {
    for phase in ["Succeeded", "Failed"] {
        let mut cluster = test_cluster().with::<ResourceClaimTemplate>(template());
        cluster.put::<Pod>(with_phase(bound(recorded()), phase));
        assert_eq!(cluster.pod(), "");
        // Its claim is deallocated and deleted while the pod exists, and its deletion creates no other one.
        cluster.put::<ResourceClaim>(allocated(generated("web-gpu-1"), &[by_pod("web")]));
        let released = cluster.outline(ClaimItem::Claim, "web-gpu-1");
        assert!(released.ends_with(
            "delete resourceclaims.resource.k8s.io a/web-gpu-1 because the pod that it was generated for will not run\n"
        ));
        assert_eq!(cluster.take::<ResourceClaim>("web-gpu-1"), ["a/web-gpu-1 kind=claim", "a/web kind=pod"]);
        assert_eq!(cluster.pod(), "");
        // A claim that another pod uses loses the reservation of this one and does not get it back.
        cluster.put::<Pod>(with_phase(bound(pod(json!([direct("gpu", "shared")]))), phase));
        cluster.put::<ResourceClaim>(allocated(claim("shared"), &[by_pod("other")]));
        assert_eq!(cluster.pod(), "");
    }
}

/// Proves RCL-130, RCL-132.
#[test]
fn names_are_applied_to_the_pod_with_this_uid_only() {
    let mut cluster = test_cluster().with::<Pod>(templated()).with::<ResourceClaim>(generated("web-gpu-1"));
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply pods/status ");
    let fields: Vec<_> = applied[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((fields, &applied[0]["metadata"]), (vec!["metadata", "status"], &json!({"uid": "u-web"})));
    // The pod is gone: a retry, which finds nothing.
    let mut cluster = cluster.failing::<Pod>("patch", "web", ErrorReason::NotFound);
    assert!(cluster.pod().contains("retry: update pod a/web ResourceClaimStatuses"));
    cluster.take::<Pod>("web");
    assert_eq!(cluster.pod(), "");
}
