//! A standby that takes over during a collection, and preconditions of every delete.

use super::*;

/// Owners to be deleted with each propagation policy and one to be kept, with dependents.
fn populate(server: &ApiServer) {
    server.seed(super::super::monitors::widgets_definition()).unwrap();
    let owners = ["background", "foreground", "orphaning", "kept"];
    let owners = owners.map(|name| seed(server, object(&MAPS, &format!("a/{name}"))));
    let [background, foreground, orphaning, kept] = &owners;
    for resource in [&SECRETS, &WIDGETS] {
        let of = |name: &str| object(resource, &format!("a/{name}"));
        let middle = seed(server, of("middle").blocking_owner(foreground));
        seed(server, of("leaf").blocking_owner(&middle));
        seed(server, of("collected").owned_by(background));
        seed(server, of("both").owned_by(background).owned_by(kept));
        seed(server, of("wait").blocking_owner(foreground).owned_by(kept));
        seed(server, of("free").owned_by(orphaning));
        seed(server, of("safe").owned_by(kept));
    }
}

fn seed(server: &ApiServer, mut object: NewObject) -> Value {
    if object.json["kind"] == "Secret" {
        object.json["type"] = json!("Opaque");
    }
    Value::clone(&server.seed(object.json).unwrap())
}

/// The populated namespaces.
pub(crate) fn given(server: &ApiServer) {
    seed_namespaces(server);
    populate(server);
}

/// Deletes three owners, each with another propagation policy.
pub(crate) async fn delete_all(client: kube::Client) {
    for (name, propagation) in [
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
        ("orphaning", PropagationPolicy::Orphan),
    ] {
        let deletion = DeleteOptions { propagation_policy: Some(propagation), ..DeleteOptions::default() };
        Call::delete(&MAPS, &Key::namespaced("a", name), &deletion).send(&client).await.unwrap();
    }
}

/// The objects that remain.
pub(crate) const LEFT: [&str; 9] = [
    "configmaps a/kept",
    "secrets a/both <kept",
    "secrets a/free",
    "secrets a/safe <kept",
    "secrets a/wait <kept",
    "widgets a/both <kept",
    "widgets a/free",
    "widgets a/safe <kept",
    "widgets a/wait <kept",
];

/// Proves GC-39.
#[tokio::test(start_paused = true)]
async fn standby_finishes_a_collection_without_a_list() {
    let cluster = cluster_with_namespaces();
    populate(&cluster.server);
    let standby = controller(&GarbageCollectorOptions::default());
    keleustes_runtime::loops::prepare([&standby], &cluster.caches);
    settle().await;
    delete_all(cluster.client()).await;
    wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.writes().len(), 3, "a standby writes nothing");
    cluster.server.clear_requests();
    let running = cluster.start(standby).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), LEFT);
    assert_eq!(cluster.reads("secrets", "") + cluster.reads("widgets", ""), 0);
    cluster.stop(running).await;
}

/// Proves GC-90.
#[tokio::test(start_paused = true)]
async fn every_delete_has_a_uid_precondition() {
    let cluster = cluster_with_namespaces();
    populate(&cluster.server);
    let running = start(&cluster).await;
    delete_all(cluster.client()).await;
    wait(LONG).await;
    assert_eq!(remaining(&cluster.server), LEFT);
    let requests = cluster.server.requests();
    let ours = |request: &&LoggedRequest| {
        request.method == http::Method::DELETE && !request.target.contains("configmaps")
    };
    let deletes: Vec<_> = requests.iter().filter(ours).collect();
    assert_eq!(deletes.len(), 6, "no object is deleted twice");
    assert!(deletes.iter().all(|delete| delete.json()["preconditions"]["uid"].is_string()));
    cluster.stop(running).await;
}
