//! Lists of one kind fail for ever, as they do if etcd holds one object that the API server cannot decode. Only
//! controllers that read the kind are affected.

use std::sync::Arc;
use std::time::Duration;

use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault, clock};
use keleustes_client::{Call, ClientOptions, Connection};
use keleustes_controllers::{ControllersOptions, all_controllers, serviceaccount_token};
use keleustes_objects::{Deployment, Kind as _};
use keleustes_plan::Controller;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::handover::PredecessorState;
use keleustes_runtime::leader::{Handover as _, Leadership, Predecessor};
use keleustes_runtime::loops;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_runtime::running_controllers::{ControllerSet, RunningControllers, controller_context};
use keleustes_test_log::TestLog;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;
use tracing::Level;

use crate::test_cluster::{START_NANOSECONDS, wait};

const FIRST: &str = "serviceaccount-token-controller";

/// A manager with all controllers.
struct Manager {
    server: ApiServer,
    faults: Faults,
    process: Arc<ProcessContext>,
    controllers: Vec<Controller>,
    stop: CancellationToken,
    /// When the token controller was started.
    token_controller_started: Arc<Mutex<Option<Instant>>>,
}

impl Manager {
    /// A standby: its caches fill, its controllers wait.
    fn standby(server: &ApiServer, began: Instant) -> Self {
        let faults = Faults::new();
        let wall = move || START_NANOSECONDS + i64::try_from(began.elapsed().as_nanos()).unwrap();
        let connection = Connection::from_service(faults.layer(server.clone()));
        let (clocks, random) = (Clocks::new(wall), Random::seeded(7));
        let process =
            ProcessContext::new(connection, ClientOptions::default(), clocks, random, Metrics::new(), None);
        let options = ControllersOptions {
            serviceaccount_token: Some(serviceaccount_token::ServiceAccountTokenOptions {
                sign: Arc::new(|claims| Ok(claims.to_string())),
                ca: Arc::from(*b"ca"),
                workers: 5,
            }),
            ..ControllersOptions::default()
        };
        Self {
            server: server.clone(),
            faults,
            process: Arc::new(process),
            controllers: all_controllers(&options),
            stop: CancellationToken::new(),
            token_controller_started: Arc::default(),
        }
    }

    /// From now on, lists and watches of this resource fail.
    fn fail_lists(&self, plural: &str) {
        let fault = InjectedFault::status(500, "InternalError", "unable to decode the object in storage");
        self.faults.add(FaultRule::new(fault).resource(plural).verbs(&["list", "watch"]));
        // The open watches end, too: the server's watch cache cannot be filled any more.
        self.server.cut_watches();
    }

    /// Starts the controllers, in the background as controllers may never start.
    fn lead(&mut self, predecessor: &Predecessor) {
        let (process, stop) = (self.process.clone(), self.stop.clone());
        let (controllers, signal) =
            (std::mem::take(&mut self.controllers), self.token_controller_started.clone());
        let predecessor_state = PredecessorState::of(predecessor, &process.clocks);
        tokio::spawn(async move {
            let context = controller_context(&process, &Leadership::without_election(), predecessor_state);
            let set = ControllerSet { controllers, first: FIRST, start_interval: Duration::ZERO };
            let on_first_started = || *signal.lock() = Some(Instant::now());
            let running = RunningControllers::start(&process, set, &context, on_first_started, &stop).await;
            stop.cancelled().await;
            running.stop(Duration::ZERO).await.unwrap();
            process.caches.stop().await;
        });
    }

    fn pods_of(&self, namespace: &str) -> usize {
        self.server.objects("pods").iter().filter(|pod| pod["metadata"]["namespace"] == namespace).count()
    }

    fn has_token(&self, namespace: &str) -> bool {
        let secret = self.server.object("secrets", namespace, "token");
        secret.is_some_and(|secret| secret["data"]["token"].is_string())
    }
}

fn server() -> ApiServer {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().seed(7).clock(clock::following_tokio(start)).build();
    server.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})).unwrap();
    server
}

fn seed(server: &ApiServer, object: Value) -> Value {
    Value::clone(&server.seed(object).unwrap())
}

/// Created by a request, so that the server sets the defaults of its template.
async fn create_deployment(server: &ApiServer, name: &str) {
    let labels = json!({"app": name});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a", "name": name},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let client = kube::Client::new(server.clone(), "default");
    Call::create(&Deployment::RESOURCE, "a", &deployment).send(&client).await.unwrap();
}

/// A ServiceAccount with a Secret that the token controller fills.
fn seed_token(server: &ApiServer) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "a", "name": "robot"}});
    seed(server, account);
    seed(
        server,
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"namespace": "a", "name": "token",
                "annotations": {"kubernetes.io/service-account.name": "robot"}}}),
    );
}

/// A ConfigMap whose owner does not exist.
fn seed_garbage(server: &ApiServer, name: &str) {
    seed(
        server,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent",
                "uid": "00000000-0000-0000-0000-00000000000b"}]}}),
    );
}

fn has_garbage(server: &ApiServer, name: &str) -> bool {
    server.object("configmaps", "a", name).is_some()
}

