//! How many pods a budget expects and how many must be healthy.

use keleustes_objects::{ApiError, ErrorReason};

use super::*;

/// The numbers of a budget over `ready` of `replicas` pods of one ReplicaSet.
fn numbers(spec: Value, replicas: i32, ready: usize) -> [i64; 4] {
    let mut pods = pods_of_web(usize::try_from(replicas).unwrap());
    for pod in &mut pods[ready..] {
        *pod = not_ready(pod.clone());
    }
    sync(&mut with_web(cluster(budget(spec), &pods), replicas)).numbers()
}

/// Proves PDB-17, PDB-19, PDB-71.
#[test]
fn percentages_of_the_scale_are_rounded_up_and_max_unavailable_wins() {
    for (spec, replicas, desired) in [
        (json!({"maxUnavailable": 1}), 3, 2),
        (json!({"maxUnavailable": 5}), 3, 0),
        (json!({"maxUnavailable": "30%"}), 7, 4),
        (json!({"maxUnavailable": "30%"}), 3, 2),
        (json!({"maxUnavailable": "0%"}), 3, 3),
        (json!({"maxUnavailable": "100%"}), 3, 0),
        (json!({"maxUnavailable": "200%"}), 3, 0),
        (json!({"minAvailable": "34%"}), 3, 2),
        (json!({"minAvailable": "50%"}), 7, 4),
        (json!({"minAvailable": "100%"}), 3, 3),
        (json!({"minAvailable": "101%"}), 3, 4),
        (json!({"maxUnavailable": 1, "minAvailable": 1}), 3, 2),
        (json!({"maxUnavailable": "50%", "minAvailable": "100%"}), 4, 2),
    ] {
        let ready = usize::try_from(replicas).unwrap();
        let [expected, desired_healthy, healthy, allowed] = numbers(spec.clone(), replicas, ready);
        assert_eq!((expected, desired_healthy), (replicas.into(), desired), "{spec}");
        assert_eq!((healthy, allowed), (replicas.into(), (i64::from(replicas) - desired).max(0)), "{spec}");
    }
}

/// Proves PDB-18, PDB-96.
#[test]
fn an_integer_min_available_counts_the_existing_pods_and_looks_up_no_controller() {
    // The scale is 9, and the controller of one pod does not exist: neither matters.
    let mut pods = pods_of_web(3);
    pods[0] = owned(pods[0].clone(), "example.org/v1", "Gadget", "none", "g1");
    let mut all = with_web(cluster(budget(json!({"minAvailable": 2})), &pods), 9);
    let synced = sync(&mut all);
    assert_eq!(synced.numbers(), [3, 2, 3, 1]);
    assert!(synced.reads.is_empty() && synced.events.is_empty(), "{synced:?}");
    assert_eq!(numbers(json!({"minAvailable": 5}), 3, 3), [3, 5, 3, 0], "more than there are");
    assert_eq!(numbers(json!({"minAvailable": 0}), 1, 1), [1, 0, 1, 1]);
    assert_eq!(numbers(json!({"minAvailable": 0}), 1, 0), [1, 0, 0, 0]);
    assert_eq!(numbers(json!({"minAvailable": -1}), 1, 1), [1, -1, 1, 2], "the API server refuses it");
}

/// Proves PDB-20.
#[test]
fn a_budget_without_numbers_expects_and_allows_nothing() {
    let synced = sync(&mut with_web(cluster(budget(json!({})), &pods_of_web(3)), 3));
    assert_eq!(synced.numbers(), [0, 0, 3, 0]);
    assert_eq!(synced.condition()[1], "InsufficientPods");
}

/// Proves PDB-21, PDB-33.
#[test]
fn a_string_that_is_no_percentage_is_an_error() {
    for (spec, error) in [
        (json!({"minAvailable": "3"}), "invalid type: string is not a percentage"),
        (json!({"maxUnavailable": "many"}), "invalid type: string is not a percentage"),
        (
            json!({"maxUnavailable": "x%"}),
            "invalid value \"x%\": strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!({"minAvailable": "1.5%"}),
            "invalid value \"1.5%\": strconv.Atoi: parsing \"1.5\": invalid syntax",
        ),
    ] {
        let synced = sync(&mut with_web(cluster(budget(spec), &pods_of_web(1)), 1));
        let error = format!("invalid value for IntOrString: {error}");
        assert_eq!(synced.failure(), error);
        assert_eq!(
            synced.events,
            [format!(
                "Warning CalculateExpectedPodCountFailed on PodDisruptionBudget a/web uid=b1: Failed to calculate the \
                 number of expected pods: {error}"
            )]
        );
    }
}

