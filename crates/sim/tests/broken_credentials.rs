//! Controllers of certificates, tokens, trust bundles, node ranges, endpoints, autoscalers and CronJobs that are broken on
//! purpose, and the storms that catch them. Each runs beside the shipped ones, or in the place of the one with its name.

mod broken_storms;

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use broken_storms::{controller_of, expect_no_violation, expect_violation, play_with};
use futures::FutureExt as _;
use keleustes_controllers::certificates::{KUBE_APISERVER_CLIENT, KUBE_APISERVER_CLIENT_KUBELET};
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions, controller,
};
use keleustes_objects::{
    BootstrapToken, CertificateSigningRequest, CertificateSigningRequestSpec, ClusterTrustBundle, Deployment,
    Endpoints, FullMeta as _, HorizontalPodAutoscaler, Job, Key, Kind as _, Node, PodCertificateRequest,
    TokenSecret,
};
use keleustes_plan::{BoxFuture, Controller, PatchKind, Plan, Precondition, Scale, Target, View, Write};
use keleustes_sim::actions::{
    CertificateRequestChange, CredentialChange, Kind, ObjectRef, ObjectSpec, PodBehaviour, UserAction,
};
use keleustes_sim::signer::{self, LONGEST_LIFE_SECONDS};
use keleustes_x509::builder::RequestBuilder;
use keleustes_x509::{CertificateRequest, SigningJob};
use serde_json::{Value, json};

const SIGNER: &str = "certificatesigningrequest-signing-controller";
const REASON: &str = "broken on purpose";
const NANOSECONDS: i128 = 1_000_000_000;

fn patch<T: keleustes_objects::Kind>(object: &T, subresource: &'static str, mut body: Value) -> Plan {
    body["metadata"]["uid"] = json!(object.meta().uid);
    let write = Write::patch(object, PatchKind::Merge, body).because(REASON);
    Plan::of(if subresource.is_empty() { write } else { write.on_subresource(subresource) })
}

/// Deletes every object of a kind that a cache holds.
fn delete_all<T: keleustes_objects::Kind>(_: &View<'_>, object: &Arc<T>) -> Plan {
    Plan::of(Write::delete(&**object).because(REASON))
}

fn requests(changes: &[(u64, CertificateRequestChange)]) -> Vec<(u64, UserAction)> {
    let action = |change| UserAction::ChangeCertificateRequest("oar".to_owned(), change);
    changes.iter().map(|(at_ms, change)| (*at_ms, action(*change))).collect()
}

/// A kubelet's request for a certificate of so many seconds, which is approved and signed without an operator.
fn kubelet_request(seconds: u32) -> Vec<(u64, UserAction)> {
    requests(&[(2_000, CertificateRequestChange::CreateForKubelet(1, Some(seconds)))])
}

/// A user's request, which waits for an operator.
fn user_request() -> Vec<(u64, UserAction)> {
    requests(&[(2_000, CertificateRequestChange::CreateForUser(1))])
}

/// Signs every user's request without approval: as soon as it exists, or once it is denied.
fn signer_without_approval<const DENIED: bool>() -> Controller {
    let decide = |view: &View<'_>, request: &Arc<CertificateSigningRequest>| {
        let spec: CertificateSigningRequestSpec =
            serde_json::from_str(request.raw_spec.as_str()).unwrap_or_default();
        let Ok(parsed) = CertificateRequest::from_pem(&spec.request.0) else { return Plan::none() };
        let is_denied = !request.conditions.is_empty();
        if request.signer_name != KUBE_APISERVER_CLIENT || request.is_issued || is_denied != DENIED {
            return Plan::none();
        }
        let (life, now) = (600 * NANOSECONDS, view.now().wall_nanoseconds());
        let job = SigningJob { request: parsed, usages: spec.usages, life, now };
        let Some(Ok(certificate)) = signer::sign(job).now_or_never() else { return Plan::none() };
        let status = json!({"certificate": BASE64_STANDARD.encode(certificate)});
        patch(&**request, "status", json!({"status": status}))
    };
    controller_of(SIGNER, "certificate-controller", |a_loop| a_loop, decide)
}

/// The shipped signing controller with another signature.
fn signing(sign: fn(SigningJob) -> BoxFuture<'static, Result<String, String>>) -> Controller {
    let signer = |name| BuiltInSigner { name, sign: Arc::new(sign) };
    let options = CertificateSigningRequestSigningOptions {
        signers: [KUBE_APISERVER_CLIENT_KUBELET, KUBE_APISERVER_CLIENT].map(signer).to_vec(),
        duration_nanoseconds: i128::from(LONGEST_LIFE_SECONDS) * NANOSECONDS,
    };
    controller(&options).expect("it has signers")
}

