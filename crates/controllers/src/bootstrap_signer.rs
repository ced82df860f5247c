//! Keeps the ConfigMap `kube-public/cluster-info` signed with every usable bootstrap token, so that a joining node
//! that knows a token can trust the kubeconfig in it.
//!
//! Parity: pkg/controller/bootstrap/bootstrapsigner.go and k8s.io/cluster-bootstrap/token/jws.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use keleustes_objects::{BootstrapToken, ClusterInfo, ErrorReason, FullMeta as _, Key, SecretBytes};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Plan, View, Write};
use serde_json::json;

/// Options of the bootstrap signer.
#[derive(Clone, Copy)]
pub struct BootstrapSignerOptions {
    /// Computes HMAC-SHA256.
    pub hmac_sha256: HmacSha256,
}

/// HMAC-SHA256 of a message under a key.
pub type HmacSha256 = fn(key: &SecretBytes, message: &[u8]) -> [u8; 32];

/// Data key of the signed content.
const KUBECONFIG: &str = "kubeconfig";
/// Prefix of the data keys of signatures; a token id follows.
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// Prefix of the names of token Secrets; a token id follows.
const TOKEN_NAME_PREFIX: &str = "bootstrap-token-";

/// Builds the controller. It runs only if `--controllers` names it.
#[must_use]
pub fn controller(options: BootstrapSignerOptions) -> Controller {
    Controller::new("bootstrap-signer-controller")
        .service_account("bootstrap-signer")
        .may_write(&[
            Grant { group: "", resource: "secrets", verbs: &["get", "list", "watch"] },
            Grant { group: "", resource: "configmaps", verbs: &["get", "list", "watch", "update"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::deciding("bootstrap_signer_queue", move |view: &View<'_>, _: &Key| {
                decide(view, options.hmac_sha256)
            })
            .keyed_by::<ClusterInfo>()
            .enqueue_on::<ClusterInfo>(cluster_info_changed)
            .enqueue_on::<BootstrapToken>(token_changed)
            // A refused update is not repeated; an outage of the API server is no refusal.
            .max_retries(0),
        )
}

/// The only item.
fn cluster_info() -> Key {
    Key::namespaced("kube-public", "cluster-info")
}

fn cluster_info_changed(change: &Change<ClusterInfo>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_deletion() && !change.is_resync() {
        enqueue.add(cluster_info());
    }
}

fn token_changed(change: &Change<BootstrapToken>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_resync() {
        enqueue.add(cluster_info());
    }
}

fn decide(view: &View<'_>, hmac_sha256: HmacSha256) -> Plan {
    let Some(info) = view.get::<ClusterInfo>(&cluster_info()) else {
        return Plan::none();
    };
    let Some(content) = info.data.get(KUBECONFIG) else {
        return Plan::none();
    };
    let now = view.now().wall_nanoseconds();
    let tokens = view.all::<BootstrapToken>().filter(|token| signs(token, now));
    let signatures = tokens.map(|token| {
        let key = format!("{SIGNATURE_PREFIX}{}", token.token_id);
        (key, detached_jws(content, &token.token_id, &token.token_secret, hmac_sha256))
    });
    let others = info.data.iter().filter(|(key, _)| !key.starts_with(SIGNATURE_PREFIX));
    let others = others.map(|(key, value)| (key.clone(), value.clone()));
    let wanted: BTreeMap<String, String> = others.chain(signatures).collect();
    if wanted == info.data {
        return Plan::none();
    }
    Plan::of(
        Write::put(&**info, "", body(info, &wanted))
            // After a conflict, the event of the other write enqueues the ConfigMap again.
            .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
            .because("its signatures differ from those of the usable bootstrap tokens"),
    )
}

/// The cached ConfigMap with other data.
fn body(info: &ClusterInfo, data: &BTreeMap<String, String>) -> serde_json::Value {
    let mut body = json!({"metadata": info.full_meta_json(), "data": data});
    if !info.binary_data.is_empty() {
        body["binaryData"] = json!(info.binary_data);
    }
    if let Some(immutable) = info.immutable {
        body["immutable"] = json!(immutable);
    }
    body
}

/// Whether a token signs. Parity: validateSecretForSigning.
fn signs(token: &BootstrapToken, now_nanoseconds: i128) -> bool {
    let id_in_name = token.meta.key.name.strip_prefix(TOKEN_NAME_PREFIX).filter(|id| is_token_id(id));
    id_in_name == Some(token.token_id.as_str())
        && !token.token_secret.is_empty()
        && !token.expiration.has_passed(now_nanoseconds)
        && token.is_for_signing
}

fn is_token_id(text: &str) -> bool {
    text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The JWS (RFC 7515) of a content with HS256, with an empty payload part: the reader has the content already.
fn detached_jws(
    content: &str,
    token_id: &str,
    token_secret: &SecretBytes,
    hmac_sha256: HmacSha256,
) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{token_id}"}}"#));
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac_sha256(token_secret, signed.as_bytes()));
    format!("{header}..{signature}")
}

#[cfg(test)]
mod tests;
