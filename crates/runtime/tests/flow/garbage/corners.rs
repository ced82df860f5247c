//! References that are wrong in one way or another.

use super::*;

fn events(world: &World) -> Vec<String> {
    let events = world.events.lock();
    events
        .iter()
        .map(|event| format!("{} {} {}", event.involved_object.name, event.reason, event.message))
        .collect()
}

/// Proves GC-100, GC-102, GC-125.
#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_is_none() {
    for owner_first in [true, false] {
        let world = yard();
        let owner = object(&MAPS, "a/owner").make(&world).await;
        let bad = object(&SECRETS, "b/bad").owned(&owner);
        let good = object(&SECRETS, "a/good").owned(&owner);
        if owner_first {
            let _running = start(&world).await;
            bad.make(&world).await;
            good.make(&world).await;
            wait(LONG).await;
        } else {
            bad.make(&world).await;
            good.make(&world).await;
            let _running = start(&world).await;
            wait(LONG).await;
        }
        assert_eq!(there(&world.server), ["configmaps a/owner", "secrets a/good <owner"]);
        let uid = owner["metadata"]["uid"].as_str().unwrap();
        assert_eq!(
            events(&world),
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
        let world = yard();
        let leaving = object(&MAPS, "a/leaving").make(&world).await;
        let running = if owners_first { Some(start(&world).await) } else { None };
        for (index, name) in RESERVED.into_iter().enumerate() {
            let owner = object(&CLUSTER_ROLES, name).make(&world).await;
            object(&SECRETS, &format!("a/{index}")).owned(&leaving).owned(&owner).make(&world).await;
            object(&SECRETS, &format!("b/{index}")).owned(&owner).make(&world).await;
        }
        let _running = match running {
            Some(running) => running,
            None => start(&world).await,
        };
        wait(LONG).await;
        // Each dependent in `a` now depends on the answer to a live read of the other owner.
        delete(&world, &MAPS, "a/leaving", PropagationPolicy::Background).await;
        wait(LONG).await;
        let secrets = || there(&world.server).into_iter().filter(|line| line.starts_with("secrets"));
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
        delete(&world, &CLUSTER_ROLES, "a#b", PropagationPolicy::Background).await;
        wait(LONG).await;
        let left: Vec<_> = kept.into_iter().filter(|line| !line.ends_with("<a#b")).collect();
        assert_eq!(secrets().collect::<Vec<_>>(), left);
    }
}

/// Proves GC-126.
#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_object_with_a_namespaced_owner_is_kept_and_not_polled() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let _running = start(&world).await;
    object(&CLUSTER_ROLES, "bad").owned(&owner).make(&world).await;
    object(&CLUSTER_ROLES, "worse").referring(nobody("ConfigMap")).make(&world).await;
    wait(LONG).await;
    world.server.clear_requests();
    wait(Duration::from_secs(3600)).await;
    let about = |request: &LoggedRequest| {
        ["/bad", "/worse", "/owner", "/nobody"].iter().any(|name| request.target.ends_with(name))
    };
    assert_eq!(world.server.requests().iter().filter(|request| about(request)).count(), 0);
    let kept = there(&world.server);
    assert!(
        ["clusterroles /bad <owner", "clusterroles /worse <nobody"]
            .iter()
            .all(|one| kept.iter().any(|line| line == one))
    );
    assert_eq!(events(&world).len(), 1, "{:?}", events(&world));
    assert!(events(&world)[0].ends_with("does not exist in namespace \"\""));
}

/// Proves GC-127.
#[tokio::test(start_paused = true)]
async fn a_bad_dependent_of_a_missing_owner_does_not_save_a_good_one() {
    for bad_first in [true, false] {
        let world = yard();
        let _running = start(&world).await;
        for is_bad in [bad_first, !bad_first] {
            let made = if is_bad { object(&CLUSTER_ROLES, "bad") } else { object(&SECRETS, "a/good") };
            made.referring(nobody("ConfigMap")).make(&world).await;
            settle().await;
        }
        wait(LONG).await;
        assert!(!there(&world.server).iter().any(|line| line.contains("good")), "bad first: {bad_first}");
        assert!(there(&world.server).iter().any(|line| line.starts_with("clusterroles /bad")));
    }
}

/// Proves GC-121.
#[tokio::test(start_paused = true)]
async fn a_wrong_name_kind_or_version_is_no_owner_and_right_ones_survive() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let _running = start(&world).await;
    object(&SECRETS, "a/name").owned(&owner).last("name", json!("other")).make(&world).await;
    object(&SECRETS, "a/kind").owned(&owner).last("kind", json!("Secret")).make(&world).await;
    object(&SECRETS, "a/good").owned(&owner).make(&world).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), ["configmaps a/owner", "secrets a/good <owner"]);
}

