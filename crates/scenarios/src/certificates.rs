//! CertificateSigningRequests from a kubelet and from a user.

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::TestCluster;

/// A request for a certificate of this key with this common name, organization and DNS names, as PEM.
pub(crate) fn request_for(
    key: &KeyPair,
    common_name: &str,
    organization: &str,
    dns_names: &[&str],
) -> anyhow::Result<Vec<u8>> {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, organization);
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::new(dns_names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    params.distinguished_name = name;
    Ok(params.serialize_request(key)?.pem()?.into_bytes())
}

/// A request for a certificate of a new key.
fn request_pem(common_name: &str, organization: &str) -> anyhow::Result<Vec<u8>> {
    request_for(&KeyPair::generate()?, common_name, organization, &[])
}

/// CertificateSigningRequests of one scenario.
pub(crate) struct RequestFixture<'w> {
    cluster: &'w TestCluster,
    pub(crate) requests: Api<CertificateSigningRequest>,
    pub(crate) prefix: String,
}

impl<'w> RequestFixture<'w> {
    pub(crate) async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let prefix = cluster.namespace("csr").await?;
        Ok(Self { cluster, requests: Api::all(cluster.admin.clone()), prefix })
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        signer: &str,
        usages: &[&str],
        request: Vec<u8>,
    ) -> anyhow::Result<String> {
        self.create_as(self.cluster.admin.clone(), name, signer, usages, request).await
    }

    /// Creates a request as another user.
    pub(crate) async fn create_as(
        &self,
        client: Client,
        name: &str,
        signer: &str,
        usages: &[&str],
        request: Vec<u8>,
    ) -> anyhow::Result<String> {
        let name = format!("{}-{name}", self.prefix);
        let spec = json!({"signerName": signer, "usages": usages, "request": ByteString(request)});
        let requests: Api<CertificateSigningRequest> = Api::all(client);
        self.cluster.create(&requests, json!({"metadata": {"name": name}, "spec": spec})).await?;
        Ok(name)
    }

    pub(crate) async fn conditions(&self, name: &str) -> anyhow::Result<Vec<(String, String, String)>> {
        let status = self.requests.get(name).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default().into_iter();
        let texts = |text: Option<String>| text.unwrap_or_default();
        Ok(conditions.map(|one| (one.type_, texts(one.reason), texts(one.message))).collect())
    }

    pub(crate) async fn approve(&self, name: &str) -> anyhow::Result<()> {
        self.decide(name, "Approved").await
    }

    pub(crate) async fn decide(&self, name: &str, decision: &str) -> anyhow::Result<()> {
        let mut request = self.requests.get(name).await?;
        let decided =
            json!({"conditions": [{"type": decision, "status": "True", "reason": "Test", "message": "yes"}]});
        request.status = Some(serde_json::from_value(decided)?);
        self.requests.replace_subresource("approval", name, &PostParams::default(), &request).await?;
        Ok(())
    }

    pub(crate) async fn certificate(&self, name: &str) -> anyhow::Result<String> {
        let issued = async || {
            let status = self.requests.get(name).await?.status.unwrap_or_default();
            Ok(status.certificate.map(|pem| String::from_utf8_lossy(&pem.0).into_owned()))
        };
        self.cluster.eventually(&format!("a certificate for {name}"), issued).await
    }

    pub(crate) async fn clean_up(self) -> anyhow::Result<()> {
        for request in self.requests.list(&Default::default()).await? {
            if request.name_any().starts_with(&self.prefix) {
                self.requests.delete(&request.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }
}

pub(crate) const KUBELET_USAGES: [&str; 2] = ["digital signature", "client auth"];

/// Proves CSRA-31, CSRA-32.
pub(crate) async fn kubelet_request_is_approved_and_signed(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = RequestFixture::begin(cluster).await?;
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let pem = request_pem("system:node:n1", "system:nodes")?;
    let name = fixture.create("node", signer, &KUBELET_USAGES, pem).await?;
    let certificate = fixture.certificate(&name).await?;
    ensure!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    let conditions = fixture.conditions(&name).await?;
    let (kind, reason, message) = conditions.first().context("no condition")?;
    ensure!(kind == "Approved" && reason == "AutoApproved", "{conditions:?}");
    ensure!(
        message == "Auto approving kubelet client certificate after SubjectAccessReview.",
        "{conditions:?}"
    );
    cluster.checkpoint("the request is signed").await;
    fixture.clean_up().await
}

/// Proves CSRS-61.
pub(crate) async fn user_request_waits_for_approval_and_bad_one_fails(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = RequestFixture::begin(cluster).await?;
    let signer = "kubernetes.io/kube-apiserver-client";
    let pem = request_pem("alice", "team")?;
    let name = fixture.create("alice", signer, &["client auth"], pem).await?;
    let refused = fixture.create("server", signer, &["server auth"], request_pem("bob", "team")?).await?;
    cluster.settle().await;
    for name in [&name, &refused] {
        ensure!(fixture.requests.get(name).await?.status.is_none_or(|status| status.certificate.is_none()));
        fixture.approve(name).await?;
    }
    fixture.certificate(&name).await?;
    let failed = async || {
        let conditions = fixture.conditions(&refused).await?;
        Ok(conditions.into_iter().find(|(kind, ..)| kind == "Failed"))
    };
    let (_, reason, message) = cluster.eventually("the condition Failed", failed).await?;
    ensure!(reason == "SignerValidationFailure", "{reason}: {message}");
    cluster.checkpoint("one request is signed, one has failed").await;
    fixture.clean_up().await
}

/// A signed PKCS #10 request with a key and without a name, as kubelets send it.
const STUB_REQUEST: &str = "MIG5MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABB089MRviYet8xuBgx489h8pxN1JIjgyR7r0z8Mg5Qvv\
    ukR/bTmrapzeV8NAVim5EG1aKFOW41x6m5rM3sHtXm6gADAKBggqhkjOPQQDAgNHADBEAiBvwo7BrSgSxU1a8jgbj9jz\
    MyHIlHKgKxic55T6tywGmwIgfG21rhaq6XEIdEl0J9Cbf/E8DCT7FJ4k2geJPZ9bGMk=";

/// Requests are kept for hours, so this waits two hours; a request without decision, which is kept for a day, is still there
/// then.
///
/// Proves PCRC-10, PCRC-11, CSRC-12.
pub(crate) async fn old_certificate_requests_are_deleted(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = RequestFixture::begin(cluster).await?;
    let pod_requests: Api<PodCertificateRequest> = cluster.api(&fixture.prefix);
    let signer = format!("example.com/{}", fixture.prefix);
    let spec = json!({"signerName": signer, "podName": "p", "podUID": "1", "serviceAccountName": "s",
        "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "stubPKCS10Request": STUB_REQUEST});
    cluster.create(&pod_requests, json!({"metadata": {"name": "r"}, "spec": spec})).await?;
    let denied = fixture.create("denied", &signer, &["client auth"], request_pem("a", "team")?).await?;
    let pending = fixture.create("pending", &signer, &["client auth"], request_pem("b", "team")?).await?;
    fixture.decide(&denied, "Denied").await?;
    let began = tokio::time::Instant::now();
    let found_after = async |minutes: u64| {
        tokio::time::sleep_until(began + std::time::Duration::from_secs(60 * minutes)).await;
        let pod_request = pod_requests.get_opt("r").await?.is_some();
        let requests = [fixture.requests.get_opt(&denied).await?, fixture.requests.get_opt(&pending).await?];
        anyhow::Ok((pod_request, requests.map(|request| request.is_some())))
    };
    let found = found_after(14).await?;
    ensure!(found == (true, [true, true]), "after 14 minutes: {found:?}");
    // Deleted from 15 minutes on, in a pass that begins every five minutes.
    let found = found_after(21).await?;
    ensure!(found == (false, [true, true]), "after 21 minutes: {found:?}");
    let found = found_after(59).await?;
    ensure!(found == (false, [true, true]), "after 59 minutes: {found:?}");
    // Deleted when it was denied an hour ago, in a pass that begins every hour.
    let found = found_after(122).await?;
    ensure!(found == (false, [false, true]), "after 122 minutes: {found:?}");
    fixture.clean_up().await
}
