//! A sequence is data: requests whose parts may refer to earlier answers, so that both servers can be asked the same.

use std::collections::BTreeMap;
use std::fmt;

use http::Method;
use serde_json::{Map, Value};

use crate::normal::is_version;

/// Stands for the namespace of the sequence, wherever it occurs.
pub const NAMESPACE: &str = "{ns}";
/// Stands for a port on the nodes that no other sequence of the moment asks for, where it is all of a text.
pub const PORT: &str = "{port}";
/// The first port on the nodes, and how many servers leave to those who ask before they draw from them.
const ASKED_PORTS: (u16, u16) = (30_000, 86);

/// What a trial has for itself on both servers.
#[derive(Debug, Clone)]
pub struct Place {
    /// A namespace that nobody has used before.
    pub namespace: String,
    /// A port on the nodes, which trials long ago may have had as well.
    pub port: u16,
}

impl Place {
    /// The place of the trial of that number in its run.
    #[must_use]
    pub fn new(namespace: String, trial: u16) -> Place {
        let (first, count) = ASKED_PORTS;
        // Trials of one moment have numbers close to each other.
        Place { namespace, port: first + trial % count }
    }
}

/// Requests that belong together, in a namespace of their own.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Which one it is in its run.
    pub number: u64,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// One request of a sequence.
#[derive(Debug, Clone)]
pub struct Step {
    /// Names the step; stays the same when other steps are taken out.
    pub id: usize,
    /// What is asked, in a word: `create`, `apply`, `watch`…
    pub verb: &'static str,
    /// Of what: `deployments.apps/scale`.
    pub resource: String,
    /// The request itself.
    pub ask: Ask,
}

impl Step {
    /// Whether the server puts the present, in seconds, in what it stores. If that is all that is new, such a write
    /// changes something or nothing, as the second has it.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.resource.starts_with("certificatesigningrequests.") && self.resource.contains('/')
    }
}

/// A request whose parts may hold [`NAMESPACE`] and references such as `${3/metadata/uid}`.
#[derive(Debug, Clone)]
pub struct Ask {
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
    /// What is sent.
    pub content: Content,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub enum Content {
    /// None at all.
    Nothing,
    /// A document.
    Json(Value),
    /// Words, well-formed or not.
    Text(String),
    /// The object an earlier step answered with, changed; the other document if it answered with something else.
    Answer {
        /// The step.
        of: usize,
        /// What is changed.
        edits: Vec<Edit>,
        /// What is sent if there is no such object.
        otherwise: Value,
    },
}

/// A change of one place in a document.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Where, as a JSON pointer; missing objects on the way are made.
    pub pointer: String,
    /// What is put there; nothing removes it.
    pub value: Option<Value>,
}

impl Edit {
    /// Changes the document.
    pub fn make(&self, document: &mut Value) {
        let steps: Vec<String> = steps(&self.pointer);
        let Some((last, way)) = steps.split_last() else { return };
        let mut at = document;
        for step in way {
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

/// What a server has answered so far, by step.
pub type Answers = BTreeMap<usize, Value>;

/// A request as one server gets it.
#[derive(Debug, Clone)]
pub struct Concrete {
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
}

impl Ask {
    /// The request with everything filled in that depends on the server and the run.
    #[must_use]
    pub fn concrete(&self, place: &Place, answers: &Answers) -> Concrete {
        let fill = |text: &str| filled(text, &place.namespace, answers);
        let fill_value = |document: &Value| fill_value(document, place.port, &fill);
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.query {
            query.append_pair(name, &fill(value));
        }
        let query = query.finish();
        let path = fill(&self.path);
        let body = match &self.content {
            Content::Nothing => Vec::new(),
            Content::Text(text) => fill(text).into_bytes(),
            Content::Json(document) => fill_value(document).to_string().into_bytes(),
            Content::Answer { of, edits, otherwise } => {
                let answer = answers.get(of).filter(|answer| answer["kind"] == otherwise["kind"]);
                let mut document = answer.unwrap_or(otherwise).clone();
                edits.iter().for_each(|edit| edit.make(&mut document));
                fill_value(&document).to_string().into_bytes()
            }
        };
        Concrete {
            method: self.method.clone(),
            target: if query.is_empty() { path } else { format!("{path}?{query}") },
            accept: self.accept,
            content_type: if body.is_empty() { "" } else { self.content_type },
            body,
        }
    }
}

fn fill_value(value: &Value, port: u16, fill: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) if text == PORT => Value::from(port),
        Value::String(text) => Value::String(fill(text)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, port, fill)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, item)| (fill(key), fill_value(item, port, fill))).collect()
        }
        other => other.clone(),
    }
}

fn filled(text: &str, namespace: &str, answers: &Answers) -> String {
    let mut text = text.replace(NAMESPACE, namespace);
    while let Some(begin) = text.find("${") {
        let Some(length) = text[begin..].find('}') else { break };
        let reference = &text[begin + 2..begin + length];
        let (step, pointer) = reference.split_at(reference.find('/').unwrap_or(reference.len()));
        let answer = step.parse().ok().and_then(|step: usize| answers.get(&step)?.pointer(pointer)?.as_str());
        // A version that was made up and only tried is in nobody's history.
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
            Content::Answer { of, edits, otherwise } => {
                write!(f, "\n    the object of [{of}] (else {otherwise})")?;
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
    fn edits_make_their_way_and_remove() {
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
    fn every_trial_of_a_moment_has_a_port_of_its_own() {
        let ports = (60..90).map(|trial| Place::new("n".to_owned(), trial).port);
        let ports: std::collections::BTreeSet<u16> = ports.collect();
        assert_eq!(ports.len(), 30);
        let document = fill_value(&json!({"port": PORT, "text": "a {port}"}), 30_001, &str::to_owned);
        assert_eq!(document, json!({"port": 30_001, "text": "a {port}"}));
    }

    #[test]
    fn references_are_filled_in_for_each_server() {
        let answers = Answers::from([(3, json!({"metadata": {"uid": "u", "resourceVersion": "7000"}}))]);
        assert_eq!(filled("x-${3/metadata/uid}-{ns}", "n", &answers), "x-u-n");
        assert_eq!(filled("${3/metadata/resourceVersion}", "n", &answers), "7000");
        assert_eq!(filled("${4/metadata/uid}", "n", &answers), "0");
        let tried = Answers::from([(3, json!({"metadata": {"resourceVersion": "1"}}))]);
        assert_eq!(filled("${3/metadata/resourceVersion}", "n", &tried), "0");
    }
}
