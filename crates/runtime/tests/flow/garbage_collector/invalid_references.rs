//! Owner references that are invalid in one way or another.

use super::*;

fn events(cluster: &TestCluster) -> Vec<String> {
    let events = cluster.events.lock();
    events
        .iter()
        .map(|event| format!("{} {} {}", event.involved_object.name, event.reason, event.message))
        .collect()
}

/// Proves GC-100, GC-102, GC-125.
#[tokio::test(start_paused = true)]
async fn owner_in_another_namespace_does_not_count() {
    for owner_first in [true, false] {
        let cluster = cluster_with_namespaces();
        let owner = object(&MAPS, "a/owner").create(&cluster).await;
        let bad = object(&SECRETS, "b/bad").owned_by(&owner);
        let good = object(&SECRETS, "a/good").owned_by(&owner);
        if owner_first {
            let _running = start(&cluster).await;
            bad.create(&cluster).await;
            good.create(&cluster).await;
            wait(LONG).await;
        } else {
            bad.create(&cluster).await;
            good.create(&cluster).await;
            let _running = start(&cluster).await;
            wait(LONG).await;
        }
        assert_eq!(remaining(&cluster.server), ["configmaps a/owner", "secrets a/good <owner"]);
        let uid = owner["metadata"]["uid"].as_str().unwrap();
        assert_eq!(
            events(&cluster),
            [format!(
                "bad OwnerRefInvalidNamespace ownerRef [v1/ConfigMap, namespace: b, name: owner, uid: {uid}] does not exist \
             in namespace \"b\""
            )]
        );
    }
}

/// Names as RBAC objects may have them, which mean something else in a URL unless they are escaped.
const RESERVED: [&str; 5] = ["a#b", "a?b", "a b", "\u{fc}:x", "team#1"];

#[tokio::test(start_paused = true)]
async fn dependents_of_owners_with_reserved_characters_in_their_names_are_kept() {
    for owners_first in [true, false] {
        let cluster = cluster_with_namespaces();
        let deleted = object(&MAPS, "a/deleted").create(&cluster).await;
        let running = if owners_first { Some(start(&cluster).await) } else { None };
        for (index, name) in RESERVED.into_iter().enumerate() {
            let owner = object(&CLUSTER_ROLES, name).create(&cluster).await;
            object(&SECRETS, &format!("a/{index}"))
                .owned_by(&deleted)
                .owned_by(&owner)
                .create(&cluster)
                .await;
            object(&SECRETS, &format!("b/{index}")).owned_by(&owner).create(&cluster).await;
        }
        let _running = match running {
            Some(running) => running,
            None => start(&cluster).await,
        };
        wait(LONG).await;
        // Each dependent in `a` now depends on the answer to a live read of the other owner.
        delete(&cluster, &MAPS, "a/deleted", PropagationPolicy::Background).await;
        wait(LONG).await;
        let secrets = || remaining(&cluster.server).into_iter().filter(|line| line.starts_with("secrets"));
        let kept: Vec<_> = ["a", "b"]
            .into_iter()
            .flat_map(|namespace| {
                RESERVED
                    .into_iter()
                    .enumerate()
                    .map(move |(n, owner)| format!("secrets {namespace}/{n} <{owner}"))
            })
            .collect();
        assert_eq!(secrets().collect::<Vec<_>>(), kept);
        // And when such an owner is deleted, its dependents are, and no others.
        delete(&cluster, &CLUSTER_ROLES, "a#b", PropagationPolicy::Background).await;
        wait(LONG).await;
        let left: Vec<_> = kept.into_iter().filter(|line| !line.ends_with("<a#b")).collect();
        assert_eq!(secrets().collect::<Vec<_>>(), left);
    }
}

/// Proves GC-126.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_with_a_namespaced_owner_is_kept_and_not_polled() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    object(&CLUSTER_ROLES, "bad").owned_by(&owner).create(&cluster).await;
    object(&CLUSTER_ROLES, "worse").with_reference(absent_owner("ConfigMap")).create(&cluster).await;
    wait(LONG).await;
    cluster.server.clear_requests();
    wait(Duration::from_secs(3600)).await;
    let about = |request: &LoggedRequest| {
        ["/bad", "/worse", "/owner", "/absent"].iter().any(|name| request.target.ends_with(name))
    };
    assert_eq!(cluster.server.requests().iter().filter(|request| about(request)).count(), 0);
    let kept = remaining(&cluster.server);
    assert!(
        ["clusterroles /bad <owner", "clusterroles /worse <absent"]
            .iter()
            .all(|one| kept.iter().any(|line| line == one))
    );
    assert_eq!(events(&cluster).len(), 1, "{:?}", events(&cluster));
    assert!(events(&cluster)[0].ends_with("does not exist in namespace \"\""));
}

/// Proves GC-127.
#[tokio::test(start_paused = true)]
async fn invalid_dependent_of_a_missing_owner_does_not_keep_a_valid_one() {
    for bad_first in [true, false] {
        let cluster = cluster_with_namespaces();
        let _running = start(&cluster).await;
        for is_bad in [bad_first, !bad_first] {
            let object_to_create =
                if is_bad { object(&CLUSTER_ROLES, "bad") } else { object(&SECRETS, "a/good") };
            object_to_create.with_reference(absent_owner("ConfigMap")).create(&cluster).await;
            settle().await;
        }
        wait(LONG).await;
        assert!(
            !remaining(&cluster.server).iter().any(|line| line.contains("good")),
            "bad first: {bad_first}"
        );
        assert!(remaining(&cluster.server).iter().any(|line| line.starts_with("clusterroles /bad")));
    }
}

