//! Errors as Kubernetes `Status` objects, with kube-apiserver's reasons, codes, details and causes.

use std::fmt;

use http::Method;
use serde_json::{Map, Value, json};

use super::resources::{Resource, Strategy};

/// The result of a kernel operation: a value, or the error to send to the client.
pub type ApiResult<T> = Result<T, Box<Status>>;

/// The machine-readable reason of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusReason {
    /// The request is malformed (400).
    BadRequest,
    /// The request is not authenticated (401).
    Unauthorized,
    /// The request is valid but not allowed (403).
    Forbidden,
    /// The object or the resource does not exist (404).
    NotFound,
    /// The resource does not support the verb (405).
    MethodNotAllowed,
    /// No representation matches the Accept header (406).
    NotAcceptable,
    /// An object of that name exists (409).
    AlreadyExists,
    /// The object is not in the state the request expects (409).
    Conflict,
    /// The requested resourceVersion is too old (410).
    Expired,
    /// The body is too large (413).
    RequestEntityTooLarge,
    /// The body's media type is not supported (415).
    UnsupportedMediaType,
    /// The object violates the rules of its kind (422).
    Invalid,
    /// Too many requests (429).
    TooManyRequests,
    /// An internal error (500).
    InternalError,
    /// kube-apiserver fails here without a reason (500).
    Unknown,
    /// kube-apiserver implements this, the embedded server does not (501).
    NotImplemented,
    /// The group version is marked as failing (503).
    ServiceUnavailable,
    /// The server did not answer in time (504).
    Timeout,
}

impl StatusReason {
    /// The text of `Status.reason`; may be empty.
    pub fn as_str(self) -> &'static str {
        match self {
            StatusReason::BadRequest => "BadRequest",
            StatusReason::Unauthorized => "Unauthorized",
            StatusReason::Forbidden => "Forbidden",
            StatusReason::NotFound => "NotFound",
            StatusReason::MethodNotAllowed => "MethodNotAllowed",
            StatusReason::NotAcceptable => "NotAcceptable",
            StatusReason::AlreadyExists => "AlreadyExists",
            StatusReason::Conflict => "Conflict",
            StatusReason::Expired => "Expired",
            StatusReason::RequestEntityTooLarge => "RequestEntityTooLarge",
            StatusReason::UnsupportedMediaType => "UnsupportedMediaType",
            StatusReason::Invalid => "Invalid",
            StatusReason::TooManyRequests => "TooManyRequests",
            StatusReason::InternalError => "InternalError",
            StatusReason::Unknown => "",
            StatusReason::NotImplemented => "NotImplemented",
            StatusReason::ServiceUnavailable => "ServiceUnavailable",
            StatusReason::Timeout => "Timeout",
        }
    }

    /// The HTTP status code of the reason.
    pub fn code(self) -> u16 {
        match self {
            StatusReason::BadRequest => 400,
            StatusReason::Unauthorized => 401,
            StatusReason::Forbidden => 403,
            StatusReason::NotFound => 404,
            StatusReason::MethodNotAllowed => 405,
            StatusReason::NotAcceptable => 406,
            StatusReason::AlreadyExists | StatusReason::Conflict => 409,
            StatusReason::Expired => 410,
            StatusReason::RequestEntityTooLarge => 413,
            StatusReason::UnsupportedMediaType => 415,
            StatusReason::Invalid => 422,
            StatusReason::TooManyRequests => 429,
            StatusReason::InternalError | StatusReason::Unknown => 500,
            StatusReason::NotImplemented => 501,
            StatusReason::ServiceUnavailable => 503,
            StatusReason::Timeout => 504,
        }
    }
}

/// One detailed cause of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCause {
    /// Machine-readable reason of this cause.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
    /// The field, or empty.
    pub field: String,
}

/// An error as the client receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Machine-readable reason.
    pub reason: StatusReason,
    /// Human-readable message.
    pub message: String,
    /// Name of the object, or empty.
    pub name: String,
    /// API group of the object, or empty.
    pub group: String,
    /// Resource (for invalid objects: kind), or empty.
    pub kind: String,
    /// Detailed causes.
    pub causes: Vec<StatusCause>,
    /// Seconds after which the client may retry; 0 means not set.
    pub retry_after_seconds: u32,
    /// A new continue token, returned with an expired one.
    pub continue_token: String,
    /// Whether empty details are included.
    with_details: bool,
    /// kube-apiserver's message if the object is converted from an unstructured value instead of parsed from text.
    pub(crate) message_from_value: Option<String>,
}

