//! CertificateSigningRequests from a kubelet and from a user.

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::TestCluster;

/// A request for a certificate with this common name and organization, as PEM.
fn request_pem(common_name: &str, organization: &str) -> anyhow::Result<Vec<u8>> {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, organization);
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name;
    Ok(params.serialize_request(&KeyPair::generate()?)?.pem()?.into_bytes())
}

struct RequestFixture<'w> {
    cluster: &'w TestCluster,
    requests: Api<CertificateSigningRequest>,
    prefix: String,
}

impl<'w> RequestFixture<'w> {
    async fn begin(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let prefix = cluster.namespace("csr").await?;
        Ok(Self { cluster, requests: Api::all(cluster.admin.clone()), prefix })
    }

    async fn create(
        &self,
        name: &str,
        signer: &str,
        usages: &[&str],
        request: Vec<u8>,
    ) -> anyhow::Result<String> {
        let name = format!("{}-{name}", self.prefix);
        let spec = json!({"signerName": signer, "usages": usages, "request": ByteString(request)});
        self.cluster.create(&self.requests, json!({"metadata": {"name": name}, "spec": spec})).await?;
        Ok(name)
    }

    async fn conditions(&self, name: &str) -> anyhow::Result<Vec<(String, String, String)>> {
        let status = self.requests.get(name).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default().into_iter();
        let texts = |text: Option<String>| text.unwrap_or_default();
        Ok(conditions.map(|one| (one.type_, texts(one.reason), texts(one.message))).collect())
    }

    async fn approve(&self, name: &str) -> anyhow::Result<()> {
        let mut request = self.requests.get(name).await?;
        let approved = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}]});
        request.status = Some(serde_json::from_value(approved)?);
        self.requests.replace_subresource("approval", name, &PostParams::default(), &request).await?;
        Ok(())
    }

    async fn certificate(&self, name: &str) -> anyhow::Result<String> {
        let issued = async || {
            let status = self.requests.get(name).await?.status.unwrap_or_default();
            Ok(status.certificate.map(|pem| String::from_utf8_lossy(&pem.0).into_owned()))
        };
        self.cluster.eventually(&format!("a certificate for {name}"), issued).await
    }

    async fn clean_up(self) -> anyhow::Result<()> {
        for request in self.requests.list(&Default::default()).await? {
            if request.name_any().starts_with(&self.prefix) {
                self.requests.delete(&request.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }
}

const KUBELET_USAGES: [&str; 2] = ["digital signature", "client auth"];

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
    fixture.clean_up().await
}
