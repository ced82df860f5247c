//! Which obstacles keep a process from leading, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use keleustes_client::Connection;
use keleustes_controllers::ControllersOptions;
use keleustes_options::Options;
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;
use kube::client::Body;

use super::*;
use crate::command;
use crate::controller_selection::ControllerSelection;

fn options(args: &[&str]) -> Box<Options> {
    command::read(args.iter().map(Into::into)).unwrap()
}

/// A process whose API server answers every request with this status code, which may change.
fn process(options: &Options, code: u16) -> (ProcessContext, Arc<AtomicU16>) {
    let code = Arc::new(AtomicU16::new(code));
    let answered = code.clone();
    let server = tower::service_fn(move |_: Request<Body>| {
        let status = StatusCode::from_u16(answered.load(Ordering::SeqCst)).unwrap();
        let list = r#"{"kind":"ClusterRoleList","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
        let body = if status.is_success() { list } else { "no" };
        let mut response = Response::new(Body::from(body.as_bytes().to_vec()));
        *response.status_mut() = status;
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let connection = Connection::from_service(server);
    (crate::process_context::build_process_context(options, connection, Metrics::new()), code)
}

fn gate(options: &Options, process: &ProcessContext) -> LeadGate {
    let selection = ControllerSelection::choose(options, &ControllersOptions::default()).unwrap();
    LeadGate::new(
        options.generic.allow_missing_controllers,
        selection.missing,
        &selection.members,
        &process.caches,
    )
}

fn missing(is_open: bool) -> LeadGate {
    LeadGate(Arc::new(Inner { is_open, missing: vec!["job-controller"], ..Inner::default() }))
}

const ONE: &str = "--controllers=clusterrole-aggregation";
const NO_WATCH_LIST: &str = "--feature-gates=WatchListClient=false";

/// Whether the gate lets the process lead within a minute.
async fn opens(gate: &LeadGate, options: &Options) -> bool {
    let late_start = LateStart::new(options, b"");
    let stop = CancellationToken::new();
    tokio::time::timeout(Duration::from_secs(60), gate.wait(&late_start, &stop)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn process_with_missing_controllers_never_leads_and_is_not_ready() {
    let gate = missing(false);
    assert!(!opens(&gate, &options(&[ONE])).await);
    assert_eq!(gate.readiness()(), Err("job-controller: not implemented".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn flag_allows_a_process_with_missing_controllers_to_lead() {
    let gate = missing(true);
    assert!(opens(&gate, &options(&[ONE])).await);
    assert_eq!(gate.readiness()(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn controllers_that_are_not_asked_for_do_not_count() {
    let options = options(&[ONE, NO_WATCH_LIST]);
    let (process, _) = process(&options, 200);
    let gate = gate(&options, &process);
    assert!(opens(&gate, &options).await);
    assert_eq!(gate.readiness()(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn refused_list_blocks_until_the_permission_is_granted() {
    let options = options(&[ONE, NO_WATCH_LIST]);
    let (process, code) = process(&options, 403);
    let gate = gate(&options, &process);
    assert!(!opens(&gate, &options).await);
    let reason = gate.readiness()().unwrap_err();
    assert!(reason.starts_with("clusterrole-aggregation-controller: cannot list clusterroles"), "{reason}");
    code.store(200, Ordering::SeqCst);
    assert!(opens(&gate, &options).await);
    assert_eq!(gate.readiness()(), Ok(()));
}

/// Its controller waits, as in the original; the cluster needs the others.
///
/// Proves VAPS-112, PGP-41.
#[tokio::test(start_paused = true)]
async fn kind_that_is_not_served_does_not_keep_the_process_from_leading() {
    let options = options(&[ONE, NO_WATCH_LIST]);
    let (process, _) = process(&options, 404);
    let gate = gate(&options, &process);
    let began = Instant::now();
    assert!(opens(&gate, &options).await);
    assert!(began.elapsed() < Duration::from_secs(1), "the answer is a refusal: {:?}", began.elapsed());
    assert_eq!(gate.readiness()(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn busy_api_server_delays_leading_by_one_second_at_most() {
    let options = options(&[ONE]);
    let (process, _) = process(&options, 503);
    let gate = gate(&options, &process);
    let began = Instant::now();
    assert!(opens(&gate, &options).await);
    assert!((1000..1100).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

/// A large cluster takes seconds to send all pods.
#[tokio::test(start_paused = true)]
async fn list_that_has_begun_does_not_delay_leading() {
    let options = options(&[ONE]);
    let server = tower::service_fn(|_: Request<Body>| async {
        // The beginning of a list whose rest never comes.
        let begun = Full::new(Bytes::from_static(b"{")).with_trailers(std::future::pending());
        Ok::<_, std::convert::Infallible>(Response::new(begun))
    });
    let connection = Connection::from_service(server);
    let process = crate::process_context::build_process_context(&options, connection, Metrics::new());
    let gate = gate(&options, &process);
    let began = Instant::now();
    assert!(opens(&gate, &options).await);
    assert!(began.elapsed().as_millis() < 100, "{:?}", began.elapsed());
}

/// Proves CSRS-87.
#[tokio::test(start_paused = true)]
async fn unusable_ca_files_block_until_they_are_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(file("ca.crt"), "broken").unwrap();
    std::fs::write(file("ca.key"), key.serialize_pem()).unwrap();
    let flags = [
        "--controllers=certificatesigningrequest-signing-controller".to_owned(),
        format!("--cluster-signing-cert-file={}", file("ca.crt").display()),
        format!("--cluster-signing-key-file={}", file("ca.key").display()),
    ];
    let options = options(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let signing = "certificatesigningrequest-signing-controller";
    let gate = LeadGate(Arc::new(Inner { caches: vec![(signing, Vec::new())], ..Inner::default() }));
    assert!(!opens(&gate, &options).await);
    let reason = gate.readiness()().unwrap_err();
    assert!(reason.starts_with(&format!("{signing}: failed to init ")), "{reason}");
    std::fs::write(file("ca.crt"), ca.self_signed(&key).unwrap().pem()).unwrap();
    assert!(opens(&gate, &options).await);
    assert_eq!(gate.readiness()(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn blocked_process_stops_at_once() {
    let (gate, options) = (missing(false), options(&[ONE]));
    let stop = CancellationToken::new();
    stop.cancel();
    assert!(!gate.wait(&LateStart::new(&options, b""), &stop).await);
}
