//! Keeps the number of active pods of a ReplicationController at `spec.replicas`, with the algorithm of
//! ReplicaSets.
//!
//! Parity: pkg/controller/replication.

use std::borrow::Cow;

use keleustes_objects::{PodTemplate, ReplicaSetStatus, ReplicationController};
use keleustes_plan::{Controller, Grant, View};

use crate::replicaset::{AGE_RATIO, ReplicaSetOptions, Replicated, replica_loop};

/// The controller.
#[must_use]
pub fn controller(options: &ReplicaSetOptions) -> Controller {
    Controller::new("replicationcontroller-controller")
        .service_account("replication-controller")
        .event_component("replication-controller")
        .metrics([&AGE_RATIO])
        .may_write(&[
            Grant { group: "", resource: "replicationcontrollers", verbs: &["get"] },
            Grant { group: "", resource: "replicationcontrollers/status", verbs: &["update"] },
            Grant { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        ])
        .with_loop(replica_loop::<ReplicationController>("replicationmanager", options))
}

impl Replicated for ReplicationController {
    fn replicas(&self) -> i32 {
        self.spec.replicas
    }

    fn template(&self) -> &PodTemplate {
        &self.spec.template
    }

    fn status(&self) -> Cow<'_, ReplicaSetStatus> {
        let status = &self.status;
        Cow::Owned(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions: status.conditions.clone(),
            unknown: status.unknown.clone(),
        })
    }

    const HAS_TERMINATING_REPLICAS: bool = false;

    /// ReplicationControllers have no controller, so there are no related ones.
    fn related_replica_sets<'a>(&self, _: &View<'a>) -> Vec<&'a Self> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{ApiError, ErrorReason, Key, Pod};
    use keleustes_plan::rehearsal::RehearsalCluster;
    use keleustes_plan::rehearsal::is_retried_because;
    use keleustes_plan::{Loop, RateLimiter};
    use serde_json::{Value, json};

    use super::*;

    fn the_loop() -> Loop {
        controller(&ReplicaSetOptions::default()).loops.remove(0)
    }

    fn cluster(replicas: i32) -> RehearsalCluster {
        RehearsalCluster::of(&the_loop()).with::<ReplicationController>(rc(replicas))
    }

    fn rc(replicas: i32) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "u-web", "resourceVersion": "7", "generation": 2},
            "spec": {
                "replicas": replicas, "selector": {"app": "web"},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}},
            },
            "status": {"observedGeneration": 2, "replicas": 0},
        })
    }

    fn orphan(name: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "a", "uid": format!("u-{name}"), "labels": {"app": "web"},
                "resourceVersion": "1", "creationTimestamp": "2027-01-01T00:00:00Z",
            },
            "spec": {"nodeName": "n"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:59:58Z"}],
            },
        })
    }

    fn owned_by(kind: &str, mut object: Value) -> Value {
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": kind, "name": "web", "uid": "u-web", "controller": true}]);
        object
    }

    fn pod(name: &str) -> Value {
        owned_by("ReplicationController", orphan(name))
    }

    fn reconcile(mut cluster: RehearsalCluster) -> String {
        cluster.reconcile(&the_loop(), Key::namespaced("a", "web"))
    }

    const OWNER: &str = concat!(
        r#""ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"#,
        r#""kind":"ReplicationController","name":"web","uid":"u-web"}]"#
    );

    /// Proves RC-2, RC-3, RC-22, RUN-92.
    #[test]
    fn names_grants_workers_and_rate_limits_equal_the_original_s() {
        let controller = controller(&ReplicaSetOptions::default());
        assert_eq!(
            (controller.name, crate::names::aliases_of(controller.name)),
            ("replicationcontroller-controller", &["replicationcontroller"][..])
        );
        assert_eq!(
            (controller.service_account, controller.event_component),
            (Some("replication-controller"), Some("replication-controller"))
        );
        let grants: Vec<_> = controller.grants.iter().map(|grant| (grant.resource, grant.verbs)).collect();
        assert_eq!(
            grants,
            [
                ("replicationcontrollers", &["get"][..]),
                ("replicationcontrollers/status", &["update"]),
                ("pods", &["create", "delete", "patch"]),
            ]
        );
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("replicationmanager", 5, None));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
        let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
        assert_eq!(reads, ["replicationcontrollers", "pods"]);
    }

    /// Proves RC-4, RUN-92.
    #[test]
    fn at_most_500_pods_are_created_per_reconcile_with_slow_start_and_without_a_retry_limit() {
        assert_eq!((the_loop().rate_limiter, the_loop().max_retries), (RateLimiter::DEFAULT, None));
        let created =
            |cluster| reconcile(cluster).lines().filter(|line| line.starts_with("create pods a/ ")).count();
        assert_eq!((created(cluster(500)), created(cluster(501))), (500, 500));
        let many = (0..501).map(|n| pod(&format!("p{n}")));
        let many = many.fold(cluster(0), RehearsalCluster::with::<Pod>);
        let deleted = reconcile(many).lines().filter(|line| line.starts_with("delete pods a/p")).count();
        assert_eq!(deleted, 500);
        // The first batch is one pod; it fails, so no other is sent.
        let failure = ApiError::transport(ErrorReason::Forbidden, "refused");
        assert_eq!(
            created(cluster(501).failing_at("create", "/api/v1/namespaces/a/pods/", failure, None)),
            1
        );
    }

    /// Proves RC-30.
    #[test]
    fn without_this_controller_replica_sets_are_reconciled_as_before() {
        let mut others = crate::registry::all_controllers(&crate::registry::ControllersOptions::default());
        others.retain(|other| other.name != "replicationcontroller-controller");
        let loops: Vec<&Loop> = others.iter().flat_map(|other| &other.loops).collect();
        let rcs = keleustes_plan::KindEntry::of::<ReplicationController>();
        // Budgets and quotas count them.
        let unrelated =
            |other: &&&Loop| !other.queue.starts_with("disruption") && !other.queue.starts_with("resource");
        let reads = loops.iter().filter(unrelated).any(|other| other.reads.contains(&rcs));
        assert!(!reads, "no other controller of pods reads them");
        let of_sets: Vec<_> = loops.into_iter().filter(|other| other.queue == "replicaset").collect();
        let [a_loop] = of_sets[..] else { panic!("one loop reconciles ReplicaSets") };
        let mut set = rc(2);
        set["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
        let mut cluster = RehearsalCluster::of(a_loop).with::<keleustes_objects::ReplicaSet>(set);
        let transcript = cluster.reconcile(a_loop, Key::namespaced("a", "web"));
        assert_eq!(transcript.matches("create pods a/ ").count(), 2, "{transcript}");
        // With this controller the same happens, and a pod of a ReplicationController is left to it.
        let all = crate::registry::all_controllers(&crate::registry::ControllersOptions::default());
        let mut loops = all.iter().flat_map(|other| &other.loops);
        let with_all = loops.find(|other| other.queue == "replicaset").unwrap();
        let mut set = rc(2);
        set["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
        let cluster = || RehearsalCluster::of(with_all).with::<keleustes_objects::ReplicaSet>(set.clone());
        assert_eq!(cluster().reconcile(with_all, Key::namespaced("a", "web")), transcript);
        let mut beside = cluster().with::<Pod>(pod("x"));
        assert_eq!(beside.reconcile(a_loop, Key::namespaced("a", "web")), transcript);
    }

    /// Proves RC-1, RC-6, RC-13.
    #[test]
    fn pods_enqueue_their_controller_or_possible_adopters() {
        let a_loop = the_loop();
        let mut cluster = cluster(1);
        assert_eq!(cluster.put::<Pod>(&a_loop, pod("x")), ["a/web"]);
        assert_eq!(cluster.put::<Pod>(&a_loop, orphan("y")), ["a/web"]);
        // An owner of another kind with the same name does not count.
        assert!(cluster.put::<Pod>(&a_loop, owned_by("ReplicaSet", orphan("z"))).is_empty());
        let mut other = orphan("o");
        other["metadata"]["labels"] = json!({"app": "none"});
        assert!(cluster.put::<Pod>(&a_loop, other).is_empty());
        assert_eq!(cluster.put::<ReplicationController>(&a_loop, rc(2)), ["a/web"]);
        assert_eq!(cluster.take::<Pod>(&a_loop, &Key::namespaced("a", "x")), ["a/web"]);
        let mut all = rc(2);
        all["spec"]["selector"] = json!({});
        all["metadata"]["resourceVersion"] = json!("8");
        cluster.put::<ReplicationController>(&a_loop, all);
        assert!(cluster.put::<Pod>(&a_loop, orphan("n")).is_empty());
    }

    /// Proves RC-8, RC-11, RC-18, RC-19, RC-23, RC-28.
    #[test]
    fn a_replication_controller_adopts_and_creates_pods_as_a_replica_set_does() {
        let mut ended = pod("z");
        ended["status"]["phase"] = json!("Failed");
        let cluster = cluster(3).with::<Pod>(pod("x")).with::<Pod>(orphan("y")).with::<Pod>(ended);
        let transcript = reconcile(cluster);
        let written: Vec<_> = transcript.lines().collect();
        assert_eq!(
            written[..3],
            [
                format!(
                    "patch pods a/y because it matches the selector and has no controllerRef: {{\"metadata\":{{{OWNER}}}}}"
                ),
                format!(
                    "create pods a/ because there are fewer pods than wanted: {{\"metadata\":{{\"generateName\":\"web-\",\
                     \"labels\":{{\"app\":\"web\"}},{OWNER}}},\"spec\":{{}}}}"
                ),
                "event Normal SuccessfulCreate on ReplicationController a/web uid=u-web: Created pod: web-new".to_owned(),
            ]
        );
        assert!(written[3].starts_with("put replicationcontrollers/status a/web"));
        assert_eq!(written.len(), 4);
    }

    /// Proves RC-12.
    #[test]
    fn no_orphan_is_adopted_by_a_terminating_replication_controller() {
        let mut terminating_owner = rc(1);
        terminating_owner["metadata"]["deletionTimestamp"] = json!("2027-01-03T00:00:00Z");
        let cluster = RehearsalCluster::of(&the_loop()).with_cached::<ReplicationController>(rc(1));
        let cluster = cluster.with_live::<ReplicationController>(terminating_owner).with::<Pod>(orphan("x"));
        let transcript = reconcile(cluster);
        assert!(is_retried_because(&transcript, "the owner is being deleted"), "{transcript}");
    }

    /// Proves RC-9, RC-10.
    #[test]
    fn without_selector_or_template_no_pod_is_created() {
        let mut blind = rc(1);
        blind["spec"]["selector"] = json!({});
        let cluster = || RehearsalCluster::of(&the_loop());
        assert_eq!(reconcile(cluster().with::<ReplicationController>(blind).with::<Pod>(pod("x"))), "");
        let mut bare = rc(1);
        bare["spec"]["template"] = Value::Null;
        let transcript = reconcile(cluster().with::<ReplicationController>(bare));
        assert!(transcript.ends_with("retry: unable to create pods, no labels\n"), "{transcript}");
        assert!(!transcript.contains("create pods a/"));
    }

    /// Proves RC-14, RC-17, RC-20, RC-21.
    #[test]
    fn the_status_does_not_count_terminating_pods() {
        let mut patient = rc(1);
        patient["spec"]["minReadySeconds"] = json!(5);
        let mut terminating = pod("y");
        terminating["metadata"]["deletionTimestamp"] = json!("2027-01-03T00:00:00Z");
        let cluster = RehearsalCluster::of(&the_loop()).with::<ReplicationController>(patient);
        let cluster = cluster.with::<Pod>(pod("x")).with::<Pod>(terminating.clone());
        assert_eq!(
            reconcile(cluster),
            "put replicationcontrollers/status a/web because replica counts or conditions changed: \
             {\"metadata\":{\"generation\":2,\"name\":\"web\",\"namespace\":\"a\",\
             \"resourceVersion\":\"7\",\"uid\":\"u-web\"},\
             \"status\":{\"availableReplicas\":0,\"fullyLabeledReplicas\":1,\"observedGeneration\":2,\"readyReplicas\":1,\"replicas\":1}}\n\
             requeue after 3s\n"
        );
        let mut up_to_date = rc(1);
        for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
            up_to_date["status"][count] = json!(1);
        }
        let cluster = RehearsalCluster::of(&the_loop()).with::<ReplicationController>(up_to_date);
        assert_eq!(reconcile(cluster.with::<Pod>(pod("x")).with::<Pod>(terminating)), "");
    }

    /// Proves REV-76.
    #[test]
    fn a_field_of_a_newer_api_server_changes_no_pod() {
        let newer = |replicas: i32| {
            let mut newer = rc(replicas);
            newer["spec"]["template"]["spec"]["invented"] = json!({"by": "default"});
            for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
                newer["status"][count] = json!(1);
            }
            RehearsalCluster::of(&the_loop()).with::<ReplicationController>(newer).with::<Pod>(pod("x"))
        };
        assert_eq!(reconcile(newer(1)), "");
        let grows = reconcile(newer(2));
        assert_eq!((grows.matches("create pods a/ ").count(), grows.matches("delete pods").count()), (1, 0));
    }

    /// Proves RC-16, RC-25, RC-27.
    #[test]
    fn a_replication_controller_has_no_related_replica_sets() {
        let mut controlled = rc(2);
        controlled["metadata"]["ownerReferences"] = json!([{"apiVersion": "x.io/v1", "kind": "Config", "name": "c", "uid": "u-c", "controller": true}]);
        let on = |node: &str, mut pod: Value| {
            pod["spec"]["nodeName"] = json!(node);
            pod
        };
        let cluster = RehearsalCluster::of(&the_loop()).with::<ReplicationController>(controlled);
        let cluster = cluster.with::<Pod>(on("n", pod("x"))).with::<Pod>(on("o", pod("a")));
        let transcript = reconcile(cluster.with::<Pod>(on("n", pod("y"))));
        assert!(transcript.contains("delete pods a/a "), "by uid, though another node has two: {transcript}");
        assert!(transcript.contains("measure replicaset_controller_sorting_deletion_age_ratio{} 1\n"));
    }

    /// Proves RC-24.
    #[test]
    fn a_failure_is_reported() {
        let failure = ApiError::transport(ErrorReason::Forbidden, "refused");
        let cluster = cluster(1).failing_at("create", "/api/v1/namespaces/a/pods/", failure, None);
        let transcript = reconcile(cluster);
        assert!(transcript.contains(
            r#""message":"refused","reason":"FailedCreate","status":"True","type":"ReplicaFailure""#
        ));
        assert!(is_retried_because(&transcript, "refused"));
    }
}