/// Proves GC-122.
#[tokio::test(start_paused = true)]
async fn a_served_version_that_is_not_preferred_will_do() {
    let world = yard();
    super::super::monitors::define_widgets(&world).await;
    super::super::monitors::serve_widgets_as(&world, &["v1", "v1beta1"]).await;
    let owner = object(&WIDGETS, "a/owner").make(&world).await;
    let _running = start(&world).await;
    object(&SECRETS, "a/old")
        .owned(&owner)
        .last("apiVersion", json!("example.org/v1beta1"))
        .make(&world)
        .await;
    wait(LONG).await;
    assert_eq!(there(&world.server), ["secrets a/old <owner", "widgets a/owner"]);
    world.server.clear_requests();
    wait(Duration::from_secs(600)).await;
    let asked =
        world.server.requests().iter().filter(|request| request.target.ends_with("/widgets/owner")).count();
    assert_eq!(asked, 0, "nobody polls");
    delete(&world, &WIDGETS, "a/owner", PropagationPolicy::Background).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), [""; 0]);
}

/// Proves GC-123, GC-124.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_served_keeps_its_dependent_and_no_other() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let _running = start(&world).await;
    object(&SECRETS, "a/stuck").owned(&owner).last("apiVersion", json!("v0")).make(&world).await;
    object(&SECRETS, "a/good").owned(&owner).make(&world).await;
    wait(LONG).await;
    assert_eq!(
        there(&world.server),
        ["configmaps a/owner", "secrets a/good <owner", "secrets a/stuck <owner"]
    );
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Background).await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(there(&world.server), ["secrets a/stuck <owner"]);
}

/// Proves GC-132.
#[tokio::test(start_paused = true)]
async fn a_new_object_of_an_old_name_is_left_alone() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    object(&SECRETS, "a/pod").owned(&owner).make(&world).await;
    let _running = start(&world).await;
    // The deletion of both goes unnoticed at first; the names are taken again meanwhile.
    world.tap.lag("secrets");
    assert!(world.server.remove("secrets", "a", "pod"));
    object(&SECRETS, "a/pod").make(&world).await;
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Background).await;
    wait(Duration::from_secs(1)).await;
    assert_eq!(there(&world.server), ["secrets a/pod"]);
    world.tap.catch_up();
    wait(LONG).await;
    assert_eq!(there(&world.server), ["secrets a/pod"]);
}

/// Proves GC-134, GC-138.
#[tokio::test(start_paused = true)]
async fn an_owner_that_nobody_watches_still_counts() {
    let world = yard();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "a", "name": "e"},
        "involvedObject": {"namespace": "a"}, "reason": "R", "message": "m", "type": "Normal"});
    let events = Resource::namespaced("", "v1", "events", "Event");
    let owner = Call::create(&events, "a", &event).send(&world.client()).await.unwrap();
    let _running = start(&world).await;
    // Under its older name the server would not take it for an owner.
    let reference = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "name": "e", "uid": owner["metadata"]["uid"]});
    object(&SECRETS, "a/kept").referring(reference).make(&world).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), ["secrets a/kept <e"]);
    assert!(world.server.remove("events", "a", "e"));
    wait(Duration::from_secs(120)).await;
    assert_eq!(there(&world.server), [""; 0], "it was asked for again, ever more slowly");
}

/// Proves GC-75.
#[tokio::test(start_paused = true)]
async fn who_comes_after_its_owner_is_gone_goes_too() {
    let world = yard();
    let owner = object(&MAPS, "a/owner").make(&world).await;
    let _running = start(&world).await;
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Orphan).await;
    wait(LONG).await;
    object(&SECRETS, "a/late").owned(&owner).make(&world).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), [""; 0]);
}

/// Proves GC-131.
#[tokio::test(start_paused = true)]
async fn what_is_first_seen_on_its_way_out_is_finished() {
    for (propagation, left) in
        [(PropagationPolicy::Orphan, vec!["secrets a/one"]), (PropagationPolicy::Foreground, vec![])]
    {
        let world = yard();
        let _running = start(&world).await;
        world.tap.lag("configmaps");
        let owner = object(&MAPS, "a/owner").make(&world).await;
        object(&SECRETS, "a/one").blocking(&owner).make(&world).await;
        delete(&world, &MAPS, "a/owner", propagation).await;
        world.server.compact();
        world.server.expire_watches();
        world.tap.catch_up();
        wait(LONG).await;
        assert_eq!(there(&world.server), left);
    }
}