impl Status {
    /// An error that concerns no particular object.
    pub fn new(reason: StatusReason, message: impl Into<String>) -> Box<Status> {
        Box::new(Status {
            reason,
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
            continue_token: String::new(),
            with_details: matches!(reason, StatusReason::NotFound | StatusReason::MethodNotAllowed),
            message_from_value: None,
        })
    }

    /// An error that kube-apiserver writes without details of the resource.
    pub(crate) fn generic(reason: StatusReason, message: impl Into<String>) -> Box<Status> {
        let mut status = Status::new(reason, message);
        status.with_details = true;
        status
    }

    fn about(reason: StatusReason, resource: &Resource, name: &str, message: String) -> Box<Status> {
        let mut status = Status::new(reason, message);
        status.name = name.to_owned();
        status.group = resource.group.to_owned();
        status.kind = resource.plural.to_owned();
        status
    }

    /// The request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Status> {
        Status::new(StatusReason::BadRequest, message)
    }

    /// The body has no name.
    pub(crate) fn name_undeterminable(expected: &str) -> Box<Status> {
        Status::bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        ))
    }

    /// An internal error; clients see the message.
    pub(crate) fn internal(why: String) -> Box<Status> {
        let mut status = Status::new(StatusReason::InternalError, format!("Internal error occurred: {why}"));
        status.causes.push(StatusCause { reason: "", message: why, field: String::new() });
        status
    }

    /// kube-apiserver implements this, the embedded server does not.
    pub(crate) fn not_implemented(what: &str) -> Box<Status> {
        Status::new(
            StatusReason::NotImplemented,
            format!("the embedded API server does not implement {what}"),
        )
    }

    /// The apiextensions server's error for an unsupported verb.
    pub(crate) fn method_not_supported(resource: &Resource, method: &Method) -> Box<Status> {
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        let kind = resource.qualified();
        let message = format!("{verb} is not supported on resources of kind {kind:?}");
        Status::about(StatusReason::MethodNotAllowed, resource, "", message)
    }

    /// The resource does not support this verb.
    pub(crate) fn method_not_allowed() -> Box<Status> {
        let message = "the server does not allow this method on the requested resource";
        Status::new(StatusReason::MethodNotAllowed, message)
    }

    /// Nothing is served at that path of a served group.
    pub(crate) fn no_resource() -> Box<Status> {
        Status::new(StatusReason::NotFound, "the server could not find the requested resource")
    }

    /// No such object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Box<Status> {
        let message = format!("{} {name:?} not found", resource.qualified());
        Status::about(StatusReason::NotFound, resource, name, message)
    }

    /// An object of that name exists, possibly terminating.
    pub(crate) fn already_exists(resource: &Resource, name: &str, terminating: bool) -> Box<Status> {
        let fate = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{fate}{} {name:?} already exists", resource.qualified());
        Status::about(StatusReason::AlreadyExists, resource, name, message)
    }

    /// The generated name is taken; the client may retry.
    pub(crate) fn name_taken(resource: &Resource, name: &str, terminating: bool) -> Box<Status> {
        let mut status = Status::already_exists(resource, name, terminating);
        status.message.push_str(", the server was not able to generate a unique name for the object");
        status.retry_after_seconds = 1;
        status
    }

    /// The stored object is not the expected one.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Box<Status> {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        Status::about(StatusReason::Conflict, resource, name, message)
    }

    /// The same, with the kind in place of the resource.
    pub(crate) fn kind_conflict(resource: &Resource, name: &str, why: &str) -> Box<Status> {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            qualified(resource.kind, resource.group)
        );
        let mut status = Status::about(StatusReason::Conflict, resource, name, message);
        status.kind = resource.kind.to_owned();
        status
    }

    /// The resourceVersion has changed.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Box<Status> {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, why)
    }

    /// A uid or resourceVersion precondition failed.
    pub(crate) fn precondition(
        resource: &Resource,
        name: &str,
        (what, wanted, found): (&str, &str, &str),
    ) -> Box<Status> {
        let why =
            format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
        Status::conflict(resource, name, &why)
    }

    /// A precondition failed in the storage layer, the last check.
    pub(crate) fn storage_precondition(
        resource: &Resource,
        (namespace, name): (&str, &str),
        (what, wanted, found): (&str, &str, &str),
        dry_run: bool,
    ) -> Box<Status> {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: {what} in precondition: {wanted}, {what} in object meta: {found}",
            storage_key(resource, namespace, name, dry_run)
        );
        Status::conflict(resource, name, &why)
    }

    /// A delete precondition failed; kube-apiserver has separate messages for this.
    pub(crate) fn delete_precondition(
        resource: &Resource,
        name: &str,
        (what, wanted, found): (&str, &str, &str),
    ) -> Box<Status> {
        // kube-apiserver deletes namespaces with separate code.
        if resource.strategy == Strategy::Namespace {
            return Status::precondition(resource, name, (what, wanted, found));
        }
        let fate = if what == "UID" { "deleted and then recreated" } else { "modified" };
        let kind = qualified(resource.kind, resource.group);
        let message = format!(
            "Operation cannot be fulfilled on {kind} {name:?}: the {what} in the precondition ({wanted}) does not match \
             the {what} in record ({found}). The object might have been {fate}"
        );
        let mut status = Status::about(StatusReason::Conflict, resource, name, message);
        status.kind = resource.kind.to_owned();
        status
    }

    /// Admission rejects the request.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Box<Status> {
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        Status::about(StatusReason::Forbidden, resource, name, message)
    }

    /// Nothing can be created in a terminating namespace.
    pub(crate) fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Box<Status> {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Status::forbidden(resource, name, &why);
        status.causes.push(StatusCause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
        status
    }

    /// The object violates rules of its kind; `errors` must not be empty.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Box<Status> {
        let mut all: Vec<String> = Vec::new();
        // The causes keep duplicates, the message does not.
        for message in errors.iter().map(FieldError::message) {
            if !all.contains(&message) {
                all.push(message);
            }
        }
        let listed = if let [only] = all.as_slice() { only.clone() } else { format!("[{}]", all.join(", ")) };
        let mut status = Status::new(
            StatusReason::Invalid,
            format!("{} {name:?} is invalid: {listed}", qualified(kind, group)),
        );
        status.name = name.to_owned();
        status.group = group.to_owned();
        status.kind = kind.to_owned();
        status.causes = errors
            .iter()
            .map(|e| StatusCause {
                reason: e.error_type.as_str(),
                message: e.describe(),
                field: e.field.clone(),
            })
            .collect();
        status
    }

    /// The requested resourceVersion is in the future.
    pub(crate) fn version_too_large(requested: u64, current: u64) -> Box<Status> {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut status = Status::new(StatusReason::Timeout, message);
        status.retry_after_seconds = 1;
        status.causes.push(StatusCause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        });
        status
    }

    /// The requested resourceVersion has been compacted.
    pub(crate) fn expired(message: impl Into<String>) -> Box<Status> {
        Status::new(StatusReason::Expired, message)
    }

    /// The `Status` object as JSON.
    pub fn to_value(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".to_owned(), self.causes.iter().map(StatusCause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        let mut metadata = Map::new();
        if !self.continue_token.is_empty() {
            metadata.insert("continue".to_owned(), json!(self.continue_token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.reason.code(),
        });
        if !self.reason.as_str().is_empty() {
            status["reason"] = json!(self.reason.as_str());
        }
        if !details.is_empty() || self.with_details {
            status["details"] = Value::Object(details);
        }
        status
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.reason.code(), self.reason.as_str(), self.message)
    }
}

