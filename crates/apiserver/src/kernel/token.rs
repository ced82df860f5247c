//! The token subresource of service accounts: issues a signed token, or without a key an opaque one that only this
//! server recognizes.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::create::Write;
use super::fields::{ManagedFieldsEntry, Operation, record_update};
use super::jwt::TokenClaims;
use super::metadata::{meta, meta_str, set_meta};
use super::options::WriteOptions;
use super::request::Call;
use super::resources;
use super::status::{ApiResult, FieldError, Status};
use super::store::SharedObject;
use super::types::{self, Node};
use super::users::IssuedToken;
use super::{Document, Kernel, body, seconds};

/// Default expirationSeconds.
const EXPIRATION_SECONDS_DEFAULT: i64 = 3600;
/// Minimum expirationSeconds.
const EXPIRATION_SECONDS_MIN: i64 = 600;
/// Maximum expirationSeconds.
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;
/// Default audience.
pub(crate) const AUDIENCE_DEFAULT: &str = "https://kubernetes.default.svc.cluster.local";

impl Kernel {
    pub(crate) fn token(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let options = WriteOptions::parse(call)?;
        let target = &call.target;
        let request = body::read(call)?;
        let spec = match request.get("spec") {
            Some(spec) if spec.is_object() => spec.clone(),
            None | Some(Value::Null) if request.is_object() => json!({}),
            _ => {
                return Err(Status::bad_request("a TokenRequest must be an object with a spec"));
            }
        };
        let Some(account) = self.store.get(target.resource, target.namespace(), target.name()) else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        let uid = meta_str(&account, "uid").to_owned();
        let lifetime = expiration(&spec)?;
        let bound = self.bound_object(target.namespace(), &spec["boundObjectRef"])?;
        let audiences = match spec.get("audiences") {
            Some(Value::Array(list)) if !list.is_empty() && list.iter().all(Value::is_string) => list.clone(),
            None | Some(Value::Null | Value::Array(_)) => vec![json!(AUDIENCE_DEFAULT)],
            Some(_) => {
                return Err(Status::bad_request("TokenRequest: spec.audiences must be a list of strings"));
            }
        };
        let expires = now.checked_add(SignedDuration::from_secs(lifetime)).unwrap_or(now);
        let bound = bound.map(|object| (spec["boundObjectRef"]["kind"].as_str().unwrap_or_default(), object));
        let claims = TokenClaims { account: &account, bound, audiences: &audiences, issued: now, expires };
        let signed = self.signed_token(&claims);
        let token = signed.unwrap_or_else(|| self.opaque_token(&account, &audiences, expires));
        let answer = json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": meta_str(&account, "name"),
                "namespace": meta_str(&account, "namespace"),
                "uid": uid,
                "creationTimestamp": seconds(now),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": lifetime,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": token, "expirationTimestamp": seconds(expires)},
        });
        let mut answer = answer;
        let write =
            Write { target, options: &options, now, applied: None, user: &call.user, has_empty_lists: false };
        let by = ManagedFieldsEntry {
            api_version: "authentication.k8s.io/v1".to_owned(),
            ..write.manager(Operation::Update)
        };
        let mut requested = spec;
        requested["expirationSeconds"] = json!(lifetime);
        set_response_managed_fields(&mut answer, &requested, &by);
        Ok(Document::json(201, &answer))
    }
}

/// Sets managedFields in the response, as if the request were stored.
fn set_response_managed_fields(answer: &mut Value, requested: &Value, by: &ManagedFieldsEntry) {
    let shape = types::named("authentication.v1.TokenRequest").unwrap_or_else(types::custom);
    let mut request = json!({"spec": requested});
    let zero = json!({"spec": {"audiences": null, "expirationSeconds": null, "boundObjectRef": null}});
    record_update(Node::Struct(shape), &zero, &mut request, by, &[], true);
    set_meta(answer, "managedFields", meta(&request, "managedFields").cloned());
}

impl Kernel {
    /// A random token that is valid until it expires or this kernel ends.
    fn opaque_token(&mut self, account: &Value, audiences: &[Value], expires: Timestamp) -> String {
        let token = self.random.token();
        let now = self.now;
        self.tokens.retain(|_, issued| issued.expires > now);
        let issued = IssuedToken {
            namespace: meta_str(account, "namespace").to_owned(),
            account: meta_str(account, "name").to_owned(),
            uid: meta_str(account, "uid").to_owned(),
            audiences: audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            expires,
        };
        self.tokens.insert(token.clone(), issued);
        token
    }

    /// The object of boundObjectRef: of a supported kind, and not another one of the same name.
    fn bound_object(&self, namespace: &str, bound: &Value) -> ApiResult<Option<SharedObject>> {
        let text = |field: &str| bound[field].as_str().unwrap_or_default();
        if bound.is_null() {
            return Ok(None);
        }
        let (plural, namespace) = match text("kind") {
            "Pod" => ("pods", namespace),
            "Secret" => ("secrets", namespace),
            "Node" => ("nodes", ""),
            kind => {
                let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
                let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Status::bad_request(message));
            }
        };
        let Some(resource) = resources::by_path("", "v1", plural) else { return Ok(None) };
        let Some(object) = self.store.get(resource, namespace, text("name")) else {
            return Err(Status::not_found(resource, text("name")));
        };
        if !text("uid").is_empty() && text("uid") != meta_str(&object, "uid") {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
                 deleted and then recreated",
                text("uid")
            );
            // kube-apiserver puts the kind instead of the resource into this message.
            return Err(Status::kind_conflict(resource, text("name"), &why));
        }
        Ok(Some(object))
    }
}

fn expiration(spec: &Value) -> ApiResult<i64> {
    let requested = match spec.get("expirationSeconds") {
        None | Some(Value::Null) => return Ok(EXPIRATION_SECONDS_DEFAULT),
        Some(value) => value.as_i64(),
    };
    match requested {
        Some(requested) if (EXPIRATION_SECONDS_MIN..=EXPIRATION_SECONDS_MAX).contains(&requested) => {
            Ok(requested)
        }
        Some(requested) => {
            let why = if requested < EXPIRATION_SECONDS_MIN {
                "may not specify a duration less than 10 minutes"
            } else {
                "may not specify a duration larger than 2^32 seconds"
            };
            let error = FieldError::invalid("spec.expirationSeconds", &json!(requested), why);
            Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &[error]))
        }
        None => Err(Status::bad_request("TokenRequest: spec.expirationSeconds must be an integer")),
    }
}
