//! Workloads and PodGroups of Jobs, with the gate `WorkloadWithJob`.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use keleustes_objects::{ApiError, ErrorReason, Job, Key, Kind as _, PodGroup, Workload};
use serde_json::{Value, json};

use super::super::JobOptions;
use super::fixture::{JobFixture, Transcript, at, job, merge, owner, pod};

/// The names for Job `a/j` with UID `j-1`, and for template `j-pgt-0` of its Workload.
const WORKLOAD: &str = "j-5686c99785";

fn group_name() -> String {
    super::super::scheduling::pod_group_name(WORKLOAD, "j-pgt-0")
}

fn enabled() -> JobOptions {
    JobOptions { enable_workloads: true, ..JobOptions::default() }
}

/// The Job with these overrides, in a cluster whose server gives new Workloads the UID `w-1`.
fn fixture(overrides: Value) -> JobFixture {
    let mut fixture = JobFixture::with_options(&enabled(), job(&overrides));
    let path = Workload::RESOURCE.object_path(&Key::namespaced("a", WORKLOAD));
    fixture.cluster = fixture.cluster.storing("create", &path, workload(basic()));
    fixture
}

fn basic() -> Value {
    json!({"name": "j-pgt-0", "schedulingPolicy": {"basic": {}}})
}

fn gang(size: i64) -> Value {
    json!({"name": "j-pgt-0", "schedulingPolicy": {"gang": {"minCount": size}}})
}

/// The Workload of the Job with this template.
fn workload(template: Value) -> Value {
    json!({"metadata": {"namespace": "a", "name": WORKLOAD, "uid": "w-1", "resourceVersion": "4",
            "ownerReferences": [owner()]},
        "spec": {"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"},
            "podGroupTemplates": [template]}})
}

/// A PodGroup of the Job and a Workload.
fn group(name: &str, workload: &str, policy: Value) -> Value {
    json!({"metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "5",
            "ownerReferences": [owner()]},
        "spec": {"workloadRef": {"workloadName": workload, "templateName": "t"}, "schedulingPolicy": policy}})
}

fn bodies(transcript: &Transcript, beginning: &str) -> Vec<Value> {
    let lines = transcript.0.lines().filter(|line| line.starts_with(beginning));
    let body = |line: &str| format!("{{{}", line.split_once(": {").expect("a body").1);
    lines.map(|line| serde_json::from_str(&body(line)).expect("JSON")).collect()
}

/// The PodGroups that new pods name.
fn groups_of_pods(transcript: &Transcript) -> Vec<Value> {
    transcript.created().iter().map(|pod| pod["spec"]["schedulingGroup"].clone()).collect()
}

fn is_without_group(transcript: &Transcript) -> bool {
    let created =
        transcript.requests().iter().any(|line| line.starts_with("create ") && line.contains("k8s.io"));
    !created && groups_of_pods(transcript) == [Value::Null]
}

/// Proves JOB-124, JOB-130, JOB-144, JOB-172.
#[test]
fn new_job_gets_a_workload_and_a_pod_group_before_its_pods() {
    let transcript = fixture(json!({})).reconcile();
    let (workload, name) = (format!("a/{WORKLOAD}"), group_name());
    let requests = transcript.requests();
    assert_eq!(requests[0], format!("create workloads.scheduling.k8s.io {workload}"), "{}", transcript.0);
    assert_eq!(requests[1], format!("create podgroups.scheduling.k8s.io a/{name}"));
    assert!(requests[2].starts_with("create pods "), "{requests:?}");
    let body = &bodies(&transcript, "create workloads")[0];
    assert_eq!(body["metadata"]["ownerReferences"], json!([owner()]));
    let reference = json!({"apiGroup": "batch", "kind": "Job", "name": "j"});
    assert_eq!(body["spec"], json!({"controllerRef": reference, "podGroupTemplates": [basic()]}));
    let body = &bodies(&transcript, "create podgroups")[0];
    let second = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "name": WORKLOAD, "uid": "w-1"});
    assert_eq!(body["metadata"]["ownerReferences"], json!([owner(), second]));
    let reference = json!({"workloadName": WORKLOAD, "templateName": "j-pgt-0"});
    assert_eq!(body["spec"], json!({"workloadRef": reference, "schedulingPolicy": {"basic": {}}}));
    let pod = &transcript.created()[0];
    assert_eq!(pod["spec"]["schedulingGroup"], json!({"podGroupName": name}));
    assert_eq!(pod["metadata"]["ownerReferences"], json!([owner()]), "the Job alone owns it");
    let events = [
        format!("Normal WorkloadCreated on Job a/j uid=j-1: Created Workload {WORKLOAD} for Job j"),
        format!("Normal PodGroupCreated on Job a/j uid=j-1: Created PodGroup {name} for Job j"),
    ];
    assert_eq!(transcript.events()[..2], events);
    // Without the gate, with a group of the user, and with another controller: nothing.
    assert!(is_without_group(&JobFixture::of(job(&json!({}))).reconcile()));
    let own = json!({"spec": {"template": {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}}});
    let transcript = fixture(own).reconcile();
    assert!(!transcript.0.contains("create workloads") && !transcript.0.contains("create podgroups"));
    assert_eq!(groups_of_pods(&transcript), [json!({"podGroupName": "mine"})]);
    assert!(is_without_group(&fixture(controlled(json!({}))).reconcile()));
}

