//! Routing, sync and replenishment of quotas.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
use std::time::Duration;

use keleustes_objects::{
    ApiError, ApiResource, DeviceClass, ErrorReason, Key, Kind, ObjectMeta, PersistentVolumeClaim, Pod,
    Resource, ResourceClaim, ResourceQuota, Service, Time,
};
use keleustes_plan::rehearsal::{RehearsalCluster, is_retried_because};
use keleustes_plan::{Change, Controller, Effects, EnqueuedItem, Loop};
use serde_json::{Value, json};

use super::*;

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
const WIDGETS: Resource = Resource::namespaced("example.com", "v1", "widgets", "Widget");

/// The controller, with Secrets and Widgets monitored.
struct Test {
    controller: Controller,
    cluster: RehearsalCluster,
}

fn key() -> Key {
    Key::namespaced("a", "q")
}

fn meta_of(namespace: &str, name: &str) -> ObjectMeta {
    let json =
        json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")}});
    serde_json::from_value::<keleustes_objects::PartialObjectMeta>(json).unwrap().meta
}

fn quota(spec: Value, status: Value) -> Value {
    json!({"metadata": {"name": "q", "namespace": "a", "uid": "u", "resourceVersion": "5", "labels": {"l": "1"},
        "annotations": {"n": "2"}}, "spec": spec, "status": status})
}

fn hard(hard: Value) -> Value {
    quota(json!({"hard": hard}), json!({}))
}

