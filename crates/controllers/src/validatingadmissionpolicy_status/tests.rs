//! Which kinds a policy is checked against, and what its status says.

use std::collections::BTreeMap;

use keleustes_objects::{
    ApiError, ApiResource, DiscoveredResources, ErrorReason, Key, Resource, ResourceRule,
};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, RateLimiter};

use super::*;

const RESOURCES: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "pods", "Pod"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "events", "Event"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1beta1", "deployments", "Deployment"),
    ("events.k8s.io", "v1", "events", "Event"),
    ("example.com", "v1", "widgets", "Widget"),
    ("example.com", "v1", "untypeds", "Untyped"),
    ("example.com", "v1", "unknowns", "Unknown"),
];

fn discovered() -> DiscoveredResources {
    let served =
        |&(group, version, plural, kind): &(&'static str, &'static str, &'static str, &'static str)| {
            let resource = Resource::cluster(group, version, plural, kind);
            let singular = kind.to_lowercase();
            let (verbs, short_names, categories, subresources) = (vec![], vec![], vec![], vec![]);
            ApiResource { resource, preferred: true, singular, verbs, short_names, categories, subresources }
        };
    DiscoveredResources { resources: RESOURCES.iter().map(served).collect(), ..Default::default() }
}

fn the_loop() -> Loop {
    controller(PolicyStatusOptions::default()).loops.remove(0)
}

/// Schemas of kinds, each with one field `spec.FIELD` of an integer type.
fn document(group: &str, version: &str, kinds: &[(&str, &str)]) -> Value {
    let mut schemas = serde_json::Map::new();
    for (kind, field) in kinds {
        let spec = json!({"type": "object", "properties": {*field: {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec},
            "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": kind}]});
        schemas.insert((*kind).to_owned(), schema);
    }
    json!({"components": {"schemas": schemas}})
}

fn cluster() -> RehearsalCluster {
    let paths = ["api/v1", "apis/apps/v1", "apis/events.k8s.io/v1", "apis/example.com/v1"];
    let index: BTreeMap<_, _> = paths
        .iter()
        .map(|path| (path, json!({"serverRelativeURL": format!("/openapi/v3/{path}")})))
        .collect();
    let mut custom = document("example.com", "v1", &[("Widget", "size")]);
    custom["components"]["schemas"]["Untyped"] = json!({"x-kubernetes-group-version-kind":
        [{"group": "example.com", "version": "v1", "kind": "Untyped"}]});
    RehearsalCluster::of(&the_loop())
        .with_discovery(Ok(discovered()))
        .with_response("/openapi/v3", json!({ "paths": index }))
        .with_response(
            "/openapi/v3/api/v1",
            document("", "v1", &[("Pod", "priority"), ("ConfigMap", "a"), ("Event", "e")]),
        )
        .with_response("/openapi/v3/apis/apps/v1", document("apps", "v1", &[("Deployment", "replicas")]))
        .with_response(
            "/openapi/v3/apis/events.k8s.io/v1",
            document("events.k8s.io", "v1", &[("Event", "note")]),
        )
        .with_response("/openapi/v3/apis/example.com/v1", custom)
}

fn rule(group: &str, version: &str, resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "resources": resources})
}

/// A policy `p` of generation 3 for which nothing has been checked.
fn policy(rules: &Value, expressions: &[&str]) -> Value {
    let validations: Vec<Value> = expressions.iter().map(|text| json!({ "expression": text })).collect();
    json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations}})
}

fn reconciled(policy: Value) -> String {
    cluster().with::<ValidatingAdmissionPolicy>(policy).reconcile(&the_loop(), Key::cluster("p"))
}

/// The status that the transcript applies.
fn status_in(transcript: &str) -> Value {
    let applied =
        transcript.lines().find_map(|line| line.split_once("because its expressions were type-checked: "));
    let (_, body) = applied.unwrap_or_else(|| panic!("{transcript}"));
    serde_json::from_str::<Value>(body).unwrap_or_else(|error| panic!("{error}: {body}"))["status"].take()
}