/// The Job with a controller, and these annotations.
fn controlled(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations, "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Team", "name": "t", "uid": "t-1", "controller": true}]}})
}

/// Proves JOB-125.
#[test]
fn job_that_has_started_only_finds_what_exists() {
    let started = [
        json!({"status": {"startTime": at(-5)}}),
        json!({"status": {"failed": 1}}),
        json!({"spec": {"completions": 3}, "status": {"succeeded": 1}}),
        json!({"status": {"conditions": [{"type": "Suspended", "status": "False"}]}}),
    ];
    for overrides in started {
        let transcript = fixture(overrides.clone()).reconcile();
        assert!(!transcript.0.contains("create workloads"), "{overrides}");
        assert!(!transcript.0.contains("create podgroups"), "{overrides}");
        let mut found = fixture(overrides);
        found.cluster = found.cluster.with::<Workload>(workload(basic())).with::<PodGroup>(group(
            "g",
            WORKLOAD,
            json!({"basic": {}}),
        ));
        let pods = groups_of_pods(&found.reconcile());
        assert!(pods.iter().all(|group| *group == json!({"podGroupName": "g"})) && !pods.is_empty());
    }
    let with_pod = fixture(json!({"spec": {"parallelism": 2, "completions": 2}}));
    let transcript = with_pod.pods([pod("p", "Running", &json!({}))]).reconcile();
    assert!(is_without_group(&transcript), "{}", transcript.0);
    // A restart between the two creations: the missing PodGroup is created.
    let mut half = fixture(json!({}));
    half.cluster = half.cluster.with::<Workload>(workload(basic()));
    let transcript = half.reconcile();
    assert!(!transcript.0.contains("create workloads"));
    assert_eq!(groups_of_pods(&transcript), [json!({"podGroupName": group_name()})]);
    let mut half = fixture(json!({"status": {"startTime": at(-5)}}));
    half.cluster = half.cluster.with::<Workload>(workload(basic()));
    assert!(is_without_group(&half.reconcile()), "too late");
}

/// Proves JOB-126.
#[test]
fn only_what_the_job_controls_is_used_and_only_if_it_is_unambiguous() {
    let foreign = |mut object: Value| {
        object["metadata"]["ownerReferences"][0]["uid"] = json!("other");
        object
    };
    let named = |mut object: Value, name: &str| {
        object["metadata"]["name"] = json!(name);
        object
    };
    let mut other_kind = named(workload(basic()), "other-kind");
    other_kind["spec"]["controllerRef"]["kind"] = json!("CronJob");
    let mut other_job = named(workload(basic()), "other-job");
    other_job["spec"]["controllerRef"]["name"] = json!("k");
    let mut fixture_with_foreign = fixture(json!({}));
    for object in [foreign(named(workload(basic()), "foreign")), other_kind, other_job] {
        fixture_with_foreign.cluster = fixture_with_foreign.cluster.with::<Workload>(object);
    }
    let foreign_group = foreign(group("foreign", WORKLOAD, json!({"basic": {}})));
    fixture_with_foreign.cluster = fixture_with_foreign.cluster.with::<PodGroup>(foreign_group);
    assert_eq!(groups_of_pods(&fixture_with_foreign.reconcile()), [json!({"podGroupName": group_name()})]);
    let mut two = fixture(json!({}));
    two.cluster = two.cluster.with::<Workload>(workload(basic()));
    two.cluster = two.cluster.with::<Workload>(named(workload(basic()), "second"));
    assert!(is_without_group(&two.reconcile()), "default scheduling");
    let mut two = fixture(json!({}));
    two.cluster = two.cluster.with::<Workload>(workload(basic()));
    for name in ["g", "h"] {
        two.cluster = two.cluster.with::<PodGroup>(group(name, WORKLOAD, json!({"basic": {}})));
    }
    assert!(is_without_group(&two.reconcile()), "default scheduling");
}

