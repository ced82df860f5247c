//! Discovery against an API server of which parts fail.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderValue, Request, Response};
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
use keleustes_objects::{ErrorReason, Resource};
use kube::client::Body;
use tower::{BoxError, Layer as _, ServiceExt as _};

use super::*;
use crate::layers::{HttpService, Middleware, MiddlewareLayer, ResponseBody, transport};

struct World {
    server: ApiServer,
    faults: Faults,
    client: Client,
}

impl World {
    fn new() -> Self {
        let (server, faults) = (ApiServer::default(), Faults::new());
        let client = Client::new(faults.layer(server.clone()), "default");
        Self { server, faults, client }
    }

    fn asked(&self) -> Vec<String> {
        self.server.requests().into_iter().map(|request| request.target).collect()
    }
}

/// Speaks for a server that does not know the aggregated form.
struct PlainOnly;

impl Middleware for PlainOnly {
    async fn pass<S: HttpService>(
        self: Arc<Self>,
        mut request: Request<Body>,
        inner: S,
    ) -> Result<Response<ResponseBody>, BoxError> {
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        inner.oneshot(request).await
    }
}

fn find<'a>(discovered: &'a DiscoveredResources, kind: &str) -> &'a ApiResource {
    discovered.resources.iter().find(|one| one.resource.kind == kind).unwrap()
}

fn check(discovered: &DiscoveredResources) {
    let secrets = find(discovered, "Secret");
    assert_eq!(secrets.resource, Resource::namespaced("", "v1", "secrets", "Secret"));
    assert!(secrets.preferred && secrets.has_verb("watch") && secrets.subresources.is_empty());
    let roles = find(discovered, "ClusterRole");
    assert_eq!(roles.resource.group, "rbac.authorization.k8s.io");
    assert!(!roles.resource.namespaced);
    let accounts = find(discovered, "ServiceAccount");
    let token = accounts.subresources.iter().find(|part| part.name == "token").unwrap();
    assert_eq!(
        (token.kind.as_str(), token.verbs.as_slice()),
        ("TokenRequest", ["create".to_owned()].as_slice())
    );
    assert!(discovered.resources.iter().all(|one| !one.resource.plural.contains('/')));
}

