//! Which client sends which request: operators of an API server tell them apart by their user agents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use keleustes_apiserver::ApiServer;
use keleustes_client::{ClientOptions, Connection};
use keleustes_controllers::garbage_collector::{GarbageCollectorOptions, controller};
use keleustes_controllers::serviceaccount_token::{self, ServiceAccountTokenOptions};
use keleustes_plan::KindEntry;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::handover::PredecessorState;
use keleustes_runtime::leader::Leadership;
use keleustes_runtime::loops;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::running_controllers::{ControllerSet, RunningControllers, controller_context};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::test_cluster::{ConfigMap, settle, wait};

/// Paths and the clients that requested them.
type Sent = Arc<Mutex<BTreeSet<(String, String)>>>;

/// A process that records its requests to this server.
fn recording(server: ApiServer) -> (ProcessContext, Sent) {
    let sent = Sent::default();
    let recorded = sent.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let agent = request.headers()[USER_AGENT].to_str().unwrap();
        let client = agent.rsplit('/').next().unwrap().to_owned();
        recorded.lock().insert((request.uri().path().to_owned(), client));
        server.clone().oneshot(request)
    });
    let process = ProcessContext::new(
        Connection::from_service(service),
        ClientOptions::default(),
        Clocks::new(|| 0),
        Random::seeded(7),
        Metrics::new(),
        None,
    );
    (process, sent)
}

fn clients(sent: &Sent, path: &str) -> Vec<String> {
    let sent = sent.lock();
    sent.iter().filter(|(sent_to, _)| sent_to == path).map(|(_, client)| client.clone()).collect()
}

/// Proves RUN-20, GC-6.
#[tokio::test(start_paused = true)]
async fn informers_metadata_informers_and_discovery_have_user_agents_of_their_own() {
    let (process, sent) = recording(ApiServer::builder().seed(7).build());
    process.caches.cache(&KindEntry::of::<ConfigMap>()).wait_for_sync().await;
    loops::prepare([&controller(&GarbageCollectorOptions::default())], &process.caches);
    settle().await;
    process.caches.stop().await;
    assert_eq!(clients(&sent, "/api/v1/configmaps"), ["shared-informers"]);
    assert_eq!(clients(&sent, "/api/v1/secrets"), ["metadata-informers"]);
    assert_eq!(clients(&sent, "/apis"), ["controller-discovery"]);
}

/// Proves RUN-20.
#[tokio::test(start_paused = true)]
async fn token_controller_writes_as_tokens_controller() {
    let server = ApiServer::builder().seed(7).build();
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "a", "name": "builder"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"namespace": "a", "name": "token",
                         "annotations": {"kubernetes.io/service-account.name": "builder"}}}),
    ] {
        server.seed(object).unwrap();
    }
    let (process, sent) = recording(server);
    let (process, stop) = (Arc::new(process), CancellationToken::new());
    let options =
        ServiceAccountTokenOptions { sign: Arc::new(|_| Ok("t".to_owned())), ca: Arc::default(), workers: 1 };
    let set = ControllerSet {
        controllers: vec![serviceaccount_token::controller(&options)],
        first: "serviceaccount-token-controller",
        start_interval: Duration::ZERO,
    };
    let context = controller_context(&process, &Leadership::without_election(), PredecessorState::None);
    let running = RunningControllers::start(&process, set, &context, || {}, &stop).await;
    wait(Duration::from_secs(60)).await;
    running.stop(Duration::ZERO).await.unwrap();
    process.caches.stop().await;
    assert_eq!(clients(&sent, "/api/v1/namespaces/a/secrets/token"), ["tokens-controller"]);
    assert_eq!(clients(&sent, "/api/v1/secrets"), ["shared-informers"]);
}