/// Proves JOB-127.
#[test]
fn template_is_compiled_from_the_job_and_there_is_exactly_one() {
    let scheduling = json!({
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
        "disruptionMode": {"all": {}},
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
    });
    let spec =
        json!({"spec": {"scheduling": scheduling, "template": {"spec": {"priorityClassName": "high"}}}});
    let transcript = fixture(spec).reconcile();
    let expected = json!({"name": "j-pgt-0", "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "zone"}]}, "disruptionMode": {"all": {}},
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}], "priorityClassName": "high"});
    assert_eq!(bodies(&transcript, "create workloads")[0]["spec"]["podGroupTemplates"], json!([expected]));
    // The PodGroup follows what the server stored.
    let mut stored = expected;
    merge(&mut stored, &json!({"priority": 1000}));
    let mut existing = fixture(json!({}));
    existing.cluster = existing.cluster.with::<Workload>(workload(stored));
    let spec = bodies(&existing.reconcile(), "create podgroups")[0]["spec"].clone();
    assert_eq!((&spec["priority"], &spec["priorityClassName"]), (&json!(1000), &json!("high")));
    assert_eq!(spec["schedulingConstraints"], json!({"topology": [{"key": "zone"}]}));
    assert_eq!(
        (&spec["disruptionMode"], &spec["resourceClaims"][0]["name"]),
        (&json!({"all": {}}), &json!("c"))
    );
    let empty = json!({"spec": {"scheduling": {"schedulingPolicy": {}, "schedulingConstraints": {"topology": []},
        "disruptionMode": {}, "resourceClaims": []}}});
    let template =
        bodies(&fixture(empty).reconcile(), "create workloads")[0]["spec"]["podGroupTemplates"].clone();
    assert_eq!(template, json!([basic()]));
    for templates in [json!([]), json!([basic(), gang(1)])] {
        let mut changed = workload(basic());
        changed["spec"]["podGroupTemplates"] = templates.clone();
        let mut fixture = fixture(json!({}));
        fixture.cluster = fixture.cluster.with::<Workload>(changed);
        let count = templates.as_array().map_or(0, Vec::len);
        let error =
            format!("retry: workload a/{WORKLOAD} for job a/j has {count} PodGroupTemplates, want exactly 1");
        let transcript = fixture.reconcile();
        assert!(transcript.0.contains(&error) && transcript.created().is_empty(), "{}", transcript.0);
    }
}

/// Proves JOB-128.
#[test]
fn gang_follows_parallelism_and_delegated_groups_their_template() {
    let elastic = |parallelism: i32| json!({"spec": {"parallelism": parallelism, "completions": 9, "scheduling": {"schedulingPolicy": {"gang": {}}}}});
    for (parallelism, size) in [(4, 4), (0, 1)] {
        let created = bodies(&fixture(elastic(parallelism)).reconcile(), "create workloads")[0].clone();
        assert_eq!(created["spec"]["podGroupTemplates"], json!([gang(size)]), "{parallelism}");
    }
    let resized = |size: i64, of_group: Value| {
        let mut overrides = elastic(4);
        overrides["status"] = json!({"startTime": at(-5)});
        let mut fixture = fixture(overrides);
        fixture.cluster = fixture.cluster.with::<Workload>(workload(gang(size)));
        fixture.cluster = fixture.cluster.with::<PodGroup>(group("g", WORKLOAD, of_group));
        let transcript = fixture.reconcile();
        (bodies(&transcript, "patch workloads"), bodies(&transcript, "patch podgroups"))
    };
    let (of_workload, of_group) = resized(2, json!({"gang": {"minCount": 2}}));
    let expected = json!({"metadata": {"uid": "w-1"}, "spec": {"podGroupTemplates": [gang(4)]}});
    assert_eq!(of_workload, [expected]);
    let policy = json!({"schedulingPolicy": {"gang": {"minCount": 4}}});
    assert_eq!(of_group, [json!({"metadata": {"uid": "g"}, "spec": policy})]);
    assert_eq!(resized(4, json!({"gang": {"minCount": 4}})), (vec![], vec![]));
    assert_eq!(resized(4, json!({"basic": {}})).1, Vec::<Value>::new(), "a basic group has no size");
    let mut parent = delegated_workload();
    parent["spec"]["podGroupTemplates"][1]["schedulingPolicy"] = json!({"gang": {"minCount": 7}});
    let mut delegated = fixture(controlled(json!({"scheduling.k8s.io/group-template-name": "workers"})));
    delegated.cluster = delegated.cluster.with::<Workload>(parent);
    delegated.cluster =
        delegated.cluster.with::<PodGroup>(group("g", "team", json!({"gang": {"minCount": 2}})));
    let transcript = delegated.reconcile();
    let policy = json!({"schedulingPolicy": {"gang": {"minCount": 7}}});
    assert_eq!(bodies(&transcript, "patch podgroups"), [json!({"metadata": {"uid": "g"}, "spec": policy})]);
    assert!(!transcript.0.contains("patch workloads"), "the Workload is the parent's");
}