#[tokio::test(start_paused = true)]
async fn two_requests_tell_everything() {
    let world = World::new();
    let discovered = discover(&world.client).await.unwrap();
    check(&discovered);
    assert_eq!(discovered.failed.len(), 0);
    assert_eq!(world.asked(), ["/api", "/apis"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_only_the_plain_form_tells_the_same() {
    let world = World::new();
    let aggregated = discover(&world.client).await.unwrap();
    let client =
        Client::new(MiddlewareLayer::new(PlainOnly).layer(transport(world.server.clone())), "default");
    let plain = discover(&client).await.unwrap();
    check(&plain);
    let names = |discovered: &DiscoveredResources| {
        let mut names: Vec<_> = discovered.resources.iter().map(|one| one.resource.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&plain), names(&aggregated));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_fails_spoils_no_other() {
    for plain in [false, true] {
        let world = World::new();
        world.server.set_group_version_failing("apps", "v1", true);
        let client = if plain {
            Client::new(MiddlewareLayer::new(PlainOnly).layer(transport(world.server.clone())), "default")
        } else {
            world.client.clone()
        };
        let discovered = discover(&client).await.unwrap();
        check(&discovered);
        assert_eq!(discovered.failed.keys().collect::<Vec<_>>(), ["apps/v1"]);
        assert!(discovered.resources.iter().all(|one| one.resource.group != "apps"));

        let mapping = RestMapper::new(client);
        assert!(mapping.mapping_for_kind("", Some("v1"), "Secret").await.unwrap().is_some());
        let unknown = mapping.mapping_for_kind("apps", None, "Deployment").await.unwrap_err();
        assert_eq!(unknown.reason, ErrorReason::Unavailable);
        assert!(unknown.message.contains("apps/v1"), "{unknown}");
        assert_eq!(mapping.mapping_for_kind("", None, "Nonsense").await, Ok(None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_root_that_fails_is_told_and_both_are_a_failure() {
    let world = World::new();
    let id = world
        .faults
        .add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "down")).target("/apis"));
    let discovered = discover(&world.client).await.unwrap();
    assert_eq!(discovered.failed.keys().collect::<Vec<_>>(), ["apis"]);
    let mapping = RestMapper::new(world.client.clone());
    assert!(mapping.mapping_for_kind("apps", None, "Deployment").await.is_err());
    assert!(mapping.mapping_for_kind("", None, "Secret").await.unwrap().is_some());
    world.faults.disable(id);
    world.faults.add(FaultRule::new(InjectedFault::status(403, "Forbidden", "no")));
    assert_eq!(discover(&world.client).await.unwrap_err().reason, ErrorReason::Forbidden);
}

#[tokio::test(start_paused = true)]
async fn kinds_and_resources_are_found_both_ways() {
    let world = World::new();
    let mapping = RestMapper::new(world.client.clone());
    let by_kind = mapping.mapping_for_kind("apps", None, "Deployment").await.unwrap().unwrap();
    let by_name = mapping.mapping_for_resource("apps", Some("v1"), "deployments").await.unwrap().unwrap();
    assert_eq!(by_kind, by_name);
    assert_eq!(mapping.mapping_for_resource("apps", Some("v1beta1"), "deployments").await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_mapping_is_asked_for_when_needed_shared_and_renewed_after_thirty_seconds() {
    let world = World::new();
    let mapping = RestMapper::new(world.client.clone());
    assert!(world.asked().is_empty(), "nothing is asked before it is needed");
    let slow = InjectedFault::DelayThen(Duration::from_millis(10), Box::new(InjectedFault::Pass));
    let slow = world.faults.add(FaultRule::new(slow));
    let callers = (0..20).map(|_| mapping.mapping_for_kind("", None, "Secret"));
    futures::future::join_all(callers).await;
    assert_eq!(world.asked().len(), 2, "one fetch for all");
    world.faults.disable(slow);
    tokio::time::advance(Duration::from_secs(29)).await;
    mapping.mapping_for_kind("", None, "Secret").await.unwrap();
    assert_eq!(world.asked().len(), 2);
    tokio::time::advance(Duration::from_secs(2)).await;
    mapping.mapping_for_kind("", None, "Secret").await.unwrap();
    assert_eq!(world.asked().len(), 4);
    mapping.invalidate();
    mapping.mapping_for_kind("", None, "Secret").await.unwrap();
    assert_eq!(world.asked().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn something_unknown_is_asked_for_again_but_not_all_the_time() {
    let world = World::new();
    let mapping = RestMapper::new(world.client.clone());
    mapping.all().await.unwrap();
    for _ in 0..10 {
        assert_eq!(mapping.mapping_for_kind("new.example", None, "Thing").await, Ok(None));
    }
    assert_eq!(world.asked().len(), 2, "what was just learnt is new enough");
    tokio::time::advance(Duration::from_secs(6)).await;
    for _ in 0..10 {
        assert_eq!(mapping.mapping_for_kind("new.example", None, "Thing").await, Ok(None));
    }
    assert_eq!(world.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_learnt_stays_in_use_while_the_server_is_away() {
    let world = World::new();
    let mapping = RestMapper::new(world.client.clone());
    let id = world
        .faults
        .add(FaultRule::new(InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused)));
    let failure = mapping.mapping_for_kind("", None, "Secret").await.unwrap_err();
    assert_eq!(failure.reason, ErrorReason::ConnectionRefused);
    world.faults.disable(id);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(mapping.mapping_for_kind("", None, "Secret").await.unwrap().is_some());
    assert_eq!(mapping.last_failure(), None);

    tokio::time::advance(Duration::from_secs(31)).await;
    world.faults.add(FaultRule::new(InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused)));
    assert!(mapping.mapping_for_kind("", None, "Secret").await.unwrap().is_some());
    assert_eq!(mapping.last_failure().unwrap().reason, ErrorReason::ConnectionRefused);
    world.faults.disable_all();
    tokio::time::advance(Duration::from_secs(6)).await;
    mapping.all().await.unwrap();
    assert_eq!(mapping.last_failure(), None, "a server that was away is asked again sooner");
}
