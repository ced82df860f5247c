//! Certificates from a bootstrap token to the renewal, a CA that is replaced, a flood of requests, and the life of a
//! legacy token.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use keleustes_control_plane::{Process, User};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::certificates::{KUBELET_USAGES, RequestFixture, request_for};
use crate::real::RealCluster;
use crate::tokens::{token, token_secret};
use crate::{ControlPlaneProcesses as _, TestCluster};

const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// A client with these credentials alone.
async fn client_with(cluster: &TestCluster, credentials: AuthInfo) -> anyhow::Result<Client> {
    let mut kubeconfig = Kubeconfig::read_from(cluster.real()?.plane().kubeconfig(User::Admin))?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(credentials.clone());
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A client with a certificate and its key.
async fn client_with_certificate(
    cluster: &TestCluster,
    certificate: &str,
    key: &KeyPair,
) -> anyhow::Result<Client> {
    let base64 = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec()));
    let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
    let credentials = AuthInfo {
        client_certificate_data: Some(text(base64(certificate)?)),
        client_key_data: Some(text(base64(&key.serialize_pem())?).into()),
        ..AuthInfo::default()
    };
    client_with(cluster, credentials).await
}

/// Who the API server thinks that this client is.
async fn who(client: &Client) -> anyhow::Result<UserInfo> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    review.status.and_then(|status| status.user_info).context("a review without user")
}

/// The bindings that kubeadm creates for kubelets: name, role and group.
const BINDINGS: [[&str; 3]; 3] = [
    ["bootstrap", "system:node-bootstrapper", "system:bootstrappers"],
    [
        "nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:bootstrappers",
    ],
    [
        "selfnodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ],
];

/// Creates one of these bindings with a name of this scenario.
async fn bind(
    bindings: &Api<ClusterRoleBinding>,
    prefix: &str,
    [name, role, group]: [&str; 3],
) -> anyhow::Result<()> {
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": format!("{prefix}-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }))?;
    bindings.create(&PostParams::default(), &binding).await?;
    Ok(())
}

/// A client with a bootstrap token.
async fn bootstrapper(cluster: &TestCluster, id: &str) -> anyhow::Result<Client> {
    let secrets = cluster.api::<Secret>("kube-system");
    let (name, secret) = (format!("bootstrap-token-{id}"), "0123456789abcdef");
    // A scenario that failed has left it behind.
    cluster.delete_if_exists(&secrets, &name).await?;
    let bootstrap = json!({
        "metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"},
    });
    cluster.create(&secrets, bootstrap).await?;
    let credentials = AuthInfo { token: Some(format!("{id}.{secret}").into()), ..AuthInfo::default() };
    let client = client_with(cluster, credentials).await?;
    let user = cluster.eventually("the token authenticates", async || Ok(who(&client).await.ok())).await?;
    ensure!(user.username == Some(format!("system:bootstrap:{id}")), "{user:?}");
    Ok(client)
}

async fn approval_message(fixture: &RequestFixture<'_>, name: &str) -> anyhow::Result<String> {
    let conditions = fixture.conditions(name).await?;
    let approved = conditions.into_iter().find(|(kind, ..)| kind == "Approved");
    Ok(approved.context("not approved")?.2)
}

