//! Discovery against an API server whose group versions or roots fail.

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

struct TestCluster {
    server: ApiServer,
    faults: Faults,
    client: Client,
}

impl TestCluster {
    fn new() -> Self {
        let (server, faults) = (ApiServer::default(), Faults::new());
        let client = Client::new(faults.layer(server.clone()), "default");
        Self { server, faults, client }
    }

    fn requested_paths(&self) -> Vec<String> {
        self.server.requests().into_iter().map(|request| request.target).collect()
    }
}

/// Makes the server respond with unaggregated discovery.
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
    discovered.resources.iter().find(|resource| resource.resource.kind == kind).unwrap()
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
    assert!(discovered.resources.iter().all(|resource| !resource.resource.plural.contains('/')));
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_takes_two_requests() {
    let cluster = TestCluster::new();
    let discovered = discover(&cluster.client).await.unwrap();
    check(&discovered);
    assert_eq!(discovered.failed.len(), 0);
    assert_eq!(cluster.requested_paths(), ["/api", "/apis"]);
}

#[tokio::test(start_paused = true)]
async fn unaggregated_discovery_finds_the_same_resources() {
    let cluster = TestCluster::new();
    let aggregated = discover(&cluster.client).await.unwrap();
    let client =
        Client::new(MiddlewareLayer::new(PlainOnly).layer(transport(cluster.server.clone())), "default");
    let plain = discover(&client).await.unwrap();
    check(&plain);
    let names = |discovered: &DiscoveredResources| {
        let mut names: Vec<_> =
            discovered.resources.iter().map(|resource| resource.resource.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&plain), names(&aggregated));
}

#[tokio::test(start_paused = true)]
async fn failed_group_version_does_not_affect_others() {
    for plain in [false, true] {
        let cluster = TestCluster::new();
        cluster.server.set_group_version_failing("apps", "v1", true);
        let client = if plain {
            Client::new(MiddlewareLayer::new(PlainOnly).layer(transport(cluster.server.clone())), "default")
        } else {
            cluster.client.clone()
        };
        let discovered = discover(&client).await.unwrap();
        check(&discovered);
        assert_eq!(discovered.failed.keys().collect::<Vec<_>>(), ["apps/v1"]);
        assert!(discovered.resources.iter().all(|resource| resource.resource.group != "apps"));

        let mapper = RestMapper::new(client);
        assert!(mapper.mapping_for_kind("", Some("v1"), "Secret").await.unwrap().is_some());
        let unknown = mapper.mapping_for_kind("apps", None, "Deployment").await.unwrap_err();
        assert_eq!(unknown.reason, ErrorReason::Unavailable);
        assert!(unknown.message.contains("apps/v1"), "{unknown}");
        assert_eq!(mapper.mapping_for_kind("", None, "Nonsense").await, Ok(None));
    }
}

#[tokio::test(start_paused = true)]
async fn one_failed_root_is_reported_and_two_are_an_error() {
    let cluster = TestCluster::new();
    let id = cluster
        .faults
        .add(FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "down")).target("/apis"));
    let discovered = discover(&cluster.client).await.unwrap();
    assert_eq!(discovered.failed.keys().collect::<Vec<_>>(), ["apis"]);
    let mapper = RestMapper::new(cluster.client.clone());
    assert!(mapper.mapping_for_kind("apps", None, "Deployment").await.is_err());
    assert!(mapper.mapping_for_kind("", None, "Secret").await.unwrap().is_some());
    cluster.faults.disable(id);
    cluster.faults.add(FaultRule::new(InjectedFault::status(403, "Forbidden", "no")));
    assert_eq!(discover(&cluster.client).await.unwrap_err().reason, ErrorReason::Forbidden);
}

#[tokio::test(start_paused = true)]
async fn mapping_is_found_by_kind_and_by_resource() {
    let cluster = TestCluster::new();
    let mapper = RestMapper::new(cluster.client.clone());
    let by_kind = mapper.mapping_for_kind("apps", None, "Deployment").await.unwrap().unwrap();
    let by_name = mapper.mapping_for_resource("apps", Some("v1"), "deployments").await.unwrap().unwrap();
    assert_eq!(by_kind, by_name);
    assert_eq!(mapper.mapping_for_resource("apps", Some("v1beta1"), "deployments").await, Ok(None));
}

