//! Replaces values that two servers cannot agree on: UIDs, resourceVersions, times, generated names and
//! addresses.
//!
//! Values are not dropped: equal values get equal symbols, numbered in the order of their first occurrence,
//! so that the responses of one server must still be consistent with each other.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

/// The length of a time with seconds.
const TIME_LENGTH: usize = "2026-01-02T03:04:05Z".len();

/// A response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// The headers that are compared.
    pub headers: BTreeMap<String, String>,
    /// The body; a string if it is not JSON.
    pub body: Value,
}

/// Symbols for the values of one server in one sequence.
#[derive(Debug)]
pub struct Symbols {
    namespace: String,
    now: Timestamp,
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    addresses: BTreeMap<String, String>,
    ports: BTreeMap<String, String>,
}

impl Symbols {
    /// No symbols yet.
    #[must_use]
    pub fn new(namespace: &str, now: Timestamp) -> Symbols {
        Symbols {
            namespace: namespace.to_owned(),
            now,
            uids: BTreeMap::new(),
            versions: BTreeMap::new(),
            addresses: BTreeMap::new(),
            ports: BTreeMap::new(),
        }
    }

    /// The normalized response, as one document.
    pub fn answer(&mut self, answer: &Answer) -> Value {
        let headers: Map<String, Value> =
            answer.headers.iter().map(|(name, value)| (name.clone(), json!(self.text(value)))).collect();
        json!({"code": answer.code, "headers": headers, "body": self.body(&answer.body)})
    }

    /// A normalized document.
    pub fn body(&mut self, body: &Value) -> Value {
        let mut body = body.clone();
        let is_list = body.get("items").is_some() || body["kind"] == "Table";
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| is_list) {
            // The resourceVersion of a list changes with every write of every sequence.
            for field in ["resourceVersion", "continue"] {
                if metadata.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
                    metadata.insert(field.to_owned(), json!("<list>"));
                }
            }
        }
        let mut body = self.value("", &body);
        if body["kind"] == "Status" {
            normalize_status(&mut body);
        }
        body
    }

    /// A normalized watch event.
    pub fn event(&mut self, event: &Value) -> Value {
        if let Some(end) = initial_events_end(event) {
            return json!({"type": "BOOKMARK", "kind": event["object"]["kind"], "end": end});
        }
        let mut object = self.value("", &event["object"]);
        if object["kind"] == "Status" {
            normalize_status(&mut object);
        }
        json!({"type": event["type"], "object": object})
    }

    fn value(&mut self, name: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.field(name, text)),
            Value::Number(number) if matches!(name, "nodePort" | "healthCheckNodePort") => {
                json!(symbol_for(&mut self.ports, "port", &number.to_string()))
            }
            Value::Array(items) if name == "finalizers" => {
                // A delete adds finalizers to a namespace in random order.
                let mut items: Vec<Value> = items.iter().map(|item| self.value(name, item)).collect();
                items.sort_by_key(Value::to_string);
                Value::Array(items)
            }
            Value::Array(items) if name == "managedFields" => {
                // They are sorted by time, with a precision of seconds.
                let mut items: Vec<Value> = items.iter().map(|item| self.value("", item)).collect();
                let key = |item: &Value| {
                    ["manager", "operation", "subresource", "apiVersion"].map(|f| item[f].to_string())
                };
                items.sort_by_key(key);
                Value::Array(items)
            }
            Value::Array(items) => items.iter().map(|item| self.value(name, item)).collect(),
            Value::Object(map) => {
                let object = map.iter().map(|(key, item)| {
                    let item = self.value(key, item);
                    (self.text(key), item)
                });
                Value::Object(object.collect())
            }
            other => other.clone(),
        }
    }

    fn field(&mut self, name: &str, text: &str) -> String {
        match name {
            "resourceVersion" if is_version(text) => symbol_for(&mut self.versions, "version", text),
            "uid" if is_uid(text) => symbol_for(&mut self.uids, "uid", text),
            "token" => "<token>".to_owned(),
            _ if text.starts_with("X509SHA256=") => "<credential>".to_owned(),
            "cells" if is_age(text) => "<age>".to_owned(),
            _ => self.text(text),
        }
    }

    fn text(&mut self, text: &str) -> String {
        if let Some(symbol_for) = self.time(text) {
            return symbol_for;
        }
        let text = text.replace(&self.namespace, "{ns}");
        // In other texts a number may equal a resourceVersion accidentally.
        let mentions_versions = text.contains("ersion");
        // The record may have a version that no response has shown yet.
        let names_record = text.contains("ResourceVersion in record (");
        let mut normal = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            if let Some(symbol_for) = rest.get(..TIME_LENGTH).and_then(|text| self.time(text)) {
                normal.push_str(&symbol_for);
                rest = &rest[TIME_LENGTH..];
                continue;
            }
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            if end == 0 {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                normal.push_str(&rest[..next]);
                rest = &rest[next..];
                continue;
            }
            let word = &rest[..end];
            normal.push_str(&match names_record && is_version(word) {
                true => symbol_for(&mut self.versions, "version", word),
                false => self.word(word, mentions_versions),
            });
            rest = &rest[end..];
        }
        normal
    }

    fn word(&mut self, word: &str, mentions_versions: bool) -> String {
        if is_uid(word) {
            return symbol_for(&mut self.uids, "uid", word);
        }
        let version = self.versions.get(word).filter(|_| mentions_versions);
        if let Some(known) = version.or_else(|| self.ports.get(word)) {
            return known.clone();
        }
        if word.starts_with("10.96.") {
            return symbol_for(&mut self.addresses, "address", word);
        }
        // Generated names end in five random characters; each prefix is used once in a sequence.
        if let Some((prefix, generated)) = word.rsplit_once('-')
            && generated.len() == 5
            && (prefix == "kube-api-access" || is_generated_prefix(prefix))
        {
            return format!("{prefix}-<drawn>");
        }
        word.to_owned()
    }

    /// Current times become symbols; times that were sent in requests are years old.
    fn time(&self, text: &str) -> Option<String> {
        if text.len() < TIME_LENGTH || !text.ends_with('Z') {
            return None;
        }
        let time: Timestamp = text.parse().ok()?;
        let near = time.duration_since(self.now).abs() < SignedDuration::from_hours(48);
        near.then(|| if text.contains('.') { "<microtime>".to_owned() } else { "<time>".to_owned() })
    }
}