fn warnings_of(policy: Value) -> Vec<(String, String)> {
    let status = status_in(&reconciled(policy));
    let list = status["typeChecking"]["expressionWarnings"].as_array().cloned().unwrap_or_default();
    let text = |warning: &Value, field: &str| warning[field].as_str().unwrap_or_default().to_owned();
    list.iter().map(|warning| (text(warning, "fieldRef"), text(warning, "warning"))).collect()
}

/// The kinds for which an expression that is wrong everywhere is reported.
fn checked_kinds(rules: &Value) -> Vec<String> {
    let found = warnings_of(policy(rules, &["1 == 'a'"]));
    let blocks = found.iter().flat_map(|(_, text)| text.split("\n\n"));
    blocks.filter_map(|block| block.split_once(": ERROR")).map(|(kind, _)| kind.to_owned()).collect()
}

/// Proves VAPS-61.
#[test]
fn descriptor_matches_the_role_and_the_queue_of_the_original() {
    let controller = controller(PolicyStatusOptions::default());
    assert_eq!(controller.name, "validatingadmissionpolicy-status-controller");
    assert_eq!(controller.service_account, Some("validatingadmissionpolicy-status-controller"));
    assert!(controller.metrics.is_empty() && controller.event_component.is_none());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), (QUEUE, 5, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    assert!(a_loop.starts_without.is_empty());
}

/// Proves VAPS-1, VAPS-2, VAPS-71, VAPS-115.
#[test]
fn policy_is_checked_once_per_generation() {
    assert_eq!(cluster().reconcile(&the_loop(), Key::cluster("p")), "");
    let mut checked = policy(&json!([rule("apps", "v1", &["deployments"])]), &["object.nope"]);
    for observed in [3, 4, 300] {
        checked["status"] = json!({"observedGeneration": observed});
        assert_eq!(reconciled(checked.clone()), "", "{observed}");
    }
    checked["status"] = json!({"observedGeneration": 2});
    assert!(reconciled(checked).contains("because its expressions were type-checked"));
}

/// Proves VAPS-3, VAPS-4, VAPS-60, VAPS-72.
#[test]
fn status_has_the_generation_that_was_checked_and_never_conditions() {
    let rules = json!([rule("apps", "v1", &["deployments"])]);
    let transcript = reconciled(policy(&rules, &["object.spec.replicas > 0"]));
    let line = transcript.lines().last().unwrap();
    assert!(
        line.starts_with("apply validatingadmissionpolicies.admissionregistration.k8s.io/status p because"),
        "{transcript}"
    );
    assert_eq!(status_in(&transcript), json!({"observedGeneration": 3, "typeChecking": {}}));
    let status = status_in(&reconciled(policy(&rules, &["object.nope"])));
    let fields: Vec<_> = status.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["observedGeneration", "typeChecking"]);
    assert_eq!(status["typeChecking"]["expressionWarnings"].as_array().unwrap().len(), 1);
}

/// Proves VAPS-10, VAPS-11, VAPS-12, VAPS-75, VAPS-76.
#[test]
fn wildcards_and_subresources_are_not_checked() {
    let deployment = vec!["apps/v1, Kind=Deployment"];
    assert!(checked_kinds(&json!(null)).is_empty());
    assert!(checked_kinds(&json!([])).is_empty());
    assert!(
        checked_kinds(&json!([rule("*", "v1", &["pods"]), rule("apps", "v*", &["deployments"])])).is_empty()
    );
    let with_wildcard =
        json!({"apiGroups": ["apps"], "apiVersions": ["v1", "*"], "resources": ["deployments"]});
    assert!(checked_kinds(&json!([with_wildcard])).is_empty());
    assert_eq!(checked_kinds(&json!([with_wildcard, rule("apps", "v1", &["deployments"])])), deployment);
    assert!(checked_kinds(&json!([rule("", "v1", &["pods/*", "*", "*/scale", "pods/status"])])).is_empty());
    assert_eq!(
        checked_kinds(&json!([rule("apps", "v1", &["deployments/scale", "*", "deployments"])])),
        deployment
    );
    assert!(
        checked_kinds(&json!([{"apiGroups": [], "apiVersions": ["v1"], "resources": ["pods"]}])).is_empty()
    );
    let mut excluded = policy(&json!([rule("apps", "v1", &["deployments"])]), &["object.nope"]);
    excluded["spec"]["matchConstraints"]["excludeResourceRules"] =
        json!([rule("apps", "v1", &["deployments"])]);
    excluded["spec"]["matchConstraints"]["matchPolicy"] = json!("Exact");
    assert_eq!(warnings_of(excluded).len(), 1);
}

