//! The data of a token Secret.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_objects::{ObjectMeta, TokenSecret, annotations};
use keleustes_plan::Edited;
use serde_json::{Map, Value, json};

use super::ServiceAccountTokenOptions;

const ISSUER: &str = "kubernetes/serviceaccount";

/// Computes the data of token Secrets.
pub(super) struct Contents {
    options: ServiceAccountTokenOptions,
    ca_base64: String,
}

impl Contents {
    pub(super) fn new(options: &ServiceAccountTokenOptions) -> Arc<Self> {
        Arc::new(Self { ca_base64: BASE64_STANDARD.encode(&options.ca), options: options.clone() })
    }

    /// Whether a cached Secret lacks its CA, namespace or token. Any value of `namespace` is accepted.
    pub(super) fn is_incomplete(&self, secret: &TokenSecret) -> bool {
        let ca_differs = !self.ca_base64.is_empty() && secret.ca_base64 != *self.ca_base64;
        ca_differs || !secret.has_namespace || !secret.has_token
    }

    /// Adds the missing data to a Secret from a live read and sets the annotations of its ServiceAccount.
    pub(super) fn fill(&self, secret: &mut Value, account: &ObjectMeta) -> Edited {
        let current =
            |name: &str| secret.pointer("/data").and_then(|data| data.get(name)).and_then(Value::as_str);
        let ca_differs = !self.ca_base64.is_empty() && current("ca.crt") != Some(&self.ca_base64);
        let is_missing = |name: &str| current(name).unwrap_or_default().is_empty();
        let (namespace_missing, token_missing) = (is_missing("namespace"), is_missing("token"));
        if !(ca_differs || namespace_missing || token_missing) {
            return Edited::Unneeded;
        }
        let name = secret.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let token = if token_missing { self.token(name, account).map(Some) } else { Ok(None) };
        let token = match token {
            Ok(token) => token,
            Err(error) => return Edited::Impossible(format!("the token cannot be signed: {error}")),
        };
        let data = object_at(secret, "data");
        if ca_differs {
            data.insert("ca.crt".into(), json!(self.ca_base64));
        }
        if namespace_missing {
            data.insert("namespace".into(), json!(BASE64_STANDARD.encode(&*account.key.namespace)));
        }
        if let Some(token) = token {
            data.insert("token".into(), json!(BASE64_STANDARD.encode(token)));
        }
        let secret_annotations = object_at(object_at_value(secret, "metadata"), "annotations");
        secret_annotations.insert(annotations::SERVICE_ACCOUNT_NAME.into(), json!(account.key.name));
        secret_annotations.insert(annotations::SERVICE_ACCOUNT_UID.into(), json!(account.uid));
        Edited::Changed
    }

    fn token(&self, secret_name: &str, account: &ObjectMeta) -> Result<String, String> {
        (self.options.sign)(&claims(secret_name, account))
    }
}

/// The claims of a legacy token: its ServiceAccount and its Secret. It has no expiry and no audience; it is
/// valid while its Secret exists.
pub(super) fn claims(secret_name: &str, account: &ObjectMeta) -> Value {
    let (namespace, name) = (&account.key.namespace, &account.key.name);
    json!({
        "iss": ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret_name,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account.uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}

/// The object under a name, created if it is missing or null.
fn object_at<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let slot = object_at_value(value, name);
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("object_at_value returns an object"),
    }
}

fn object_at_value<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    let slot = &mut value[name];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot
}