impl std::error::Error for Status {}

impl StatusCause {
    fn to_value(&self) -> Value {
        let mut cause = json!({ "message": self.message });
        if !self.reason.is_empty() {
            cause["reason"] = json!(self.reason);
        }
        if !self.field.is_empty() {
            cause["field"] = json!(self.field);
        }
        cause
    }
}

/// The type of a field error (upstream: field.ErrorType).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorType {
    Required,
    Invalid,
    WrongType,
    Forbidden,
    NotSupported,
    Duplicate,
    TooLong,
    NotFound,
}

impl FieldErrorType {
    fn as_str(self) -> &'static str {
        match self {
            FieldErrorType::Required => "FieldValueRequired",
            FieldErrorType::Invalid => "FieldValueInvalid",
            FieldErrorType::WrongType => "FieldValueTypeInvalid",
            FieldErrorType::Forbidden => "FieldValueForbidden",
            FieldErrorType::NotSupported => "FieldValueNotSupported",
            FieldErrorType::Duplicate => "FieldValueDuplicate",
            FieldErrorType::TooLong => "FieldValueTooLong",
            FieldErrorType::NotFound => "FieldValueNotFound",
        }
    }
}

/// A validation error of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    field: String,
    error_type: FieldErrorType,
    value: String,
    detail: String,
}