/// Signs a key of its own.
fn signer_of_another_key() -> Controller {
    signing(|mut job| {
        let own = RequestBuilder::for_ed25519(&[9; 32]).to_pem_unsigned();
        job.request.public_key = CertificateRequest::from_pem(own.as_bytes()).expect("a request").public_key;
        signer::sign(job)
    })
}

/// Ignores `spec.expirationSeconds`.
fn signer_of_long_lives() -> Controller {
    signing(|job| signer::sign(SigningJob { life: i128::from(LONGEST_LIFE_SECONDS) * NANOSECONDS, ..job }))
}

/// Decides about every user's request at once.
fn hasty_approver<const APPROVES: bool>() -> Controller {
    let name = "certificatesigningrequest-approving-controller";
    let decide = |_: &View<'_>, request: &Arc<CertificateSigningRequest>| {
        if request.signer_name != KUBE_APISERVER_CLIENT {
            return Plan::none();
        }
        let kind = if APPROVES { "Approved" } else { "Denied" };
        let condition = json!({"type": kind, "status": "True", "reason": "Broken"});
        patch(&**request, "approval", json!({"status": {"conditions": [condition]}}))
    };
    controller_of(name, "certificate-controller", |a_loop| a_loop, decide)
}

#[test]
fn certificate_without_approval_is_caught() {
    let decide = |approves| {
        let change = CertificateRequestChange::Decide(approves);
        [user_request(), requests(&[(6_000, change)])].concat()
    };
    let words = "CertificateSigningRequest /oar gets a certificate without approval";
    expect_no_violation(&user_request());
    expect_violation(&play_with(&user_request(), signer_without_approval::<false>), words);
    expect_no_violation(&decide(false));
    expect_violation(&play_with(&decide(false), signer_without_approval::<true>), words);
    expect_no_violation(&decide(true));
    let report = play_with(&decide(true), || Controller::new(SIGNER));
    expect_violation(&report, "CertificateSigningRequest /oar has no certificate");
}

#[test]
fn certificate_of_another_key_or_a_longer_life_is_caught() {
    let name = "the certificate of CertificateSigningRequest /oar";
    let actions = kubelet_request(600);
    expect_no_violation(&actions);
    let report = play_with(&actions, signer_of_another_key);
    expect_violation(&report, &format!("{name} is for another key"));
    let report = play_with(&actions, signer_of_long_lives);
    expect_violation(&report, &format!("{name} lives 7200 s, not 600 s"));
}

#[test]
fn decision_that_waits_for_an_operator_is_caught() {
    let actions = user_request();
    let words = "CertificateSigningRequest /oar is approved, which waits for an operator";
    expect_violation(&play_with(&actions, hasty_approver::<true>), words);
    let words = "CertificateSigningRequest /oar is denied by a manager";
    expect_violation(&play_with(&actions, hasty_approver::<false>), words);
}

fn credentials(change: CredentialChange) -> Vec<(u64, UserAction)> {
    vec![(6_000, UserAction::ChangeCredentials(change))]
}

/// Deletes every bootstrap token.
fn cleaner_of_all_tokens() -> Controller {
    controller_of("token-cleaner-controller", "token-cleaner", |a_loop| a_loop, delete_all::<BootstrapToken>)
}

#[test]
fn deleted_bootstrap_token_that_has_not_expired_is_caught() {
    let actions = credentials(CredentialChange::SetKubeconfig(1));
    expect_no_violation(&actions);
    let words = "was deleted, which has not expired";
    expect_violation(&play_with(&actions, cleaner_of_all_tokens), words);
    let report = play_with(&actions, || Controller::new("token-cleaner-controller"));
    expect_violation(&report, "has expired and is left");
    let report = play_with(&actions, || Controller::new("bootstrap-signer-controller"));
    expect_violation(&report, "cluster-info is signed by ");
}

/// Deletes every token Secret that is marked.
fn cleaner_of_marked_tokens() -> Controller {
    let decide = |view: &View<'_>, secret: &Arc<TokenSecret>| {
        let mark = secret.meta.labels.value("kubernetes.io/legacy-token-invalid-since");
        mark.map_or_else(Plan::none, |_| delete_all(view, secret))
    };
    let name = "legacy-serviceaccount-token-cleaner-controller";
    controller_of(name, "legacy-service-account-token-cleaner", |a_loop| a_loop, decide)
}

