//! Certificate controllers on the embedded API server: races with operators, odd names, refused lists, and one bundle
//! of the API server's CA.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use keleustes_apiserver::{FaultRule, InjectedFault, User};
use keleustes_controllers::certificatesigningrequest_signing::{
    self as signing, BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::{
    self as publisher, ClusterTrustBundlePublisherOptions, ClusterTrustBundleVersion,
};
use keleustes_controllers::root_ca_certificate_publisher::{
    self as root_ca, RootCaCertificatePublisherOptions,
};
use keleustes_controllers::{certificates, certificatesigningrequest_approving as approving};
use keleustes_plan::Controller;
use keleustes_runtime::certificates::CertificateSigner;
use keleustes_runtime::loops;
use keleustes_runtime::signing::sha256;
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, settle, wait};

const CSRS: &str = "certificatesigningrequests.certificates.k8s.io";
const BUNDLES: &str = "clustertrustbundles.certificates.k8s.io";
const HOUR: Duration = Duration::from_secs(3600);

/// A kubelet's request for a client certificate, signed with its own key.
fn kubelet_request(name: &str, signer: &str) -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n");
    let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": signer, "request": BASE64_STANDARD.encode(pem), "username": "system:bootstrap:a",
                 "usages": ["digital signature", "client auth"]},
    })
}

fn kubelet_client(name: &str) -> Value {
    kubelet_request(name, certificates::KUBE_APISERVER_CLIENT_KUBELET)
}

