//! Reconciles of a namespace in small clusters.

use keleustes_plan::rehearsal::is_retried_because;
use std::sync::Arc;

use keleustes_objects::{ApiError, ApiResource, DiscoveredResources, Kind as _, Resource, Time};
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::json;

use super::*;

const ALL: &[&str] = &["get", "list", "delete", "deletecollection"];
const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");
/// The time of the rehearsal, and the deletionTimestamp of `a`.
const NOW: i64 = 1_800_000_000;
const DELETED_AT: i64 = NOW - 5;

fn the_loop() -> Loop {
    controller(&NamespaceOptions::default()).loops.remove(0)
}

fn api(resource: &Resource, verbs: &[&str]) -> ApiResource {
    ApiResource {
        resource: resource.clone(),
        preferred: true,
        singular: String::new(),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}

fn served(resources: Vec<ApiResource>) -> DiscoveredResources {
    DiscoveredResources { resources, ..DiscoveredResources::default() }
}

fn at(seconds: i64) -> String {
    Time::from_unix_seconds(seconds).to_string()
}

/// A terminating namespace.
fn terminating() -> Value {
    json!({
        "metadata": {"name": "a", "uid": "u1", "resourceVersion": "7", "labels": {"keep": "me"},
                     "deletionTimestamp": at(DELETED_AT), "finalizers": ["meta/finalizer"]},
        "spec": {"finalizers": ["kubernetes"], "novel": 1},
        "status": {"phase": "Terminating"},
    })
}

/// A terminating namespace whose five conditions report no failure.
fn without_failures() -> Value {
    let mut namespace = terminating();
    let mut conditions = Vec::new();
    conditions::update(&mut conditions, &DeletionResult::default(), Time::from_unix_seconds(NOW - 100));
    namespace["status"]["conditions"] = Value::Array(conditions);
    namespace
}

fn object(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"namespace": "a", "name": name, "uid": name, "finalizers": finalizers}})
}

fn pod(name: &str, phase: &str, grace: i64) -> Value {
    let mut pod = object(name, &[]);
    pod["spec"] = json!({"terminationGracePeriodSeconds": grace});
    pod["status"] = json!({"phase": phase});
    pod
}

fn failure(code: u16, message: &str) -> ApiError {
    ApiError::from_status(code, "", message, [], 0)
}

/// A cluster with namespace `a` and a server that serves pods, Secrets and Jobs.
fn cluster(namespace: Value) -> RehearsalCluster {
    let resources = vec![api(&PODS, ALL), api(&SECRETS, ALL), api(&JOBS, ALL)];
    RehearsalCluster::of(&the_loop()).with::<Namespace>(namespace).with_discovery(Ok(served(resources)))
}

/// The lines of the transcript without the bodies of updates.
fn steps(transcript: &str) -> Vec<&str> {
    transcript.lines().map(|line| line.split_once(": {").map_or(line, |(step, _)| step)).collect()
}

fn check(mut cluster: RehearsalCluster, wanted: &[&str]) {
    let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
    assert_eq!(steps(&transcript), wanted, "{transcript}");
}

/// The bodies of the updates of a subresource.
fn puts(transcript: &str, subresource: &str) -> Vec<Value> {
    let begin = format!("put namespaces/{subresource} ");
    let lines = transcript.lines().filter(|line| line.starts_with(&begin));
    lines.filter_map(|line| serde_json::from_str(&line[line.find(": {")? + 2..]).ok()).collect()
}

/// The conditions that a reconcile writes: type, status, reason, message.
fn conditions(mut cluster: RehearsalCluster) -> Vec<[String; 4]> {
    let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
    let body = puts(&transcript, "status").pop().unwrap_or_else(|| panic!("conditions in {transcript}"));
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let conditions = body["status"]["conditions"].as_array().unwrap().iter();
    conditions.map(|one| ["type", "status", "reason", "message"].map(|field| text(one, field))).collect()
}

/// The one condition whose status is True.
fn true_condition(cluster: RehearsalCluster) -> [String; 3] {
    let mut bad = conditions(cluster).into_iter().filter(|[_, status, ..]| status == "True");
    let [name, _, reason, message] = bad.next().expect("a True condition");
    assert_eq!(bad.next(), None);
    [name, reason, message]
}