/// Proves PDB-14, PDB-70.
#[test]
fn a_budget_without_pods_allows_nothing_and_reports_it() {
    for spec in
        [json!({"maxUnavailable": 1}), json!({"minAvailable": "50%"}), json!({"maxUnavailable": "100%"})]
    {
        let mut other = pod("other");
        other["metadata"]["labels"]["app"] = json!("db");
        let synced = sync(&mut cluster(budget(spec), &[other]));
        assert_eq!(synced.numbers(), [0, 0, 0, 0]);
        assert_eq!(synced.condition(), ["False", "InsufficientPods", ""]);
        assert_eq!(
            synced.events,
            ["Normal NoPods on PodDisruptionBudget a/web uid=b1: No matching pods found"]
        );
    }
    let synced = sync(&mut cluster(budget(json!({"minAvailable": 2})), &[]));
    assert_eq!((synced.numbers(), synced.reasons()), ([0, 2, 0, 0], vec!["NoPods"]));
    let synced = sync(&mut cluster(budget(json!({"minAvailable": 2, "selector": null})), &pods_of_web(2)));
    assert_eq!((synced.numbers(), synced.reasons()), ([0, 2, 0, 0], vec!["NoPods"]), "no selector");
}

/// Proves PDB-13, PDB-79, PDB-87, PDB-94.
#[test]
fn all_selected_pods_of_the_namespace_count_in_any_phase() {
    let mut succeeded = not_ready(pod("done"));
    succeeded["status"]["phase"] = json!("Succeeded");
    let mut bare = pod("bare");
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    let mut elsewhere = pod("elsewhere");
    elsewhere["metadata"]["namespace"] = json!("b");
    let pods = [pod("one"), terminating(pod("two")), succeeded, bare, elsewhere];
    let with_selector = |selector: Value| budget(json!({"minAvailable": 1, "selector": selector}));
    let numbers = |budget: Value| sync(&mut cluster(budget, &pods)).numbers();
    assert_eq!(numbers(with_selector(json!({"matchLabels": {"app": "web"}}))), [3, 1, 1, 0]);
    assert_eq!(
        numbers(with_selector(json!({}))),
        [4, 1, 2, 1],
        "an empty selector selects a pod without labels"
    );
    let absent = json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]});
    assert_eq!(numbers(with_selector(absent)), [1, 1, 1, 0]);
    assert_eq!(numbers(terminating(with_selector(json!({})))), [4, 1, 2, 1], "a terminating budget, too");
}

/// Proves PDB-39, PDB-97.
#[test]
fn nothing_is_allowed_while_nothing_is_expected_or_too_few_are_healthy() {
    assert_eq!(numbers(json!({"maxUnavailable": 1}), 3, 2), [3, 2, 2, 0]);
    assert_eq!(numbers(json!({"maxUnavailable": 1}), 3, 1), [3, 2, 1, 0], "never negative");
    assert_eq!(numbers(json!({"maxUnavailable": 1}), 3, 3), [3, 2, 3, 1]);
    let mut scaled_down = with_web(cluster(budget(json!({"maxUnavailable": 1})), &pods_of_web(3)), 0);
    assert_eq!(sync(&mut scaled_down).numbers(), [0, 0, 3, 0], "scaled to zero while pods still run");
}

/// Proves PDB-15, PDB-100.
#[test]
fn an_invalid_selector_fails_every_sync() {
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let broken = budget(json!({"minAvailable": 1, "selector": selector}));
    for pods in [pods_of_web(2), Vec::new()] {
        let synced = sync(&mut cluster(broken.clone(), &pods));
        let error = synced.failure();
        assert!(error.contains("\"Near\" is not a valid label selector operator"), "{error}");
        assert_eq!(
            synced.events,
            [format!("Warning NoPods on PodDisruptionBudget a/web uid=b1: Failed to get pods: {error}")]
        );
        let again = with_status(broken.clone(), synced.status().clone());
        let synced = sync(&mut cluster(again, &pods));
        assert_eq!((synced.updates.len(), synced.reasons()), (1, vec!["NoPods"]), "and the next one");
    }
}

/// Proves PDB-12.
#[test]
fn a_deleted_budget_needs_nothing() {
    let refused = ApiError::transport(ErrorReason::Other, "unexpected");
    let mut empty =
        RehearsalCluster::of(&budgets()).failing::<PodDisruptionBudget>("update", &key("web"), refused);
    assert_eq!(empty.reconcile(&budgets(), key("web")), "");
}
