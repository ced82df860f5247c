//! Which signers run with which files, and which version of ClusterTrustBundles is used.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use keleustes_client::Connection;
use keleustes_controllers::ControllersOptions;
use keleustes_runtime::metrics::Metrics;
use kube::client::Body;
use parking_lot::Mutex;

use super::*;
use crate::command;
use crate::controller_selection::ControllerSelection;

fn options(args: &[&str]) -> Box<Options> {
    command::read(args.iter().map(Into::into)).unwrap()
}

/// The signers that run with these flags, and the file names of their pairs.
fn signers_with(args: &[&str]) -> Vec<(&'static str, String)> {
    let files = signer_files(&options(args));
    files
        .iter()
        .map(|one| (one.name, format!("{} {}", one.certificate.display(), one.key.display())))
        .collect()
}

/// Proves CSRS-1.
#[test]
fn common_pair_serves_all_four_signers() {
    let names = signers_with(&["--cluster-signing-cert-file=c", "--cluster-signing-key-file=k"]);
    let all = [
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client-kubelet",
        "kubernetes.io/kube-apiserver-client",
        "kubernetes.io/legacy-unknown",
    ];
    assert_eq!(names, all.map(|name| (name, "c k".to_owned())));
    for incomplete in [&[][..], &["--cluster-signing-cert-file=c"], &["--cluster-signing-key-file=k"]] {
        let options = options(incomplete);
        let late_start = LateStart::new(&options, b"");
        assert!(late_start.signing_options(&options).is_none(), "{incomplete:?}");
        let settings = ControllersOptions {
            certificatesigningrequest_signing: late_start.signing_options(&options),
            ..ControllersOptions::default()
        };
        let selection = ControllerSelection::choose(&options, &settings).unwrap();
        assert!(!selection.members.iter().any(|controller| controller.name == SIGNING), "{incomplete:?}");
        assert!(selection.missing.is_empty(), "it is skipped without error");
    }
}

/// Proves CSRS-2.
#[test]
fn only_signers_with_their_own_pair_run_if_any_has_one() {
    let flags = [
        ("kubelet-serving", "kubernetes.io/kubelet-serving"),
        ("kubelet-client", "kubernetes.io/kube-apiserver-client-kubelet"),
        ("kube-apiserver-client", "kubernetes.io/kube-apiserver-client"),
        ("legacy-unknown", "kubernetes.io/legacy-unknown"),
    ];
    for (flag, name) in flags {
        let args =
            [format!("--cluster-signing-{flag}-cert-file=c"), format!("--cluster-signing-{flag}-key-file=k")];
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        assert_eq!(signers_with(&args), [(name, "c k".to_owned())]);
        let options = options(&args);
        let signing = LateStart::new(&options, b"").signing_options(&options).unwrap();
        assert_eq!(signing.signers.iter().map(|signer| signer.name).collect::<Vec<_>>(), [name]);
    }
}

/// Proves CSRS-5.
#[test]
fn duration_of_certificates_is_a_year_unless_the_flag_says_otherwise() {
    let seconds = |args: &[&str]| {
        let files = ["--cluster-signing-cert-file=c", "--cluster-signing-key-file=k"];
        let options = options(&[&files, args].concat());
        let signing = LateStart::new(&options, b"").signing_options(&options).unwrap();
        signing.duration_nanoseconds / 1_000_000_000
    };
    assert_eq!(seconds(&[]), 8760 * 3600);
    assert_eq!(seconds(&["--cluster-signing-duration=36h30m"]), 36 * 3600 + 1800);
    assert_eq!(seconds(&["--cluster-signing-duration=-1s"]), -1);
}

const GROUP: &str = "/apis/certificates.k8s.io/";