const GET: &str = "get namespaces a";
const CONDITIONS: &str = "put namespaces/status a because its conditions changed";
const FINALIZE_STEP: &str = "put namespaces/finalize a because its content is deleted";
/// The first lists of the two resources beside pods.
const FIRST_LISTS: [&str; 2] = ["list at most 1 of secrets in a", "list at most 1 of jobs.batch in a"];

fn collection(resource: &str) -> String {
    format!("deletecollection {resource} in a because its namespace is terminating")
}

/// Proves NS-1.
#[test]
fn only_terminating_namespaces_are_enqueued_after_five_seconds() {
    let (a_loop, cluster) = (the_loop(), RehearsalCluster::of(&the_loop()));
    let enqueued = |change: Change<Namespace>| {
        let mut enqueued = Effects::default();
        a_loop.watches[0].enqueue(&change.into(), &cluster.view(), &mut enqueued);
        enqueued.into_items().into_iter().map(|(item, delay)| (item.to_string(), delay)).collect::<Vec<_>>()
    };
    let decode = |json: Value| Arc::new(serde_json::from_value::<Namespace>(json).unwrap());
    let delayed = [("a".to_owned(), Some(Duration::from_secs(5)))];
    let mut active = terminating();
    active["metadata"]["deletionTimestamp"] = Value::Null;
    assert_eq!(enqueued(Change::added(decode(terminating()))), delayed);
    assert_eq!(enqueued(Change::resync(decode(terminating()))), delayed);
    assert_eq!(enqueued(Change::deleted(decode(terminating()))), []);
    assert_eq!(enqueued(Change::added(decode(active.clone()))), []);
    let mut table = keleustes_plan::Store::<Namespace>::default();
    active["metadata"]["resourceVersion"] = json!("6");
    table.apply(decode(active));
    assert_eq!(enqueued(table.apply(decode(terminating()))), delayed);
}

/// Proves NS-2, NS-3, NS-4, NS-5, NS-8, NS-60, RUN-32.
#[test]
fn controller_has_upstreams_names_and_numbers() {
    let settings = NamespaceOptions::default();
    assert_eq!((settings.workers, settings.sync_period), (10, Duration::from_secs(300)));
    let settings = NamespaceOptions { workers: 3, sync_period: Duration::from_secs(7) };
    let mut controller = controller(&settings);
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("namespace-controller", &["namespace"][..])
    );
    assert_eq!(controller.service_account, Some("namespace-controller"));
    assert_eq!(controller.event_component, None);
    assert_eq!(controller.qps_multiplier, QpsMultiplier { qps: 20, burst: 100 });
    assert!(controller.metrics.is_empty());
    let a_loop = controller.loops.remove(0);
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("namespace", 3, None));
    assert_eq!(a_loop.resync_period, Some(Duration::from_secs(7)));
    let RateLimiter { base_delay, max_delay, retries_per_second, retries_burst } = a_loop.rate_limiter;
    assert_eq!((base_delay, max_delay), (Duration::from_millis(5), Duration::from_secs(60)));
    assert_eq!((retries_per_second, retries_burst), (10.0, 100));
    // The loop starts when the caches of all kinds it reads are synced.
    assert_eq!(
        a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect::<Vec<_>>(),
        ["namespaces"]
    );
}

/// Proves NS-10, NS-11, NS-82.
#[test]
fn deleted_or_active_namespace_is_not_changed() {
    check(RehearsalCluster::of(&the_loop()), &[]);
    check(RehearsalCluster::of(&the_loop()).with_cached::<Namespace>(terminating()), &[GET]);
    let mut active = terminating();
    active["metadata"]["deletionTimestamp"] = Value::Null;
    check(cluster(active), &[GET]);
    let broken = cluster(terminating()).failing::<Namespace>("get", &Key::cluster("a"), failure(500, "boom"));
    check(broken, &[GET, "retry: reading a: boom"]);
}

