//! The exact requests of the garbage collector.

use http::Method;

use super::*;

fn sent(cluster: &TestCluster, method: &Method) -> Vec<LoggedRequest> {
    cluster.server.requests().into_iter().filter(|request| request.method == method).collect()
}

/// Proves GC-52, GC-90, GC-98.
#[tokio::test(start_paused = true)]
async fn delete_has_uid_and_resource_version_preconditions() {
    let cluster = cluster_with_namespaces();
    super::super::monitors::define_widgets(&cluster).await;
    let _running = start(&cluster).await;
    let mut created = Vec::new();
    for resource in [&SECRETS, &WIDGETS] {
        created
            .push(object(resource, "a/one").with_reference(absent_owner("ConfigMap")).create(&cluster).await);
    }
    wait(LONG).await;
    let deletes = sent(&cluster, &Method::DELETE);
    assert_eq!(deletes.len(), 2);
    for delete in &deletes {
        let one = created
            .iter()
            .find(|one| delete.target.contains(if one["kind"] == "Secret" { "secrets" } else { "widgets" }));
        let metadata = &one.unwrap()["metadata"];
        assert_eq!(
            delete.json(),
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}})
        );
    }
    let accepts = cluster.tap.accepts.lock();
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    assert!(accepts.iter().any(|accept| accept == partial));
}

/// Proves GC-92, GC-93, GC-96, GC-97, GC-98.
#[tokio::test(start_paused = true)]
async fn owner_references_and_finalizers_are_removed_by_patch() {
    let cluster = cluster_with_namespaces();
    super::super::monitors::define_widgets(&cluster).await;
    let owner = object(&MAPS, "a/owner").with("finalizers", json!(["example.org/a", "example.org/b"]));
    let owner = owner.create(&cluster).await;
    let other = object(&MAPS, "a/other").create(&cluster).await;
    let dependent = object(&SECRETS, "a/builtin").owned_by(&owner).owned_by(&other).create(&cluster).await;
    let custom = object(&WIDGETS, "a/custom").owned_by(&other).owned_by(&owner).create(&cluster).await;
    let without_other_owners = object(&WIDGETS, "a/bare").owned_by(&owner).create(&cluster).await;
    let _running = start(&cluster).await;
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Orphan).await;
    wait(LONG).await;
    let patches = sent(&cluster, &Method::PATCH);
    let of = |path: &str, code: u16| {
        let found = patches.iter().find(|patch| patch.target.contains(path) && patch.code == code);
        found.unwrap_or_else(|| panic!("{path}")).json()
    };
    let uid = &owner["metadata"]["uid"];
    let strategic_patch = |dependent: &Value| json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uid}], "uid": dependent["metadata"]["uid"]}});
    assert_eq!(of("/secrets/builtin", 200), strategic_patch(&dependent));
    assert_eq!(
        of("/widgets/custom", 415),
        strategic_patch(&custom),
        "custom resources do not support strategic merge patches"
    );
    let metadata = &custom["metadata"];
    assert_eq!(
        of("/widgets/custom", 200),
        json!({"metadata": {"ownerReferences": [metadata["ownerReferences"][0]],
        "resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}})
    );
    assert_eq!(of("/widgets/bare", 200)["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(of("/widgets/bare", 200)["metadata"]["uid"], without_other_owners["metadata"]["uid"]);
    let patched = of("/configmaps/owner", 200);
    assert_eq!(
        patched["metadata"]["finalizers"],
        json!(["example.org/a", "example.org/b"]),
        "in their order"
    );
    assert_ne!(patched["metadata"]["resourceVersion"], Value::Null);
    let tail = "secrets a/builtin <other";
    assert!(remaining(&cluster.server).iter().any(|line| line == tail), "{:?}", remaining(&cluster.server));
}

/// Proves GC-64, GC-95.
#[tokio::test(start_paused = true)]
async fn cycle_is_broken_at_blocking_references() {
    let cluster = cluster_with_namespaces();
    super::super::monitors::define_widgets(&cluster).await;
    let first = object(&WIDGETS, "a/first").create(&cluster).await;
    let second = object(&WIDGETS, "a/second").blocking_owner(&first).create(&cluster).await;
    let reference =
        object(&WIDGETS, "a/first").blocking_owner(&second).json["metadata"]["ownerReferences"].clone();
    let call = Call::patch(
        &WIDGETS,
        &Key::namespaced("a", "first"),
        PatchType::Merge,
        &json!({"metadata": {"ownerReferences": reference}}),
    );
    call.send(&cluster.client()).await.unwrap();
    let _running = start(&cluster).await;
    delete(&cluster, &WIDGETS, "a/first", PropagationPolicy::Foreground).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), [""; 0]);
    let patches = sent(&cluster, &Method::PATCH);
    let patched: Vec<Value> = patches
        .iter()
        .filter(|patch| patch.target.ends_with("/second"))
        .map(|patch| patch.json()["metadata"]["ownerReferences"].clone())
        .collect();
    assert_eq!(patched[0], json!([{"blockOwnerDeletion": false, "uid": first["metadata"]["uid"]}]));
    let mut full_references = second["metadata"]["ownerReferences"].clone();
    full_references[0]["blockOwnerDeletion"] = json!(false);
    assert_eq!(patched[1], full_references);
}

/// Proves GC-96.
#[tokio::test(start_paused = true)]
async fn finalizer_is_removed_within_four_tries() {
    let cluster = cluster_with_namespaces();
    object(&MAPS, "a/owner").create(&cluster).await;
    let _running = start(&cluster).await;
    let conflict = keleustes_apiserver::InjectedFault::status(409, "Conflict", "modified");
    let rule = keleustes_apiserver::FaultRule::new(conflict).method(Method::PATCH).times(3);
    let id = cluster.faults.add(rule);
    let began = tokio::time::Instant::now();
    delete(&cluster, &MAPS, "a/owner", PropagationPolicy::Foreground).await;
    while !remaining(&cluster.server).is_empty() {
        wait(Duration::from_millis(1)).await;
    }
    assert_eq!(cluster.faults.hits(id), 3);
    let took = began.elapsed().as_millis();
    assert!((310..=350).contains(&took), "10, 50 and 250 ms plus jitter: {took}");
}
