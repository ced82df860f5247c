//! Service account tokens as signed JSON web tokens, which stay valid across a restart with the same key.
//!
//! The key is handed in: the kernel has no cryptography. Parity: pkg/serviceaccount/claims.go.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Kernel;
use super::metadata::meta_str;
use super::resources;
use super::store::SharedObject;
use super::token::AUDIENCE_DEFAULT;
use super::users::{Authenticated, User};

/// Who signs tokens; also the audience of tokens for this server.
const ISSUER: &str = AUDIENCE_DEFAULT;
/// How far clocks may differ, and how long tokens outlive the object they are bound to.
const LEEWAY_SECONDS: i64 = 60;

/// A key pair that signs and verifies tokens.
pub trait TokenKey: Send + Sync {
    /// The algorithm's name in the header of a token, such as `ES256`.
    fn algorithm(&self) -> &str;
    /// The name of the key in the header of a token.
    fn key_id(&self) -> &str;
    /// The signature of a message; `None` if signing fails.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>>;
    /// Whether this key signed the message.
    fn verify(&self, message: &[u8], signature: &[u8]) -> bool;
}

/// Signs and verifies the tokens of service accounts.
#[derive(Clone)]
pub struct TokenSigner(Arc<dyn TokenKey>);

impl TokenSigner {
    /// A signer with this key.
    pub fn new(key: impl TokenKey + 'static) -> TokenSigner {
        TokenSigner(Arc::new(key))
    }

    /// A token with these claims.
    fn issue(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": self.0.algorithm(), "kid": self.0.key_id()});
        let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(message.as_bytes())?);
        Some(format!("{message}.{signature}"))
    }

    /// The claims of a token that this key signed.
    fn claims(&self, token: &str) -> Option<Value> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let read = |part: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        // The algorithm is not the sender's choice.
        if read(header)?["alg"] != self.0.algorithm() {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if self.0.verify(message.as_bytes(), &signature) { read(claims) } else { None }
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").field("algorithm", &self.0.algorithm()).finish_non_exhaustive()
    }
}

/// What a token says.
pub(crate) struct TokenClaims<'a> {
    pub(crate) account: &'a Value,
    /// The object that the token is bound to, as `boundObjectRef` names it.
    pub(crate) bound: Option<(&'a str, SharedObject)>,
    pub(crate) audiences: &'a [Value],
    pub(crate) issued: Timestamp,
    pub(crate) expires: Timestamp,
}

impl Kernel {
    /// A signed token, if this kernel has a key.
    pub(crate) fn signed_token(&mut self, claims: &TokenClaims<'_>) -> Option<String> {
        let signer = self.options.signer.clone()?;
        let reference =
            |object: &Value| json!({"name": meta_str(object, "name"), "uid": meta_str(object, "uid")});
        let account = claims.account;
        let (namespace, name) = (meta_str(account, "namespace"), meta_str(account, "name"));
        let mut private = json!({"namespace": namespace, "serviceaccount": reference(account)});
        if let Some((kind, object)) = &claims.bound {
            private[kind.to_lowercase()] = reference(object);
            let node = object["spec"]["nodeName"].as_str().filter(|_| *kind == "Pod");
            if let Some(node) = node.and_then(|node| self.core_object("nodes", "", node)) {
                private["node"] = reference(&node);
            }
        }
        signer.issue(&json!({
            "aud": claims.audiences,
            "exp": claims.expires.as_second(),
            "iat": claims.issued.as_second(),
            "iss": ISSUER,
            "jti": self.random.uid(),
            "kubernetes.io": private,
            "nbf": claims.issued.as_second(),
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
        }))
    }

    /// The user of a signed token: its times, issuer and audience fit, and what it is bound to still exists.
    pub(crate) fn user_of_signed_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Option<Authenticated> {
        let claims = self.options.signer.as_ref()?.claims(token)?;
        let seconds = |field: &str| claims[field].as_i64();
        let at = now.as_second();
        let is_current = seconds("exp")? + LEEWAY_SECONDS > at && seconds("nbf")? - LEEWAY_SECONDS <= at;
        if claims["iss"] != ISSUER || !is_current {
            return None;
        }
        let own = claims["aud"].as_array()?.iter().filter_map(Value::as_str);
        let fitting: Vec<String> =
            own.filter(|own| audiences.iter().any(|one| one == own)).map(str::to_owned).collect();
        let private = &claims["kubernetes.io"];
        let namespace = private["namespace"].as_str()?;
        let account = self.referenced("serviceaccounts", namespace, &private["serviceaccount"], now)?;
        let user = User::service_account(namespace, meta_str(&account, "name"));
        if fitting.is_empty() || claims["sub"] != user.name.as_str() {
            return None;
        }
        let extra = self.bound_extra(namespace, private, now)?;
        let credential = claims["jti"].as_str().map(|id| ("credential-id", format!("JTI={id}")));
        let extra = extra.into_iter().chain(credential);
        let extra = extra.map(|(key, value)| (format!("authentication.kubernetes.io/{key}"), vec![value]));
        let user = User { uid: meta_str(&account, "uid").to_owned(), extra: extra.collect(), ..user };
        Some(Authenticated { user, audiences: fitting })
    }

    /// What the objects that a token is bound to add to its user; `None` if one of them is gone.
    fn bound_extra(
        &self,
        namespace: &str,
        private: &Value,
        now: Timestamp,
    ) -> Option<Vec<(&'static str, String)>> {
        let text = |kind: &str, field: &str| private[kind][field].as_str().unwrap_or_default().to_owned();
        let mut extra = Vec::new();
        if private.get("secret").is_some() {
            self.referenced("secrets", namespace, &private["secret"], now)?;
        }
        let has_pod = private.get("pod").is_some();
        if has_pod {
            self.referenced("pods", namespace, &private["pod"], now)?;
            extra.extend([("pod-name", text("pod", "name")), ("pod-uid", text("pod", "uid"))]);
        }
        if private.get("node").is_some() {
            // A token of a pod may outlive the node.
            if !has_pod {
                self.referenced("nodes", "", &private["node"], now)?;
            }
            extra.extend([("node-name", text("node", "name")), ("node-uid", text("node", "uid"))]);
        }
        Some(extra)
    }

    /// The object that a claim names, unless it was replaced, or deleted more than a moment ago.
    fn referenced(
        &self,
        plural: &str,
        namespace: &str,
        reference: &Value,
        now: Timestamp,
    ) -> Option<SharedObject> {
        let object = self.core_object(plural, namespace, reference["name"].as_str()?)?;
        let is_same = meta_str(&object, "uid") == reference["uid"].as_str()?;
        let deleted = meta_str(&object, "deletionTimestamp").parse::<Timestamp>().ok();
        let is_gone = deleted.is_some_and(|at| at.as_second() + LEEWAY_SECONDS < now.as_second());
        if is_same && !is_gone { Some(object) } else { None }
    }

    fn core_object(&self, plural: &str, namespace: &str, name: &str) -> Option<SharedObject> {
        self.store.get(resources::by_path("", "v1", plural)?, namespace, name)
    }
}
