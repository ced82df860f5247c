//! Which client sends which request: operators of an API server tell them apart by their user agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::USER_AGENT;
use keleustes_apiserver::ApiServer;
use keleustes_client::{ClientOptions, Connection};
use keleustes_controllers::garbage_collector::{GarbageCollectorOptions, controller};
use keleustes_plan::KindEntry;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::loops;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use kube::client::Body;
use parking_lot::Mutex;
use tower::ServiceExt as _;

use crate::test_cluster::{ConfigMap, settle};

/// Proves RUN-20, GC-6.
#[tokio::test(start_paused = true)]
async fn informers_metadata_informers_and_discovery_have_user_agents_of_their_own() {
    let (server, sent) = (ApiServer::builder().seed(7).build(), Arc::new(Mutex::new(BTreeSet::new())));
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
    process.caches.cache(&KindEntry::of::<ConfigMap>()).wait_for_sync().await;
    loops::prepare([&controller(&GarbageCollectorOptions::default())], &process.caches);
    settle().await;
    process.caches.stop().await;
    let sent = sent.lock();
    let clients = |path: &str| -> Vec<&str> {
        sent.iter().filter(|(sent_to, _)| sent_to == path).map(|(_, client)| client.as_str()).collect()
    };
    assert_eq!(clients("/api/v1/configmaps"), ["shared-informers"]);
    assert_eq!(clients("/api/v1/secrets"), ["metadata-informers"]);
    assert_eq!(clients("/apis"), ["controller-discovery"]);
}