/// Marks every token Secret with another date.
fn marker_of_all_tokens() -> Controller {
    let decide = |_: &View<'_>, secret: &Arc<TokenSecret>| {
        let labels = json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
        patch(&**secret, "", json!({"metadata": {"labels": labels}}))
    };
    let name = "legacy-serviceaccount-token-cleaner-controller";
    controller_of(name, "legacy-service-account-token-cleaner", |a_loop| a_loop, decide)
}

#[test]
fn deleted_legacy_token_that_is_used_and_new_mark_are_caught() {
    let actions = credentials(CredentialChange::RestoreLegacyToken);
    expect_no_violation(&actions);
    let words = "was deleted, which is in use or not marked long enough";
    expect_violation(&play_with(&actions, cleaner_of_marked_tokens), words);
    expect_violation(&play_with(&actions, marker_of_all_tokens), "the mark of Secret kube-system/legacy-");
}

/// Deletes every CertificateSigningRequest.
fn cleaner_of_all_requests() -> Controller {
    let name = "certificatesigningrequest-cleaner-controller";
    controller_of(name, "certificate-controller", |a_loop| a_loop, delete_all::<CertificateSigningRequest>)
}

/// Deletes every PodCertificateRequest.
fn cleaner_of_all_pod_requests() -> Controller {
    let name = "podcertificaterequest-cleaner-controller";
    controller_of(name, name, |a_loop| a_loop, delete_all::<PodCertificateRequest>)
}

#[test]
fn deleted_request_that_is_not_old_is_caught() {
    let actions = user_request();
    let report = play_with(&actions, cleaner_of_all_requests);
    expect_violation(&report, "was deleted, which is not old");
    let report = play_with(&actions, cleaner_of_all_pod_requests);
    let words = "PodCertificateRequest kube-system/new-request was deleted, which is not old";
    expect_violation(&report, words);
    let idle: [fn() -> Controller; 2] = [
        || Controller::new("certificatesigningrequest-cleaner-controller"),
        || Controller::new("podcertificaterequest-cleaner-controller"),
    ];
    for idle in idle {
        expect_violation(&play_with(&actions, idle), "is old and is left");
    }
}

/// Deletes every bundle of the API server's signer, or a foreign one.
fn deleter_of_bundles<const FOREIGN: bool>() -> Controller {
    let decide = |view: &View<'_>, bundle: &Arc<ClusterTrustBundle>| {
        if !FOREIGN {
            return delete_all(view, bundle);
        }
        let precondition = Precondition::None(REASON);
        let target = Target::named(&ClusterTrustBundle::RESOURCE, Key::cluster("kept"), precondition);
        Plan::of(Write::delete_target(target).because(REASON))
    };
    let account = "kube-apiserver-serving-clustertrustbundle-publisher";
    controller_of("deleter-of-bundles", account, |a_loop| a_loop, decide)
}

#[test]
fn deleted_trust_bundle_of_another_signer_or_of_the_ca_is_caught() {
    let actions = credentials(CredentialChange::LabelBundle(1));
    expect_no_violation(&actions);
    let report = play_with(&actions, deleter_of_bundles::<true>);
    expect_violation(&report, "was written, which is another signer's");
    let report = play_with(&actions, deleter_of_bundles::<false>);
    expect_violation(&report, "was deleted, which holds the CA");
}

/// Gives every node the same range.
fn one_range_for_all() -> Controller {
    let decide = |_: &View<'_>, node: &Arc<Node>| {
        let range = "10.244.0.0/24";
        patch(&**node, "", json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}))
    };
    controller_of("node-ipam-controller", "node-controller", |a_loop| a_loop, decide)
}

#[test]
fn range_that_two_nodes_have_is_caught() {
    let actions = vec![(6_000, UserAction::DeleteNode(0))];
    expect_no_violation(&actions);
    let report = play_with(&actions, one_range_for_all);
    expect_violation(&report, "10.244.0.0/24 of Node /hollow-1 overlaps 10.244.0.0/24 of Node /hollow-0");
    let report = play_with(&actions, || Controller::new("node-ipam-controller"));
    expect_violation(&report, "has no range");
}

fn create(kind: Kind, name: &str) -> UserAction {
    let object = ObjectRef { kind, namespace: "default".to_owned(), name: name.to_owned() };
    let spec =
        ObjectSpec { replicas: 2, template_version: 0, pods: PodBehaviour::Healthy, alternative: false };
    UserAction::Create(object, spec)
}