impl FieldError {
    fn new(field: &str, error_type: FieldErrorType, value: String, detail: &str) -> FieldError {
        FieldError { field: field.to_owned(), error_type, value, detail: detail.to_owned() }
    }

    /// The field at fault.
    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    pub(crate) fn required(field: &str, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::Required, String::new(), detail)
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::Invalid, value.to_string(), detail)
    }

    /// `quoted` is the value as the message shows it.
    pub(crate) fn invalid_text(field: &str, quoted: &str, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::Invalid, quoted.to_owned(), detail)
    }

    /// A value of the wrong type.
    pub(crate) fn wrong_type(field: &str, found: &str, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::WrongType, format!("{found:?}"), detail)
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::Forbidden, String::new(), detail)
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> FieldError {
        FieldError::new(field, FieldErrorType::Duplicate, value.to_string(), "")
    }

    pub(crate) fn too_long(field: &str, bytes_max: usize) -> FieldError {
        let detail = format!("may not be more than {bytes_max} bytes");
        FieldError::new(field, FieldErrorType::TooLong, String::new(), &detail)
    }

    pub(crate) fn not_found(field: &str, value: &Value) -> FieldError {
        FieldError::new(field, FieldErrorType::NotFound, value.to_string(), "")
    }

    /// An invalid value that the message does not show.
    pub(crate) fn invalid_without_value(field: &str, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::Invalid, String::new(), detail)
    }

    pub(crate) fn duplicate_with_detail(field: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::Duplicate, value.to_string(), detail)
    }

    /// `supported` is the quoted list for the message.
    pub(crate) fn not_supported(field: &str, value: &str, supported: &str) -> FieldError {
        let detail = format!("supported values: {supported}");
        FieldError::new(field, FieldErrorType::NotSupported, format!("{value:?}"), &detail)
    }

    /// A value that is not a string; `detail` is used unchanged.
    pub(crate) fn not_supported_value(field: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::new(field, FieldErrorType::NotSupported, value.to_string(), detail)
    }

    /// The field and its error.
    pub(crate) fn message(&self) -> String {
        format!("{}: {}", self.field, self.describe())
    }

    fn describe(&self) -> String {
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        match self.error_type {
            FieldErrorType::Required => format!("Required value{detail}"),
            FieldErrorType::Invalid if self.value.is_empty() => format!("Invalid value{detail}"),
            FieldErrorType::Invalid | FieldErrorType::WrongType => {
                format!("Invalid value: {}{detail}", self.value)
            }
            FieldErrorType::Forbidden => format!("Forbidden{detail}"),
            FieldErrorType::NotSupported => format!("Unsupported value: {}{detail}", self.value),
            FieldErrorType::Duplicate => format!("Duplicate value: {}{detail}", self.value),
            FieldErrorType::TooLong => format!("Too long{detail}"),
            FieldErrorType::NotFound => format!("Not found: {}", self.value),
        }
    }
}

/// kube-apiserver's storage key of an object, which is part of some messages.
fn storage_key(resource: &Resource, namespace: &str, name: &str, dry_run: bool) -> String {
    let place = match (resource.group, resource.plural) {
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", plural) => format!("{}/{plural}", resource.group),
        (group, plural) if resource.is_custom() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let root = if dry_run { "" } else { "/registry" };
    let within = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("{root}/{place}/{within}{name}")
}

/// `plural.group` or `Kind.group`; without suffix for the core group.
pub(crate) fn qualified(what: &str, group: &str) -> String {
    if group.is_empty() { what.to_owned() } else { format!("{what}.{group}") }
}
