//! Creating the new ReplicaSet.

use super::*;

/// The name of the new ReplicaSet after so many collisions.
fn next_name(collisions: Option<i32>) -> String {
    let template = keleustes_objects::PodTemplate::parse(&template("v2").to_string()).unwrap();
    format!("web-{}", template.pod_template_hash(collisions))
}

fn created(cluster: RehearsalCluster) -> Value {
    let mut created = bodies(cluster, "create replicasets.apps ");
    assert_eq!(created.len(), 1);
    created.remove(0).1
}

fn refusing(
    deployment: Value,
    sets: impl IntoIterator<Item = Value>,
    reason: ErrorReason,
) -> RehearsalCluster {
    let key = Key::namespaced("a", &*next_name(None));
    cluster(deployment, sets).failing::<ReplicaSet>("create", &key, api_error(reason))
}

/// Proves DEP-31, DEP-32, DEP-33, DEP-34, REV-47, REV-56.
#[test]
fn the_new_replica_set_has_the_template_and_its_hash() {
    let mut noted = with_field(deployment(3), "/metadata/annotations/note", json!("x"));
    noted["spec"]["minReadySeconds"] = json!(7);
    let expression = json!({"key": "app", "operator": "Exists"});
    noted["spec"]["selector"] = json!({"matchLabels": {"app": "web"}, "matchExpressions": [expression]});
    let body = created(cluster(noted, [set("old", "v1", 0, 0)]));
    let (name, labels) = (next_name(None), &body["metadata"]["labels"]);
    let hash = name.strip_prefix("web-").unwrap();
    assert_eq!(
        (&body["metadata"]["name"], labels),
        (&json!(name), &json!({"app": "web", "pod-template-hash": hash}))
    );
    assert_eq!(body["metadata"]["ownerReferences"], json!([owner()]));
    assert_eq!(
        body["metadata"]["annotations"],
        json!({
            "note": "x", annotations::REVISION: "2", annotations::DESIRED_REPLICAS: "3",
            annotations::MAX_REPLICAS: "4",
        })
    );
    let mut hashed = template("v2");
    hashed["metadata"]["labels"] = labels.clone();
    assert_eq!(
        body["spec"],
        json!({
            "replicas": 3, "minReadySeconds": 7, "template": hashed,
            "selector": {"matchLabels": labels, "matchExpressions": [expression]},
        })
    );
    let salted = with_field(deployment(3), "/status/collisionCount", json!(0));
    assert_eq!(created(cluster(salted, []))["metadata"]["name"], json!(next_name(Some(0))));
}

/// Proves DEP-32.
#[test]
fn a_long_name_is_truncated() {
    let long = with_field(deployment(1), "/metadata/name", json!("w".repeat(250)));
    let mut cluster = RehearsalCluster::of(&the_loop()).with::<Deployment>(long);
    let transcript = cluster.reconcile(&the_loop(), Key::namespaced("a", &*"w".repeat(250)));
    let name = transcript.split(' ').nth(2).unwrap().strip_prefix("a/").unwrap();
    assert_eq!(name.len(), 253);
    assert!(name.starts_with("www") && name.contains("w-"));
}

/// Proves DEP-35, DEP-36, DEP-104.
#[test]
fn the_new_replica_set_starts_as_large_as_max_surge_allows() {
    let replicas =
        |deployment, sets: &[Value]| created(cluster(deployment, sets.to_vec()))["spec"]["replicas"].clone();
    assert_eq!(replicas(deployment(3), &[]), 3);
    assert_eq!(replicas(deployment(3), &[old(3, 3)]), 1);
    assert_eq!(replicas(deployment(3), &[old(3, 3), set("older", "v0", 1, 1)]), 0);
    assert_eq!(replicas(recreating(deployment(3)), &[]), 3);
    let name = next_name(None);
    let there = || cluster(deployment(3), [old(3, 3)]);
    check(
        there(),
        &format!(
            "create replicasets.apps a/{name} because no ReplicaSet has the Deployment's template\n\
             event Normal ScalingReplicaSet on Deployment a/web uid=u-web: Scaled up replica set {name} from 0 to 1\n\
             patch replicasets.apps a/old because the Deployment scales it down\n\
             event Normal ScalingReplicaSet on Deployment a/web uid=u-web: Scaled down replica set old from 3 to 2\n{STATUS}"
        ),
    );
    let mut counted = deployment(3);
    counted["status"] =
        json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "updatedReplicas": 3});
    let there = || cluster(counted.clone(), [old(3, 3)]);
    let message = format!("Created new replica set \"{name}\"");
    assert_eq!(words(&written_condition(there(), "Progressing")), ["True", "NewReplicaSetCreated", &message]);
    assert_eq!(put(there())["metadata"]["annotations"][annotations::REVISION], "2");
    let no_surge_left = cluster(deployment(3), [old(3, 3), set("older", "v0", 1, 1)]);
    assert!(!reconcile(no_surge_left).contains("Scaled up"));
    let endless = with_field(counted, "/spec/progressDeadlineSeconds", json!(i32::MAX));
    assert_eq!(written_condition(cluster(endless, [old(3, 3)]), "Progressing"), Value::Null);
}

