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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;

    #[test]
    fn deletion_of_a_token_that_has_not_expired_is_reported() {
        let server = ApiServer::builder().build();
        let deletion = |id: &str| {
            let name = format!("bootstrap-token-{id}");
            let path = format!("/api/v1/namespaces/kube-system/secrets/{name}");
            let token =
                initial_objects().into_iter().find(|object| object["metadata"]["name"] == name.as_str());
            ObservedWrite {
                before: token.map(Arc::new),
                ..ObservedWrite::of_manager("token-cleaner", &Method::DELETE, &path)
            }
        };
        for id in ["past00", "broken"] {
            assert_eq!(BootstrapTokens.on_write(&deletion(id), &server), Ok(()));
        }
        for id in ["never0", "later0"] {
            let error = BootstrapTokens.on_write(&deletion(id), &server).unwrap_err();
            let token = format!("Secret kube-system/bootstrap-token-{id}");
            assert_eq!(error, format!("{token} was deleted, which has not expired"));
            let by_user = ObservedWrite { party: "user".into(), ..deletion(id) };
            assert_eq!(BootstrapTokens.on_write(&by_user, &server), Ok(()));
        }
    }

    #[test]
    fn expired_tokens_and_wrong_signatures_have_not_converged() {
        let server = ApiServer::builder().build();
        for object in initial_objects() {
            server.seed(object).unwrap();
        }
        let error = |server: &ApiServer| BootstrapTokens.check_converged(server).unwrap_err();
        assert!(error(&server).ends_with("has expired and is left"));
        for id in ["past00", "broken"] {
            assert!(server.remove("secrets", "kube-system", &format!("bootstrap-token-{id}")));
        }
        assert!(error(&server).starts_with("cluster-info is signed by [\"jws-kubeconfig-stale0\"]"));
        let key: SecretBytes =
            serde_json::from_value(json!(BASE64_STANDARD.encode("0123456789abcdef"))).unwrap();
        let signed = |id: &str| signature("kind: Config\n", id, &key);
        let info = |other: &str, later: &str| {
            let data = json!({"kubeconfig": "kind: Config\n", "other": other,
                "jws-kubeconfig-never0": signed("never0"), "jws-kubeconfig-later0": later});
            let metadata = json!({"namespace": "kube-public", "name": "cluster-info"});
            server
                .seed(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
                .unwrap();
        };
        info("kept", &signed("later0"));
        assert_eq!(BootstrapTokens.check_converged(&server), Ok(()));
        info("kept", &signed("never0"));
        assert!(error(&server).starts_with("cluster-info is signed by"));
        info("lost", &signed("later0"));
        assert_eq!(error(&server), "cluster-info lost data that is no signature");
        assert!(server.remove("configmaps", "kube-public", "cluster-info"));
        assert_eq!(error(&server), "cluster-info is gone");
    }
}