fn with_condition(mut request: Value, r#type: &str) -> Value {
    let condition = json!({"type": r#type, "status": "True", "reason": "Operator"});
    request["status"]["conditions"] = json!([condition]);
    request
}

fn stored(cluster: &TestCluster, name: &str) -> Value {
    cluster.server.object(CSRS, "", name).unwrap().as_ref().clone()
}

/// Type and reason of each condition.
fn conditions(cluster: &TestCluster, name: &str) -> Vec<(String, String)> {
    let conditions = stored(cluster, name)["status"]["conditions"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = conditions.as_array().into_iter().flatten();
    conditions.map(|one| (text(&one["type"]), text(&one["reason"]))).collect()
}

fn reviews(cluster: &TestCluster) -> usize {
    let is_review =
        |request: &&keleustes_apiserver::LoggedRequest| request.resource.contains("subjectaccessreviews");
    cluster.server.requests().iter().filter(is_review).count()
}

/// The review is answered after this time, so that something can happen meanwhile.
fn delay_reviews(cluster: &TestCluster, time: Duration) {
    let delayed = InjectedFault::DelayThen(time, Box::new(InjectedFault::Pass));
    cluster.faults.add(FaultRule::new(delayed).target("subjectaccessreviews"));
}

/// Every review is refused by the authorizer.
fn refused_reviews() -> FaultRule {
    let body = Bytes::from_static(
        br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"status":{"allowed":false}}"#,
    );
    FaultRule::new(InjectedFault::RawBody { code: 201, body }).target("subjectaccessreviews")
}

/// The files of a CA.
struct Ca(tempfile::TempDir);

impl Ca {
    /// A CA that ends with this year.
    fn until(year: i32) -> Self {
        let ca = Self(tempfile::tempdir().unwrap());
        ca.replace(year);
        ca
    }

    /// Writes a new pair.
    fn replace(&self, year: i32) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = parameters.self_signed(&key).unwrap();
        std::fs::write(self.0.path().join("crt"), certificate.pem()).unwrap();
        std::fs::write(self.0.path().join("key"), key.serialize_pem()).unwrap();
    }

    fn load(&self) -> Arc<CertificateSigner> {
        CertificateSigner::load(&self.0.path().join("crt"), &self.0.path().join("key")).unwrap()
    }
}

/// A signer with a CA of its own.
fn signer(signers: &[&'static str]) -> Controller {
    slow_signer(signers, &Ca::until(4095).load(), Duration::ZERO)
}

/// A signer that takes some time for each signature, so that something can happen meanwhile.
fn slow_signer(signers: &[&'static str], authority: &Arc<CertificateSigner>, time: Duration) -> Controller {
    let built_in = |name: &&'static str| {
        let authority = authority.clone();
        let sign = move |job| {
            let authority = authority.clone();
            let signed = async move {
                tokio::time::sleep(time).await;
                authority.sign(job).await
            };
            Box::pin(signed) as keleustes_plan::BoxFuture<'static, Result<String, String>>
        };
        BuiltInSigner { name, sign: Arc::new(sign) }
    };
    let signers = signers.iter().map(built_in).collect();
    let options =
        CertificateSigningRequestSigningOptions { signers, duration_nanoseconds: 3_600_000_000_000 };
    signing::controller(&options).unwrap()
}

/// Proves CSRA-47.
#[tokio::test(start_paused = true)]
async fn approver_waits_for_its_list_and_other_controllers_run() {
    for code in [403, 500] {
        let cluster = TestCluster::new();
        cluster.server.seed(kubelet_client("r")).unwrap();
        let refused = InjectedFault::status(code, "", "no");
        let rule = FaultRule::new(refused).resource("certificatesigningrequests").verbs(&["list", "watch"]);
        cluster.faults.add(rule);
        assert!(tokio::time::timeout(HOUR, cluster.start(approving::controller())).await.is_err());
        assert_eq!((reviews(&cluster), cluster.writes().len()), (0, 0));
        let other = root_ca::controller(&RootCaCertificatePublisherOptions { ca: "ca".into() });
        let running = cluster.start(other).await;
        settle().await;
        assert!(cluster.server.object("configmaps", "default", "kube-root-ca.crt").is_some(), "{code}");
        cluster.stop(running).await;
    }
}

/// Proves CSRA-30, CSRA-48.
#[tokio::test(start_paused = true)]
async fn event_is_evaluated_at_once_and_only_a_pass_without_error_resets_the_backoff() {
    let cluster = TestCluster::new();
    let refused = cluster.faults.add(refused_reviews());
    cluster.server.seed(kubelet_client("r")).unwrap();
    let running = cluster.start(approving::controller()).await;
    settle().await;
    let asked = || cluster.faults.hits(refused);
    assert_eq!(asked(), 1);
    // 200 ms, 400 ms … 12.8 s: the sum of the first seven is 25.4 s. Every pass asks again.
    wait(Duration::from_millis(25_500)).await;
    assert_eq!(asked(), 8);
    let mut touched = stored(&cluster, "r");
    touched["metadata"]["labels"] = json!({"touched": "1"});
    cluster.server.seed(touched.clone()).unwrap();
    settle().await;
    assert_eq!(asked(), 9, "the event does not wait for the backoff");
    // The pending retry after 25.6 s and one after 51.2 s are left; a reset would ask every few hundred milliseconds.
    wait(Duration::from_secs(20)).await;
    assert_eq!(asked(), 9, "the event does not reset the failure count");
    wait(Duration::from_secs(120)).await;
    let before = asked();
    assert!((10..=12).contains(&before), "{before}");
    touched["spec"]["signerName"] = json!("example.com/custom");
    cluster.server.seed(touched.clone()).unwrap();
    settle().await;
    assert_eq!(asked(), before, "a signer that is not recognized needs no review");
    touched["spec"]["signerName"] = json!(certificates::KUBE_APISERVER_CLIENT_KUBELET);
    cluster.server.seed(touched).unwrap();
    wait(Duration::from_millis(700)).await;
    assert_eq!(
        asked(),
        before + 3,
        "at once, after 200 ms and after 400 ms: the pass without error was a reset"
    );
    cluster.stop(running).await;
}

/// Proves CSRA-30.
#[tokio::test(start_paused = true)]
async fn reviews_are_sent_with_the_credentials_of_the_controller() {
    let cluster = TestCluster::new();
    cluster.server.seed(kubelet_client("r")).unwrap();
    let controller = approving::controller();
    let name = format!("system:serviceaccount:kube-system:{}", controller.service_account.unwrap());
    let groups = vec!["system:masters".to_owned()];
    let own = cluster.server.acting_as(User { name: name.clone(), groups, ..User::default() });
    let client = kube::Client::new(own, "default");
    let running = loops::start(controller, &cluster.context, client, Arc::new(|_| ())).await.unwrap();
    settle().await;
    let writes = cluster.writes();
    let sent: Vec<_> =
        writes.iter().map(|request| (request.resource.as_str(), request.user.as_str())).collect();
    let wanted = [
        ("subjectaccessreviews.authorization.k8s.io", name.as_str()),
        ("certificatesigningrequests.certificates.k8s.io/approval", &name),
    ];
    assert_eq!(sent, wanted);
    cluster.stop(running).await;
}

/// Proves CSRA-62, CSRA-63, CSRA-64.
#[tokio::test(start_paused = true)]
async fn decision_of_an_operator_during_the_review_stays() {
    for (decision, puts, wanted) in [
        ("Denied", 1, &[("Denied", "Operator")][..]),
        ("Approved", 1, &[("Approved", "Operator")]),
        ("Note", 2, &[("Note", "Operator"), ("Approved", "AutoApproved")]),
    ] {
        let cluster = TestCluster::new();
        delay_reviews(&cluster, Duration::from_secs(5));
        cluster.server.seed(kubelet_client("r")).unwrap();
        let running = cluster.start(approving::controller()).await;
        wait(Duration::from_secs(1)).await;
        cluster.server.seed(with_condition(stored(&cluster, "r"), decision)).unwrap();
        wait(HOUR).await;
        let found = conditions(&cluster, "r");
        let found: Vec<_> = found.iter().map(|(kind, reason)| (kind.as_str(), reason.as_str())).collect();
        assert_eq!(found, wanted, "{decision}");
        let sent: Vec<_> = cluster.writes().into_iter().filter(|one| one.method == Method::PUT).collect();
        assert_eq!((sent.len(), sent[0].code), (puts, 409), "{decision}");
        assert!(sent.iter().all(|put| put.json()["metadata"]["resourceVersion"].is_string()));
        cluster.stop(running).await;
    }
}

/// Proves CSRA-49, CSRS-84.
#[tokio::test(start_paused = true)]
async fn requests_of_any_name_are_approved_and_signed() {
    let cluster = TestCluster::new();
    let names = ["Node CSR", "node:csr?x#1", "zürich", "a&b=c"];
    names.iter().for_each(|name| drop(cluster.server.seed(kubelet_client(name)).unwrap()));
    let approver = cluster.start(approving::controller()).await;
    let signer = cluster.start(signer(&[certificates::KUBE_APISERVER_CLIENT_KUBELET])).await;
    wait(Duration::from_secs(60)).await;
    for name in names {
        assert!(stored(&cluster, name)["status"]["certificate"].is_string(), "{name}");
    }
    let targets: Vec<_> = cluster.writes().into_iter().map(|request| request.target).collect();
    for subresource in ["approval", "status"] {
        for encoded in ["Node%20CSR", "node:csr%3Fx%231", "z%C3%BCrich"] {
            let path =
                format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{encoded}/{subresource}");
            assert!(targets.contains(&path), "{path}: {targets:?}");
        }
    }
    signer.stop().await;
    cluster.stop(approver).await;
}

/// Proves CSRS-117.
#[tokio::test(start_paused = true)]
async fn legacy_request_cannot_be_created_but_a_stored_one_is_signed() {
    let cluster = TestCluster::new();
    let legacy = kubelet_request("legacy", certificates::LEGACY_UNKNOWN);
    let request = http::Request::post("/apis/certificates.k8s.io/v1/certificatesigningrequests");
    let request = request.header("content-type", "application/json").body(legacy.to_string().into_bytes());
    let refused = cluster.client().request::<Value>(request.unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("spec.signerName"), "{refused}");
    let running = cluster.start(signer(&[certificates::LEGACY_UNKNOWN])).await;
    cluster.server.seed(with_condition(legacy, "Approved")).unwrap();
    wait(Duration::from_secs(1)).await;
    assert!(stored(&cluster, "legacy")["status"]["certificate"].is_string());
    cluster.stop(running).await;
}

/// The PUTs of statuses: their codes.
fn status_puts(cluster: &TestCluster) -> Vec<u16> {
    let puts = cluster.writes().into_iter().filter(|one| one.method == Method::PUT);
    puts.map(|put| put.code).collect()
}

/// An approved request whose signature takes five seconds, and what happens to it after one.
async fn changed_while_signed(change: impl FnOnce(&TestCluster)) -> TestCluster {
    let cluster = TestCluster::new();
    cluster.server.seed(with_condition(kubelet_client("r"), "Approved")).unwrap();
    let authority = Ca::until(4095);
    let kubelet = [certificates::KUBE_APISERVER_CLIENT_KUBELET];
    let running = cluster.start(slow_signer(&kubelet, &authority.load(), Duration::from_secs(5))).await;
    wait(Duration::from_secs(1)).await;
    assert!(status_puts(&cluster).is_empty(), "it is being signed");
    change(&cluster);
    wait(HOUR).await;
    running.stop().await;
    cluster
}

/// Proves CSRS-111.
#[tokio::test(start_paused = true)]
async fn certificate_of_a_request_that_is_decided_meanwhile_is_thrown_away() {
    for decision in ["Denied", "Failed"] {
        let cluster = changed_while_signed(|cluster| {
            let mut request = stored(cluster, "r");
            let decided = json!({"type": decision, "status": "True", "reason": "Operator"});
            request["status"]["conditions"].as_array_mut().unwrap().push(decided);
            cluster.server.seed(request).unwrap();
        })
        .await;
        assert_eq!(status_puts(&cluster), [409], "{decision}");
        assert_eq!(stored(&cluster, "r")["status"]["certificate"], Value::Null, "{decision}");
        let found = conditions(&cluster, "r");
        assert_eq!(found[1], (decision.to_owned(), "Operator".to_owned()), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_is_changed_while_it_is_signed_is_signed_again() {
    let cluster = changed_while_signed(|cluster| {
        let mut request = stored(cluster, "r");
        request["metadata"]["labels"] = json!({"touched": "1"});
        cluster.server.seed(request).unwrap();
    })
    .await;
    assert_eq!(status_puts(&cluster), [409, 200]);
    let request = stored(&cluster, "r");
    assert!(request["status"]["certificate"].is_string());
    assert_eq!(request["metadata"]["labels"]["touched"], "1", "the change is not lost");
}

/// The certificate is for the key of the new request, though the old one had the same name.
#[tokio::test(start_paused = true)]
async fn request_that_is_replaced_while_it_is_signed_gets_a_certificate_for_its_own_key() {
    let cluster = changed_while_signed(|cluster| {
        assert!(cluster.server.remove(CSRS, "", "r"));
        cluster.server.seed(with_condition(kubelet_client("r"), "Approved")).unwrap();
    })
    .await;
    let codes = status_puts(&cluster);
    assert!(codes.len() == 2 && codes[0] == 409 && codes[1] == 200, "{codes:?}");
    let request = stored(&cluster, "r");
    let decoded = |value: &Value| BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
    let asked = decoded(&request["spec"]["request"]);
    let asked = keleustes_x509::CertificateRequest::from_pem(&asked).unwrap();
    let issued = keleustes_x509::certificates_from_pem(&decoded(&request["status"]["certificate"])).unwrap();
    assert_eq!(issued[0].public_key, asked.public_key);
}

/// Proves CSRS-118.
#[tokio::test(start_paused = true)]
async fn request_that_is_deleted_while_it_is_signed_is_forgotten_after_one_put() {
    let cluster = changed_while_signed(|cluster| assert!(cluster.server.remove(CSRS, "", "r"))).await;
    assert_eq!(status_puts(&cluster), [404]);
    assert!(cluster.server.object(CSRS, "", "r").is_none(), "it is not created again");
}

/// Proves CSRS-114.
#[tokio::test(start_paused = true)]
async fn expired_ca_signs_nothing_until_its_files_are_renewed() {
    let cluster = TestCluster::new();
    let authority = Ca::until(2024);
    let kubelet = [certificates::KUBE_APISERVER_CLIENT_KUBELET];
    let running = cluster.start(slow_signer(&kubelet, &authority.load(), Duration::ZERO)).await;
    cluster.server.seed(with_condition(kubelet_client("r"), "Approved")).unwrap();
    wait(Duration::from_secs(60)).await;
    assert!(status_puts(&cluster).is_empty(), "neither a certificate nor a condition");
    authority.replace(4095);
    cluster.server.seed(with_condition(kubelet_client("new"), "Approved")).unwrap();
    wait(Duration::from_millis(100)).await;
    assert!(stored(&cluster, "new")["status"]["certificate"].is_string(), "an event needs no retry");
    assert_eq!(stored(&cluster, "r")["status"]["certificate"], Value::Null, "its backoff is not over");
    // 200 ms, 400 ms … 51.2 s: the ninth retry is after 102 s.
    wait(Duration::from_secs(60)).await;
    assert!(stored(&cluster, "r")["status"]["certificate"].is_string(), "its next retry");
    assert_eq!(conditions(&cluster, "r"), [("Approved".to_owned(), "Operator".to_owned())]);
    cluster.stop(running).await;
}

fn ca(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    parameters.self_signed(&key).unwrap().pem()
}

fn bundle_publisher(ca: &str) -> Controller {
    let mut ca_hash = [0; 12];
    ca_hash.copy_from_slice(&sha256(ca.as_bytes())[..12]);
    let version = ClusterTrustBundleVersion::V1;
    publisher::controller(&ClusterTrustBundlePublisherOptions { ca: ca.into(), ca_hash, version }).unwrap()
}

fn published(cluster: &TestCluster) -> Vec<String> {
    let bundles = cluster.server.objects(BUNDLES);
    bundles.iter().map(|bundle| bundle["spec"]["trustBundle"].as_str().unwrap().to_owned()).collect()
}

/// Proves CTB-51.
#[tokio::test(start_paused = true)]
async fn no_bundle_is_published_while_bundles_cannot_be_listed() {
    for code in [403, 500] {
        let cluster = TestCluster::new();
        let refused = InjectedFault::status(code, "", "no");
        let rule = FaultRule::new(refused).resource("clustertrustbundles").verbs(&["list", "watch"]);
        cluster.faults.add(rule);
        assert!(tokio::time::timeout(HOUR, cluster.start(bundle_publisher(&ca("a")))).await.is_err());
        assert!(published(&cluster).is_empty() && cluster.writes().is_empty(), "{code}");
    }
}

/// Proves CTB-44, CTB-54.
#[tokio::test(start_paused = true)]
async fn last_leader_replaces_the_bundle_of_the_one_before() {
    let cluster = TestCluster::new();
    let (old, new) = (ca("old"), ca("new"));
    for ca in [&old, &new, &old] {
        let running = cluster.start(bundle_publisher(ca)).await;
        wait(Duration::from_secs(60)).await;
        assert_eq!(published(&cluster), [ca.as_str()]);
        running.stop().await;
    }
    let requests = cluster.server.requests();
    let selector = "fieldSelector=spec.signerName%3Dkubernetes.io%2Fkube-apiserver-serving";
    assert!(
        requests.iter().any(|one| one.verb == "list" && one.target.contains(selector)
            || one.verb == "watch" && one.target.contains(selector)),
        "{requests:?}"
    );
    let deleted = requests.iter().find(|one| one.verb == "delete").unwrap();
    assert!(
        deleted.code == 200 && deleted.target.contains("kubernetes.io:kube-apiserver-serving:"),
        "{deleted:?}"
    );
}

/// Proves CTB-56, CTB-57.
#[tokio::test(start_paused = true)]
async fn refused_bundle_keeps_the_older_one_and_the_config_maps() {
    let cluster = TestCluster::new();
    let old = ca("old");
    let running = cluster.start(bundle_publisher(&old)).await;
    settle().await;
    running.stop().await;
    let twice = ca("new").repeat(2);
    let running = cluster.start(bundle_publisher(&twice)).await;
    let config_maps = root_ca::controller(&RootCaCertificatePublisherOptions { ca: twice.clone().into() });
    let config_maps = cluster.start(config_maps).await;
    wait(HOUR).await;
    assert_eq!(published(&cluster), [old], "the older bundle stays");
    let refused = cluster.writes().into_iter().filter(|one| one.code == 422).count();
    assert!(refused > 5, "it is retried for ever: {refused}");
    assert!(!cluster.writes().iter().any(|one| one.verb == "delete"));
    let config_map = cluster.server.object("configmaps", "default", "kube-root-ca.crt").unwrap();
    assert_eq!(config_map["data"]["ca.crt"], twice);
    running.stop().await;
    cluster.stop(config_maps).await;
}