/// Proves NS-12, NS-40.
#[test]
fn terminating_phase_is_written_first() {
    let mut active = without_failures();
    active["status"]["phase"] = json!("Active");
    let mut transcript = cluster(active.clone()).reconcile(&the_loop(), Key::cluster("a"));
    let marked = "put namespaces/status a because it has a deletionTimestamp";
    assert_eq!(steps(&transcript)[..3], [GET, marked, "discover"]);
    let mut wanted = active.clone();
    wanted["status"]["phase"] = json!("Terminating");
    assert_eq!(puts(&transcript, "status"), [wanted]);
    // Deleted in the meantime: done.
    let gone = Key::cluster("a");
    let mut deleted = cluster(active.clone()).failing::<Namespace>("update", &gone, failure(404, "gone"));
    transcript = deleted.reconcile(&the_loop(), Key::cluster("a"));
    assert_eq!(steps(&transcript)[1], format!("{marked} (gone)"));
    assert_eq!(steps(&transcript).len(), 2);
    let refused = cluster(active).failing::<Namespace>("update", &gone, failure(500, "boom"));
    check(refused, &[GET, &format!("{marked} FAILED: boom"), &format!("retry: {marked}: boom")]);
}

/// Proves NS-13.
#[test]
fn namespace_without_finalizers_is_left_to_the_api_server() {
    let mut finalized = terminating();
    finalized["spec"]["finalizers"] = json!([]);
    check(cluster(finalized), &[GET]);
}

/// Proves NS-6, NS-14.
#[test]
fn discovered_resources_are_deleted_in_the_preferred_version() {
    let mut old = api(&Resource::namespaced("batch", "v1beta1", "jobs", "Job"), ALL);
    old.preferred = false;
    let nodes = api(&Resource::cluster("", "v1", "nodes", "Node"), ALL);
    let reviews = api(&Resource::namespaced("", "v1", "bindings", "Binding"), &["create", "list"]);
    let resources = vec![old, api(&JOBS, ALL), nodes, reviews];
    let mut cluster = cluster(without_failures()).with_discovery(Ok(served(resources)));
    let only_jobs = [GET, "discover", "list at most 1 of jobs.batch in a", FINALIZE_STEP];
    assert_eq!(steps(&cluster.reconcile(&the_loop(), Key::cluster("a"))), only_jobs);
    // The next reconcile runs discovery again.
    let cluster = cluster.with_discovery(Ok(served(vec![api(&SECRETS, ALL)])));
    check(cluster, &[GET, "discover", "list at most 1 of secrets in a", FINALIZE_STEP]);
}

/// Proves NS-19, NS-21, NS-29, NS-45.
#[test]
fn non_empty_resources_are_deleted_and_listed_again() {
    let cluster = cluster(terminating())
        .with_live_resource(&SECRETS, object("s", &[]))
        .with_live_resource(&SECRETS, object("t", &[]));
    check(
        cluster,
        &[
            GET,
            "discover",
            "list pods in a",
            FIRST_LISTS[0],
            FIRST_LISTS[1],
            &collection("secrets"),
            "list secrets in a",
            CONDITIONS,
            FINALIZE_STEP,
        ],
    );
}

/// Proves NS-15, NS-22, NS-25, NS-27, NS-70, NS-74.
#[test]
fn other_resources_wait_while_a_pod_exists() {
    let blocked = || {
        let cluster = cluster(terminating())
            .with_live_resource(&PODS, pod("p", "Running", 30))
            .with_live_resource(&SECRETS, object("s", &[]));
        cluster.with_blocked_deletion(&PODS, &Key::namespaced("a", "p"))
    };
    let deleting = collection("pods");
    check(
        blocked(),
        &[
            GET,
            "discover",
            "list pods in a",
            &deleting,
            "list pods in a",
            CONDITIONS,
            "requeue with kept backoff after 16s",
        ],
    );
    assert!(conditions(blocked()).iter().all(|[_, status, ..]| status == "False"), "no totals are reported");
    // An odd number of seconds is halved downwards.
    let odd = cluster(without_failures()).with_live_resource(&PODS, pod("p", "Running", 31));
    let mut odd = odd.with_blocked_deletion(&PODS, &Key::namespaced("a", "p"));
    assert!(odd.reconcile(&the_loop(), Key::cluster("a")).ends_with("requeue with kept backoff after 16s\n"));
}

