//! Standing by and taking over in the middle of it, and what holds for every delete.

use super::*;

/// A little of everything: what goes in the background, in the foreground and free, and what stays.
fn populate(server: &ApiServer) {
    server.seed(super::super::monitors::widgets_definition()).unwrap();
    let owners = ["background", "foreground", "orphaning", "staying"];
    let owners = owners.map(|name| seed(server, object(&MAPS, &format!("a/{name}"))));
    let [background, foreground, orphaning, staying] = &owners;
    for resource in [&SECRETS, &WIDGETS] {
        let of = |name: &str| object(resource, &format!("a/{name}"));
        let middle = seed(server, of("middle").blocking(foreground));
        seed(server, of("leaf").blocking(&middle));
        seed(server, of("gone").owned(background));
        seed(server, of("both").owned(background).owned(staying));
        seed(server, of("wait").blocking(foreground).owned(staying));
        seed(server, of("free").owned(orphaning));
        seed(server, of("safe").owned(staying));
    }
}

fn seed(server: &ApiServer, mut made: Made) -> Value {
    if made.json["kind"] == "Secret" {
        made.json["type"] = json!("Opaque");
    }
    Value::clone(&server.seed(made.json).unwrap())
}

/// The populated namespaces.
pub(crate) fn given(server: &ApiServer) {
    seed_namespaces(server);
    populate(server);
}

/// Deletes three owners, each in its way.
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

/// What is left of it all.
pub(crate) const LEFT: [&str; 9] = [
    "configmaps a/staying",
    "secrets a/both <staying",
    "secrets a/free",
    "secrets a/safe <staying",
    "secrets a/wait <staying",
    "widgets a/both <staying",
    "widgets a/free",
    "widgets a/safe <staying",
    "widgets a/wait <staying",
];

/// Proves GC-39.
#[tokio::test(start_paused = true)]
async fn a_standby_finishes_what_a_leader_began_without_a_single_list() {
    let world = yard();
    populate(&world.server);
    let standby = controller(&GarbageCollectorOptions::default());
    keleustes_runtime::loops::prepare(&standby, &world.caches);
    settle().await;
    delete_all(world.client()).await;
    wait(Duration::from_secs(5)).await;
    assert_eq!(world.writes().len(), 3, "a standby writes nothing");
    world.server.clear_requests();
    let running = world.start(standby).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), LEFT);
    assert_eq!(world.reads("secrets", "") + world.reads("widgets", ""), 0);
    world.stop(running).await;
}

/// Proves GC-90.
#[tokio::test(start_paused = true)]
async fn every_delete_names_a_life() {
    let world = yard();
    populate(&world.server);
    let running = start(&world).await;
    delete_all(world.client()).await;
    wait(LONG).await;
    assert_eq!(there(&world.server), LEFT);
    let requests = world.server.requests();
    let ours = |request: &&LoggedRequest| {
        request.method == http::Method::DELETE && !request.target.contains("configmaps")
    };
    let deletes: Vec<_> = requests.iter().filter(ours).collect();
    assert_eq!(deletes.len(), 6, "no object is deleted twice");
    assert!(deletes.iter().all(|delete| delete.json()["preconditions"]["uid"].is_string()));
    world.stop(running).await;
}