/// A process whose API server answers discovery of v1, v1beta1 and v1alpha1 with these codes: 200 lists the resource,
/// 204 stands for a version without it. Also returns the requested paths.
fn process(options: &Options, codes: [u16; 3]) -> (ProcessContext, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let paths = asked.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let versions = ["v1", "v1beta1", "v1alpha1"];
        let at = versions.iter().position(|version| path == format!("{GROUP}{version}"));
        paths.lock().push(path);
        let code = at.map_or(500, |at| codes[at]);
        let resources = if code == 200 { r#"{"name":"clustertrustbundles"}"# } else { r#"{"name":"other"}"# };
        let list = format!(r#"{{"kind":"APIResourceList","groupVersion":"x","resources":[{resources}]}}"#);
        let status = StatusCode::from_u16(if code == 204 { 200 } else { code }).unwrap();
        let mut response = Response::new(Body::from(list.into_bytes()));
        *response.status_mut() = status;
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let connection = Connection::from_service(server);
    (crate::process_context::build_process_context(options, connection, Metrics::new()), asked)
}

/// The publisher's version, or the error of the start; and the versions that were asked for.
async fn discover(codes: [u16; 3]) -> (Result<Option<String>, String>, Vec<String>) {
    let options = options(&[]);
    let late_start = LateStart::new(&options, b"ca");
    let (process, asked) = process(&options, codes);
    let members = vec![publisher::controller(&late_start.publisher_options()).unwrap()];
    let completed = late_start.complete(members, &process).await;
    let version = |members: Vec<Controller>| {
        members.first().map(|controller| controller.loops[0].reads[0].resource().version.to_string())
    };
    let found = completed.map(version).map_err(|error| format!("{error:#}"));
    // Long after the start: nothing asks again.
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    let asked = asked.lock().iter().filter_map(|path| path.strip_prefix(GROUP)).map(str::to_owned).collect();
    (found, asked)
}

/// Proves CTB-3, CTB-4, CTB-46, CTB-62.
#[tokio::test(start_paused = true)]
async fn first_served_version_of_bundles_is_used() {
    for (codes, version, asked) in [
        ([200, 200, 200], Some("v1"), &["v1"][..]),
        ([404, 200, 200], Some("v1beta1"), &["v1", "v1beta1"]),
        ([204, 200, 500], Some("v1beta1"), &["v1", "v1beta1"]),
        ([204, 404, 200], Some("v1alpha1"), &["v1", "v1beta1", "v1alpha1"]),
        ([404, 204, 404], None, &["v1", "v1beta1", "v1alpha1"]),
    ] {
        let (found, requests) = discover(codes).await;
        assert_eq!(found, Ok(version.map(str::to_owned)), "{codes:?}");
        assert_eq!(requests, asked, "{codes:?}");
    }
}

/// Proves CTB-5.
#[tokio::test(start_paused = true)]
async fn failed_discovery_of_bundles_fails_the_start() {
    for code in [403, 500, 503] {
        for (codes, asked) in [([code, 200, 200], &["v1"][..]), ([404, code, 200], &["v1", "v1beta1"])] {
            let (found, requests) = discover(codes).await;
            let error = found.unwrap_err();
            assert!(error.starts_with("discovery failed for ClusterTrustBundle: "), "{codes:?}: {error}");
            assert_eq!(requests.into_iter().collect::<std::collections::BTreeSet<_>>().len(), asked.len());
        }
    }
}

/// Proves CTB-1, CTB-45.
#[tokio::test(start_paused = true)]
async fn without_a_ca_or_the_gate_nothing_is_discovered_or_published() {
    let selected = |args: &[&str], ca: &[u8]| {
        let options = options(args);
        let settings = ControllersOptions {
            kube_apiserver_serving_clustertrustbundle_publisher: LateStart::new(&options, ca)
                .publisher_options(),
            ..ControllersOptions::default()
        };
        let selection = ControllerSelection::choose(&options, &settings).unwrap();
        selection.members.iter().any(|controller| controller.name == publisher::NAME)
    };
    assert!(selected(&[], b"ca"));
    assert!(!selected(&[], b""), "an empty CA bundle");
    assert!(!selected(
        &["--feature-gates=ClusterTrustBundle=false,ClusterTrustBundleProjection=false"],
        b"ca"
    ));
    let options = options(&[]);
    let (process, asked) = process(&options, [500; 3]);
    let completed = LateStart::new(&options, b"ca").complete(Vec::new(), &process).await;
    assert!(completed.is_ok_and(|members| members.is_empty()) && asked.lock().is_empty());
}

/// Proves CSRS-87.
#[tokio::test(start_paused = true)]
async fn leader_with_broken_files_ends_with_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, "broken").unwrap();
    let flags = [
        format!("--cluster-signing-cert-file={}", file.display()),
        format!("--cluster-signing-key-file={}", file.display()),
    ];
    let options = options(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let late_start = LateStart::new(&options, b"");
    let signing = late_start.signing_options(&options).unwrap();
    let (process, _) = process(&options, [500; 3]);
    let controller = keleustes_controllers::certificatesigningrequest_signing::controller(&signing).unwrap();
    let error = late_start.complete(vec![controller], &process).await.err().unwrap();
    let begins =
        "failed to init kubernetes.io/kubelet-serving certificate controller: error reading CA cert file ";
    assert!(error.to_string().starts_with(begins), "{error}");
}