/// Proves DEP-37.
#[test]
fn an_existing_replica_set_with_the_template_is_no_collision() {
    let name = next_name(None);
    let ours = || set(&name, "v2", 3, 3);
    let taken = || refusing(deployment(3), [], ErrorReason::AlreadyExists);
    // A response was lost: the cache does not have the object yet, or still has a previous one of that name.
    let former = with_field(ours(), "/metadata/ownerReferences/0/uid", json!("u-former"));
    for cluster in [taken(), taken().with_cached::<ReplicaSet>(former)] {
        let transcript = reconcile(cluster.with_live::<ReplicaSet>(ours()));
        assert!(!transcript.contains("event") && transcript.ends_with(STATUS), "{transcript}");
    }
    let transcript = reconcile(taken());
    assert!(transcript.ends_with("retry: refused: but it was not found\n"), "{transcript}");
}

/// Proves DEP-38, DEP-111, REV-58.
#[test]
fn a_name_collision_increments_the_collision_count() {
    let name = next_name(None);
    let edited = set(&name, "edited", 3, 3);
    let foreign = with_field(set(&name, "v2", 3, 3), "/metadata/ownerReferences/0/uid", json!("u-other"));
    for there in [edited.clone(), foreign] {
        let transcript = reconcile(refusing(complete(3), [there.clone()], ErrorReason::AlreadyExists));
        assert!(
            transcript.ends_with("because the name of its ReplicaSet is already used\nretry: refused\n"),
            "{transcript}"
        );
        let status = put(refusing(complete(3), [there], ErrorReason::AlreadyExists))["status"].take();
        assert_eq!((&status["collisionCount"], &status["replicas"]), (&json!(1), &json!(3)));
    }
    let requeue_after = with_field(complete(3), "/status/collisionCount", json!(1));
    let created = created(cluster(requeue_after, [edited]));
    assert_eq!(created["metadata"]["name"], json!(next_name(Some(1))));
    assert_eq!(created["metadata"]["annotations"][annotations::REVISION], "1");
}

/// Proves DEP-4, DEP-39.
#[test]
fn a_terminating_namespace_ends_the_reconcile() {
    let name = next_name(None);
    check(
        refusing(deployment(3), [], ErrorReason::NamespaceTerminating),
        &format!(
            "create replicasets.apps a/{name} because no ReplicaSet has the Deployment's template FAILED: refused\n"
        ),
    );
}

/// Proves DEP-40.
#[test]
fn any_other_creation_error_is_reported_and_retried() {
    let name = next_name(None);
    let message = format!("Failed to create new replica set \"{name}\": refused");
    let transcript = reconcile(refusing(deployment(3), [], ErrorReason::Forbidden));
    assert!(transcript.contains(&format!(
        "event Warning ReplicaSetCreateError on Deployment a/web uid=u-web: {message}\n"
    )));
    assert!(transcript.ends_with(&format!("{STATUS}retry: {message}\n")), "{transcript}");
    let condition = written_condition(refusing(deployment(3), [], ErrorReason::Forbidden), "Progressing");
    assert_eq!(words(&condition), ["False", "ReplicaSetCreateError", &message]);
    let endless = with_field(deployment(3), "/spec/progressDeadlineSeconds", Value::Null);
    assert!(!reconcile(refusing(endless, [], ErrorReason::Forbidden)).contains(STATUS));
}

/// Proves DEP-17, DEP-18, REV-47, REV-76.
#[test]
fn a_replica_set_is_kept_whatever_its_hash_and_the_spelling_of_its_template() {
    let limited = |object: Value, memory: &str| {
        let limits = json!({"limits": {"memory": memory}});
        with_field(object, "/spec/template/spec/containers/0/resources", limits)
    };
    let invented = |object: Value| {
        let container =
            with_field(object, "/spec/template/spec/containers/0/invented", json!({"by": "default"}));
        with_field(container, "/spec/template/spec/invented", json!(true))
    };
    // The hash that an earlier version of this program computed.
    let hashed = {
        let labels = json!({"app": "web", "pod-template-hash": "68d4b5c8f9"});
        let set = with_field(new(3, 3), "/metadata/labels", labels.clone());
        let set = with_field(set, "/spec/selector/matchLabels", labels.clone());
        with_field(set, "/spec/template/metadata/labels", labels)
    };
    for (deployment, set) in [
        (complete(3), new(3, 3)),
        (complete(3), hashed.clone()),
        (invented(complete(3)), hashed.clone()),
        (complete(3), invented(hashed.clone())),
        (limited(complete(3), "1Gi"), limited(hashed.clone(), "1073741824")),
    ] {
        check(cluster(deployment, [set]), "");
    }
    let other = cluster(limited(complete(3), "1Gi"), [limited(hashed, "1G")]);
    assert!(reconcile(other).contains("create replicasets.apps "));
}

/// Proves REV-46, REV-56.
#[test]
fn the_new_replica_set_has_the_name_that_the_original_gives_it() {
    let name = |deployment| created(cluster(deployment, []))["metadata"]["name"].clone();
    let template = json!({
        "metadata": {"labels": {"app": "foo"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    });
    let small = with_field(deployment(3), "/spec/template", template);
    assert_eq!(name(small.clone()), "web-b94d89f8f");
    assert_eq!(name(with_field(small.clone(), "/status/collisionCount", json!(1))), "web-6d98f56b7b");
    assert_eq!(name(with_field(small, "/spec/template/spec/invented", json!(1))), "web-b94d89f8f");
}