/// Proves RUN-124, GC-12, GC-140, SAT-69.
#[tokio::test(start_paused = true)]
async fn failing_list_of_secrets_affects_only_the_token_controller_after_a_start() {
    let (server, began) = (server(), Instant::now());
    seed_token(&server);
    seed_garbage(&server, "garbage");
    let mut manager = Manager::standby(&server, began);
    manager.fail_lists("secrets");
    manager.lead(&Predecessor::Absent);
    create_deployment(&server, "web").await;
    wait(Duration::from_secs(5)).await;
    assert_eq!(manager.pods_of("a"), 2, "the Deployment gets its pods");
    assert_eq!(
        *manager.token_controller_started.lock(),
        Some(began),
        "a process with two locks may compete for the second"
    );
    assert!(has_garbage(&server, "garbage"), "the garbage collector waits for 30 s");
    wait(Duration::from_secs(30)).await;
    assert!(!has_garbage(&server, "garbage"), "the garbage collector does not wait longer");
    wait(Duration::from_secs(600)).await;
    assert!(!manager.has_token("a"), "the token controller reads Secrets");
    manager.faults.disable_all();
    wait(Duration::from_secs(120)).await;
    assert!(manager.has_token("a"), "it starts when Secrets can be listed again");
    manager.stop.cancel();
}

/// Proves GC-12, GC-140.
#[tokio::test(start_paused = true)]
async fn failing_list_of_secrets_affects_only_the_token_controller_after_a_failover() {
    for has_record in [false, true] {
        let (server, began) = (server(), Instant::now());
        let mut leader = Manager::standby(&server, began);
        leader.lead(&Predecessor::Absent);
        let mut standby = Manager::standby(&server, began);
        loops::prepare(&standby.controllers, &standby.process.caches);
        wait(Duration::from_secs(60)).await;
        let record = leader.process.caches.handover_record().unwrap();
        leader.stop.cancel();
        seed_token(&server);
        seed_garbage(&server, "garbage");
        wait(Duration::from_secs(1)).await;
        standby.fail_lists("secrets");
        let predecessor =
            if has_record { Predecessor::LeftRecord(record) } else { Predecessor::LeftNoRecord(None) };
        standby.lead(&predecessor);
        create_deployment(&server, "web").await;
        wait(Duration::from_secs(5)).await;
        assert_eq!(standby.pods_of("a"), 2, "with a record: {has_record}");
        // With a record, the caches were synced when the lists began to fail.
        assert_eq!(has_garbage(&server, "garbage"), !has_record);
        wait(Duration::from_secs(30)).await;
        assert!(!has_garbage(&server, "garbage"), "with a record: {has_record}");
        assert_eq!(standby.has_token("a"), has_record, "a relist of Secrets is needed without a record");
        standby.stop.cancel();
    }
}

/// Every kind that the controllers list, one after the other: at least the controllers that do not read it run.
///
/// Proves GC-140.
#[tokio::test(start_paused = true)]
async fn failing_list_of_any_one_kind_leaves_the_other_controllers_running() {
    let all = Manager::standby(&server(), Instant::now()).controllers;
    let reads = |name: &str| -> Vec<String> {
        let controller = all.iter().find(|controller| controller.name == name).unwrap();
        let reads = controller.loops.iter().flat_map(|a_loop| &a_loop.reads);
        reads.map(|kind| kind.resource().plural.to_string()).collect()
    };
    let mut kinds: Vec<_> = all.iter().flat_map(|controller| reads(controller.name)).collect();
    kinds.sort();
    kinds.dedup();
    assert!(kinds.len() > 15, "{kinds:?}");
    for kind in kinds {
        let (server, began) = (server(), Instant::now());
        seed_garbage(&server, "garbage");
        seed_token(&server);
        let mut manager = Manager::standby(&server, began);
        manager.fail_lists(&kind);
        manager.lead(&Predecessor::LeftNoRecord(None));
        create_deployment(&server, "web").await;
        wait(Duration::from_secs(40)).await;
        let is_unaffected = |names: &[&str]| names.iter().all(|name| !reads(name).contains(&kind));
        if is_unaffected(&["deployment-controller", "replicaset-controller"]) {
            assert_eq!(manager.pods_of("a"), 2, "{kind}");
        }
        if is_unaffected(&[FIRST]) {
            assert!(manager.has_token("a"), "{kind}");
        }
        if kind != "configmaps" {
            assert!(!has_garbage(&server, "garbage"), "{kind}");
        }
        manager.stop.cancel();
        wait(Duration::from_secs(1)).await;
    }
}

/// The original logs every failure of every informer.
#[tokio::test(start_paused = true)]
async fn unreachable_api_server_is_logged_in_few_lines() {
    let (log, _guard) = TestLog::capture(Level::INFO);
    let manager = Manager::standby(&ApiServer::default(), Instant::now());
    manager.faults.add(FaultRule::new(InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionRefused)));
    loops::prepare(&manager.controllers, &manager.process.caches);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let lines = log.lines(&["list or watch failed"]);
    assert!((2..=3).contains(&lines.len()), "{lines:#?}");
    assert!(lines[1].contains("others="), "{}", lines[1]);
}