/// The Workload of the Job's controller with two templates.
fn delegated_workload() -> Value {
    json!({"metadata": {"namespace": "a", "name": "team", "uid": "team-1", "resourceVersion": "4"},
        "spec": {"controllerRef": {"apiGroup": "example.com", "kind": "Team", "name": "t"}, "podGroupTemplates": [
            {"name": "leader", "schedulingPolicy": {"basic": {}}},
            {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}]}})
}

/// A delegated Job uses the template that its annotation names in the Workload of its controller.
///
/// Proves JOB-130.
#[test]
fn delegated_job_gets_a_pod_group_of_its_parent_s_workload() {
    let annotated =
        |template: &str| fixture(controlled(json!({"scheduling.k8s.io/group-template-name": template})));
    let with = |mut fixture: JobFixture, workload: Value| {
        fixture.cluster = fixture.cluster.with::<Workload>(workload);
        fixture
    };
    let transcript = with(annotated("workers"), delegated_workload()).reconcile();
    assert!(!transcript.0.contains("create workloads"));
    let body = &bodies(&transcript, "create podgroups")[0];
    assert_eq!(body["metadata"]["ownerReferences"], json!([owner()]), "the Workload is the parent's");
    let reference = json!({"workloadName": "team", "templateName": "workers"});
    let spec = json!({"workloadRef": reference, "schedulingPolicy": {"gang": {"minCount": 2}}});
    assert_eq!(body["spec"], spec);
    assert_eq!(groups_of_pods(&transcript), [json!({"podGroupName": body["metadata"]["name"]})]);
    assert!(is_without_group(&annotated("workers").reconcile()), "no parent Workload");
    assert!(
        is_without_group(&with(annotated("other"), delegated_workload()).reconcile()),
        "no such template"
    );
    let mut elsewhere = delegated_workload();
    elsewhere["spec"]["controllerRef"]["kind"] = json!("Club");
    assert!(is_without_group(&with(annotated("workers"), elsewhere).reconcile()), "of another controller");
    let mut other_namespace = delegated_workload();
    other_namespace["metadata"]["namespace"] = json!("b");
    assert!(is_without_group(&with(annotated("workers"), other_namespace).reconcile()));
}

/// Proves JOB-131.
#[test]
fn failed_write_keeps_pods_from_being_created() {
    let failing = |mut fixture: JobFixture, verb: &str, path: String, reason: ErrorReason| {
        let error = ApiError::transport(reason, "refused");
        fixture.cluster = fixture.cluster.failing_at(verb, &path, error, None);
        let transcript = fixture.reconcile();
        assert!(transcript.is_retried() && transcript.created().is_empty(), "{}", transcript.0);
        transcript
    };
    let workload_path = Workload::RESOURCE.object_path(&Key::namespaced("a", WORKLOAD));
    let group_path = |name: &str| PodGroup::RESOURCE.object_path(&Key::namespaced("a", name));
    for reason in [ErrorReason::AlreadyExists, ErrorReason::Conflict, ErrorReason::Forbidden] {
        let transcript = failing(fixture(json!({})), "create", workload_path.clone(), reason);
        let event =
            "Warning FailedWorkloadCreate on Job a/j uid=j-1: Failed to create Workload for Job j: refused";
        assert_eq!(transcript.events(), [event]);
        failing(fixture(json!({})), "create", group_path(&group_name()), reason);
    }
    let resizing = || {
        let gang_of_4 = json!({"spec": {"parallelism": 4, "scheduling": {"schedulingPolicy": {"gang": {}}}}});
        let mut fixture = fixture(gang_of_4);
        fixture.cluster = fixture.cluster.with::<Workload>(workload(gang(2)));
        fixture.cluster =
            fixture.cluster.with::<PodGroup>(group("g", WORKLOAD, json!({"gang": {"minCount": 2}})));
        fixture
    };
    failing(resizing(), "patch", workload_path, ErrorReason::Conflict);
    failing(resizing(), "patch", group_path("g"), ErrorReason::Conflict);
    let terminating =
        failing(fixture(json!({})), "create", group_path(&group_name()), ErrorReason::Unavailable);
    assert!(!terminating.events().iter().any(|event| event.contains("PodGroup")), "no event for a PodGroup");
    // The gate decides what the controller may do and reads.
    let reads = |options: &JobOptions| {
        let controller = super::super::controller(options);
        let scheduling = controller.grants.iter().filter(|grant| grant.group == "scheduling.k8s.io").count();
        let kinds =
            controller.loops[0].reads.iter().filter(|kind| kind.resource().group == "scheduling.k8s.io");
        (scheduling, kinds.count())
    };
    assert_eq!((reads(&JobOptions::default()), reads(&enabled())), ((0, 0), (2, 2)));
    assert_eq!(Job::RESOURCE.kind, "Job");
}
