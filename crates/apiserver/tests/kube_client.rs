//! A real `kube::Client` cannot distinguish the embedded server from kube-apiserver in what Keleustes uses.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault, clock};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::core::Expression;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

fn client(server: &ApiServer) -> Client {
    Client::new(server.clone(), "default")
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": value}})).expect("a ConfigMap")
}

fn code(error: kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("not a Status: {other}"),
    }
}

async fn kinds<K: std::fmt::Debug + Clone>(
    stream: impl futures::Stream<Item = kube::Result<WatchEvent<K>>>,
    count: usize,
) -> Vec<&'static str> {
    let events: Vec<WatchEvent<K>> = stream.take(count).try_collect().await.expect("no broken stream");
    events
        .iter()
        .map(|event| match event {
            WatchEvent::Added(_) => "ADDED",
            WatchEvent::Modified(_) => "MODIFIED",
            WatchEvent::Deleted(_) => "DELETED",
            WatchEvent::Bookmark(_) => "BOOKMARK",
            WatchEvent::Error(_) => "ERROR",
        })
        .collect()
}

#[tokio::test]
async fn objects_are_created_read_updated_listed_and_deleted() {
    let server = ApiServer::builder().seed(1).build();
    let api = Api::<ConfigMap>::default_namespaced(client(&server));
    let mut created = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(
        code(api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err()),
        (409, "AlreadyExists".to_owned())
    );
    created.data.as_mut().unwrap().insert("k".to_owned(), "2".to_owned());
    let updated = api.replace("a", &PostParams::default(), &created).await.unwrap();
    assert_eq!(
        code(api.replace("a", &PostParams::default(), &created).await.unwrap_err()),
        (409, "Conflict".to_owned())
    );
    assert_eq!(api.get("a").await.unwrap(), updated);
    assert_eq!(api.get_opt("none").await.unwrap(), None);
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items, std::slice::from_ref(&updated));
    assert_eq!(list.metadata.resource_version, updated.metadata.resource_version);
    let stale = DeleteParams::default()
        .preconditions(Preconditions { uid: Some("other".to_owned()), resource_version: None });
    assert_eq!(code(api.delete("a", &stale).await.unwrap_err()).0, 409);
    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert_eq!(code(api.get("a").await.unwrap_err()), (404, "NotFound".to_owned()));
    assert_eq!(code(api.list(&ListParams::default().fields("spec.x=1")).await.unwrap_err()).0, 400);
}

#[tokio::test]
async fn lists_support_pagination_and_selectors() {
    let server = ApiServer::builder().build();
    for at in 0..5 {
        server
            .seed(json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("m{at}"), "labels": {"odd": (at % 2 == 1).to_string()}}}))
            .unwrap();
    }
    let api = Api::<ConfigMap>::all(client(&server));
    let mut names = Vec::new();
    let mut params = ListParams::default().limit(2);
    loop {
        let page = api.list(&params).await.unwrap();
        names.extend(page.iter().map(|m| m.name_any()));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
    let odd = Expression::In("odd".to_owned(), ["true".to_owned()].into());
    let found = api.list(&ListParams::default().labels_from(&odd.into())).await.unwrap();
    assert_eq!(found.iter().map(|m| m.name_any()).collect::<Vec<_>>(), ["m1", "m3"]);
    let metadata = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 5);
    let elsewhere = Api::<ConfigMap>::namespaced(client(&server), "kube-system");
    assert_eq!(elsewhere.list_metadata(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn watches_stream_changes_until_they_are_cut() {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::default_namespaced(client(&server));
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let from = first.resource_version().unwrap();
    let stream = api.watch(&WatchParams::default(), &from).await.unwrap();
    let watching = tokio::spawn(kinds(stream, 4));
    tokio::task::yield_now().await;
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    server.send_bookmarks();
    assert_eq!(watching.await.unwrap(), ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]);
    assert_eq!(server.open_watches(), 0, "a dropped stream closes its watch");

    let stream = api.watch(&WatchParams::default(), "0").await.unwrap();
    let watching = tokio::spawn(kinds(stream, 10));
    while server.open_watches() == 0 {
        tokio::task::yield_now().await;
    }
    server.cut_watches();
    assert_eq!(watching.await.unwrap(), ["ADDED", "BOOKMARK"]);

    server.compact();
    let expired = api.watch(&WatchParams::default(), &from).await.unwrap();
    assert_eq!(kinds(expired, 10).await, ["ERROR"]);
}

#[tokio::test]
async fn streaming_lists_and_metadata_watches_work() {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::default_namespaced(client(&server));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let params = WatchParams::default().initial_events();
    let stream = api.watch(&params, "").await.unwrap();
    let events: Vec<_> = stream.take(2).try_collect().await.unwrap();
    let WatchEvent::Bookmark(mark) = &events[1] else { panic!("{events:?}") };
    assert_eq!(mark.metadata.annotations["k8s.io/initial-events-end"], "true");
    assert_eq!(mark.metadata.resource_version, server.resource_version().to_string());
    let stream = api.watch_metadata(&params, "").await.unwrap();
    assert_eq!(kinds(stream, 2).await, ["ADDED", "BOOKMARK"]);
}

#[tokio::test(start_paused = true)]
async fn timeouts_and_timestamps_follow_the_paused_clock() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().clock(clock::following_tokio(start)).build();
    let api = Api::<ConfigMap>::default_namespaced(client(&server));
    let stream = api.watch(&WatchParams::default().timeout(250), "").await.unwrap();
    // One at the end of the initial events, the others periodically.
    assert_eq!(kinds(stream, 10).await, ["BOOKMARK"; 6]);
    let created = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(created.creation_timestamp().unwrap().0.to_string(), "2026-01-01T00:04:10Z");
}