/// Proves NS-16, NS-26, NS-55.
#[test]
fn failure_of_one_resource_keeps_the_namespace_but_stops_no_other_resource() {
    let cluster = || {
        let cluster = cluster(terminating())
            .with_live_resource(&SECRETS, object("s", &[]))
            .with_live_resource(&JOBS, object("j", &[]));
        cluster.failing_at("deletecollection", "/api/v1/namespaces/a/secrets", failure(500, "boom"), None)
    };
    check(
        cluster(),
        &[
            GET,
            "discover",
            "list pods in a",
            FIRST_LISTS[0],
            FIRST_LISTS[1],
            &format!("{} FAILED: boom", collection("secrets")),
            &collection("jobs.batch"),
            "list jobs.batch in a",
            CONDITIONS,
            "retry: boom",
        ],
    );
    let message = "Failed to delete all resource types, 1 remaining: boom";
    assert_eq!(
        true_condition(cluster()),
        ["NamespaceDeletionContentFailure", "ContentDeletionFailed", message]
    );
    let both = cluster().failing_at("list", "/apis/batch/v1/namespaces/a/jobs", failure(503, "away"), None);
    let message = "Failed to delete all resource types, 2 remaining: away, boom";
    assert_eq!(true_condition(both)[2], message);
}

/// Proves NS-17, NS-18, NS-71.
#[test]
fn longest_grace_period_of_a_running_pod_is_the_estimate() {
    let active = |pods: &[Value]| {
        pods.iter().fold(cluster(without_failures()), |cluster, pod| {
            let key = Key::namespaced("a", pod["metadata"]["name"].as_str().unwrap());
            cluster.with_live_resource(&PODS, pod.clone()).with_blocked_deletion(&PODS, &key)
        })
    };
    let last = |mut cluster: RehearsalCluster| {
        let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
        transcript.lines().last().unwrap().to_owned()
    };
    let pods = [pod("p", "Running", 20), pod("q", "Pending", 40), pod("r", "Succeeded", 90)];
    assert_eq!(last(active(&pods)), "requeue with kept backoff after 21s");
    let ended = [pod("p", "Failed", 50), pod("q", "Succeeded", 50)];
    assert!(last(active(&ended)).starts_with("retry: unexpected items"));
    // Counted from the deletion of the namespace, five seconds ago.
    assert!(last(active(&[pod("p", "Running", 6)])).starts_with("requeue with kept backoff"));
    assert!(last(active(&[pod("p", "Running", 5)])).starts_with("retry: unexpected items"));
    let unlisted = cluster(without_failures()).with_live_resource(&PODS, pod("p", "Running", 30)).failing_at(
        "list",
        "/api/v1/namespaces/a/pods",
        failure(500, "boom"),
        None,
    );
    // The number of pods is unknown, so the other resources are listed.
    check(
        unlisted,
        &[GET, "discover", "list pods in a", FIRST_LISTS[0], FIRST_LISTS[1], CONDITIONS, "retry: boom"],
    );
}

