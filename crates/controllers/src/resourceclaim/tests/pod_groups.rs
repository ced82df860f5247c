//! Claims that pods share through their PodGroup, and what the gates change.

use super::*;

fn group(entries: Value) -> Value {
    json!({"metadata": {"name": "g", "namespace": "a", "uid": "u-g"}, "spec": {"resourceClaims": entries}})
}

/// The PodGroup with one entry `gpu` from template `t`.
fn templated_group() -> Value {
    group(json!([from_template("gpu", "t")]))
}

fn member(mut pod: Value) -> Value {
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    pod
}

/// A claim that was generated for entry `gpu` of PodGroup `a/g`.
fn of_group(name: &str) -> Value {
    let mut claim = generated(name);
    claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "scheduling.k8s.io/v1alpha7", "kind": "PodGroup", "name": "g", "uid": "u-g", "controller": true}]);
    claim
}

fn generic_workload() -> TestCluster {
    with_options(ResourceClaimOptions { enable_generic_workload: true, ..ResourceClaimOptions::default() })
}

/// Proves RCL-15, RCL-16, RCL-17, RCL-18.
#[test]
fn pod_group_enqueues_itself_its_claims_and_its_pods() {
    let none: [&str; 0] = [];
    let mut cluster = with_pod_groups();
    assert_eq!(cluster.put::<PodGroup>(group(json!([]))), none);
    assert_eq!(cluster.put::<PodGroup>(templated_group()), ["a/g kind=podgroup"]);
    assert_eq!(cluster.put::<PodGroup>(terminating(templated_group())), none);
    assert_eq!(cluster.put::<PodGroup>(group(json!([direct("gpu", "mine")]))), none);
    // A member waits for the name; pods of other groups and namespaces do not.
    cluster.put::<Pod>(member(templated()));
    cluster.put::<Pod>(in_namespace(member(templated()), "b"));
    let mut recorded = templated_group();
    recorded["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "g-gpu-1"}]});
    let both = ["a/g kind=podgroup", "a/web kind=pod"];
    assert_eq!(cluster.put::<PodGroup>(recorded.clone()), both);
    assert_eq!(
        cluster.put::<ResourceClaimTemplate>(template()),
        ["a/web kind=pod", "a/g kind=podgroup", "a/web kind=pod"]
    );
    // The claim's events reach the group and, through it, its pods.
    assert_eq!(cluster.put::<ResourceClaim>(of_group("g-gpu-1")), ["a/g-gpu-1 kind=claim", "a/web kind=pod"]);
    assert_eq!(cluster.put::<PodGroup>(recorded), ["a/web kind=pod"]);
    let items = cluster.take::<PodGroup>("g");
    assert_eq!(items, ["a/g-gpu-1 kind=claim", "a/web kind=pod"]);
    // The deleted PodGroup is known to be gone.
    cluster.put::<ResourceClaim>(allocated(of_group("g-gpu-1"), &[by_pod_group("g")]));
    assert!(cluster.claim("g-gpu-1").starts_with("patch "));
}

/// Proves RCL-31, RCL-32.
#[test]
fn claims_of_the_group_and_of_the_pod_differ_by_their_entries() {
    let claims = |mut cluster: TestCluster, target: &str| {
        cluster.put::<Pod>(bound(member(pod(json!([direct("gpu", "mine")])))));
        cluster.put::<ResourceClaim>(allocated(claim("mine"), &[]));
        let bodies = cluster.bodies(ClaimItem::Pod, "web", "patch ");
        assert_eq!(bodies[0]["status"]["reservedFor"][0]["resource"], target);
        bodies[0]["status"]["reservedFor"][0].clone()
    };
    let with_entries = |entries| with_pod_groups().with::<PodGroup>(group(entries));
    let reservation = claims(with_entries(json!([direct("gpu", "mine")])), "podgroups");
    assert_eq!(reservation, by_pod_group("g"));
    for other in [direct("nic", "mine"), direct("gpu", "other"), from_template("gpu", "mine")] {
        let reservation = claims(with_entries(json!([other])), "pods");
        assert_eq!(reservation, by_pod("web"));
    }
    // A generated claim belongs to the pod by UID, or to its group by name, of any version.
    let accepts = |mut cluster: TestCluster, claim: Value| {
        cluster.put::<PodGroup>(templated_group());
        cluster.put::<ResourceClaim>(claim);
        cluster.put::<Pod>(bound(member(recorded())));
        cluster.pod().is_empty()
    };
    assert!(accepts(with_pod_groups(), generated("web-gpu-1")));
    let mut of_older_group = of_group("web-gpu-1");
    of_older_group["metadata"]["ownerReferences"][0]["uid"] = json!("u-older");
    assert!(accepts(with_pod_groups(), of_older_group.clone()));
    let changed = |field: &str, value: &str| {
        let mut claim = of_older_group.clone();
        claim["metadata"]["ownerReferences"][0][field] = json!(value);
        claim
    };
    assert!(!accepts(with_pod_groups(), changed("name", "h")));
    assert!(!accepts(with_pod_groups(), changed("kind", "Pod")));
    assert!(!accepts(with_pod_groups(), changed("apiVersion", "example.com/v1")));
    assert!(!accepts(generic_workload(), of_older_group));
}

/// Proves RCL-41, RCL-42.
#[test]
fn pod_waits_for_its_pod_group_and_fails_for_good_without_the_gate() {
    let mut cluster =
        test_cluster().with::<Pod>(member(templated())).with::<ResourceClaimTemplate>(template());
    assert_eq!(cluster.pod(), "");
    for mut cluster in [generic_workload(), with_pod_groups()] {
        cluster.put::<Pod>(member(templated()));
        cluster.put::<ResourceClaimTemplate>(template());
        let error = "retry: get PodGroup for Pod a/web: podgroup.scheduling.k8s.io \"g\" not found\n";
        assert_eq!(cluster.pod(), error);
        // Its own claims are created when the PodGroup is there, also without the gate of the group's claims.
        cluster.put::<PodGroup>(group(json!([from_template("shared", "t")])));
        assert!(cluster.pod().starts_with("create "));
    }
}

/// Proves RCL-53, RCL-58, RCL-116.
#[test]
fn claims_of_the_group_are_left_alone_without_their_gate() {
    let mut cluster = generic_workload().with::<PodGroup>(templated_group()).with::<Pod>(member(templated()));
    cluster.put::<ResourceClaimTemplate>(template());
    assert_eq!(
        cluster.pod(),
        refused("claim gpu is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled")
    );
    let mut cluster = generic_workload().with::<PodGroup>(group(json!([direct("gpu", "mine")])));
    cluster.put::<Pod>(bound(member(pod(json!([direct("gpu", "mine")])))));
    cluster.put::<ResourceClaim>(allocated(claim("mine"), &[]));
    assert_eq!(cluster.pod(), "");
    // A reservation of a PodGroup that is gone stays.
    cluster.put::<ResourceClaim>(allocated(claim("mine"), &[by_pod_group("gone")]));
    assert_eq!(cluster.claim("mine"), "");
}

/// Proves RCL-54.
#[test]
fn pod_takes_over_the_name_of_its_groups_claim_and_never_creates_it() {
    let mut cluster = with_pod_groups().with::<PodGroup>(templated_group()).with::<Pod>(member(templated()));
    cluster.put::<ResourceClaimTemplate>(template());
    assert_eq!(cluster.pod(), "");
    cluster.put::<ResourceClaim>(of_group("g-gpu-1"));
    let applied = cluster.bodies(ClaimItem::Pod, "web", "apply pods/status ");
    let names = json!([{"name": "gpu", "resourceClaimName": "g-gpu-1"}]);
    assert_eq!(applied[0]["status"]["resourceClaimStatuses"], names);
    // A recorded claim that is missing is the group's business.
    let mut cluster = with_pod_groups().with::<PodGroup>(templated_group());
    let none: [&str; 0] = [];
    assert_eq!(cluster.put::<Pod>(member(recorded())), none);
    // An entry that this program does not know makes the target unknown.
    let unknown = group(json!([{"name": "later"}, from_template("gpu", "t")]));
    let mut cluster = with_pod_groups().with::<PodGroup>(unknown);
    assert_eq!(cluster.put::<Pod>(member(recorded())), none);
    // Without its PodGroup the pod has work.
    assert_eq!(with_pod_groups().put::<Pod>(member(recorded())), ["a/web kind=pod"]);
}

/// Proves RCL-60, RCL-61, RCL-62, RCL-103.
#[test]
fn claims_of_a_pod_group_are_created_and_recorded() {
    let mut cluster = with_pod_groups().with::<ResourceClaimTemplate>(template());
    assert_eq!(cluster.reconcile(ClaimItem::PodGroup, "g"), "");
    cluster.put::<PodGroup>(terminating(templated_group()));
    assert_eq!(cluster.reconcile(ClaimItem::PodGroup, "g"), "");
    let mut two = group(json!([from_template("gpu", "t"), from_template("nic", "t")]));
    two["status"] = json!({"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "g-nic-1"}]});
    cluster.put::<PodGroup>(two);
    let mut of_nic = of_group("g-nic-1");
    of_nic["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "nic"});
    cluster.put::<ResourceClaim>(of_nic);
    let created = cluster.bodies(ClaimItem::PodGroup, "g", "create ");
    assert_eq!(created.len(), 1);
    assert_eq!(created[0]["metadata"]["generateName"], "g-gpu-");
    assert_eq!(created[0]["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");
    let owner = json!([{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "u-g", "controller": true}]);
    assert_eq!(created[0]["metadata"]["ownerReferences"], owner);
    // The name of the other claim is applied again, or it would be removed.
    let applied = cluster.bodies(ClaimItem::PodGroup, "g", "apply podgroups.scheduling.k8s.io/status ");
    let names = json!([{"name": "gpu", "resourceClaimName": "g-gpu-new"}, {"name": "nic", "resourceClaimName": "g-nic-1"}]);
    assert_eq!(applied[0]["status"]["resourceClaimStatuses"], names);
    let mut cluster = with_pod_groups().with::<PodGroup>(templated_group());
    let error = "PodGroupResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \
                 \"t\" not found";
    let event = format!("event Warning FailedResourceClaimCreation on PodGroup a/g uid=u-g: {error}\n");
    assert_eq!(cluster.reconcile(ClaimItem::PodGroup, "g"), format!("{event}retry: {error}\n"));
}

/// Proves RCL-73.
#[test]
fn reservations_of_replaced_pod_groups_are_removed() {
    let mut cluster = with_pod_groups().with::<ResourceClaim>(allocated(claim("c"), &[by_pod_group("g")]));
    const GET: &str = "get podgroups.scheduling.k8s.io a/g\n";
    assert!(cluster.claim("c").starts_with(&format!("{GET}patch ")));
    assert_eq!(cluster.live::<PodGroup>(templated_group()).claim("c"), GET);
    let mut cluster = with_pod_groups().with::<ResourceClaim>(allocated(claim("c"), &[by_pod_group("g")]));
    cluster.put::<PodGroup>(templated_group());
    assert_eq!(cluster.claim("c"), "");
    let mut other = templated_group();
    other["metadata"]["uid"] = json!("u-other");
    cluster.put::<PodGroup>(other);
    assert!(cluster.claim("c").starts_with("patch "));
    let cluster = with_pod_groups().with::<ResourceClaim>(allocated(claim("c"), &[by_pod_group("g")]));
    let mut cluster = cluster.failing::<PodGroup>("get", "g", ErrorReason::Forbidden);
    assert!(cluster.claim("c").contains("retry: reading podgroups.scheduling.k8s.io a/g: refused"));
}