fn pod(name: &str, cpu: &str, phase: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "status": {"phase": phase},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

impl Test {
    fn new() -> Self {
        Self::with_options(&ResourceQuotaOptions::default())
    }

    fn with_options(options: &ResourceQuotaOptions) -> Self {
        let controller = controller(options);
        let cluster = RehearsalCluster::of(&controller.loops[0]);
        let test = Self { controller, cluster };
        test.list(&SECRETS, &[("a", "one"), ("b", "two")]);
        test.list(&WIDGETS, &[]);
        test
    }

    fn with<T: Kind>(mut self, json: Value) -> Self {
        self.cluster = self.cluster.with::<T>(json);
        self
    }

    fn list(&self, resource: &Resource, objects: &[(&str, &str)]) -> Vec<String> {
        let metas: Vec<_> = objects.iter().map(|(namespace, name)| meta_of(namespace, name)).collect();
        let mut effects = Effects::default();
        let observer = self.controller.observer.as_ref().unwrap();
        observer.on_resource(resource);
        observer.on_list(resource, &metas.iter().collect::<Vec<_>>(), &[], &mut effects);
        lines(&mut effects)
    }

    fn queue(&self, name: &str) -> &Loop {
        self.controller.loops.iter().find(|one| one.queue == name).unwrap()
    }

    /// The transcript of a sync.
    fn sync(&mut self) -> String {
        let primary = &self.controller.loops[0];
        self.cluster.reconcile(primary, key())
    }

    /// The status that a sync writes, as JSON; `unchanged` if it writes none.
    fn status(&mut self) -> String {
        let primary = &self.controller.loops[0];
        let bodies = self.cluster.bodies(primary, key(), "put resourcequotas/status ");
        bodies.first().map_or("unchanged".to_owned(), |(_, body)| body["status"].to_string())
    }

    fn used(&mut self) -> String {
        let status = self.status();
        let parsed: Value = serde_json::from_str(&status).unwrap_or(Value::Null);
        parsed["used"].to_string()
    }

    /// The queue that a change of a quota goes to.
    fn route(&self, old: Option<Value>, new: Option<Value>) -> String {
        let enqueued = |queue: &&&str| !enqueued::<ResourceQuota>(self.queue(queue), &old, &new).is_empty();
        [PRIMARY, PRIORITY, RESOURCE_CHANGES].iter().filter(enqueued).copied().collect::<Vec<_>>().join(" ")
    }

    /// The quotas that a changed resource enqueues.
    fn replenish(&mut self, namespace: &str, group: &str, plural: &str) -> String {
        let item = Trigger::change(&namespace.into(), group, plural);
        let changes = &self.controller.loops[2];
        self.cluster.reconcile(changes, item)
    }
}

/// The items that a change of an object enqueues, in a namespace with another quota.
fn enqueued<T: Kind>(a_loop: &Loop, old: &Option<Value>, new: &Option<Value>) -> Vec<String> {
    let mut cluster = RehearsalCluster::of(a_loop);
    if T::RESOURCE != ResourceQuota::RESOURCE {
        cluster = cluster.with_cached::<ResourceQuota>(hard(json!({"pods": "1"})));
    }
    let key = |json: &Value| serde_json::from_value::<T>(json.clone()).unwrap().key().clone();
    match (old, new) {
        (Some(old), None) => cluster.with_cached::<T>(old.clone()).take::<T>(a_loop, &key(old)),
        (Some(old), Some(new)) => {
            let mut new = new.clone();
            new["metadata"]["resourceVersion"] = json!("6");
            cluster.with_cached::<T>(old.clone()).put::<T>(a_loop, new)
        }
        (None, Some(new)) => cluster.put::<T>(a_loop, new.clone()),
        (None, None) => unreachable!("a change has a state"),
    }
}

fn lines(effects: &mut Effects) -> Vec<String> {
    let line = |added: EnqueuedItem| format!("{} {}", added.queue.unwrap_or_default(), added.item);
    effects.take_enqueued().into_iter().map(line).collect()
}

/// Proves RQ-1, RQ-3.
#[test]
fn two_queues_of_quotas_have_workers_and_the_queue_of_changes_has_one() {
    let controller = controller(&ResourceQuotaOptions::default());
    let queues: Vec<_> =
        controller.loops.iter().map(|one| (one.queue, one.workers, one.max_retries)).collect();
    let expected = [
        ("resourcequota_primary", 5, None),
        ("resourcequota_priority", 5, None),
        ("resource_quota_controller_resource_changes", 1, None),
    ];
    assert_eq!(queues, expected);
    assert!(controller.loops.iter().all(|one| one.rate_limiter == keleustes_plan::RateLimiter::DEFAULT));
    let many = super::controller(&ResourceQuotaOptions { workers: 9, ..ResourceQuotaOptions::default() });
    assert_eq!(many.loops.iter().map(|one| one.workers).collect::<Vec<_>>(), [9, 9, 1]);
}

/// Proves RQ-2, RQ-6.
#[test]
fn all_quotas_are_enqueued_at_start_and_periodically() {
    let mut test = Test::new().with::<ResourceQuota>(hard(json!({"pods": "1"})));
    let mut other = hard(json!({"pods": "1"}));
    other["metadata"]["namespace"] = json!("b");
    let items = test.queue(RESOURCE_CHANGES).initial_items.clone();
    assert_eq!(items.len(), 1);
    test.cluster = test.cluster.with::<ResourceQuota>(other);
    let transcript = test.cluster.reconcile(&test.controller.loops[2], items[0].clone());
    assert!(transcript.contains("enqueue a/q in resourcequota_primary"), "{transcript}");
    assert!(transcript.contains("enqueue b/q in resourcequota_primary"), "{transcript}");
    assert!(transcript.contains("300s"), "{transcript}");
    let never = ResourceQuotaOptions { sync_period: Duration::ZERO, ..ResourceQuotaOptions::default() };
    assert!(controller(&never).loops.iter().all(|one| one.initial_items.is_empty()));
}

/// Proves RQ-4, RQ-5, RQ-10, RQ-106, RQ-118.
#[test]
fn quotas_are_routed_by_what_their_status_lacks() {
    let test = Test::new();
    let of = |spec: Value, status: Value| Some(quota(json!({"hard": spec}), status));
    let published = json!({"hard": {"pods": "1"}, "used": {"pods": "0"}});
    assert_eq!(test.route(None, of(json!({"pods": "1"}), json!({}))), PRIORITY, "unpublished");
    assert_eq!(
        test.route(None, of(json!({"pods": "1"}), json!({"hard": {"pods": "1"}}))),
        PRIORITY,
        "no usage"
    );
    assert_eq!(test.route(None, of(json!({"pods": "1"}), published.clone())), PRIMARY);
    assert_eq!(test.route(None, of(json!({"pods": "1000m"}), published.clone())), PRIMARY, "other notation");
    let counted = json!({"hard": {"count/widgets.example.com": "1"}});
    assert_eq!(test.route(None, of(json!({"count/widgets.example.com": "1"}), counted)), PRIORITY);
    let alias = json!({"hard": {"secrets": "1"}});
    assert_eq!(test.route(None, of(json!({"secrets": "1"}), alias)), PRIORITY);
    // Updates.
    let old = of(json!({"pods": "1"}), published.clone());
    assert_eq!(test.route(old.clone(), of(json!({"pods": "2"}), published.clone())), PRIORITY);
    assert_eq!(test.route(old.clone(), of(json!({"pods": "1000m"}), published.clone())), "");
    assert_eq!(test.route(old.clone(), of(json!({"pods": "1"}), json!({}))), "", "the status");
    let mut scoped = quota(json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}), published);
    scoped["metadata"]["labels"] = json!({"l": "other"});
    assert_eq!(test.route(old.clone(), Some(scoped)), "", "scopes and labels");
    assert_eq!(test.route(old, None), PRIMARY, "a deletion");
}