/// Proves NS-20, NS-75, NS-76.
#[test]
fn objects_are_deleted_one_by_one_without_deletecollection() {
    let tried = |name: &str| format!("delete secrets a/{name} because its namespace is terminating");
    let each = |name: &str| format!("{} (Background)", tried(name));
    let full = || {
        cluster(without_failures())
            .with_live_resource(&SECRETS, object("s", &[]))
            .with_live_resource(&SECRETS, object("t", &[]))
    };
    let path = "/api/v1/namespaces/a/secrets";
    for refusal in [404, 405] {
        let cluster = full().failing_at("deletecollection", path, failure(refusal, "unknown"), None);
        let refused = format!("{} FAILED: unknown", collection("secrets"));
        let begin = [
            GET,
            "discover",
            "list pods in a",
            FIRST_LISTS[0],
            FIRST_LISTS[1],
            &refused,
            "list secrets in a",
        ];
        check(cluster, &[&begin[..], &[&each("s"), &each("t"), "list secrets in a", FINALIZE_STEP]].concat());
    }
    let refusing = |code| {
        let verbs = &["list", "delete"];
        let cluster = full().with_discovery(Ok(served(vec![api(&SECRETS, verbs)])));
        cluster.failing_at("delete", &format!("{path}/s"), failure(code, "refused"), None)
    };
    // A verb that is not served is not used. NotFound and MethodNotAllowed are no errors.
    let begin = [GET, "discover", FIRST_LISTS[0], "list secrets in a"];
    for fine in [404, 405] {
        let first = format!("{} (ignored: refused)", tried("s"));
        let mut cluster = refusing(fine);
        let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
        assert_eq!(steps(&transcript)[..5], [&begin[..], &[&first]].concat());
        assert_eq!(steps(&transcript)[5], each("t"));
    }
    let transcript = refusing(500).reconcile(&the_loop(), Key::cluster("a"));
    assert!(is_retried_because(&transcript, "refused"), "{transcript}");
    assert!(!transcript.contains(FINALIZE_STEP));
}

/// Proves NS-21, NS-77.
#[test]
fn resource_that_cannot_be_listed_counts_as_empty() {
    let path = "/api/v1/namespaces/a/secrets";
    for refusal in [404, 405] {
        let cluster = cluster(without_failures()).failing_at("list", path, failure(refusal, "unknown"), None);
        let cluster = cluster.failing_at("deletecollection", path, failure(refusal, "unknown"), None);
        let mut cluster = cluster.with_live_resource(&SECRETS, object("s", &[]));
        assert!(steps(&cluster.reconcile(&the_loop(), Key::cluster("a"))).ends_with(&[FINALIZE_STEP]));
    }
    // Without the verb `list` no list is sent; the collection is deleted all the same.
    let blind = cluster(without_failures())
        .with_discovery(Ok(served(vec![api(&SECRETS, &["delete", "deletecollection"])])));
    check(blind, &[GET, "discover", &collection("secrets"), FINALIZE_STEP]);
}