/// Proves CSRA-13, CSRA-14, CSRA-17, CSRA-42.
pub(crate) async fn kubelet_bootstraps_with_a_token_and_renews_its_certificate(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = RequestFixture::begin(cluster).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.admin.clone());
    let [create, approve, renew] = BINDINGS;
    bind(&bindings, &fixture.prefix, create).await?;
    let bootstrapper = bootstrapper(cluster, "kubele").await?;
    let node = format!("system:node:{}", fixture.prefix);
    let first = KeyPair::generate()?;
    let pem = request_for(&first, &node, "system:nodes", &[])?;
    let created = async || {
        // The authorizer learns of the binding a moment later.
        let client = bootstrapper.clone();
        Ok(fixture.create_as(client, "first", KUBELET_CLIENT, &KUBELET_USAGES, pem.clone()).await.ok())
    };
    let name = cluster.eventually("the request of the bootstrapper", created).await?;
    cluster.settle().await;
    let conditions = fixture.conditions(&name).await?;
    ensure!(conditions.is_empty(), "the requester has no role yet: {conditions:?}");
    cluster.checkpoint("the request waits for a role of its requester").await;
    for binding in [approve, renew] {
        bind(&bindings, &fixture.prefix, binding).await?;
    }
    let certificate = fixture.certificate(&name).await?;
    let message = approval_message(&fixture, &name).await?;
    ensure!(message == "Auto approving kubelet client certificate after SubjectAccessReview.", "{message}");
    let kubelet = client_with_certificate(cluster, &certificate, &first).await?;
    let user = who(&kubelet).await?;
    ensure!(user.username.as_ref() == Some(&node), "{user:?}");
    ensure!(user.groups.unwrap_or_default().iter().any(|group| group == "system:nodes"));

    let second = KeyPair::generate()?;
    let pem = request_for(&second, &node, "system:nodes", &[])?;
    let name = fixture.create_as(kubelet, "second", KUBELET_CLIENT, &KUBELET_USAGES, pem).await?;
    let renewed = fixture.certificate(&name).await?;
    let message = approval_message(&fixture, &name).await?;
    ensure!(
        message == "Auto approving self kubelet client certificate after SubjectAccessReview.",
        "{message}"
    );
    ensure!(renewed != certificate);
    let renewed = client_with_certificate(cluster, &renewed, &second).await?;
    ensure!(who(&renewed).await?.username.as_ref() == Some(&node));
    cluster.checkpoint("the certificate is renewed").await;

    cluster.delete_if_exists(&cluster.api::<Secret>("kube-system"), "bootstrap-token-kubele").await?;
    for [name, ..] in BINDINGS {
        bindings.delete(&format!("{}-{name}", fixture.prefix), &DeleteParams::default()).await?;
    }
    fixture.clean_up().await
}

/// Proves CSRA-43.
pub(crate) async fn serving_certificate_of_a_kubelet_waits_for_a_person(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = RequestFixture::begin(cluster).await?;
    let usages = ["digital signature", "server auth"];
    let mut names = Vec::new();
    for name in ["approved", "denied", "nameless"] {
        let dns: &[&str] = if name == "nameless" { &[] } else { &["node.example.com"] };
        let pem = request_for(&KeyPair::generate()?, "system:node:n1", "system:nodes", dns)?;
        names.push(fixture.create(name, KUBELET_SERVING, &usages, pem).await?);
    }
    cluster.settle().await;
    for name in &names {
        let status = fixture.requests.get(name).await?.status.unwrap_or_default();
        ensure!(status.certificate.is_none() && status.conditions.is_none(), "{name}: {status:?}");
    }
    cluster.checkpoint("the requests wait for a person").await;
    fixture.approve(&names[0]).await?;
    fixture.decide(&names[1], "Denied").await?;
    fixture.approve(&names[2]).await?;
    ensure!(fixture.certificate(&names[0]).await?.starts_with("-----BEGIN CERTIFICATE-----"));
    let failed = async || {
        let conditions = fixture.conditions(&names[2]).await?;
        Ok(conditions.into_iter().find(|(kind, ..)| kind == "Failed"))
    };
    let (_, _, message) = cluster.eventually("the condition Failed", failed).await?;
    ensure!(message == "DNS or IP subjectAltName is required", "{message}");
    cluster.settle().await;
    let denied = fixture.requests.get(&names[1]).await?.status.unwrap_or_default();
    ensure!(denied.certificate.is_none(), "a denied request got a certificate");
    cluster.checkpoint("the requests are decided").await;
    fixture.clean_up().await
}

/// A CA of this name: certificate and key as PEM.
fn authority(name: &str) -> anyhow::Result<(String, String)> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Replaces a file as a rename does, so that no half of it is ever seen.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(new, path)?)
}

