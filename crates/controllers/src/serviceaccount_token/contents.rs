//! What a token Secret holds, and how it is filled in.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_objects::{ObjectMeta, TokenSecret, annotations};
use keleustes_plan::Edited;
use serde_json::{Map, Value, json};

use super::ServiceAccountTokenOptions;

const ISSUER: &str = "kubernetes/serviceaccount";

/// Knows what belongs into a token Secret.
pub(super) struct Contents {
    settings: ServiceAccountTokenOptions,
    ca_base64: String,
}

impl Contents {
    pub(super) fn new(settings: &ServiceAccountTokenOptions) -> Arc<Self> {
        Arc::new(Self { ca_base64: BASE64_STANDARD.encode(&settings.ca), settings: settings.clone() })
    }

    /// Whether a cached Secret lacks anything. A namespace of the user's own choice is no lack.
    pub(super) fn lacks_any(&self, secret: &TokenSecret) -> bool {
        let lacks_ca = !self.ca_base64.is_empty() && secret.ca_base64 != *self.ca_base64;
        lacks_ca || !secret.has_namespace || !secret.has_token
    }

    /// Fills in what a freshly read Secret lacks, and says in its annotations whose it is.
    pub(super) fn fill(&self, secret: &mut Value, account: &ObjectMeta) -> Edited {
        let held =
            |name: &str| secret.pointer("/data").and_then(|data| data.get(name)).and_then(Value::as_str);
        let lacks_ca = !self.ca_base64.is_empty() && held("ca.crt") != Some(&self.ca_base64);
        let lacks = |name: &str| held(name).unwrap_or_default().is_empty();
        let (lacks_namespace, lacks_token) = (lacks("namespace"), lacks("token"));
        if !(lacks_ca || lacks_namespace || lacks_token) {
            return Edited::Unneeded;
        }
        let name = secret.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let token = if lacks_token { self.token(name, account).map(Some) } else { Ok(None) };
        let token = match token {
            Ok(token) => token,
            Err(why) => return Edited::Impossible(format!("the token cannot be signed: {why}")),
        };
        let data = object_at(secret, "data");
        if lacks_ca {
            data.insert("ca.crt".into(), json!(self.ca_base64));
        }
        if lacks_namespace {
            data.insert("namespace".into(), json!(BASE64_STANDARD.encode(&*account.key.namespace)));
        }
        if let Some(token) = token {
            data.insert("token".into(), json!(BASE64_STANDARD.encode(token)));
        }
        let notes = object_at(object_at_value(secret, "metadata"), "annotations");
        notes.insert(annotations::SERVICE_ACCOUNT_NAME.into(), json!(account.key.name));
        notes.insert(annotations::SERVICE_ACCOUNT_UID.into(), json!(account.uid));
        Edited::Changed
    }

    fn token(&self, secret_name: &str, account: &ObjectMeta) -> Result<String, String> {
        (self.settings.sign)(&claims(secret_name, account))
    }
}

/// What a legacy token says: whose it is and in which Secret it lives. It never expires and names no
/// audience; it ends with its Secret.
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

/// The map under a name, made if it is missing or null.
fn object_at<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let slot = object_at_value(value, name);
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("made a map just before"),
    }
}

fn object_at_value<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    let slot = &mut value[name];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot
}