/// Proves NS-23, NS-56, NS-57, NS-58, NS-61, NS-73.
#[test]
fn remaining_finalizers_are_counted_and_awaited() {
    let blocked = || {
        cluster(terminating())
            .with_live_resource(&SECRETS, object("s", &["x/one", "x/two"]))
            .with_live_resource(&SECRETS, object("t", &["x/one"]))
            .with_live_resource(&JOBS, object("j", &["x/one"]))
    };
    let transcript = blocked().reconcile(&the_loop(), Key::cluster("a"));
    assert!(transcript.ends_with("requeue with kept backoff after 8s\n"), "{transcript}");
    let all = conditions(blocked());
    let texts: Vec<_> = all.iter().map(|texts| texts.each_ref().map(String::as_str)).collect();
    let remaining = "Some resources are remaining: jobs.batch has 1 resource instances, \
        secrets. has 2 resource instances";
    let finalizers = "Some content in the namespace has finalizers remaining: \
        x/one in 3 resource instances, x/two in 1 resource instances";
    assert_eq!(texts[3], ["NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining]);
    assert_eq!(texts[4], ["NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", finalizers]);
    assert_eq!(texts[2][1], "False");
    let pods = cluster(without_failures()).with_live_resource(&PODS, object("p", &["x/one"]));
    check(
        pods,
        &[
            GET,
            "discover",
            "list pods in a",
            &collection("pods"),
            "list pods in a",
            "requeue with kept backoff after 8s",
        ],
    );
}

/// Proves NS-24, NS-72.
#[test]
fn remaining_object_without_finalizer_is_an_error() {
    let active = |resource: &Resource, object: Value| {
        cluster(terminating())
            .with_live_resource(resource, object)
            .with_blocked_deletion(resource, &Key::namespaced("a", "o"))
    };
    let secret = "unexpected items still remain in namespace: a for gvr: /v1, Resource=secrets";
    let transcript = active(&SECRETS, object("o", &[])).reconcile(&the_loop(), Key::cluster("a"));
    assert!(transcript.ends_with(&format!("retry: {secret}\n")), "{transcript}");
    let message = |text: &str| format!("Failed to delete all resource types, 1 remaining: {text}");
    let bad: Vec<_> = conditions(active(&SECRETS, object("o", &[])))
        .into_iter()
        .filter(|[_, status, ..]| status == "True")
        .map(|[name, .., text]| (name, text))
        .collect();
    let remaining = "Some resources are remaining: secrets. has 1 resource instances".to_owned();
    assert_eq!(
        bad,
        [
            ("NamespaceDeletionContentFailure".to_owned(), message(secret)),
            ("NamespaceContentRemaining".to_owned(), remaining)
        ]
    );
    let job = "unexpected items still remain in namespace: a for gvr: batch/v1, Resource=jobs";
    let transcript = active(&JOBS, object("o", &[])).reconcile(&the_loop(), Key::cluster("a"));
    assert!(transcript.contains(job));
    // A pod past its grace period: the other resources wait, and the original reports no totals.
    let past = "unexpected items still remain in namespace: a for gvr: /v1, Resource=pods";
    let [name, _, text] = true_condition(active(&PODS, pod("o", "Running", 1)));
    assert_eq!((name.as_str(), text), ("NamespaceDeletionContentFailure", message(past)));
}

/// Proves NS-30, NS-51, NS-52, NS-81.
#[test]
fn failed_discovery_keeps_the_namespace_but_deletes_known_resources() {
    let stale = |gv: &str| (gv.to_owned(), format!("stale GroupVersion discovery: {gv}"));
    let partly = |failed: &[&str]| {
        let resources = vec![api(&SECRETS, ALL)];
        let failed = failed.iter().map(|gv| stale(gv)).collect();
        cluster(without_failures())
            .with_live_resource(&SECRETS, object("s", &[]))
            .with_discovery(Ok(DiscoveredResources { resources, failed, ..DiscoveredResources::default() }))
    };
    let message = "Discovery failed for some groups, 3 failing: unable to retrieve the complete list of server \
        APIs: metrics.k8s.io/v10: stale GroupVersion discovery: metrics.k8s.io/v10, metrics.k8s.io/v1: stale \
        GroupVersion discovery: metrics.k8s.io/v1, x/v1: stale GroupVersion discovery: x/v1";
    let failing = ["metrics.k8s.io/v1", "metrics.k8s.io/v10", "x/v1"];
    let wanted = ["NamespaceDeletionDiscoveryFailure", "DiscoveryFailed", message];
    assert_eq!(true_condition(partly(&failing)), wanted);
    let transcript = partly(&failing).reconcile(&the_loop(), Key::cluster("a"));
    assert!(transcript.contains(&collection("secrets")), "known resources are deleted");
    assert!(transcript.ends_with(&format!("retry: {message}\n")));
    // Discovery works again: the condition becomes False, and the namespace is finalized.
    let mut bad = without_failures();
    bad["status"]["conditions"][0]["status"] = json!("True");
    let mut back = cluster(bad);
    let transcript = back.reconcile(&the_loop(), Key::cluster("a"));
    assert!(steps(&transcript).ends_with(&[CONDITIONS, FINALIZE_STEP]), "{transcript}");
    assert_eq!(puts(&transcript, "status")[0]["status"]["conditions"][0]["status"], "False");
}

/// Proves NS-52.
#[test]
fn discovery_error_is_quoted_in_the_condition() {
    let unavailable = cluster(without_failures()).with_discovery(Err(failure(503, "the server is away")));
    let wanted = ["NamespaceDeletionDiscoveryFailure", "DiscoveryFailed", "the server is away"];
    assert_eq!(true_condition(unavailable), wanted);
    let failed = std::iter::once(("apis".to_owned(), "half of it is away".to_owned())).collect();
    let mut half = cluster(without_failures()).with_discovery(Ok(DiscoveredResources {
        resources: vec![api(&SECRETS, ALL)],
        failed,
        ..DiscoveredResources::default()
    }));
    let transcript = half.reconcile(&the_loop(), Key::cluster("a"));
    assert_eq!(steps(&transcript)[2..], [CONDITIONS, "retry: half of it is away"]);
}

/// Proves NS-31, NS-53.
#[test]
fn malformed_group_version_stops_the_deletion() {
    let odd = Resource::namespaced("a/b", "v1", "things", "Thing");
    let cluster = || {
        let resources = vec![api(&SECRETS, ALL), api(&odd, ALL)];
        cluster(without_failures())
            .with_live_resource(&SECRETS, object("s", &[]))
            .with_discovery(Ok(served(resources)))
    };
    check(cluster(), &[GET, "discover", CONDITIONS, "retry: unexpected GroupVersion string: a/b/v1"]);
    let wanted = [
        "NamespaceDeletionGroupVersionParsingFailure",
        "GroupVersionParsingFailed",
        "unexpected GroupVersion string: a/b/v1",
    ];
    assert_eq!(true_condition(cluster()), wanted);
}

/// Proves NS-29, NS-43, NS-78, NS-79.
#[test]
fn kubernetes_finalizer_is_removed_and_others_kept() {
    let mut namespace = without_failures();
    namespace["spec"]["finalizers"] = json!(["z", "kubernetes", "b", "z"]);
    let transcript = cluster(namespace.clone()).reconcile(&the_loop(), Key::cluster("a"));
    let [body] = &puts(&transcript, "finalize")[..] else { panic!("one put in {transcript}") };
    let spec = json!({"finalizers": ["b", "z"], "novel": 1});
    assert_eq!(*body, json!({"metadata": namespace["metadata"], "spec": spec}));
    // The finalizer `kubernetes` is already removed and others remain: the content is still deleted.
    namespace["spec"]["finalizers"] = json!(["b"]);
    let mut full = cluster(namespace).with_live_resource(&SECRETS, object("s", &[]));
    assert!(full.reconcile(&the_loop(), Key::cluster("a")).contains(&collection("secrets")));
    let mut gone =
        cluster(without_failures()).failing::<Namespace>("update", &Key::cluster("a"), failure(404, "gone"));
    assert!(!gone.reconcile(&the_loop(), Key::cluster("a")).contains("retry"));
}

/// Proves NS-42, NS-59, NS-84.
#[test]
fn conditions_are_written_once_and_only_if_changed() {
    check(
        cluster(without_failures()),
        &[GET, "discover", "list pods in a", FIRST_LISTS[0], FIRST_LISTS[1], FINALIZE_STEP],
    );
    // A conflict is only logged.
    let refused = cluster(terminating()).failing_at(
        "update",
        &Namespace::RESOURCE.object_path(&Key::cluster("a")),
        failure(409, "changed"),
        Some(1),
    );
    let refused_step = format!("{CONDITIONS} FAILED: changed");
    let begin = [GET, "discover", "list pods in a", FIRST_LISTS[0], FIRST_LISTS[1]];
    check(refused, &[&begin[..], &[&refused_step, FINALIZE_STEP]].concat());
    let mut reworded = without_failures();
    reworded["status"]["conditions"][1]["message"] = json!("other words");
    reworded["status"]["conditions"][2]["status"] = json!("True");
    let transcript = cluster(reworded).reconcile(&the_loop(), Key::cluster("a"));
    let conditions = puts(&transcript, "status")[0]["status"]["conditions"].clone();
    assert_eq!(conditions[1]["message"], "All legacy kube types successfully parsed");
    assert_eq!(conditions[1]["lastTransitionTime"], at(NOW - 100), "a changed message is no transition");
    assert_eq!(conditions[2]["lastTransitionTime"], at(NOW));
    assert_eq!(conditions[0]["lastTransitionTime"], at(NOW - 100));
}

/// Proves NS-50, NS-51, NS-53, NS-54, NS-56, NS-57.
#[test]
fn five_conditions_follow_existing_ones_in_order() {
    let mut namespace = terminating();
    let other = json!({"type": "Other", "status": "Unknown", "novel": true});
    namespace["status"]["conditions"] = json!([other]);
    let transcript = cluster(namespace).reconcile(&the_loop(), Key::cluster("a"));
    let body = puts(&transcript, "status").remove(0);
    assert_eq!(body["status"]["conditions"][0], other);
    assert_eq!(body["metadata"], terminating()["metadata"]);
    let wanted = [
        ["NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"],
        [
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ],
        [
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ],
        ["NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"],
        [
            "NamespaceFinalizersRemaining",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ],
    ];
    for (wanted, there) in wanted.iter().zip(&body["status"]["conditions"].as_array().unwrap()[1..]) {
        let [name, reason, message] = wanted;
        let condition = json!({"type": name, "status": "False", "lastTransitionTime": at(NOW),
            "reason": reason, "message": message});
        assert_eq!(*there, condition);
    }
}

/// Proves NS-44.
#[test]
fn phase_and_finalizer_updates_are_retried_after_every_conflict() {
    let path = Namespace::RESOURCE.object_path(&Key::cluster("a"));
    let refused = format!("{FINALIZE_STEP} FAILED: changed");
    let conflicts =
        cluster(without_failures()).failing_at("update", &path, failure(409, "changed"), Some(30));
    let begin = [GET, "discover", "list pods in a", FIRST_LISTS[0], FIRST_LISTS[1]];
    let retries = [&*refused, GET].repeat(30);
    check(conflicts, &[&begin[..], &retries, &[FINALIZE_STEP]].concat());
}

/// Proves NS-44, NS-82.
#[test]
fn recreated_namespace_ends_the_retries() {
    struct UpdateFirst;
    impl Reconciler for UpdateFirst {
        async fn reconcile(&self, cx: &mut Context<'_>, _: &Key) -> Result<Requeue, ReconcileError> {
            let mut first: LiveNamespace = serde_json::from_value(without_failures()).unwrap();
            update_with_retry(cx, &mut first, FINALIZE).await.map(|_| Requeue::Forget)
        }
    }
    let mut second = without_failures();
    second["metadata"]["uid"] = json!("u2");
    second["metadata"]["deletionTimestamp"] = Value::Null;
    let path = Namespace::RESOURCE.object_path(&Key::cluster("a"));
    let mut cluster = cluster(second).failing_at("update", &path, failure(409, "changed"), Some(1));
    let transcript = cluster.reconcile(&Loop::reconciling("test", UpdateFirst), Key::cluster("a"));
    let refused = format!("{FINALIZE_STEP} FAILED: changed");
    assert_eq!(steps(&transcript), [&*refused, GET, "retry: namespace uid has changed across retries"]);
    check(cluster, &[GET]);
}

/// Objects served by two resources are deleted through one of them, and both are listed.
#[test]
fn objects_served_by_two_resources_are_deleted_once() {
    let events = Resource::namespaced("", "v1", "events", "Event");
    let twins = Resource::namespaced("events.k8s.io", "v1", "events", "Event");
    let mut cluster = cluster(without_failures())
        .with_discovery(Ok(served(vec![api(&events, ALL), api(&twins, ALL)])))
        .with_live_resource(&events, object("e", &[]))
        .with_live_resource(&twins, object("e", &[]));
    let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
    let wanted = [
        GET,
        "discover",
        "list at most 1 of events in a",
        "list at most 1 of events.events.k8s.io in a",
        &collection("events"),
        "list events in a",
        "list events.events.k8s.io in a",
    ];
    assert_eq!(steps(&transcript)[..7], wanted);
}

/// An aggregated API may serve such objects.
#[test]
fn objects_without_uid_are_deleted_through_every_resource() {
    let parts = Resource::namespaced("example.org", "v1", "parts", "Part");
    let tools = Resource::namespaced("example.org", "v1", "tools", "Tool");
    let without_uid = || json!({"metadata": {"namespace": "a", "name": "e"}});
    let mut cluster = cluster(without_failures())
        .with_discovery(Ok(served(vec![api(&parts, ALL), api(&tools, ALL)])))
        .with_live_resource(&parts, without_uid())
        .with_live_resource(&tools, without_uid());
    let transcript = cluster.reconcile(&the_loop(), Key::cluster("a"));
    for resource in ["parts.example.org", "tools.example.org"] {
        assert!(steps(&transcript).contains(&&*collection(resource)), "{transcript}");
    }
}
