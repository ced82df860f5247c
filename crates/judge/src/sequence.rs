//! A sequence is data: requests whose parts may refer to earlier responses, so that both servers get
//! equivalent requests.

use std::collections::BTreeMap;
use std::fmt;

use http::Method;
use serde_json::{Map, Value};

use crate::issuance::Issuance;
use crate::normalize::is_version;

/// Placeholder of the sequence's namespace.
pub const NAMESPACE: &str = "{ns}";
/// Placeholder of a nodePort that no concurrent trial uses; only as a complete string.
pub const PORT: &str = "{port}";
/// Placeholder of an IPv6 network that no other trial uses.
pub const NETWORK: &str = "{net}";
/// Placeholder of a service address that no concurrent trial uses.
pub const ADDRESS: &str = "{address}";
/// The first number of the last octet of such an address, and how many there are. Servers allocate them last.
const STATIC_ADDRESSES: (u16, u16) = (20, 200);
/// The first nodePort, and the size of the static range, from which servers allocate last.
const STATIC_PORTS: (u16, u16) = (30_000, 86);

/// The names that a trial uses on both servers.
#[derive(Debug, Clone)]
pub struct TrialContext {
    /// A namespace that was never used before.
    pub namespace: String,
    /// A nodePort; earlier trials may have used it.
    pub port: u16,
    /// An IPv6 network without its last groups.
    network: String,
    /// An address of the service range; earlier trials may have used it.
    address: String,
    /// Certificates that begin now.
    pub issuance: Issuance,
}

impl TrialContext {
    /// The context of the trial with that number.
    #[must_use]
    pub fn new(namespace: String, trial: u16) -> TrialContext {
        // Concurrent trials have close numbers.
        let close = |(first, count): (u16, u16)| first + trial % count;
        let network = network_of(&namespace);
        let address = format!("10.96.0.{}", close(STATIC_ADDRESSES));
        TrialContext { namespace, port: close(STATIC_PORTS), network, address, issuance: Issuance::now() }
    }

    fn with_names(&self, text: &str) -> String {
        text.replace(NAMESPACE, &self.namespace)
            .replace(NETWORK, &self.network)
            .replace(ADDRESS, &self.address)
    }

    /// The value of a complete string that is a placeholder.
    fn placeholder(&self, text: &str) -> Option<Value> {
        if text == PORT { Some(Value::from(self.port)) } else { self.issuance.value(text) }
    }
}

/// The beginning of IPv6 addresses for a namespace: a hash, in groups that cannot be taken for a resourceVersion.
fn network_of(namespace: &str) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = namespace.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let group = |shift: u32| 0xa000 | ((hash >> shift) & 0xfff);
    format!("fd00:{:x}:{:x}:{:x}", group(0), group(20), group(40))
}

/// Requests that belong together, in their own namespace.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Its number in the run.
    pub number: u64,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// One request of a sequence.
#[derive(Debug, Clone)]
pub struct Step {
    /// Identifies the step; stays the same when other steps are removed.
    pub id: usize,
    /// The verb: `create`, `apply`, `watch`…
    pub verb: &'static str,
    /// The resource: `deployments.apps/scale`.
    pub resource: String,
    /// The request.
    pub ask: RequestTemplate,
    /// Whether the next step waits until the real server's caches contain what this one wrote.
    pub settles: bool,
}

impl Step {
    /// Whether the server stores the current time in seconds. If nothing else is new, whether such a write
    /// changes the object depends on the second.
    #[must_use]
    pub fn stores_current_second(&self) -> bool {
        self.resource.starts_with("certificatesigningrequests.") && self.resource.contains('/')
    }
}

/// A request whose parts may contain [`NAMESPACE`] and references such as `${3/metadata/uid}`.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Query, not yet encoded.
    pub query: Vec<(&'static str, String)>,
    /// `Accept` header.
    pub accept: &'static str,
    /// `Content-Type` header.
    pub content_type: &'static str,
    /// The body.
    pub content: Content,
    /// The user that the administrator impersonates; empty for the administrator.
    pub user: &'static str,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub enum Content {
    /// No body.
    Nothing,
    /// A document.
    Json(Value),
    /// Text, well-formed or not.
    Text(String),
    /// The object in the response of an earlier step, with changes; the fallback if the response has
    /// another kind.
    Answer {
        /// The step.
        of: usize,
        /// The changes.
        edits: Vec<Edit>,
        /// Sent if there is no such object.
        fallback: Value,
    },
}