/// Proves VAPS-13, VAPS-16, VAPS-74.
#[test]
fn core_rules_find_every_group_and_kinds_are_sorted() {
    let events = json!([rule("", "v1", &["EVENT"])]);
    assert_eq!(checked_kinds(&events), ["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"]);
    assert_eq!(
        checked_kinds(&json!([rule("events.k8s.io", "v1", &["events"])])),
        ["events.k8s.io/v1, Kind=Event"]
    );
    assert_eq!(checked_kinds(&json!([rule("", "v1", &["deployments"])])), ["apps/v1, Kind=Deployment"]);
    let both = json!([{"apiGroups": ["apps", ""], "apiVersions": ["v1"], "resources": ["pods", "deployments"]},
        rule("", "v1", &["pods"])]);
    assert_eq!(checked_kinds(&both), ["/v1, Kind=Pod", "apps/v1, Kind=Deployment"]);
    let transcript = reconciled(policy(&both, &["true"]));
    assert_eq!(transcript.matches("discover\n").count(), 1, "{transcript}");
    let one = warnings_of(policy(&both, &["object.spec.replicas > 0"]));
    assert_eq!(one.len(), 1);
    assert!(one[0].1.starts_with("/v1, Kind=Pod: ERROR") && !one[0].1.contains("Deployment"), "{one:?}");
}

/// Proves VAPS-14, VAPS-80.
#[test]
fn discovery_is_repeated_at_the_first_resource_that_is_missing() {
    let rules =
        json!([rule("apps", "v1", &["nopes", "deployments", "others"]), rule("nope", "v1", &["pods"])]);
    let transcript = reconciled(policy(&rules, &["object.nope"]));
    assert_eq!(transcript.matches("discover\n").count(), 1, "{transcript}");
    assert_eq!(checked_kinds(&rules), ["apps/v1, Kind=Deployment"]);
    let found = reconciled(policy(&json!([rule("apps", "v1", &["deployments"])]), &["true"]));
    assert!(!found.contains("discover"), "{found}");
    // The kinds of a group whose discovery failed are skipped, and the generation counts as checked.
    let mut partly = discovered();
    partly.resources.retain(|served| served.resource.group != "apps");
    partly.failed.insert("apps/v1".to_owned(), "stale".to_owned());
    let rules = json!([rule("apps", "v1", &["deployments"]), rule("", "v1", &["pods"])]);
    let mut cluster = cluster()
        .with_discovery(Ok(partly))
        .with::<ValidatingAdmissionPolicy>(policy(&rules, &["object.nope"]));
    let status = status_in(&cluster.reconcile(&the_loop(), Key::cluster("p")));
    let text = status["typeChecking"]["expressionWarnings"][0]["warning"].as_str().unwrap();
    assert!(text.starts_with("/v1, Kind=Pod") && !text.contains("apps"), "{text}");
    assert_eq!(status["observedGeneration"], 3);
}

