//! Which items a change enqueues.

use super::*;

const NOTHING: [&str; 0] = [];

/// Proves RCL-1, RCL-4, RCL-5, RCL-6.
#[test]
fn pod_without_claims_enqueues_nothing_and_a_done_one_its_claims() {
    let mut cluster = test_cluster();
    assert_eq!(cluster.put::<Pod>(with_phase(pod(json!([])), "Succeeded")), NOTHING);
    assert_eq!(cluster.put::<Pod>(pod(json!([direct("gpu", "mine")]))), NOTHING);
    let entries = json!([
        direct("gpu", "mine"),
        from_template("nic", "t"),
        from_template("none", "t"),
        from_template("new", "t")
    ]);
    let mut done = with_phase(pod(entries), "Failed");
    done["status"]["resourceClaimStatuses"] =
        json!([{"name": "nic", "resourceClaimName": "web-nic-1"}, {"name": "none"}]);
    // The unresolved entry is work for the pod, and is no claim.
    let items = ["a/mine kind=claim", "a/web-nic-1 kind=claim", "a/web kind=pod"];
    assert_eq!(cluster.put::<Pod>(done), items);
    // The scheduler's claim is in the status only.
    let mut extended = pod(json!([]));
    extended["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "web-extended"});
    assert_eq!(cluster.put::<Pod>(extended.clone()), NOTHING);
    assert_eq!(cluster.put::<Pod>(with_phase(extended, "Succeeded")), ["a/web-extended kind=claim"]);
}

/// Proves RCL-2, RCL-3, RCL-7, RCL-113, RCL-133.
#[test]
fn deleted_pod_releases_its_claims_and_a_terminating_bound_one_does_not() {
    let user_claim = || pod(json!([direct("gpu", "mine")]));
    let mut cluster = test_cluster().with::<ResourceClaim>(allocated(claim("mine"), &[by_pod("web")]));
    let [released, kept] = [["a/mine kind=claim"].as_slice(), &[]];
    for (pod, expected) in [
        (user_claim(), kept),
        (with_phase(user_claim(), "Running"), kept),
        (with_phase(bound(user_claim()), "Succeeded"), released),
        (with_phase(bound(user_claim()), "Failed"), released),
        (terminating(bound(user_claim())), kept),
        (terminating(user_claim()), released),
    ] {
        assert_eq!(cluster.put::<Pod>(pod.clone()), expected, "{pod}");
    }
    assert_eq!(cluster.take::<Pod>("web"), released);
    // The deleted pod is known to be gone; it is not read.
    let transcript = cluster.claim("mine");
    assert!(transcript.starts_with("patch resourceclaims.resource.k8s.io/status a/mine"), "{transcript}");
    // The last known state of a pod that was deleted by force has work left, which its reconcile does not find.
    cluster.put::<Pod>(templated());
    assert_eq!(cluster.take::<Pod>("web"), ["a/web kind=pod"]);
    assert_eq!(cluster.pod(), "");
    // A pod without claims is not remembered, and is read.
    let mut without = pod(json!([]));
    without["metadata"]["uid"] = json!("u-plain");
    without["metadata"]["name"] = json!("plain");
    cluster.put::<Pod>(without);
    cluster.take::<Pod>("plain");
    cluster.put::<ResourceClaim>(allocated(claim("mine"), &[by_pod("plain")]));
    assert!(cluster.claim("mine").starts_with("get pods a/plain\npatch"));
}

/// Proves RCL-8, RCL-9, RCL-10, RCL-11, RCL-12, RCL-59.
#[test]
fn pod_has_work_if_a_claim_is_missing_or_not_reserved() {
    const POD: [&str; 1] = ["a/web kind=pod"];
    let mut cluster = test_cluster();
    assert_eq!(cluster.put::<Pod>(templated()), POD);
    assert_eq!(cluster.put::<Pod>(pod(json!([{"name": "gpu"}]))), POD);
    let mut not_needed = templated();
    not_needed["status"]["resourceClaimStatuses"] = json!([{"name": "gpu"}]);
    assert_eq!(cluster.put::<Pod>(not_needed), NOTHING);
    assert_eq!(cluster.put::<Pod>(pod(json!([direct("gpu", "mine")]))), NOTHING);
    assert_eq!(cluster.put::<Pod>(recorded()), POD);
    let mut foreign = generated("web-gpu-1");
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    let mut cluster = test_cluster().with::<ResourceClaim>(allocated(foreign, &[]));
    assert_eq!(cluster.put::<Pod>(bound(recorded())), NOTHING);
    let mut cluster = test_cluster().with::<ResourceClaim>(allocated(generated("web-gpu-1"), &[]));
    assert_eq!(cluster.put::<Pod>(recorded()), NOTHING);
    assert_eq!(cluster.put::<Pod>(bound(recorded())), POD);
    cluster.put::<ResourceClaim>(allocated(generated("web-gpu-1"), &[by_pod("web")]));
    assert_eq!(cluster.put::<Pod>(bound(recorded())), NOTHING);
    cluster.put::<ResourceClaim>(generated("web-gpu-1"));
    assert_eq!(cluster.put::<Pod>(bound(recorded())), NOTHING);
}

/// Proves RCL-13.
#[test]
fn claim_enqueues_itself_and_the_pods_that_use_it() {
    let mut cluster = test_cluster().with::<Pod>(bound(recorded()));
    cluster.put::<Pod>(in_namespace(bound(recorded()), "b"));
    let claim = allocated(generated("web-gpu-1"), &[]);
    assert_eq!(cluster.put::<ResourceClaim>(claim.clone()), ["a/web-gpu-1 kind=claim", "a/web kind=pod"]);
    // Without any difference, too.
    assert_eq!(cluster.put::<ResourceClaim>(claim), ["a/web-gpu-1 kind=claim", "a/web kind=pod"]);
    assert_eq!(cluster.take::<ResourceClaim>("web-gpu-1"), ["a/web kind=pod"]);
    assert_eq!(cluster.put::<ResourceClaim>(super::claim("other")), ["a/other kind=claim"]);
}

/// Proves RCL-14, RCL-129.
#[test]
fn template_enqueues_the_pods_of_its_namespace_that_name_it() {
    let mut cluster = test_cluster().with::<Pod>(templated());
    let mut other = pod(json!([from_template("gpu", "other")]));
    other["metadata"]["name"] = json!("other");
    cluster.put::<Pod>(other);
    assert_eq!(cluster.put::<ResourceClaimTemplate>(in_namespace(template(), "b")), NOTHING);
    // The template of the other namespace is not used.
    let missing = "resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found";
    assert_eq!(cluster.pod(), refused(missing));
    assert_eq!(cluster.put::<ResourceClaimTemplate>(template()), ["a/web kind=pod"]);
    assert_eq!(cluster.put::<ResourceClaimTemplate>(template()), ["a/web kind=pod"]);
    assert_eq!(cluster.take::<ResourceClaimTemplate>("t"), NOTHING);
}

/// A relist that finds another pod of the same name has missed the deletion.
#[test]
fn replaced_pod_releases_the_claims_of_the_old_one() {
    let mut cluster = test_cluster().with::<Pod>(bound(recorded()));
    let mut new = templated();
    new["metadata"]["uid"] = json!("u-new");
    let items = cluster.put::<Pod>(new);
    assert_eq!(items, ["a/web-gpu-1 kind=claim", "a/web kind=pod", "a/web kind=pod"]);
}