/// Whether the DER of a PEM certificate contains this name; an issued certificate has no names but its issuer's and its
/// own.
fn mentions(certificate: &str, name: &str) -> anyhow::Result<bool> {
    let base64: String = certificate.lines().filter(|line| !line.starts_with("-----")).collect();
    let der: ByteString = serde_json::from_value(json!(base64))?;
    Ok(der.0.windows(name.len()).any(|window| window == name.as_bytes()))
}

/// A second manager of the same kind that runs one controller with these flags.
fn one_controller(
    real: &RealCluster,
    prefix: &str,
    controller: &str,
    flags: &[String],
) -> anyhow::Result<Process> {
    let user = format!("{prefix}-manager");
    let kubeconfig = real.plane().kubeconfig_for(&user, Some("system:masters"))?;
    let mut all = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".to_owned(),
        format!("--controllers={controller}"),
        "--secure-port=0".to_owned(),
    ];
    all.extend_from_slice(flags);
    real.manager().start_with(real.plane(), &user, &all)
}

/// Requests that are approved at once, and the name of the CA that signed each.
struct SignedRequests<'w> {
    fixture: RequestFixture<'w>,
    count: usize,
}

impl SignedRequests<'_> {
    async fn issuer(&mut self, names: [&str; 2]) -> anyhow::Result<String> {
        self.count += 1;
        let pem = request_for(&KeyPair::generate()?, "user", "team", &[])?;
        let name = self.fixture.create(&format!("r{}", self.count), CLIENT, &["client auth"], pem).await?;
        self.fixture.approve(&name).await?;
        let certificate = self.fixture.certificate(&name).await?;
        let issuer = names.into_iter().find(|name| mentions(&certificate, name).unwrap_or(false));
        Ok(issuer.with_context(|| format!("neither {names:?} signed {certificate}"))?.to_owned())
    }
}

