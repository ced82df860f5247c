//! What is sent, to the letter.

use http::Method;

use super::*;

fn sent(world: &World, method: &Method) -> Vec<LoggedRequest> {
    world.server.requests().into_iter().filter(|request| request.method == method).collect()
}

/// Proves GC-52, GC-90, GC-98.
#[tokio::test(start_paused = true)]
async fn a_delete_names_the_life_and_the_state_that_was_judged() {
    let world = yard();
    super::super::monitors::define_widgets(&world).await;
    let _running = start(&world).await;
    let mut made = Vec::new();
    for resource in [&SECRETS, &WIDGETS] {
        made.push(object(resource, "a/one").referring(nobody("ConfigMap")).make(&world).await);
    }
    wait(LONG).await;
    let deletes = sent(&world, &Method::DELETE);
    assert_eq!(deletes.len(), 2);
    for delete in &deletes {
        let one = made
            .iter()
            .find(|one| delete.target.contains(if one["kind"] == "Secret" { "secrets" } else { "widgets" }));
        let metadata = &one.unwrap()["metadata"];
        assert_eq!(
            delete.json(),
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}})
        );
    }
    let accepts = world.tap.accepts.lock();
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    assert!(accepts.iter().any(|accept| accept == partial));
}

/// Proves GC-92, GC-93, GC-96, GC-97, GC-98.
#[tokio::test(start_paused = true)]
async fn references_and_finalizers_are_patched_away() {
    let world = yard();
    super::super::monitors::define_widgets(&world).await;
    let owner = object(&MAPS, "a/owner").with("finalizers", json!(["example.org/a", "example.org/b"]));
    let owner = owner.make(&world).await;
    let other = object(&MAPS, "a/other").make(&world).await;
    let dependent = object(&SECRETS, "a/builtin").owned(&owner).owned(&other).make(&world).await;
    let custom = object(&WIDGETS, "a/custom").owned(&other).owned(&owner).make(&world).await;
    let bare = object(&WIDGETS, "a/bare").owned(&owner).make(&world).await;
    let _running = start(&world).await;
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Orphan).await;
    wait(LONG).await;
    let patches = sent(&world, &Method::PATCH);
    let of = |words: &str, code: u16| {
        let found = patches.iter().find(|patch| patch.target.contains(words) && patch.code == code);
        found.unwrap_or_else(|| panic!("{words}")).json()
    };
    let uid = &owner["metadata"]["uid"];
    let short = |dependent: &Value| json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uid}], "uid": dependent["metadata"]["uid"]}});
    assert_eq!(of("/secrets/builtin", 200), short(&dependent));
    assert_eq!(of("/widgets/custom", 415), short(&custom), "which no custom resource understands");
    let metadata = &custom["metadata"];
    assert_eq!(
        of("/widgets/custom", 200),
        json!({"metadata": {"ownerReferences": [metadata["ownerReferences"][0]],
        "resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}})
    );
    assert_eq!(of("/widgets/bare", 200)["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(of("/widgets/bare", 200)["metadata"]["uid"], bare["metadata"]["uid"]);
    let freed = of("/configmaps/owner", 200);
    assert_eq!(freed["metadata"]["finalizers"], json!(["example.org/a", "example.org/b"]), "in their order");
    assert_ne!(freed["metadata"]["resourceVersion"], Value::Null);
    let tail = "secrets a/builtin <other";
    assert!(there(&world.server).iter().any(|line| line == tail), "{:?}", there(&world.server));
}

/// Proves GC-64, GC-95.
#[tokio::test(start_paused = true)]
async fn a_circle_is_opened_at_references_that_block() {
    let world = yard();
    super::super::monitors::define_widgets(&world).await;
    let first = object(&WIDGETS, "a/first").make(&world).await;
    let second = object(&WIDGETS, "a/second").blocking(&first).make(&world).await;
    let reference = object(&WIDGETS, "a/first").blocking(&second).json["metadata"]["ownerReferences"].clone();
    let call = Call::patch(
        &WIDGETS,
        &Key::namespaced("a", "first"),
        PatchType::Merge,
        &json!({"metadata": {"ownerReferences": reference}}),
    );
    call.send(&world.client()).await.unwrap();
    let _running = start(&world).await;
    delete(&world, &WIDGETS, "a/first", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), [""; 0]);
    let patches = sent(&world, &Method::PATCH);
    let freed: Vec<Value> = patches
        .iter()
        .filter(|patch| patch.target.ends_with("/second"))
        .map(|patch| patch.json()["metadata"]["ownerReferences"].clone())
        .collect();
    assert_eq!(freed[0], json!([{"blockOwnerDeletion": false, "uid": first["metadata"]["uid"]}]));
    let mut whole = second["metadata"]["ownerReferences"].clone();
    whole[0]["blockOwnerDeletion"] = json!(false);
    assert_eq!(freed[1], whole);
}

/// Proves GC-96.
#[tokio::test(start_paused = true)]
async fn a_finalizer_is_taken_off_in_four_tries() {
    let world = yard();
    object(&MAPS, "a/owner").make(&world).await;
    let _running = start(&world).await;
    let conflict = keleustes_apiserver::InjectedFault::status(409, "Conflict", "moved on");
    let rule = keleustes_apiserver::FaultRule::new(conflict).method(Method::PATCH).times(3);
    let id = world.faults.add(rule);
    let began = tokio::time::Instant::now();
    delete(&world, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
    while !there(&world.server).is_empty() {
        wait(Duration::from_millis(1)).await;
    }
    assert_eq!(world.faults.hits(id), 3);
    let took = began.elapsed().as_millis();
    assert!((310..=350).contains(&took), "10, 50 and 250 ms and a little by chance: {took}");
}
