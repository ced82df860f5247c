//! Bootstrap tokens: only expired ones are deleted, and in the end exactly the others sign cluster-info.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use keleustes_apiserver::ApiServer;
use keleustes_objects::SecretBytes;
use keleustes_runtime::signing::hmac_sha256;
use serde_json::{Value, json};

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};

/// Compares cluster-info with the bootstrap tokens.
pub struct BootstrapTokens;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// The tokens of every storm by id, with their expiration. No clock of a storm reaches the later ones, nor goes back
/// behind the earlier ones.
const TOKENS: [(&str, &str); 4] = [
    ("never0", ""),
    ("later0", "2099-01-01T00:00:00Z"),
    ("past00", "2001-01-01T00:00:00Z"),
    ("broken", "2099-01-01"),
];

/// cluster-info with an outdated signature, and the tokens, as they are when a storm begins.
pub(crate) fn initial_objects() -> Vec<Value> {
    let encode = |text: &str| json!(BASE64_STANDARD.encode(text));
    let token = |(id, expiration): (&str, &str)| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": TYPE,
            "metadata": {"namespace": "kube-system", "name": format!("bootstrap-token-{id}")},
            "data": {"token-id": encode(id), "token-secret": encode("0123456789abcdef"),
                     "expiration": encode(expiration), "usage-bootstrap-signing": encode("true")},
        })
    };
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-public", "name": "cluster-info"},
        "data": {"kubeconfig": "kind: Config\n", "other": "kept", "jws-kubeconfig-stale0": "x"},
    });
    TOKENS.into_iter().map(token).chain([info]).collect()
}

fn is_token(secret: &Value) -> bool {
    text(secret, "/type") == TYPE
}

/// Whether a token is expired at any time of a storm.
fn is_expired(secret: &Value) -> bool {
    let name = text(secret, "/metadata/name");
    name.ends_with("past00") || name.ends_with("broken")
}

impl Checker for BootstrapTokens {
    fn name(&self) -> &'static str {
        "token-cleaner-controller and bootstrap-signer-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let deleted = write.before.as_ref().filter(|before| write.after.is_none() && is_token(before));
        match deleted.filter(|before| write.by_manager() && write.succeeded() && !is_expired(before)) {
            Some(before) => Err(format!("{} was deleted, which has not expired", describe(before))),
            None => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let secrets = server.objects("secrets");
        if let Some(expired) = secrets.iter().find(|secret| is_token(secret) && is_expired(secret)) {
            return Err(format!("{} has expired and is left", describe(expired)));
        }
        let info =
            server.object("configmaps", "kube-public", "cluster-info").ok_or("cluster-info is gone")?;
        let content = text(&info, "/data/kubeconfig");
        let wanted: BTreeMap<String, String> = secrets
            .iter()
            .filter(|secret| is_token(secret))
            .filter_map(|secret| {
                let id = text(secret, "/metadata/name").strip_prefix("bootstrap-token-")?;
                let key: SecretBytes = serde_json::from_value(secret["data"]["token-secret"].clone()).ok()?;
                Some((format!("{SIGNATURE_PREFIX}{id}"), signature(content, id, &key)))
            })
            .collect();
        let found: BTreeMap<String, String> = info["data"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with(SIGNATURE_PREFIX))
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        if found != wanted {
            return Err(format!("cluster-info is signed by {:?}, not by {:?}", found.keys(), wanted.keys()));
        }
        if text(&info, "/data/other") != "kept" {
            return Err("cluster-info lost data that is no signature".to_owned());
        }
        Ok(())
    }
}

/// RFC 7515 with HS256 and a detached payload, independent of the controller's code.
fn signature(content: &str, id: &str, key: &SecretBytes) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let payload = BASE64_URL_SAFE_NO_PAD.encode(content);
    let mac = hmac_sha256(key, format!("{header}.{payload}").as_bytes());
    format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
}