/// Proves VAPS-15.
#[test]
fn ten_kinds_of_one_rule_end_the_collection() {
    let names: Vec<String> = (0..12).map(|number| format!("k{number:02}")).collect();
    let mut served = discovered();
    for name in &names {
        let mut one = served.resources[0].clone();
        one.resource = Resource::cluster("many", "v1", "x", "X");
        one.resource.plural = name.clone().into();
        one.resource.kind = name.to_uppercase().into();
        one.singular = String::new();
        served.resources.push(one);
    }
    let of = |resources: &[String]| ResourceRule {
        api_groups: Box::new(["many".to_owned()]),
        api_versions: Box::new(["v1".to_owned()]),
        resources: resources.into(),
    };
    let count = |rules: &[ResourceRule]| match kinds(rules, &served, true) {
        Lookup::Kinds(found) => found.len(),
        Lookup::NotFound => panic!("all are served"),
    };
    assert_eq!(count(&[of(&names)]), 10);
    assert_eq!(count(&[of(&names), of(&names[10..])]), 10);
    assert_eq!(count(&[of(&names[..9]), of(&names[6..])]), 12);
    let doubled: Vec<String> = names[..5].iter().chain(&names[..5]).cloned().collect();
    assert_eq!(count(&[of(&doubled), of(&names[10..])]), 5);
}

/// Proves VAPS-17, VAPS-18, VAPS-70, VAPS-78.
#[test]
fn kinds_that_cannot_be_resolved_are_left_out() {
    let rules = json!([
        rule("example.com", "v1", &["unknowns", "widgets"]),
        rule("apps", "v1beta1", &["deployments"])
    ]);
    assert_eq!(checked_kinds(&rules), ["example.com/v1, Kind=Widget"]);
    assert!(warnings_of(policy(&json!([rule("nope", "v1", &["nopes"])]), &["nope"])).is_empty());
    // Without a type, the object is dynamic and the rest is checked.
    let untyped = json!([rule("example.com", "v1", &["untypeds"])]);
    assert!(warnings_of(policy(&untyped, &["object.anything.goes"])).is_empty());
    assert_eq!(checked_kinds(&untyped), ["example.com/v1, Kind=Untyped"]);
    let unavailable = || ApiError::transport(ErrorReason::Unavailable, "down");
    for path in ["/openapi/v3", "/openapi/v3/apis/example.com/v1"] {
        let mut failing = cluster()
            .failing_at("get", path, unavailable(), None)
            .with::<ValidatingAdmissionPolicy>(policy(&untyped, &["nope"]));
        let status = status_in(&failing.reconcile(&the_loop(), Key::cluster("p")));
        assert_eq!(status, json!({"observedGeneration": 3, "typeChecking": {}}), "{path}");
    }
}