/// The initial-events-end annotation of a bookmark; `None` if the event is not a bookmark.
fn initial_events_end(event: &Value) -> Option<&Value> {
    if event["type"] != "BOOKMARK" {
        return None;
    }
    let object = event.pointer("/object/rows/0/object").unwrap_or(&event["object"]);
    Some(&object["metadata"]["annotations"]["k8s.io/initial-events-end"])
}

/// Whether the event is a periodic bookmark, which servers send at any time: any but the one that ends the
/// initial events.
#[must_use]
pub fn is_periodic_bookmark(event: &Value) -> bool {
    initial_events_end(event).is_some_and(Value::is_null)
}

/// Causes are a set: their order and repetition depend on the order of Go maps. With several of them the
/// message only repeats them.
fn normalize_status(status: &mut Value) {
    if let Some(message) = status.get_mut("message") {
        *message = json!(with_sorted_violations(&without_dumps(message.as_str().unwrap_or_default())));
    }
    let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return };
    for cause in causes.iter_mut() {
        let message = cause["message"].as_str().unwrap_or_default();
        // A duplicate nodePort may have been allocated at random.
        let generated = message.starts_with("Duplicate value: ")
            && cause["field"].as_str().is_some_and(|field| field.ends_with(".nodePort"));
        cause["message"] =
            if generated { json!("Duplicate value: <port>") } else { json!(without_dumps(message)) };
    }
    causes.sort_by_key(Value::to_string);
    causes.dedup();
    let message = status["message"].as_str().unwrap_or_default();
    if let Some((head, _)) = message.split_once("is invalid: [") {
        status["message"] = json!(format!("{head}is invalid: <causes>"));
    }
}

/// Several violations of a LimitRange have the order of Go maps.
fn with_sorted_violations(message: &str) -> String {
    let listed = message.split_once("is forbidden: [").and_then(|(head, rest)| {
        let rest = rest.strip_suffix(']')?;
        rest.contains(" per ").then_some((head, rest))
    });
    let Some((head, rest)) = listed else { return message.to_owned() };
    let mut parts: Vec<&str> = rest.split(", ").collect();
    parts.sort_unstable();
    format!("{head}is forbidden: [{}]", parts.join(", "))
}

/// A text without the objects that Go prints in its own syntax.
fn without_dumps(text: &str) -> String {
    let text = text.split("\n@@").next().unwrap_or_default();
    let text = text.split("\n  core.").next().unwrap_or_default();
    // The servers' revisions have different ranges.
    if let Some((head, _)) =
        text.split_once(" (").filter(|(head, _)| head.starts_with("too old resource version"))
    {
        return head.to_owned();
    }
    // Which fault is found first depends on the order of Go maps, and an unknown field ends the search.
    if text.starts_with("failed to create typed patch object")
        && text.contains("field not declared in schema")
    {
        let head = text.split_once("): ").map_or(text, |(head, _)| head);
        return format!("{head}): <faults>");
    }
    // Several faults have no order.
    if let Some((head, faults)) = text.split_once("): errors:\n") {
        let mut faults: Vec<&str> = faults.lines().collect();
        faults.sort_unstable();
        return format!("{head}): errors:\n{}", faults.join("\n"));
    }
    if let Some((head, _)) = text.split_once(", got &{") {
        return format!("{head}, got <object>");
    }
    // A patched object that cannot be decoded is quoted completely.
    let quoted = ["Invalid value: \"{", "Invalid value: \"map["].iter().find_map(|begin| text.find(begin));
    if let Some(at) = quoted {
        let (head, quoted) = text.split_at(at + "Invalid value: ".len());
        return format!("{head}<object>{}", &quoted[end_of_quote(quoted)..]);
    }
    // Go does not distinguish a nil map from an empty one.
    let text = text.replace(" value: null", " value: {}");
    let mut short = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(": {").or_else(|| rest.find(": [{")) {
        short.push_str(&rest[..at + 2]);
        rest = &rest[at + 2..];
        let mut depth = 0_i32;
        let end = rest.find(|c: char| {
            depth += i32::from(matches!(c, '{' | '[')) - i32::from(matches!(c, '}' | ']'));
            depth == 0
        });
        short.push_str("<object>");
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
    }
    short + rest
}