/// A change of one field of a document.
#[derive(Debug, Clone)]
pub struct Edit {
    /// A JSON pointer; missing parents are created.
    pub pointer: String,
    /// The new value; `None` removes the field.
    pub value: Option<Value>,
}

impl Edit {
    /// Applies the change.
    pub fn make(&self, document: &mut Value) {
        let steps: Vec<String> = steps(&self.pointer);
        let Some((last, parents)) = steps.split_last() else { return };
        let mut at = document;
        for step in parents {
            if at.is_array() {
                let Some(item) = step.parse().ok().and_then(|index: usize| at.get_mut(index)) else { return };
                at = item;
                continue;
            }
            at = object(at).entry(step.clone()).or_insert(Value::Null);
        }
        match (at, &self.value) {
            (Value::Array(list), value) => edit_list(list, last, value.as_ref()),
            (at, Some(value)) => {
                object(at).insert(last.clone(), value.clone());
            }
            (at, None) => {
                object(at).remove(last);
            }
        }
    }
}

/// The parts of a JSON pointer, unescaped.
pub fn steps(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

fn edit_list(list: &mut Vec<Value>, step: &str, value: Option<&Value>) {
    let Ok(index) = step.parse::<usize>() else { return };
    match value {
        Some(value) if index < list.len() => list[index] = value.clone(),
        Some(value) => list.push(value.clone()),
        None if index < list.len() => {
            list.remove(index);
        }
        None => {}
    }
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The line above made it one.
        _ => unreachable!("an object"),
    }
}

/// The responses of a server so far, by step.
pub type Answers = BTreeMap<usize, Value>;

/// A request with all references resolved for one server.
#[derive(Debug, Clone)]
pub struct ConcreteRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and encoded query.
    pub target: String,
    /// `Accept` header.
    pub accept: &'static str,
    /// `Content-Type` header; empty for none.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// `Impersonate-User` header; empty for none.
    pub user: &'static str,
}

impl RequestTemplate {
    /// Resolves everything that depends on the server and the run.
    #[must_use]
    pub fn concrete(&self, place: &TrialContext, answers: &Answers) -> ConcreteRequest {
        let resolve = |text: &str| resolve_references(place.with_names(text), answers);
        let resolve_value =
            |document: &Value| resolve_value(document, &|text| place.placeholder(text), &resolve);
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.query {
            query.append_pair(name, &resolve(value));
        }
        let query = query.finish();
        let path = resolve(&self.path);
        let body = match &self.content {
            Content::Nothing => Vec::new(),
            Content::Text(text) => resolve(text).into_bytes(),
            Content::Json(document) => resolve_value(document).to_string().into_bytes(),
            Content::Answer { of, edits, fallback } => {
                let answer = answers.get(of).filter(|answer| answer["kind"] == fallback["kind"]);
                let mut document = answer.unwrap_or(fallback).clone();
                edits.iter().for_each(|edit| edit.make(&mut document));
                resolve_value(&document).to_string().into_bytes()
            }
        };
        ConcreteRequest {
            method: self.method.clone(),
            target: if query.is_empty() { path } else { format!("{path}?{query}") },
            accept: self.accept,
            content_type: if body.is_empty() { "" } else { self.content_type },
            body,
            user: self.user,
        }
    }
}

fn resolve_value(
    value: &Value,
    placeholder: &impl Fn(&str) -> Option<Value>,
    resolve: &impl Fn(&str) -> String,
) -> Value {
    match value {
        Value::String(text) => placeholder(text).unwrap_or_else(|| Value::String(resolve(text))),
        Value::Array(items) => items.iter().map(|item| resolve_value(item, placeholder, resolve)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, item)| (resolve(key), resolve_value(item, placeholder, resolve))).collect()
        }
        other => other.clone(),
    }
}