/// The types of built-in kinds come from the server, too: while its documents cannot be read, a policy over them is retried. A
/// custom kind is left out.
///
/// Proves VAPS-17, VAPS-112.
#[test]
fn policies_over_built_in_kinds_are_retried_while_schemas_cannot_be_read() {
    let wrong = ["object.spec.nope"];
    let deployments = json!([rule("apps", "v1", &["deployments"])]);
    let both = json!([rule("example.com", "v1", &["widgets"]), rule("apps", "v1", &["deployments"])]);
    let widgets = json!([rule("example.com", "v1", &["widgets"])]);
    let while_failing = |path: &str, rules: &Value| {
        let unavailable = ApiError::transport(ErrorReason::Unavailable, "down");
        let mut cluster = cluster()
            .failing_at("get", path, unavailable, Some(1))
            .with::<ValidatingAdmissionPolicy>(policy(rules, &wrong));
        let first = cluster.reconcile(&the_loop(), Key::cluster("p"));
        (first, cluster.reconcile(&the_loop(), Key::cluster("p")))
    };
    let kinds = |status: &Value| -> Vec<String> {
        let text = status["typeChecking"]["expressionWarnings"][0]["warning"].as_str().unwrap_or_default();
        text.split("\n\n").filter_map(|block| Some(block.split_once(": ERROR")?.0.to_owned())).collect()
    };
    let (deployment, widget) = ("apps/v1, Kind=Deployment", "example.com/v1, Kind=Widget");
    for path in ["/openapi/v3", "/openapi/v3/apis/apps/v1"] {
        for (rules, expected) in [(&deployments, vec![deployment]), (&both, vec![deployment, widget])] {
            let (failed, repeated) = while_failing(path, rules);
            assert!(failed.contains("retry") && !failed.contains("apply "), "{path}: {failed}");
            assert_eq!(kinds(&status_in(&repeated)), expected, "{path}: {repeated}");
        }
        // No kind of this policy is built in.
        let (checked, _) = while_failing(path, &widgets);
        assert_eq!(status_in(&checked)["observedGeneration"], 3, "{path}: {checked}");
    }
    // What the server refuses or sends broken is left out: it would be so again.
    let forbidden = ApiError { code: 403, ..ApiError::transport(ErrorReason::Forbidden, "no") };
    let mut cluster = cluster()
        .failing_at("get", "/openapi/v3/apis/apps/v1", forbidden, None)
        .with::<ValidatingAdmissionPolicy>(policy(&both, &wrong));
    assert_eq!(kinds(&status_in(&cluster.reconcile(&the_loop(), Key::cluster("p")))), [widget]);
    // The document of a custom group that cannot be read leaves out its own kinds only.
    let (checked, _) = while_failing("/openapi/v3/apis/example.com/v1", &both);
    assert_eq!(kinds(&status_in(&checked)), [deployment]);
}

/// Proves VAPS-20.
#[test]
fn documents_are_found_in_the_index_and_kept_by_their_hash() {
    let both = json!([rule("", "v1", &["pods", "configmaps"])]);
    let transcript = reconciled(policy(&both, &["true"]));
    let reads: Vec<_> = transcript.lines().filter(|line| line.starts_with("get ")).collect();
    assert_eq!(reads, ["get /openapi/v3", "get /openapi/v3/api/v1"]);
    let hashed = json!({"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=ABC"}}});
    let a_loop = the_loop();
    let mut cluster = cluster()
        .with_response("/openapi/v3", hashed)
        .with::<ValidatingAdmissionPolicy>(policy(&both, &["true"]));
    cluster.reconcile(&a_loop, Key::cluster("p"));
    let again = cluster.reconcile(&a_loop, Key::cluster("p"));
    let reads: Vec<_> = again.lines().filter(|line| line.starts_with("get ")).collect();
    assert_eq!(reads, ["get /openapi/v3"]);
}

/// Proves VAPS-31.
#[test]
fn params_have_the_type_of_their_kind() {
    let with_kind = |api_version: &str, kind: &str, expression: &str| {
        let mut policy = policy(&json!([rule("apps", "v1", &["deployments"])]), &[expression]);
        policy["spec"]["paramKind"] = json!({"apiVersion": api_version, "kind": kind});
        warnings_of(policy).pop().map(|(_, text)| text.lines().next().unwrap_or_default().to_owned())
    };
    let undefined = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'";
    assert_eq!(with_kind("v1", "ConfigMap", "params.spec.nope").as_deref(), Some(undefined));
    assert_eq!(with_kind("v1", "ConfigMap", "params.spec.a > 1"), None);
    assert_eq!(with_kind("example.com/v1", "Nope", "params.anything"), None);
    assert_eq!(with_kind("example.com/v1", "Untyped", "params.anything"), None);
    let undeclared =
        "apps/v1, Kind=Deployment: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')";
    assert_eq!(with_kind("a/b/c", "ConfigMap", "params.a").as_deref(), Some(undeclared));
    let without = warnings_of(policy(&json!([rule("apps", "v1", &["deployments"])]), &["params.a"]));
    assert!(without[0].1.starts_with(undeclared));
    // The types of an object and of params of the same kind are not the same.
    let different = with_kind("apps/v1", "Deployment", "object.spec == params.spec").unwrap();
    assert!(different.contains("found no matching overload for '_==_'"), "{different}");
}