/// Proves GC-121.
#[tokio::test(start_paused = true)]
async fn reference_with_wrong_name_or_kind_does_not_count() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    object(&SECRETS, "a/name")
        .owned_by(&owner)
        .with_in_last_reference("name", json!("other"))
        .create(&cluster)
        .await;
    object(&SECRETS, "a/kind")
        .owned_by(&owner)
        .with_in_last_reference("kind", json!("Secret"))
        .create(&cluster)
        .await;
    object(&SECRETS, "a/good").owned_by(&owner).create(&cluster).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["configmaps a/owner", "secrets a/good <owner"]);
}

/// No object has such a name, and the API server accepts it all the same: some write the namespace into it.
#[tokio::test(start_paused = true)]
async fn owner_with_a_slash_in_its_name_is_absent() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    for (name, reference) in
        [("namespaced", "a/owner"), ("subresource", "owner/status"), ("above", "x/../owner")]
    {
        object(&SECRETS, &format!("a/{name}"))
            .owned_by(&owner)
            .with_in_last_reference("name", json!(reference))
            .create(&cluster)
            .await;
    }
    wait(LONG).await;
    let kept = ["configmaps a/owner", "secrets a/above <x/../owner", "secrets a/subresource <owner/status"];
    assert_eq!(remaining(&cluster.server), kept);
}

/// Proves GC-122.
#[tokio::test(start_paused = true)]
async fn reference_with_a_served_but_not_preferred_version_counts() {
    let cluster = cluster_with_namespaces();
    super::super::monitors::define_widgets(&cluster).await;
    super::super::monitors::serve_widgets_as(&cluster, &["v1", "v1beta1"]).await;
    let owner = object(&WIDGETS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    object(&SECRETS, "a/old")
        .owned_by(&owner)
        .with_in_last_reference("apiVersion", json!("example.org/v1beta1"))
        .create(&cluster)
        .await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/old <owner", "widgets a/owner"]);
    cluster.server.clear_requests();
    wait(Duration::from_secs(600)).await;
    let reads =
        cluster.server.requests().iter().filter(|request| request.target.ends_with("/widgets/owner")).count();
    assert_eq!(reads, 0, "no polling");
    delete(&cluster, &WIDGETS, "a/owner", PropagationPolicy::Background).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), [""; 0]);
}

/// Proves GC-123, GC-124.
#[tokio::test(start_paused = true)]
async fn reference_with_an_unserved_version_keeps_only_its_dependent() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    object(&SECRETS, "a/blocked")
        .owned_by(&owner)
        .with_in_last_reference("apiVersion", json!("v0"))
        .create(&cluster)
        .await;
    object(&SECRETS, "a/good").owned_by(&owner).create(&cluster).await;
    wait(LONG).await;
    assert_eq!(
        remaining(&cluster.server),
        ["configmaps a/owner", "secrets a/blocked <owner", "secrets a/good <owner"]
    );
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Background).await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/blocked <owner"]);
}

/// Proves GC-132.
#[tokio::test(start_paused = true)]
async fn recreated_object_of_the_same_name_is_kept() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    object(&SECRETS, "a/pod").owned_by(&owner).create(&cluster).await;
    let _running = start(&cluster).await;
    // Both deletions are not observed at first; the names are reused meanwhile.
    cluster.tap.lag("secrets");
    assert!(cluster.server.remove("secrets", "a", "pod"));
    object(&SECRETS, "a/pod").create(&cluster).await;
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Background).await;
    wait(Duration::from_secs(1)).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/pod"]);
    cluster.tap.catch_up();
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/pod"]);
}

/// Proves GC-134, GC-138.
#[tokio::test(start_paused = true)]
async fn unwatched_owner_still_counts() {
    let cluster = cluster_with_namespaces();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "a", "name": "e"},
        "involvedObject": {"namespace": "a"}, "reason": "R", "message": "m", "type": "Normal"});
    let events = Resource::namespaced("", "v1", "events", "Event");
    let owner = Call::create(&events, "a", &event).send(&cluster.client()).await.unwrap();
    let _running = start(&cluster).await;
    // Under its core/v1 name the server refuses an Event as an owner.
    let reference = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "name": "e", "uid": owner["metadata"]["uid"]});
    object(&SECRETS, "a/kept").with_reference(reference).create(&cluster).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), ["secrets a/kept <e"]);
    assert!(cluster.server.remove("events", "a", "e"));
    wait(Duration::from_secs(120)).await;
    assert_eq!(remaining(&cluster.server), [""; 0], "it was read again with backoff");
}

/// Proves GC-75.
#[tokio::test(start_paused = true)]
async fn dependent_created_after_its_owner_was_deleted_is_collected() {
    let cluster = cluster_with_namespaces();
    let owner = object(&MAPS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Orphan).await;
    wait(LONG).await;
    object(&SECRETS, "a/late").owned_by(&owner).create(&cluster).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), [""; 0]);
}

/// Proves GC-131.
#[tokio::test(start_paused = true)]
async fn owner_first_observed_terminating_is_finished() {
    for (propagation, left) in
        [(PropagationPolicy::Orphan, vec!["secrets a/one"]), (PropagationPolicy::Foreground, vec![])]
    {
        let cluster = cluster_with_namespaces();
        let _running = start(&cluster).await;
        cluster.tap.lag("configmaps");
        let owner = object(&MAPS, "a/owner").create(&cluster).await;
        object(&SECRETS, "a/one").blocking_owner(&owner).create(&cluster).await;
        delete(&cluster, &MAPS, "a/owner", propagation).await;
        cluster.server.compact();
        cluster.server.expire_watches();
        cluster.tap.catch_up();
        wait(LONG).await;
        assert_eq!(remaining(&cluster.server), left);
    }
}
