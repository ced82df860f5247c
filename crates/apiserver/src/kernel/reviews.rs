//! Review resources: SelfSubjectReview, TokenReview and the access reviews. They are not stored.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::rbac::Attributes;
use super::request::Call;
use super::status::{ApiResult, FieldError, Status};
use super::token::AUDIENCE_DEFAULT;
use super::users::{Authenticated, User};
use super::{Document, Kernel, body, seconds};

impl Kernel {
    pub(crate) fn review(&mut self, call: &Call<'_>, now: Timestamp) -> ApiResult<Document> {
        let options = WriteOptions::parse(call)?;
        let resource = call.target.resource;
        let sent = if call.request.body.is_empty() { json!({}) } else { body::read(call)? };
        let mut review = body::conform(resource, sent)?.object;
        let status = match resource.kind {
            "TokenReview" => self.review_token(&review, now),
            "SelfSubjectReview" => {
                review["metadata"]["creationTimestamp"] = json!(seconds(now));
                json!({"userInfo": call.user.to_value()})
            }
            "SelfSubjectRulesReview" => self.review_rules(&call.user, &review)?,
            "SelfSubjectAccessReview" => self.review_access(&call.user, &review["spec"])?,
            _ => self.review_access(&subject_of(resource.kind, &review["spec"])?, &review["spec"])?,
        };
        if resource.kind == "SelfSubjectRulesReview" {
            review["spec"] = json!({});
        }
        review["status"] = status;
        let _ = options;
        Ok(Document::json(201, &review))
    }

    fn review_token(&self, review: &Value, now: Timestamp) -> Value {
        let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
        let wanted = review.pointer("/spec/audiences").and_then(Value::as_array).into_iter().flatten();
        let mut wanted: Vec<String> = wanted.filter_map(Value::as_str).map(str::to_owned).collect();
        if wanted.is_empty() {
            wanted.push(AUDIENCE_DEFAULT.to_owned());
        }
        match self.user_of_token(token, &wanted, now) {
            Some(Authenticated { user, audiences }) => {
                json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        }
    }

    fn review_rules(&self, user: &User, review: &Value) -> ApiResult<Value> {
        let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let mut rules = self.rules_for(user, namespace);
        if !self.options.rbac {
            rules = vec![
                json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
            ];
        }
        let (paths, resources): (Vec<Value>, Vec<Value>) =
            rules.into_iter().partition(|rule| rule.get("nonResourceURLs").is_some());
        Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
    }

    fn review_access(&self, user: &User, spec: &Value) -> ApiResult<Value> {
        let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
        let text = |attributes: Option<&Value>, field: &str| {
            attributes.and_then(|a| a.get(field)).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        if resource.is_some() == path.is_some() {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let error = FieldError::invalid("spec.resourceAttributes", &Value::Null, why);
            return Err(Status::invalid("authorization.k8s.io", "SubjectAccessReview", "", &[error]));
        }
        let mut name = text(resource, "resource");
        let subresource = text(resource, "subresource");
        if !subresource.is_empty() {
            name = format!("{name}/{subresource}");
        }
        let attributes = Attributes {
            verb: &text(resource.or(path), "verb"),
            group: &text(resource, "group"),
            resource: &name,
            name: &text(resource, "name"),
            namespace: &text(resource, "namespace"),
            path: &text(path, "path"),
        };
        let why = if self.options.rbac { self.allows(user, &attributes) } else { Some(String::new()) };
        let mut status = json!({"allowed": why.is_some()});
        if let Some(why) = why.filter(|why| !why.is_empty()) {
            status["reason"] = json!(why);
        }
        Ok(status)
    }
}

fn subject_of(kind: &str, spec: &Value) -> ApiResult<User> {
    let texts = |field: &str| -> Vec<String> {
        let list = spec[field].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let name = spec["user"].as_str().unwrap_or_default().to_owned();
    let groups = texts("groups");
    if name.is_empty() && groups.is_empty() {
        let error =
            FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified");
        return Err(Status::invalid("authorization.k8s.io", kind, "", &[error]));
    }
    Ok(User { name, groups, ..User::default() })
}