/// PUTs Endpoints with addresses once more as they are.
fn repeater_of_endpoints() -> Controller {
    let decide = |_: &View<'_>, endpoints: &Arc<Endpoints>| {
        if endpoints.subsets.is_empty() {
            return Plan::none();
        }
        let body = json!({"metadata": endpoints.full_meta_json(), "subsets": endpoints.subsets});
        Plan::of(Write::put(&**endpoints, "", body).because(REASON))
    };
    controller_of("repeater", "endpoint-controller", |a_loop| a_loop, decide)
}

#[test]
fn endpoints_that_are_written_again_without_a_change_are_caught() {
    let actions = vec![(2_000, create(Kind::Service, "web")), (5_000, create(Kind::Deployment, "web"))];
    expect_no_violation(&actions);
    let words = "Endpoints default/web is written again without a change";
    expect_violation(&play_with(&actions, repeater_of_endpoints), words);
}

/// Gives every autoscaled Deployment this size.
fn autoscaler_to<const REPLICAS: i32>() -> Controller {
    let decide = |view: &View<'_>, autoscaler: &Arc<HorizontalPodAutoscaler>| {
        let key = &autoscaler.meta.key;
        let Some(deployment) = view.get::<Deployment>(key) else { return Plan::none() };
        let metadata = json!({"namespace": key.namespace, "name": key.name, "uid": deployment.meta.uid});
        let json = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata});
        let scale = Scale { spec_replicas: 0, status_replicas: 0, selector: String::new(), json };
        Plan::of(Write::put_scale(Target::of(&**deployment), &scale, REPLICAS).because(REASON))
    };
    controller_of(
        "horizontal-pod-autoscaler-controller",
        "horizontal-pod-autoscaler",
        |a_loop| a_loop.reads_unwatched::<Deployment>(REASON),
        decide,
    )
}

#[test]
fn size_beyond_the_bounds_or_the_policies_of_an_autoscaler_is_caught() {
    let (namespace, name) = ("default".to_owned(), "oar".to_owned());
    let actions = |spec| {
        vec![
            (2_000, create(Kind::Deployment, "oar")),
            (3_000, UserAction::SetLoad(namespace.clone(), name.clone(), 4)),
            (6_000, UserAction::SetAutoscaler(namespace.clone(), name.clone(), Some(spec))),
        ]
    };
    expect_no_violation(&actions(1));
    expect_no_violation(&actions(4));
    let words = "is scaled from 2 to 4, by 2 within 30 s, where 1 are allowed";
    expect_violation(&play_with(&actions(4), autoscaler_to::<4>), words);
    let actions = actions(1);
    let words = "Deployment default/oar is scaled from 2 to 9, beyond the bounds 2 to 8";
    expect_violation(&play_with(&actions, autoscaler_to::<9>), words);
    let words = "is scaled from 2 to 4, by 2 within 30 s, where 1 are allowed";
    expect_violation(&play_with(&actions, autoscaler_to::<4>), words);
}

/// Runs every Job of a CronJob once more under another name.
fn repeater_of_jobs() -> Controller {
    let decide = |_: &View<'_>, job: &Arc<Job>| {
        let key = &job.meta.key;
        let Some((_, minutes)) = key.name.as_str().rsplit_once('-') else { return Plan::none() };
        let (Some(owner), Ok(minutes)) = (job.meta.controller_ref(), minutes.parse::<i64>()) else {
            return Plan::none();
        };
        let scheduled = keleustes_objects::Time::from_unix_seconds(minutes * 60);
        let name = format!("{}-again", key.name);
        let metadata = json!({"name": name, "ownerReferences": [owner],
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": scheduled}});
        let containers = json!([{"name": "c", "image": "any:0"}]);
        let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
        let body = json!({"metadata": metadata, "spec": {"template": template}});
        let key = Key::namespaced(&*key.namespace, name);
        Plan::of(Write::create::<Job>(key, body).because(REASON))
    };
    controller_of("repeater", "cronjob-controller", |a_loop| a_loop, decide)
}

#[test]
fn scheduled_time_that_runs_twice_under_two_names_is_caught() {
    let actions = vec![
        (2_000, create(Kind::CronJob, "oar")),
        (70_000, UserAction::SetRolePart("idle".to_owned(), None)),
    ];
    expect_no_violation(&actions);
    let report = play_with(&actions, repeater_of_jobs);
    expect_violation(&report, "-again runs for the second time");
}