fn resolve_references(mut text: String, answers: &Answers) -> String {
    while let Some(begin) = text.find("${") {
        let Some(length) = text[begin..].find('}') else { break };
        let reference = &text[begin + 2..begin + length];
        let (step, pointer) = reference.split_at(reference.find('/').unwrap_or(reference.len()));
        let answer = step.parse().ok().and_then(|step: usize| answers.get(&step)?.pointer(pointer)?.as_str());
        // An invented resourceVersion that was only sent with dryRun is not in the server's history.
        let known = |text: &&str| !pointer.ends_with("/resourceVersion") || is_version(text);
        let value = answer.filter(known).unwrap_or("0").to_owned();
        text.replace_range(begin..=begin + length, &value);
    }
    text
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ask = &self.ask;
        write!(f, "[{}] {} {}", self.id, ask.method, ask.path)?;
        let pairs: Vec<String> = ask.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !pairs.is_empty() {
            write!(f, "?{}", pairs.join("&"))?;
        }
        if !ask.user.is_empty() {
            write!(f, "\n    as {}", ask.user)?;
        }
        if ask.accept != "application/json" {
            write!(f, "\n    Accept: {}", ask.accept)?;
        }
        if !matches!(ask.content_type, "" | "application/json") {
            write!(f, "\n    Content-Type: {}", ask.content_type)?;
        }
        match &ask.content {
            Content::Nothing => Ok(()),
            Content::Json(document) => write!(f, "\n    {document}"),
            Content::Text(text) => write!(f, "\n    {text}"),
            Content::Answer { of, edits, fallback } => {
                write!(f, "\n    the object of [{of}] (else {fallback})")?;
                for edit in edits {
                    match &edit.value {
                        Some(value) => write!(f, "\n    with {} = {value}", edit.pointer)?,
                        None => write!(f, "\n    without {}", edit.pointer)?,
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn edits_create_missing_parents_and_remove() {
        let mut document = json!({"a": {"list": [{"b": 1}]}});
        for (pointer, value) in
            [("/a/list/0/b", Some(json!(2))), ("/c/d~1e", Some(json!("x"))), ("/a/list/1", Some(json!(3)))]
        {
            Edit { pointer: pointer.to_owned(), value }.make(&mut document);
        }
        assert_eq!(document, json!({"a": {"list": [{"b": 2}, 3]}, "c": {"d/e": "x"}}));
        Edit { pointer: "/a/list/0".to_owned(), value: None }.make(&mut document);
        Edit { pointer: "/c".to_owned(), value: None }.make(&mut document);
        assert_eq!(document, json!({"a": {"list": [3]}}));
    }

    #[test]
    fn concurrent_trials_have_different_ports() {
        let ports = (60..90).map(|trial| TrialContext::new("n".to_owned(), trial).port);
        let ports: std::collections::BTreeSet<u16> = ports.collect();
        assert_eq!(ports.len(), 30);
        let context = TrialContext::new("n".to_owned(), 1);
        let placeholder = |text: &str| context.placeholder(text);
        let document =
            resolve_value(&json!({"port": PORT, "text": "a {port}"}), &placeholder, &str::to_owned);
        assert_eq!(document, json!({"port": 30_001, "text": "a {port}"}));
    }

    #[test]
    fn references_are_resolved_for_each_server() {
        let answers = Answers::from([(3, json!({"metadata": {"uid": "u", "resourceVersion": "7000"}}))]);
        let resolved = |text: &str, answers: &Answers| resolve_references(text.to_owned(), answers);
        assert_eq!(resolved("x-${3/metadata/uid}-y", &answers), "x-u-y");
        assert_eq!(resolved("${3/metadata/resourceVersion}", &answers), "7000");
        assert_eq!(resolved("${4/metadata/uid}", &answers), "0");
        let tried = Answers::from([(3, json!({"metadata": {"resourceVersion": "1"}}))]);
        assert_eq!(resolved("${3/metadata/resourceVersion}", &tried), "0");
    }

    #[test]
    fn names_of_a_trial_are_its_own() {
        let (one, other) = (TrialContext::new("j-1".to_owned(), 1), TrialContext::new("j-2".to_owned(), 2));
        assert_ne!(one.with_names("{net}::a"), other.with_names("{net}::a"));
        let name = one.with_names("{net}::a");
        assert_eq!(name.parse::<std::net::Ipv6Addr>().unwrap().to_string(), name);
        assert_eq!(one.with_names("{ns} {address}"), "j-1 10.96.0.21");
    }
}