#[tokio::test]
async fn apply_owns_fields_and_token_requests_are_answered() {
    let server = ApiServer::builder().build();
    let roles = Api::<ClusterRole>::all(client(&server));
    server
        .seed(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "system:view"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}}))
        .unwrap();
    let mut applied = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "system:view"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let params = PatchParams::apply("clusterrole-aggregation-controller").force();
    let role = roles.patch("system:view", &params, &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(role.rules.unwrap().len(), 1);
    applied.as_object_mut().unwrap().remove("rules");
    let role = roles.patch("system:view", &params, &Patch::Apply(&applied)).await.unwrap();
    assert!(role.rules.unwrap_or_default().is_empty());
    assert!(role.aggregation_rule.is_some());

    let accounts = Api::<ServiceAccount>::default_namespaced(client(&server));
    let account = serde_json::from_value(json!({"metadata": {"name": "sa"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = serde_json::from_value::<TokenRequest>(json!({"spec": {"audiences": []}})).unwrap();
    let answer = accounts.create_token_request("sa", &PostParams::default(), &request).await.unwrap();
    assert!(answer.status.unwrap().token.is_some_and(|token| !token.is_empty()));
}

#[tokio::test]
async fn leases_secrets_and_namespaces_decode() {
    let server = ApiServer::builder().build();
    let leases = Api::<Lease>::namespaced(client(&server), "kube-system");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let mut lease =
        leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    lease.spec.as_mut().unwrap().holder_identity = Some("other".to_owned());
    leases.replace("l", &PostParams::default(), &lease).await.unwrap();
    assert_eq!(code(leases.replace("l", &PostParams::default(), &lease).await.unwrap_err()).0, 409);

    let namespaces = Api::<Namespace>::all(client(&server));
    let namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    assert!(namespaces.delete("n", &DeleteParams::default()).await.unwrap().is_left());
    let secrets = Api::<Secret>::namespaced(client(&server), "n");
    let secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
    let refused = secrets.create(&PostParams::default(), &secret).await.unwrap_err();
    assert_eq!(code(refused), (403, "Forbidden".to_owned()));
}

#[tokio::test]
async fn discovery_is_served_unaggregated_and_aggregated() {
    let server = ApiServer::builder().build();
    let client = client(&server);
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");
    assert!(client.list_api_groups().await.unwrap().groups.len() > 15);
    assert!(!client.list_core_api_resources("v1").await.unwrap().resources.is_empty());
    server.set_group_version_failing("apps", "v1", true);
    assert_eq!(code(client.list_api_group_resources("apps/v1").await.unwrap_err()).0, 503);
    let groups = client.list_api_groups_aggregated().await.unwrap();
    let apps =
        groups.items.iter().find(|g| g.metadata.as_ref().unwrap().name.as_deref() == Some("apps")).unwrap();
    assert_eq!(apps.versions[0].freshness.as_deref(), Some("Stale"));
}

#[tokio::test]
async fn requests_are_logged() {
    let server = ApiServer::builder().build();
    let api = Api::<ConfigMap>::default_namespaced(client(&server));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    api.get("a").await.unwrap();
    let log = server.requests();
    assert_eq!((log[0].method.as_str(), log[1].method.as_str()), ("POST", "GET"));
    assert_eq!(log[0].target.split('?').next().unwrap(), "/api/v1/namespaces/default/configmaps");
    assert_eq!(log[0].json()["data"]["k"], "1");
    assert!(log[1].body.is_empty());
    server.clear_requests();
    assert!(server.requests().is_empty());
}

fn faulty(server: &ApiServer) -> (Faults, Api<ConfigMap>) {
    let faults = Faults::new();
    let client = Client::new(tower::Layer::layer(&faults, server.clone()), "default");
    (faults, Api::default_namespaced(client))
}

#[tokio::test(start_paused = true)]
async fn fault_rules_hit_only_matching_requests() {
    let server = ApiServer::builder().build();
    let (faults, api) = faulty(&server);
    let refused = faults
        .add(FaultRule::new(InjectedFault::too_many_requests(3)).method(http::Method::GET).skip(1).times(1));
    assert_eq!(api.get_opt("a").await.unwrap(), None);
    assert_eq!(code(api.get("a").await.unwrap_err()), (429, "TooManyRequests".to_owned()));
    assert_eq!(api.get_opt("a").await.unwrap(), None);
    assert_eq!(faults.hits(refused), 1);

    let broken = InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused);
    let late = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(broken));
    let rule = faults.add(FaultRule::new(late).target("/configmaps/b"));
    let before = tokio::time::Instant::now();
    let error = api.get("b").await.unwrap_err();
    assert!(matches!(&error, kube::Error::Service(_)), "{error}");
    assert_eq!(before.elapsed(), Duration::from_secs(5));
    faults.disable(rule);

    let garbled = InjectedFault::RawBody { code: 200, body: "<html>".into() };
    faults.add(FaultRule::new(garbled).target("/configmaps/c").times(1));
    assert!(api.get("c").await.is_err());
    faults.add(FaultRule::new(InjectedFault::Hang).target("/configmaps/d"));
    assert!(tokio::time::timeout(Duration::from_secs(60), api.get("d")).await.is_err());
    faults.disable_all();
    assert_eq!(api.get_opt("d").await.unwrap(), None);
}

#[tokio::test]
async fn write_takes_effect_although_its_response_is_lost() {
    let server = ApiServer::builder().build();
    let (faults, api) = faulty(&server);
    let lost = InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(
        std::io::ErrorKind::ConnectionReset,
    )));
    faults.add(FaultRule::new(lost).method(http::Method::POST));
    assert!(api.create(&PostParams::default(), &config_map("a", "1")).await.is_err());
    assert!(server.object("configmaps", "default", "a").is_some());
}

#[tokio::test]
async fn streams_are_cut_after_a_number_of_events() {
    let server = ApiServer::builder().build();
    let (faults, api) = faulty(&server);
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
    }
    faults.add(
        FaultRule::new(InjectedFault::CutStream { after_events: 2, cleanly: true }).watch(true).times(1),
    );
    faults.add(
        FaultRule::new(InjectedFault::CutStream { after_events: 1, cleanly: false }).watch(true).times(1),
    );
    let stream = api.watch(&WatchParams::default(), "0").await.unwrap();
    assert_eq!(kinds(stream, 10).await, ["ADDED", "ADDED"]);
    let events: Vec<_> = api.watch(&WatchParams::default(), "0").await.unwrap().collect().await;
    assert!(events[0].is_ok() && events[1].is_err(), "{events:?}");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 3);
}