/// Proves RQ-108.
#[test]
fn unknown_resource_has_no_usage_and_no_priority() {
    let mut test = Test::new();
    let spec = json!({"count/gadgets.example.com": "1", "pods": "3"});
    let status = json!({"hard": spec, "used": {"pods": "0"}});
    assert_eq!(test.route(None, Some(quota(json!({"hard": spec}), status))), PRIMARY);
    test = test.with::<ResourceQuota>(hard(spec));
    assert_eq!(test.used(), r#"{"pods":"0"}"#);
}

/// Proves RQ-20, RQ-21, RQ-22, RQ-25, RQ-100.
#[test]
fn new_quota_gets_limits_and_usage() {
    let mut test = Test::new();
    assert_eq!(test.sync(), "", "an absent quota");
    test = test
        .with::<ResourceQuota>(hard(
            json!({"pods": "3", "requests.cpu": "2", "memory": "1Gi", "count/secrets": "9"}),
        ))
        .with::<Pod>(pod("one", "250m", "Running"))
        .with::<Pod>(pod("two", "500m", "Pending"));
    let mut elsewhere = pod("three", "4", "Running");
    elsewhere["metadata"]["namespace"] = json!("b");
    test = test.with::<Pod>(elsewhere);
    assert_eq!(
        test.status(),
        r#"{"hard":{"count/secrets":"9","memory":"1Gi","pods":"3","requests.cpu":"2"},"used":{"count/secrets":"1","memory":"0","pods":"2","requests.cpu":"750m"}}"#
    );
}

/// Proves RQ-90, RQ-95.
#[test]
fn status_is_put_with_the_metadata_and_version_of_the_cache() {
    let mut test = Test::new().with::<ResourceQuota>(hard(json!({"pods": "3"})));
    let primary = &test.controller.loops[0];
    let transcript = test.cluster.outline(primary, key());
    assert_eq!(transcript.lines().count(), 1, "{transcript}");
    test = Test::new().with::<ResourceQuota>(hard(json!({"pods": "3"})));
    let bodies = test.cluster.bodies(&test.controller.loops[0], key(), "put resourcequotas/status ");
    let [(name, body)] = &bodies[..] else { panic!("one write: {bodies:?}") };
    assert_eq!(name, "q");
    assert_eq!(body["metadata"]["resourceVersion"], "5");
    assert_eq!(
        (&body["metadata"]["labels"], &body["metadata"]["annotations"]),
        (&json!({"l": "1"}), &json!({"n": "2"}))
    );
    assert_eq!((test.controller.metrics.len(), test.controller.event_component), (0, None));
}

/// Proves RQ-23, RQ-91, RQ-117, RQ-126.
#[test]
fn names_of_a_failed_evaluator_keep_their_value_and_the_rest_is_written() {
    let spec = json!({"pods": "3", "count/widgets.example.com": "1", "count/gadgets.example.com": "2",
        "gpu.deviceclass.resource.k8s.io/devices": "1"});
    let old = json!({"hard": spec, "used": {"count/gadgets.example.com": "7", "gpu.deviceclass.resource.k8s.io/devices": "8"}});
    let mut test = Test::new();
    let gadgets = Resource::namespaced("example.com", "v1", "gadgets", "Gadget");
    test.controller.observer.as_ref().unwrap().on_resource(&gadgets);
    // ResourceClaims are not served: their store is not in the view.
    test.controller.loops[0].reads.retain(|kind| kind.resource().plural != "resourceclaims");
    test.cluster = RehearsalCluster::of(&test.controller.loops[0])
        .with::<ResourceQuota>(quota(json!({"hard": spec}), old));
    let transcript = test.sync();
    assert!(transcript.contains("put resourcequotas/status a/q"), "{transcript}");
    let message = "[failed to list content: resource.k8s.io/v1, Resource=resourceclaims not yet synced, \
                   failed to list content: example.com/v1, Resource=gadgets not yet synced]";
    assert!(is_retried_because(&transcript, message), "{transcript}");
    assert_eq!(
        test.used(),
        r#"{"count/gadgets.example.com":"7","count/widgets.example.com":"0","gpu.deviceclass.resource.k8s.io/devices":"8","pods":"0"}"#
    );
}

/// Proves RQ-24, RQ-101.
#[test]
fn dropped_names_lose_their_usage_and_unknown_ones_keep_it() {
    let status = json!({"hard": {"pods": "5", "cpu": "1", "x.io/y": "2"}, "used": {"pods": "4", "cpu": "9", "x.io/y": "1"}});
    let mut test = Test::new()
        .with::<ResourceQuota>(quota(json!({"hard": {"pods": "1", "x.io/y": "2", "x.io/z": "3"}}), status))
        .with::<Pod>(pod("one", "1", "Running"))
        .with::<Pod>(pod("two", "1", "Running"));
    assert_eq!(test.used(), r#"{"pods":"2","x.io/y":"1"}"#, "used may exceed hard");
}

/// Proves RQ-26, RQ-127.
#[test]
fn nothing_is_written_without_a_change() {
    let at = |spec: Value, status: Value| {
        Test::new()
            .with::<ResourceQuota>(quota(json!({"hard": spec}), status))
            .with::<Pod>(pod("one", "1", "Running"))
            .status()
    };
    let spec = json!({"cpu": "2", "memory": "1Gi"});
    let written =
        json!({"hard": {"cpu": "2000m", "memory": "1024Mi"}, "used": {"cpu": "1000m", "memory": "0"}});
    assert_eq!(at(spec.clone(), written.clone()), "unchanged");
    assert_ne!(at(json!({"cpu": "3", "memory": "1Gi"}), written), "unchanged");
    assert_ne!(at(spec.clone(), json!({"hard": spec})), "unchanged");
    assert_ne!(
        at(spec.clone(), json!({"hard": spec, "used": {"cpu": "1"}})),
        "unchanged",
        "a name is missing"
    );
    assert_ne!(at(spec.clone(), json!({"hard": spec, "used": {"cpu": "2", "memory": "0"}})), "unchanged");
    // Limits that nothing computes leave a part of the status unset, and so it is sent every time.
    assert_eq!(at(json!({}), json!({})), r#"{"hard":{},"used":{}}"#);
    assert_ne!(at(json!({"x.io/y": "1"}), json!({"hard": {"x.io/y": "1"}})), "unchanged");
}

/// Proves RQ-27, RQ-115, RQ-116.
#[test]
fn conflict_is_retried_and_the_next_sync_recomputes() {
    let conflict = ApiError::transport(ErrorReason::Conflict, "the object has been modified");
    let mut test = Test::new().with::<ResourceQuota>(hard(json!({"pods": "3"})));
    test.cluster = test.cluster.failing::<ResourceQuota>("update", &key(), conflict);
    let transcript = test.sync();
    assert!(
        transcript.contains("the object has been modified") && transcript.contains("retr"),
        "{transcript}"
    );
    // Admission has written meanwhile.
    let status = json!({"hard": {"pods": "3"}, "used": {"pods": "2"}});
    let mut test = Test::new().with::<ResourceQuota>(quota(json!({"hard": {"pods": "3"}}), status));
    assert_eq!(test.used(), r#"{"pods":"0"}"#);
    assert_ne!(
        test.controller.loops[0].queue, test.controller.loops[1].queue,
        "which do not exclude each other"
    );
}

/// Proves RQ-30, RQ-35, RQ-119.
#[test]
fn deletion_replenishes_the_quotas_of_its_namespace_that_limit_it() {
    let status = json!({"hard": {"count/secrets": "1", "pods": "1"}});
    let mut test = Test::new().with::<ResourceQuota>(quota(json!({"hard": {"configmaps": "1"}}), status));
    let observer = test.controller.observer.clone().unwrap();
    let mut effects = Effects::default();
    observer.on_update(&SECRETS, &meta_of("a", "three"), &mut effects);
    assert_eq!(lines(&mut effects), Vec::<String>::new(), "creations are accounted for by admission");
    observer.on_delete(&SECRETS, &meta_of("a", "three"), &mut effects);
    assert_eq!(lines(&mut effects), ["resource_quota_controller_resource_changes a/secrets group="]);
    assert!(test.replenish("a", "", "secrets").contains("enqueue a/q in resourcequota_primary"));
    assert!(test.replenish("a", "", "pods").contains("enqueue a/q in resourcequota_primary"));
    for (namespace, group, plural) in [
        ("b", "", "secrets"),
        ("a", "example.com", "secrets"),
        ("a", "", "services"),
        ("a", "", "configmaps"),
        ("a", "example.com", "widgets"),
        ("a", "example.com", "unheard-of"),
    ] {
        assert!(
            !test.replenish(namespace, group, plural).contains("enqueue"),
            "{namespace} {plural}.{group}"
        );
    }
    // An object that a list no longer has was deleted as well.
    assert_eq!(
        test.list(&SECRETS, &[("b", "two")]),
        ["resource_quota_controller_resource_changes a/secrets group="]
    );
    assert_eq!(test.list(&SECRETS, &[("b", "two"), ("c", "new")]), Vec::<String>::new());
}

/// Whether an update of an object in a namespace with a quota enqueues its resource.
fn counts<T: Kind>(old: Value, new: Option<Value>) -> bool {
    !enqueued::<T>(Test::new().queue(RESOURCE_CHANGES), &Some(old), &new).is_empty()
}

/// Proves RQ-31, RQ-32, RQ-102.
#[test]
fn pod_updates_that_lower_usage_count() {
    let running = pod("p", "1", "Running");
    let with = |path: &str, value: Value| {
        let mut json = running.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        json.pointer_mut(parent).unwrap()[field] = value;
        json
    };
    let status = |allocated: &str, actual: &str| {
        with(
            "/status/containerStatuses",
            json!([{"name": "c", "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": actual}}}]),
        )
    };
    let update = |old: Value, new: Value| counts::<Pod>(old, Some(new));
    assert!(counts::<Pod>(running.clone(), None));
    assert!(update(running.clone(), with("/status/phase", json!("Succeeded"))));
    assert!(update(running.clone(), with("/status/phase", json!("Failed"))));
    assert!(!update(with("/status/phase", json!("Failed")), with("/status/phase", json!("Succeeded"))));
    assert!(!update(with("/status/phase", json!("Pending")), running.clone()));
    assert!(update(running.clone(), with("/spec/activeDeadlineSeconds", json!(5))));
    assert!(!update(running.clone(), with("/metadata/labels", json!({"x": "y"}))));
    assert!(update(status("1", "2"), status("1", "1")));
    assert!(!update(status("1", "2"), status("2", "2000m")), "what is allocated");
    let mut wanted = status("1", "1");
    wanted["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("5");
    assert!(!update(status("1", "1"), wanted), "what is wanted");
    let mut recreated = running.clone();
    recreated["metadata"]["uid"] = json!("other");
    assert!(update(running.clone(), recreated));
    // Without a quota in the namespace nothing is enqueued.
    let test = Test::new();
    let last = std::sync::Arc::new(serde_json::from_value::<Pod>(running).unwrap());
    assert!(test.cluster.enqueued_by(test.queue(RESOURCE_CHANGES), Change::deleted(last)).is_empty());
}

/// Proves RQ-33, RQ-105.
#[test]
fn service_updates_count_if_the_charged_type_changes() {
    let service = |kind: &str, ports: usize| {
        let ports: Vec<_> = (0..ports).map(|port| json!({"port": port + 1})).collect();
        json!({"metadata": {"name": "s", "namespace": "a", "uid": "s"}, "spec": {"type": kind, "ports": ports}})
    };
    let update = |old: Value, new: Value| counts::<Service>(old, Some(new));
    assert!(counts::<Service>(service("ClusterIP", 1), None));
    assert!(update(service("NodePort", 1), service("ClusterIP", 1)));
    assert!(update(service("ClusterIP", 1), service("LoadBalancer", 1)));
    assert!(update(service("NodePort", 1), service("LoadBalancer", 1)));
    assert!(!update(service("ClusterIP", 1), service("ExternalName", 1)));
    assert!(!update(service("NodePort", 1), service("NodePort", 3)), "the number of ports");
}

/// Proves RQ-34.
#[test]
fn every_update_of_a_volume_claim_counts() {
    let claim = json!({"metadata": {"name": "c", "namespace": "a", "uid": "c"}, "spec": {}});
    assert!(counts::<PersistentVolumeClaim>(claim.clone(), None));
    assert!(counts::<PersistentVolumeClaim>(claim.clone(), Some(claim.clone())));
    let test = Test::new().with::<ResourceQuota>(hard(json!({"pods": "1"})));
    let object = std::sync::Arc::new(serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap());
    let enqueued = |change: Change<PersistentVolumeClaim>| {
        test.cluster.enqueued_by(test.queue(RESOURCE_CHANGES), change).len()
    };
    assert_eq!((enqueued(Change::resync(object.clone())), enqueued(Change::added(object))), (1, 0));
}

/// Proves RQ-7, RQ-36.
#[test]
fn namespaced_resources_that_can_be_created_are_counted() {
    let test = Test::new();
    let observer = test.controller.observer.as_ref().unwrap();
    let ignores = |resource: Resource, verbs: &str| {
        observer.ignores(&ApiResource {
            resource,
            preferred: true,
            singular: String::new(),
            verbs: verbs.split(' ').map(str::to_owned).collect(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        })
    };
    assert!(!ignores(WIDGETS, "create delete list watch"));
    assert!(!ignores(SECRETS, "create delete list watch"));
    assert!(ignores(WIDGETS, "delete list watch"), "without create");
    assert!(ignores(Resource::cluster("", "v1", "nodes", "Node"), "create delete list watch"));
    assert!(ignores(Resource::namespaced("", "v1", "events", "Event"), "create delete list watch"));
    for special in
        [Pod::RESOURCE, Service::RESOURCE, PersistentVolumeClaim::RESOURCE, ResourceClaim::RESOURCE]
    {
        assert!(ignores(special, "create delete list watch"), "its cache is read instead");
    }
}

/// Proves RQ-39, RQ-124.
#[test]
fn counts_under_a_scope_and_unused_classes_are_zero() {
    let spec = json!({"hard": {"count/secrets": "5", "count/services": "5", "services": "5", "pods": "5",
        "count/resourceclaims.resource.k8s.io": "1"}, "scopes": ["Terminating"]});
    let service = json!({"metadata": {"name": "s", "namespace": "a"}, "spec": {"type": "ClusterIP"}});
    let claim = json!({"metadata": {"name": "c", "namespace": "a"}});
    let mut deadline = pod("two", "1", "Running");
    deadline["spec"]["activeDeadlineSeconds"] = json!(1);
    let mut test = Test::new()
        .with::<ResourceQuota>(quota(spec, json!({})))
        .with::<Service>(service)
        .with::<ResourceClaim>(claim)
        .with::<Pod>(pod("one", "1", "Running"))
        .with::<Pod>(deadline);
    assert_eq!(
        test.used(),
        r#"{"count/resourceclaims.resource.k8s.io":"0","count/secrets":"0","count/services":"0","pods":"1","services":"0"}"#
    );
    let mut unused = Test::new().with::<ResourceQuota>(hard(json!({
        "slow.storageclass.storage.k8s.io/requests.storage": "1Gi", "none.deviceclass.resource.k8s.io/devices": "1"})));
    assert_eq!(
        unused.used(),
        r#"{"none.deviceclass.resource.k8s.io/devices":"0","slow.storageclass.storage.k8s.io/requests.storage":"0"}"#
    );
}

/// Proves RQ-109.
#[test]
fn scope_that_cannot_be_evaluated_ends_the_count_without_an_error() {
    let long = "x".repeat(64);
    let expression = |operator: &str, value: &str| {
        let selector = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": [value]}]});
        let spec = json!({"hard": {"pods": "5", "count/secrets": "1"}, "scopeSelector": selector});
        let mut test =
            Test::new().with::<ResourceQuota>(quota(spec, json!({}))).with::<Pod>(pod("one", "1", "Running"));
        let transcript = test.sync();
        assert!(!transcript.contains("retr"), "{transcript}");
        test.used()
    };
    assert_eq!(expression("NotIn", "high"), r#"{"count/secrets":"0","pods":"1"}"#);
    assert_eq!(expression("NotIn", &long), r#"{"count/secrets":"0","pods":"0"}"#);
    assert_eq!(expression("Like", "high"), r#"{"count/secrets":"0","pods":"0"}"#);
}

/// Proves RQ-111.
#[test]
fn name_and_alias_are_both_counted() {
    let spec = json!({"secrets": "5", "count/secrets": "5", "count/widgets.example.com": "1"});
    let mut test = Test::new().with::<ResourceQuota>(hard(spec));
    assert_eq!(test.used(), r#"{"count/secrets":"1","count/widgets.example.com":"0","secrets":"1"}"#);
}

/// Proves RQ-107, RQ-120, RQ-121.
#[test]
fn custom_resource_is_counted_from_when_it_is_monitored() {
    let mut test = Test::new();
    let gadgets = Resource::namespaced("example.com", "v1", "gadgets", "Gadget");
    let spec = json!({"count/gadgets.example.com": "5"});
    let status = json!({"hard": spec, "used": {}});
    test = test.with::<ResourceQuota>(quota(json!({"hard": spec}), status.clone()));
    assert_eq!(test.status(), "unchanged", "nothing counts the name yet");
    // The type is monitored now; no quota is enqueued for that, but a new one has priority.
    assert_eq!(test.list(&gadgets, &[("a", "g")]), Vec::<String>::new());
    assert_eq!(test.route(None, Some(quota(json!({"hard": spec}), status))), PRIORITY);
    assert_eq!(test.used(), r#"{"count/gadgets.example.com":"1"}"#);
    // In another version each object still counts once.
    let newer = Resource { version: "v2".into(), ..gadgets };
    test.list(&newer, &[("a", "g"), ("a", "h")]);
    let observer = test.controller.observer.clone().unwrap();
    observer.on_update(&newer, &meta_of("a", "g"), &mut Effects::default());
    assert_eq!(test.used(), r#"{"count/gadgets.example.com":"2"}"#);
    // The objects of a type that is no longer served are deleted, and its name stays.
    for name in ["g", "h", "h"] {
        observer.on_delete(&newer, &meta_of("a", name), &mut Effects::default());
    }
    assert_eq!(test.used(), r#"{"count/gadgets.example.com":"0"}"#);
}

/// Proves RQ-36, RQ-37.
#[test]
fn objects_without_uids_are_counted_by_name() {
    let gadgets = Resource::namespaced("example.com", "v1", "gadgets", "Gadget");
    let mut test = Test::new().with::<ResourceQuota>(hard(json!({"count/gadgets.example.com": "5"})));
    let observer = test.controller.observer.clone().unwrap();
    let without_uid = |namespace: &str, name: &str| {
        let mut meta = meta_of(namespace, name);
        meta.uid = keleustes_objects::Uid::default();
        meta
    };
    let listed = [without_uid("a", "g"), without_uid("a", "h"), without_uid("b", "g")];
    observer.on_resource(&gadgets);
    observer.on_list(&gadgets, &listed.iter().collect::<Vec<_>>(), &[], &mut Effects::default());
    observer.on_update(&gadgets, &without_uid("a", "i"), &mut Effects::default());
    assert_eq!(test.used(), r#"{"count/gadgets.example.com":"3"}"#);
    observer.on_delete(&gadgets, &without_uid("a", "g"), &mut Effects::default());
    assert_eq!(test.used(), r#"{"count/gadgets.example.com":"2"}"#);
}

/// Proves RQ-103.
#[test]
fn pod_that_is_stuck_terminating_is_released_by_a_later_sync() {
    let mut stuck = pod("one", "1", "Running");
    stuck["metadata"]["deletionTimestamp"] = json!(Time::from_unix_seconds(1_767_225_600 + 30));
    stuck["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let mut test =
        Test::new().with::<ResourceQuota>(hard(json!({"pods": "5", "count/pods": "5"}))).with::<Pod>(stuck);
    test.cluster.set_wall_clock(Time::from_unix_seconds(1_767_225_600), 0);
    let transcript = test.sync();
    assert!(!transcript.contains("after"), "no timer is set: {transcript}");
    assert_eq!(test.used(), r#"{"count/pods":"1","pods":"1"}"#);
    test.cluster.set_wall_clock(Time::from_unix_seconds(1_767_225_600 + 61), 0);
    assert_eq!(test.used(), r#"{"count/pods":"1","pods":"0"}"#);
}

/// Proves RQ-113, RQ-114, RQ-129.
#[test]
fn terminating_quotas_and_objects_are_like_any_other() {
    let mut going = hard(json!({"count/services": "5"}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let service =
        json!({"metadata": {"name": "s", "namespace": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mut test = Test::new().with::<ResourceQuota>(going).with::<Service>(service);
    assert_eq!(test.used(), r#"{"count/services":"1"}"#);
    // Nothing of the namespace is read, so its termination makes no difference.
    let reads = |one: &Loop| one.reads.iter().any(|kind| kind.resource().plural == "namespaces");
    assert!(!test.controller.loops.iter().any(reads));
}

/// Proves RQ-12.
#[test]
fn loops_start_when_their_caches_are_synced_and_without_resource_claims() {
    let controller = controller(&ResourceQuotaOptions::default());
    for one in &controller.loops {
        let deferred: Vec<_> =
            one.starts_without.iter().map(|kind| kind.resource().plural.to_string()).collect();
        assert_eq!(deferred, ["resourceclaims", "deviceclasses"]);
        for kind in ["resourcequotas", "pods", "services", "persistentvolumeclaims"] {
            assert!(one.reads.iter().any(|read| read.resource().plural == kind), "{kind}");
        }
    }
    assert!(controller.observer.is_some(), "which is waited for, too");
}

/// Extended resources are charged to the pod once, and to the claim for the rest.
#[test]
fn claims_of_extended_resources_are_charged_beside_their_pod() {
    let mut owner = pod("p", "1", "Running");
    owner["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("2");
    owner["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "c"});
    let claim = json!({"metadata": {"name": "c", "namespace": "a",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]},
        "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}}]}}});
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}});
    let mut test = Test::new()
        .with::<ResourceQuota>(hard(json!({"requests.example.com/gpu": "9"})))
        .with::<Pod>(owner)
        .with::<ResourceClaim>(claim)
        .with::<DeviceClass>(class);
    assert_eq!(test.used(), r#"{"requests.example.com/gpu":"3"}"#, "two for the pod, one more for the claim");
}