/// Proves RUN-43.
#[tokio::test(start_paused = true)]
async fn discovery_is_fetched_on_demand_shared_and_expires_after_thirty_seconds() {
    let cluster = TestCluster::new();
    let mapper = RestMapper::new(cluster.client.clone());
    assert!(cluster.requested_paths().is_empty(), "no request before the first use");
    let slow = InjectedFault::DelayThen(Duration::from_millis(10), Box::new(InjectedFault::Pass));
    let slow = cluster.faults.add(FaultRule::new(slow));
    let callers = (0..20).map(|_| mapper.mapping_for_kind("", None, "Secret"));
    futures::future::join_all(callers).await;
    assert_eq!(cluster.requested_paths().len(), 2, "one fetch for all");
    cluster.faults.disable(slow);
    tokio::time::advance(Duration::from_secs(29)).await;
    mapper.mapping_for_kind("", None, "Secret").await.unwrap();
    assert_eq!(cluster.requested_paths().len(), 2);
    tokio::time::advance(Duration::from_secs(2)).await;
    mapper.mapping_for_kind("", None, "Secret").await.unwrap();
    assert_eq!(cluster.requested_paths().len(), 4);
    mapper.invalidate();
    mapper.mapping_for_kind("", None, "Secret").await.unwrap();
    assert_eq!(cluster.requested_paths().len(), 6);
}

/// Proves RUN-43.
#[tokio::test(start_paused = true)]
async fn unknown_kind_repeats_discovery_at_most_every_five_seconds() {
    let cluster = TestCluster::new();
    let mapper = RestMapper::new(cluster.client.clone());
    mapper.all().await.unwrap();
    for _ in 0..10 {
        assert_eq!(mapper.mapping_for_kind("new.example", None, "Thing").await, Ok(None));
    }
    assert_eq!(cluster.requested_paths().len(), 2, "the document is younger than five seconds");
    tokio::time::advance(Duration::from_secs(6)).await;
    for _ in 0..10 {
        assert_eq!(mapper.mapping_for_kind("new.example", None, "Thing").await, Ok(None));
    }
    assert_eq!(cluster.requested_paths().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn cached_discovery_is_used_while_the_server_is_down() {
    let cluster = TestCluster::new();
    let mapper = RestMapper::new(cluster.client.clone());
    let id = cluster
        .faults
        .add(FaultRule::new(InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused)));
    let failure = mapper.mapping_for_kind("", None, "Secret").await.unwrap_err();
    assert_eq!(failure.reason, ErrorReason::ConnectionRefused);
    cluster.faults.disable(id);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(mapper.mapping_for_kind("", None, "Secret").await.unwrap().is_some());
    assert_eq!(mapper.last_failure(), None);

    tokio::time::advance(Duration::from_secs(31)).await;
    cluster.faults.add(FaultRule::new(InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused)));
    assert!(mapper.mapping_for_kind("", None, "Secret").await.unwrap().is_some());
    assert_eq!(mapper.last_failure().unwrap().reason, ErrorReason::ConnectionRefused);
    cluster.faults.disable_all();
    tokio::time::advance(Duration::from_secs(6)).await;
    mapper.all().await.unwrap();
    assert_eq!(mapper.last_failure(), None, "after a failed fetch discovery is repeated after five seconds");
}

#[tokio::test(start_paused = true)]
async fn resources_of_a_failed_root_are_kept_and_discovery_is_repeated_soon() {
    let cluster = TestCluster::new();
    let mapper = RestMapper::new(cluster.client.clone());
    let names = |discovered: &DiscoveredResources| {
        let mut names: Vec<_> =
            discovered.resources.iter().map(|resource| resource.resource.clone()).collect();
        names.sort();
        names
    };
    let whole = mapper.all().await.unwrap();
    tokio::time::advance(Duration::from_secs(31)).await;
    for (root, kind) in [("/apis", "Deployment"), ("/api", "Secret")] {
        if root == "/api" {
            // The first rule that matches counts, and every path of `/apis` contains `/api`.
            cluster.faults.add(FaultRule::new(InjectedFault::Pass).target("/apis"));
        }
        let down = FaultRule::new(InjectedFault::status(503, "ServiceUnavailable", "down")).target(root);
        let down = cluster.faults.add(down);
        let partly = mapper.all().await.unwrap();
        assert_eq!(partly.failed.keys().collect::<Vec<_>>(), [root.trim_start_matches('/')]);
        find(&partly, kind);
        assert_eq!((names(&partly), partly.versions.len()), (names(&whole), whole.versions.len()));
        cluster.faults.disable(down);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(mapper.all().await.unwrap().failed.is_empty(), "repeated after five seconds");
        tokio::time::advance(Duration::from_secs(31)).await;
    }
}