/// Proves VAPS-40, VAPS-41, VAPS-42, VAPS-43, VAPS-44, VAPS-110.
#[test]
fn expressions_and_message_expressions_are_reported_in_order() {
    let mut wrong = policy(
        &json!([rule("apps", "v1", &["deployments"]), rule("", "v1", &["pods"])]),
        &["'not a bool'", "object.spec.replicas > 0", "nope"],
    );
    wrong["spec"]["validations"][0]["messageExpression"] = json!("1 == 'a'");
    wrong["spec"]["validations"][1]["messageExpression"] = json!("1");
    wrong["spec"]["validations"][2]["messageExpression"] = json!("");
    wrong["spec"]["validations"][2]["message"] = json!("nope(");
    wrong["spec"]["auditAnnotations"] = json!([{"key": "a", "valueExpression": "nope"}]);
    wrong["spec"]["matchConditions"] = json!([{"name": "a", "expression": "nope"}]);
    wrong["spec"]["variables"] = json!([{"name": "a", "expression": "nope"}]);
    let block = |kind: &str, rest: &str| format!("{kind}: ERROR: <input>:{rest}\n");
    let overload =
        "1:3: found no matching overload for '_==_' applied to '(int, string)'\n | 1 == 'a'\n | ..^";
    let undeclared = "1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^";
    let twice =
        |rest: &str| format!("{}\n{}", block("/v1, Kind=Pod", rest), block("apps/v1, Kind=Deployment", rest));
    let pod = block(
        "/v1, Kind=Pod",
        "1:12: undefined field 'replicas'\n | object.spec.replicas > 0\n | ...........^",
    );
    let expected = [
        ("spec.validations[0].messageExpression".to_owned(), twice(overload)),
        ("spec.validations[1].expression".to_owned(), pod),
        ("spec.validations[2].expression".to_owned(), twice(undeclared)),
    ];
    assert_eq!(warnings_of(wrong), expected);
}

/// Proves VAPS-48, VAPS-77.
#[test]
fn syntax_errors_are_reported_for_each_kind() {
    let rules = json!([rule("apps", "v1", &["deployments"]), rule("", "v1", &["pods"])]);
    let found = warnings_of(policy(&rules, &["object.spec.replicas > '1'", "object ="]));
    assert!(found[0].1.ends_with(
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to \
         '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
    ));
    assert_eq!(found[1].1.matches("Syntax error: ").count(), 2, "{found:?}");
}

/// Proves VAPS-113, VAPS-114.
#[test]
fn failed_write_is_retried_and_the_policy_checked_again() {
    let rules = json!([rule("apps", "v1", &["deployments"])]);
    let a_loop = the_loop();
    let mut cluster = cluster();
    let first = policy(&rules, &["object.nope"]);
    assert_eq!(cluster.put::<ValidatingAdmissionPolicy>(&a_loop, first), ["p"]);
    let cached = cluster.view().get::<ValidatingAdmissionPolicy>(&Key::cluster("p")).unwrap().clone();
    assert_eq!(cluster.enqueued_by(&a_loop, Change::resync(cached)), ["p"]);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p";
    let gone = ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, "gone") };
    let mut cluster = cluster.failing_at("patch", path, gone, Some(1));
    let failed = cluster.reconcile(&a_loop, Key::cluster("p"));
    assert!(failed.contains("retr"), "{failed}");
    let written = status_in(&cluster.reconcile(&a_loop, Key::cluster("p")));
    assert_eq!(written["observedGeneration"], 3);
    // A deleted policy is not enqueued, and one that is gone not checked.
    assert!(cluster.take::<ValidatingAdmissionPolicy>(&a_loop, &Key::cluster("p")).is_empty());
    assert_eq!(cluster.reconcile(&a_loop, Key::cluster("p")), "");
}