/// The end of the quoted string at the beginning.
fn end_of_quote(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

fn symbol_for(known: &mut BTreeMap<String, String>, what: &str, value: &str) -> String {
    let next = known.len() + 1;
    known.entry(value.to_owned()).or_insert_with(|| format!("<{what} {next}>")).clone()
}

/// Stored resourceVersions have four digits or more; shorter ones were sent in requests.
#[must_use]
pub fn is_version(text: &str) -> bool {
    text.len() > 3 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Prefixes of generated names are `gen` and the number of the step.
fn is_generated_prefix(prefix: &str) -> bool {
    let number = prefix.rsplit('-').next().and_then(|last| last.strip_prefix("gen"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_uid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && !text.starts_with("00000000-")
        && text.bytes().enumerate().all(|(at, byte)| match byte {
            b'-' => dashes.contains(&at),
            byte => byte.is_ascii_hexdigit() && !dashes.contains(&at),
        })
}

/// `5s`, `2m3s`: an age in a table.
fn is_age(text: &str) -> bool {
    text.ends_with(['s', 'm'])
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"sm".contains(&byte))
        && text.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols() -> Symbols {
        Symbols::new("j1-7", "2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn equal_values_get_equal_symbols() {
        let mut symbols = symbols();
        let uid = "0a3c2f51-93a1-4d70-9a1b-0a3c2f510000";
        let object = json!({"metadata": {"uid": uid, "resourceVersion": "1000012", "namespace": "j1-7",
            "creationTimestamp": "2026-01-01T00:00:09Z"}, "renewTime": "2020-01-01T00:00:00.000001Z"});
        assert_eq!(
            symbols.body(&object),
            json!({"metadata": {"uid": "<uid 1>", "resourceVersion": "<version 1>", "namespace": "{ns}",
                "creationTimestamp": "<time>"}, "renewTime": "2020-01-01T00:00:00.000001Z"})
        );
        let text = format!("uid {uid}, version 1000012");
        assert_eq!(symbols.text(&text), "uid <uid 1>, version <version 1>");
        assert_eq!(symbols.text("1000012:db8::"), "1000012:db8::");
        assert_eq!(
            symbols.text("the ResourceVersion in record (1488)"),
            "the ResourceVersion in record (<version 2>)"
        );
    }

    #[test]
    fn generated_names_and_addresses_are_not_compared() {
        let mut symbols = symbols();
        assert_eq!(symbols.text("pods \"gen3-x7x2z\" not found"), "pods \"gen3-<drawn>\" not found");
        assert_eq!(symbols.text("plain-abcde"), "plain-abcde");
        assert_eq!(
            symbols.text("10.96.3.4 and 10.96.3.5, 10.96.3.4"),
            "<address 1> and <address 2>, <address 1>"
        );
    }

    #[test]
    fn causes_are_a_set_and_objects_in_them_are_not_compared() {
        let cause = |field: &str| json!({"field": field, "message": "Invalid value: {\"A\":{}}: no"});
        let mut status = json!({"kind": "Status", "message": "X is invalid: [b: no, a: no, a: no]",
            "details": {"causes": [cause("b"), cause("a"), cause("a")]}});
        normalize_status(&mut status);
        assert_eq!(status["message"], "X is invalid: <causes>");
        let short = |field: &str| json!({"field": field, "message": "Invalid value: <object>: no"});
        assert_eq!(status["details"]["causes"], json!([short("a"), short("b")]));
        assert_eq!(without_dumps("spec: Forbidden: no\n@@ -1 +1 @@"), "spec: Forbidden: no");
        let faults = |one: &str, two: &str| without_dumps(&format!("no (a; b): errors:\n  {one}\n  {two}"));
        assert_eq!(faults(".a: x", ".b: y"), faults(".b: y", ".a: x"));
    }

    #[test]
    fn only_the_initial_events_end_bookmark_is_compared() {
        let mut symbols = symbols();
        let bookmark = |annotations: Value| json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "9", "annotations": annotations}}});
        let end = bookmark(json!({"k8s.io/initial-events-end": "true"}));
        assert!(!is_periodic_bookmark(&end));
        assert_eq!(symbols.event(&end), json!({"type": "BOOKMARK", "kind": "Pod", "end": "true"}));
        assert!(is_periodic_bookmark(&bookmark(Value::Null)));
        assert!(!is_periodic_bookmark(&json!({"type": "ADDED", "object": {}})));
    }
}