/// Proves CSRS-75, CSRS-77.
pub(crate) async fn replaced_ca_signs_once_its_key_is_replaced_too(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let real = cluster.real()?;
    // The usual manager would sign with its own CA.
    real.stop_manager()?;
    let fixture = RequestFixture::begin(cluster).await?;
    let folder = real.plane().scratch_dir().join(&fixture.prefix);
    std::fs::create_dir(&folder)?;
    let [certificate_file, key_file]: [PathBuf; 2] = ["ca.crt", "ca.key"].map(|name| folder.join(name));
    let names = ["first-authority", "second-authority"];
    let ((old_certificate, old_key), (new_certificate, new_key)) =
        (authority(names[0])?, authority(names[1])?);
    std::fs::write(&certificate_file, old_certificate)?;
    std::fs::write(&key_file, old_key)?;
    let flags = [
        format!("--cluster-signing-kube-apiserver-client-cert-file={}", certificate_file.display()),
        format!("--cluster-signing-kube-apiserver-client-key-file={}", key_file.display()),
    ];
    let controller = "certificatesigningrequest-signing-controller";
    let manager = one_controller(real, &fixture.prefix, controller, &flags)?;
    let mut requests = SignedRequests { fixture, count: 0 };
    ensure!(requests.issuer(names).await? == names[0]);
    replace(&certificate_file, &new_certificate)?;
    // Long enough for a manager that would load half of a pair.
    cluster.settle().await;
    ensure!(requests.issuer(names).await? == names[0], "the key is not replaced yet");
    cluster.checkpoint("the first CA has signed").await;
    replace(&key_file, &new_key)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while requests.issuer(names).await? != names[1] {
        ensure!(Instant::now() < deadline, "the new CA does not sign");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Without its own pair, another signer does not run.
    let pem = request_for(&KeyPair::generate()?, "system:node:n1", "system:nodes", &["n1"])?;
    let fixture = requests.fixture;
    let other = fixture.create("other", KUBELET_SERVING, &["digital signature", "server auth"], pem).await?;
    fixture.approve(&other).await?;
    cluster.settle().await;
    let status = fixture.requests.get(&other).await?.status.unwrap_or_default();
    ensure!(status.certificate.is_none(), "a signer without files has signed");
    drop(manager);
    real.ensure_manager_runs()?;
    fixture.clean_up().await
}

/// How many requests a flood has, and for how many of them at a time a test waits: the original sends 20 requests per
/// second.
const FLOOD: usize = 1000;
const FLOOD_STEP: usize = 100;

/// The longest time between two renewals of the leader's Lease that was seen.
async fn longest_lease_gap(
    cluster: &TestCluster,
    done: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Duration> {
    let leases = cluster.api::<Lease>("kube-system");
    let renewed = async || {
        let lease = leases.get("kube-controller-manager").await?;
        anyhow::Ok(lease.spec.and_then(|spec| spec.renew_time).context("a Lease without renewTime")?.0)
    };
    let mut seen = vec![renewed().await?];
    futures::pin_mut!(done);
    loop {
        tokio::select! {
            biased;
            result = &mut done => {
                result?;
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
        }
        let now = renewed().await?;
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    let gaps = seen.windows(2).map(|pair| pair[1].duration_since(pair[0]).unsigned_abs());
    Ok(gaps.max().unwrap_or_default())
}

/// A flood of requests is signed in bounded time, and does not delay the renewal of the Lease.
pub(crate) async fn thousand_requests_are_signed_while_the_lease_is_renewed(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = RequestFixture::begin(cluster).await?;
    let key = KeyPair::generate()?;
    let began = Instant::now();
    let flood = async {
        let create = |number: usize| {
            let (fixture, key) = (&fixture, &key);
            async move {
                let pem = request_for(key, &format!("system:node:n{number}"), "system:nodes", &[])?;
                fixture.create(&format!("n{number}"), KUBELET_CLIENT, &KUBELET_USAGES, pem).await
            }
        };
        let names: Vec<String> =
            futures::stream::iter(0..FLOOD).map(create).buffer_unordered(32).try_collect().await?;
        ensure!(names.len() == FLOOD);
        let signed = async || {
            let requests = fixture.requests.list(&ListParams::default()).await?;
            let is_signed = |request: &&CertificateSigningRequest| {
                request.name_any().starts_with(&fixture.prefix)
                    && request.status.as_ref().is_some_and(|status| status.certificate.is_some())
            };
            anyhow::Ok(requests.iter().filter(is_signed).count())
        };
        for count in (FLOOD_STEP..=FLOOD).step_by(FLOOD_STEP) {
            let reached = async || Ok((signed().await? >= count).then_some(()));
            cluster.eventually(&format!("{count} certificates"), reached).await?;
        }
        Ok(())
    };
    let gap = longest_lease_gap(cluster, flood).await?;
    println!(
        "        {FLOOD} requests were signed within {:.1} s; the Lease was renewed every {gap:.1?} at most",
        began.elapsed().as_secs_f64()
    );
    // It is renewed every two seconds; ten without renewal are the end of a term. On two cores the original has come close.
    ensure!(gap < Duration::from_secs(6) || cluster.runs_original(), "the Lease was not renewed for {gap:?}");
    cluster.checkpoint("all requests are signed").await;
    fixture.clean_up().await
}

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const CLEANER: &str = "legacy-serviceaccount-token-cleaner-controller";

/// Token Secrets in a namespace, and a cleaner with a clean-up period of a second.
struct LegacyTokens<'w> {
    cluster: &'w TestCluster,
    namespace: String,
    secrets: Api<Secret>,
}

impl LegacyTokens<'_> {
    async fn labels(&self, name: &str) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(self.secrets.get(name).await?.metadata.labels.unwrap_or_default())
    }

    async fn label(&self, name: &str, label: &str, value: Option<&str>) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
        self.secrets.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// One pass over all tokens: the cleaner makes one when it starts, and the next a day later.
    async fn pass(&self, is_done: impl AsyncFn() -> anyhow::Result<Option<()>>) -> anyhow::Result<()> {
        let period = ["--legacy-service-account-token-clean-up-period=1s".to_owned()];
        let manager = one_controller(self.cluster.real()?, &self.namespace, CLEANER, &period)?;
        self.cluster.eventually("a pass over the tokens", is_done).await?;
        self.cluster.settle().await;
        drop(manager);
        Ok(())
    }
}

/// Proves LSTC-18, LSTC-19, LSTC-21, LSTC-41, LSTC-42, LSTC-59.
pub(crate) async fn unused_legacy_token_is_invalidated_and_then_deleted(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let namespace = cluster.namespace_with_service_account("legacy").await?;
    let (accounts, secrets) = (cluster.api::<ServiceAccount>(&namespace), cluster.api::<Secret>(&namespace));
    // What old managers generated is in the list of the account.
    let listed = ["unused", "used", "mounted"].map(|name| json!({"name": name}));
    cluster.create(&accounts, json!({"metadata": {"name": "builder"}, "secrets": listed})).await?;
    let mut tokens = BTreeMap::new();
    for name in ["unused", "used", "mounted", "manual"] {
        cluster.create(&secrets, token_secret(name, "builder")).await?;
        tokens.insert(name, cluster.eventually("a token", async || token(&secrets, name).await).await?);
    }
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "secret": {"secretName": "mounted"}}]}});
    cluster.create(&cluster.api::<Pod>(&namespace), pod).await?;
    // Tracking began long ago.
    let maps = cluster.api::<ConfigMap>("kube-system");
    cluster.eventually("the tracking ConfigMap", async || Ok(maps.get_opt(TRACKING).await?)).await?;
    let since = Patch::Merge(json!({"data": {"since": "2020-01-01"}}));
    maps.patch(TRACKING, &PatchParams::default(), &since).await?;
    let processes = cluster.processes()?;
    let user = processes.identify(&tokens["used"]).await?;
    ensure!(user.is_some(), "the token does not authenticate");
    let legacy = LegacyTokens { cluster, namespace, secrets };
    let is_used = async || Ok(legacy.labels("used").await?.contains_key(LAST_USED).then_some(()));
    cluster.eventually("the day of the last use", is_used).await?;
    // Older than the clean-up period.
    tokio::time::sleep(Duration::from_secs(2)).await;

    let is_marked = async || Ok(legacy.labels("unused").await?.contains_key(INVALID_SINCE).then_some(()));
    legacy.pass(is_marked).await?;
    for name in ["used", "mounted", "manual"] {
        ensure!(!legacy.labels(name).await?.contains_key(INVALID_SINCE), "{name} is marked");
    }
    cluster.checkpoint("the unused token is marked").await;
    let refused = async || Ok(processes.identify(&tokens["unused"]).await?.is_none().then_some(()));
    cluster.eventually("the invalid token is refused", refused).await?;
    // The attempt counts as a use, and the day of the mark has to pass: both dates are set back instead.
    let counted = async || Ok(legacy.labels("unused").await?.contains_key(LAST_USED).then_some(()));
    cluster.eventually("the attempt is recorded", counted).await?;
    legacy.label("unused", LAST_USED, None).await?;
    legacy.label("unused", INVALID_SINCE, Some("2020-02-01")).await?;
    let is_gone = async || Ok(legacy.secrets.get_opt("unused").await?.is_none().then_some(()));
    legacy.pass(is_gone).await?;
    for name in ["used", "mounted", "manual"] {
        ensure!(legacy.secrets.get_opt(name).await?.is_some(), "{name} was deleted");
    }
    let unlisted = async || {
        let listed = accounts.get("builder").await?.secrets.unwrap_or_default();
        Ok((!listed.iter().any(|one| one.name.as_deref() == Some("unused"))).then_some(()))
    };
    cluster.eventually("the account no longer lists the deleted token", unlisted).await
}
