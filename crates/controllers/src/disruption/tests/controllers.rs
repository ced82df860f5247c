//! Which controllers of the pods are counted, and how they are found.

use keleustes_objects::{ApiError, ApiResource, DiscoveredResources, ErrorReason, Resource, Subresource};

use super::*;

const GADGETS: Resource = Resource::namespaced("example.org", "v1", "gadgets", "Gadget");
const GADGET_SCALE: &str = "/apis/example.org/v1/namespaces/a/gadgets/g/scale";

/// A served resource with these subresources, each with its kind.
fn served(resource: Resource, subresources: &[(&str, &str, &str, &str)]) -> ApiResource {
    let subresource = |&(name, group, version, kind): &(&str, &str, &str, &str)| Subresource {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: vec!["get".to_owned()],
    };
    ApiResource {
        resource,
        preferred: true,
        singular: String::new(),
        verbs: vec!["get".to_owned()],
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: subresources.iter().map(subresource).collect(),
    }
}

/// A server with gadgets that have a scale, Jobs that have none, and ReplicaSets.
fn discovery() -> DiscoveredResources {
    const SCALE: (&str, &str, &str, &str) = ("scale", "autoscaling", "v1", "Scale");
    DiscoveredResources {
        resources: vec![
            served(GADGETS, &[SCALE]),
            served(Resource::namespaced("batch", "v1", "jobs", "Job"), &[("status", "", "", "")]),
            served(Resource::namespaced("", "v1", "widgets", "Widget"), &[]),
            served(
                Resource::namespaced("example.org", "v1", "odds", "Odd"),
                &[("scale", "example.org", "v1", "Scale"), ("status", "autoscaling", "v1", "Scale")],
            ),
            served(Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"), &[SCALE]),
            served(Resource::cluster("example.org", "v1", "globals", "Global"), &[SCALE]),
        ],
        ..DiscoveredResources::default()
    }
}

fn scale(uid: &str, replicas: i32) -> Value {
    json!({"kind": "Scale", "metadata": {"namespace": "a", "name": "g", "uid": uid}, "spec": {"replicas": replicas}})
}

fn max_unavailable(pods: &[Value]) -> RehearsalCluster {
    cluster(budget(json!({"maxUnavailable": 1})), pods).with_discovery(Ok(discovery()))
}

fn of_gadget(pod: Value) -> Value {
    owned(pod, "example.org/v1", "Gadget", "g", "g1")
}

/// The error of a budget over one pod with this controller, without any scale.
fn failure(api_version: &str, kind: &str, name: &str, uid: &str) -> String {
    sync(&mut max_unavailable(&[owned(pod("p"), api_version, kind, name, uid)])).failure()
}

/// Proves PDB-22, PDB-77.
#[test]
fn each_controller_counts_once_whatever_its_pods_do() {
    let deployment_pod = |name: &str, set: &str| owned(pod(name), "apps/v1", "ReplicaSet", set, set);
    let of_deployment = |set: &str, deployment: &str| {
        owned(workload(set, set, 99), "apps/v1", "Deployment", deployment, deployment)
    };
    let mut done = not_ready(deployment_pod("p5", "other"));
    done["status"]["phase"] = json!("Failed");
    let pods = [
        deployment_pod("p1", "old"),
        deployment_pod("p2", "new"),
        deployment_pod("p3", "new"),
        terminating(owned(pod("p4"), "apps/v1", "StatefulSet", "db", "s1")),
        done,
    ];
    let mut cluster = max_unavailable(&pods)
        .with::<ReplicaSet>(of_deployment("old", "d1"))
        .with::<ReplicaSet>(of_deployment("new", "d1"))
        .with::<ReplicaSet>(of_deployment("other", "d2"))
        .with::<Deployment>(workload("d1", "d1", 5))
        .with::<Deployment>(workload("d2", "d2", 20))
        .with::<StatefulSet>(workload("db", "s1", 300));
    let synced = sync(&mut cluster);
    assert_eq!(synced.numbers()[..2], [325, 324], "5 + 20 + 300");
    assert!(synced.reads.is_empty(), "{synced:?}");
}

/// Proves PDB-24, PDB-25, PDB-26, PDB-27, PDB-28, PDB-73.
#[test]
fn cached_controllers_are_found_by_kind_group_and_uid() {
    let expected = |api_version: &str, kind: &str, uid: &str| {
        let replica_set = |name: &str, owner: Option<(&str, &str)>| {
            let set = workload(name, name, 20);
            owner.map_or(set.clone(), |(api, kind)| owned(set, api, kind, "d", "d1"))
        };
        let mut cluster = max_unavailable(&[owned(pod("p"), api_version, kind, uid, uid)])
            .with::<ReplicationController>(workload("rc", "rc", 10))
            .with::<ReplicaSet>(replica_set("alone", None))
            .with::<ReplicaSet>(replica_set("deployed", Some(("apps/v1", "Deployment"))))
            .with::<ReplicaSet>(replica_set("rolled", Some(("argoproj.io/v1", "Rollout"))))
            .with::<Deployment>(workload("d", "d1", 30))
            .with::<StatefulSet>(workload("sts", "sts", 40));
        let synced = sync(&mut cluster);
        assert!(synced.reads.is_empty(), "{synced:?}");
        synced.numbers()[0]
    };
    assert_eq!(expected("v1", "ReplicationController", "rc"), 10);
    assert_eq!(expected("apps/v1", "ReplicaSet", "alone"), 20);
    assert_eq!(expected("extensions/v1beta1", "ReplicaSet", "alone"), 20);
    assert_eq!(expected("apps/v1", "ReplicaSet", "deployed"), 30, "its Deployment");
    assert_eq!(expected("apps/v1", "ReplicaSet", "rolled"), 20, "not its custom owner");
    assert_eq!(expected("apps/v1beta1", "StatefulSet", "sts"), 40);
}

/// Proves PDB-25, PDB-26, PDB-28, PDB-32, PDB-76.
#[test]
fn a_reference_with_another_uid_or_group_finds_no_cached_controller() {
    let failure_with = |api_version: &str, kind: &str, name: &str, uid: &str| {
        let mut cluster = max_unavailable(&[owned(pod("p"), api_version, kind, name, uid)])
            .with::<ReplicationController>(workload("rc", "rc", 10))
            .with::<ReplicaSet>(workload("alone", "alone", 20))
            .with::<StatefulSet>(workload("sts", "sts", 40));
        sync(&mut cluster).failure()
    };
    let unknown =
        |kind: &str, version: &str| format!("no matches for kind \"{kind}\" in version \"{version}\"");
    assert_eq!(
        failure_with("apps/v1", "ReplicationController", "rc", "rc"),
        unknown("ReplicationController", "apps/v1")
    );
    assert_eq!(
        failure_with("v1", "ReplicationController", "rc", "x"),
        unknown("ReplicationController", "v1")
    );
    assert_eq!(
        failure_with("extensions/v1", "StatefulSet", "sts", "sts"),
        unknown("StatefulSet", "extensions/v1")
    );
    assert_eq!(failure_with("apps/v1", "StatefulSet", "sts", "x"), unknown("StatefulSet", "apps/v1"));
    // ReplicaSets are served here, with a scale, but there is no such object.
    assert_eq!(failure_with("apps/v1", "ReplicaSet", "alone", "x"), "found no controllers for pod \"p\"");
    assert_eq!(failure_with("apps/v1", "ReplicaSet", "gone", "x"), "found no controllers for pod \"p\"");
}

/// Proves PDB-72, PDB-91.
#[test]
fn a_replica_set_whose_deployment_is_not_found_is_counted_by_its_own_scale() {
    for (deployment, uid, owner) in
        [(None, "d1", "apps/v1"), (Some("d2"), "d1", "apps/v1"), (Some("d1"), "d1", "example.org/v1")]
    {
        let replica_set = owned(workload("web", "r1", 7), owner, "Deployment", "d", uid);
        let mut cluster = max_unavailable(&pods_of_web(2))
            .with::<ReplicaSet>(replica_set)
            .with_response("/apis/apps/v1/namespaces/a/replicasets/web/scale", scale("r1", 6));
        if let Some(uid) = deployment {
            cluster = cluster.with::<Deployment>(workload("d", uid, 30));
        }
        let synced = sync(&mut cluster);
        assert_eq!(synced.numbers()[0], 6);
        assert_eq!(
            synced.reads,
            ["get /apis/apps/v1/namespaces/a/replicasets/web/scale"],
            "one for both pods"
        );
    }
}

/// Proves PDB-29, PDB-58, PDB-74, PDB-88.
#[test]
fn the_scale_of_a_custom_resource_is_read_once_per_sync() {
    let pods: Vec<_> = (0..4).map(|number| of_gadget(pod(&format!("g-{number}")))).collect();
    let mut cluster = cluster(budget(json!({"maxUnavailable": 5})), &pods)
        .with_discovery(Ok(discovery()))
        .with_response(GADGET_SCALE, scale("g1", 10));
    for _ in 0..2 {
        let synced = sync(&mut cluster);
        assert_eq!(synced.numbers(), [10, 5, 4, 0]);
        assert_eq!(synced.reads, [format!("get {GADGET_SCALE}")], "and nothing is kept for the next sync");
    }
}

/// Proves PDB-29, PDB-32.
#[test]
fn a_scale_of_another_uid_is_no_result() {
    let mut cluster = max_unavailable(&[of_gadget(pod("p"))]).with_response(GADGET_SCALE, scale("g2", 10));
    let synced = sync(&mut cluster);
    assert_eq!(synced.failure(), "found no controllers for pod \"p\"");
    assert_eq!(synced.reads, [format!("get {GADGET_SCALE}")]);
}

/// Proves PDB-30, PDB-31, PDB-75.
#[test]
fn discovery_distinguishes_a_missing_object_from_a_missing_scale() {
    assert_eq!(failure("example.org/v1", "Gadget", "g", "g1"), "found no controllers for pod \"p\"");
    assert_eq!(
        failure("batch/v1", "Job", "sum", "j1"),
        "jobs.batch does not implement the scale subresource"
    );
    assert_eq!(failure("v1", "Widget", "w", "w1"), "widgets does not implement the scale subresource");
    assert_eq!(
        failure("example.org/v1", "Odd", "o", "o1"),
        "odds.example.org does not implement the scale subresource",
        "a Scale of an unknown group"
    );
    // With an integer minAvailable the kind does not matter.
    let job_pod = owned(pod("p"), "batch/v1", "Job", "sum", "j1");
    let synced = sync(&mut cluster(budget(json!({"minAvailable": 1})), &[job_pod]));
    assert_eq!((synced.numbers(), synced.reads.len()), ([1, 1, 1, 0], 0));
    // An error of the discovery is one of the sync.
    let mut failed = discovery();
    failed.failed.insert("batch/v1".to_owned(), "the server is on fire".to_owned());
    let pods = [owned(pod("p"), "batch/v1", "Job", "sum", "j1")];
    assert_eq!(
        sync(&mut max_unavailable(&pods).with_discovery(Ok(failed))).failure(),
        "the server is on fire"
    );
    // Where all of a root failed, what was discovered before still counts.
    let mut partial = discovery();
    partial.failed.insert("apis".to_owned(), "the server is on fire".to_owned());
    let known = [of_gadget(pod("p"))];
    assert_eq!(
        sync(&mut max_unavailable(&known).with_discovery(Ok(partial))).failure(),
        "found no controllers for pod \"p\""
    );
}

/// Proves PDB-31.
#[test]
fn four_versions_of_scale_are_known() {
    for (group, version, is_known) in [
        ("autoscaling", "v1", true),
        ("extensions", "v1beta1", true),
        ("apps", "v1beta1", true),
        ("apps", "v1beta2", true),
        ("autoscaling", "v2", false),
        ("apps", "v1", false),
    ] {
        let gadgets = served(GADGETS, &[("scale", group, version, "Scale")]);
        let discovery = DiscoveredResources { resources: vec![gadgets], ..DiscoveredResources::default() };
        let error =
            sync(&mut max_unavailable(&[of_gadget(pod("p"))]).with_discovery(Ok(discovery))).failure();
        let expected = if is_known {
            "found no controllers for pod \"p\""
        } else {
            "gadgets.example.org does not implement the scale subresource"
        };
        assert_eq!(error, expected, "{group}/{version}");
    }
}

/// Proves PDB-32.
#[test]
fn other_errors_of_a_lookup_are_those_of_the_sync() {
    assert_eq!(failure("a/b/c", "ReplicaSet", "web", "r1"), "unexpected GroupVersion string: a/b/c");
    assert_eq!(
        failure("example.org/v2", "Gadget", "g", "g1"),
        "no matches for kind \"Gadget\" in version \"example.org/v2\""
    );
    assert_eq!(failure("v1", "Nothing", "n", "n1"), "no matches for kind \"Nothing\" in version \"v1\"");
    assert_eq!(failure("example.org/v1", "Gadget", "", "g1"), "resource name may not be empty");
    let refused = ApiError::transport(ErrorReason::Forbidden, "gadgets is forbidden");
    let mut cluster = max_unavailable(&[of_gadget(pod("p"))]).failing_at("get", GADGET_SCALE, refused, None);
    let synced = sync(&mut cluster);
    assert_eq!(synced.failure(), "gadgets is forbidden");
    assert_eq!(synced.reasons(), ["CalculateExpectedPodCountFailed"]);
    let unparsable = owned(workload("web", "r1", 3), "a/b/c", "Deployment", "d", "d1");
    let mut cluster = max_unavailable(&pods_of_web(1)).with::<ReplicaSet>(unparsable);
    assert_eq!(sync(&mut cluster).failure(), "unexpected GroupVersion string: a/b/c", "on the way");
}

/// Proves PDB-89.
#[test]
fn a_cluster_scoped_controller_is_looked_for_in_the_namespace_of_the_pod() {
    let mut cluster = max_unavailable(&[owned(pod("p"), "example.org/v1", "Global", "g", "g1")])
        .with_response("/apis/example.org/v1/globals/g/scale", scale("g1", 10));
    let synced = sync(&mut cluster);
    assert_eq!(synced.reads, ["get /apis/example.org/v1/namespaces/a/globals/g/scale", "discover"]);
    assert_eq!(synced.failure(), "found no controllers for pod \"p\"");
}

/// Proves PDB-90.
#[test]
fn the_first_pod_by_name_decides_on_the_message() {
    let pods = [
        owned(pod("b"), "batch/v1", "Job", "sum", "j1"),
        owned(pod("c"), "v1", "Nothing", "n", "n1"),
        owned(pod("a"), "example.org/v9", "Gadget", "g", "g1"),
    ];
    for pods in [pods.clone(), pods.iter().rev().cloned().collect::<Vec<_>>().try_into().unwrap()] {
        let error = sync(&mut max_unavailable(&pods)).failure();
        assert_eq!(error, "no matches for kind \"Gadget\" in version \"example.org/v9\"");
    }
}

/// Proves PDB-23, PDB-63, PDB-64, PDB-78, PDB-95.
#[test]
fn unmanaged_pods_are_reported_and_count_only_as_healthy() {
    let selector = json!({
        "matchLabels": {"tier": "front", "app": "web"},
        "matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["a", "b"]}],
    });
    let labelled = |mut pod: Value| {
        pod["metadata"]["labels"]["tier"] = json!("front");
        pod
    };
    let spec = json!({"maxUnavailable": 1, "selector": selector});
    let managed: Vec<_> = pods_of_web(2).into_iter().map(labelled).collect();
    let rogues = [labelled(pod("rogue-1")), labelled(pod("rogue-2"))];
    let mut both = with_web(cluster(budget(spec.clone()), &[managed, rogues.to_vec()].concat()), 2);
    let synced = sync(&mut both);
    assert_eq!(synced.numbers(), [2, 1, 4, 3], "two of them more than without the rogue pods");
    assert_eq!(
        synced.events,
        [
            "Warning UnmanagedPods on PodDisruptionBudget a/web uid=b1: Pods selected by this PodDisruptionBudget \
          (selector: &LabelSelector{MatchLabels:map[string]string{app: web,tier: front,},\
          MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:NotIn,Values:[a b],},},}) \
          were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may \
          result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to \
          an integer value."
        ],
        "one for both"
    );
    for spec in [spec, json!({"minAvailable": "50%"})] {
        let synced = sync(&mut cluster(budget(spec), &rogues));
        assert_eq!(synced.numbers(), [0, 0, 2, 0]);
        assert_eq!(synced.condition(), ["False", "InsufficientPods", ""]);
        assert_eq!(synced.reasons(), ["UnmanagedPods"]);
    }
    let synced = sync(&mut cluster(budget(json!({"minAvailable": 1})), &rogues));
    assert_eq!((synced.numbers(), synced.events.len()), ([2, 1, 2, 1], 0), "not with an integer");
}
