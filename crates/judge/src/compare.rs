//! Finds the places in which two responses differ, with names that can be listed and searched for.

use std::fmt;

use serde_json::Value;

/// One place in which two responses differ.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The step it was found at.
    pub step: usize,
    /// Verb, resource and place: `create pods spec.priority`.
    pub item: String,
    /// The real server's value.
    pub real: Value,
    /// Our value.
    pub ours: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}\n    real: {}\n    ours: {}", self.step, self.item, self.real, self.ours)
    }
}

/// Compares the normalized responses to one step.
#[must_use]
pub fn answers(step: usize, asked: &str, real: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    if real["code"] != ours["code"] {
        // With different codes everything else differs, too.
        let item = format!("{asked} code {} {}", real["code"], ours["code"]);
        found.push(Difference { step, item, real: summary(real), ours: summary(ours) });
        return found;
    }
    let place = match real["code"].as_u64() {
        Some(code) if code >= 400 => format!("{asked} {code}"),
        _ => asked.to_owned(),
    };
    let mut walk = Walk { step, found: &mut found };
    walk.values(&format!("{place} header"), &real["headers"], &ours["headers"]);
    walk.values(&place, &real["body"], &ours["body"]);
    found
}

/// Compares the normalized events of one watch.
#[must_use]
pub fn streams(step: usize, asked: &str, real: &[Value], ours: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    let kinds = |events: &[Value]| -> Value {
        events.iter().map(|event| Value::from(format!("{} {}", event["type"], name(event)))).collect()
    };
    if kinds(real) != kinds(ours) {
        let item = format!("{asked} events");
        found.push(Difference { step, item, real: kinds(real), ours: kinds(ours) });
        return found;
    }
    for (real, ours) in real.iter().zip(ours) {
        Walk { step, found: &mut found }.values(asked, real, ours);
    }
    found
}

fn name(event: &Value) -> &str {
    event.pointer("/object/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Code and message, for the report.
fn summary(answer: &Value) -> Value {
    let body = &answer["body"];
    match body["message"].as_str() {
        Some(message) if body["kind"] == "Status" => {
            let causes = body.pointer("/details/causes").and_then(Value::as_array);
            let describe = |cause: &Value| {
                format!(
                    "{}: {}",
                    cause["field"].as_str().unwrap_or_default(),
                    cause["message"].as_str().unwrap_or_default()
                )
            };
            let causes: Vec<String> = causes.into_iter().flatten().map(describe).collect();
            let message = message.replace("<causes>", &causes.join(", "));
            Value::from(format!("{}: {message}", answer["code"]))
        }
        _ => answer["code"].clone(),
    }
}

struct Walk<'a> {
    step: usize,
    found: &'a mut Vec<Difference>,
}

impl Walk<'_> {
    fn values(&mut self, place: &str, real: &Value, ours: &Value) {
        if real == ours {
            return;
        }
        match (real, ours) {
            (Value::Object(theirs), Value::Object(mine)) => {
                let names: std::collections::BTreeSet<&String> = theirs.keys().chain(mine.keys()).collect();
                for name in names {
                    let field_place = field_place(place, name);
                    let absent = Value::from("<absent>");
                    self.values(
                        &field_place,
                        theirs.get(name).unwrap_or(&absent),
                        mine.get(name).unwrap_or(&absent),
                    );
                }
            }
            // Causes are compared as one value: the first one that differs shifts all others.
            (Value::Array(theirs), Value::Array(mine))
                if theirs.len() == mine.len() && !place.ends_with(".causes") =>
            {
                for (real, ours) in theirs.iter().zip(mine) {
                    self.values(&format!("{place}[]"), real, ours);
                }
            }
            _ => self.found.push(Difference {
                step: self.step,
                item: place.to_owned(),
                real: real.clone(),
                ours: ours.clone(),
            }),
        }
    }
}

/// The place of a field. Objects in lists and events are named as if they were on their own.
fn field_place(place: &str, name: &str) -> String {
    let (asked, path) = place.rsplit_once(' ').unwrap_or((place, ""));
    let is_top = place.split(' ').count() == 2
        || path == "items[]"
        || path == "object"
        || path.parse::<u16>().is_ok()
        || path == "header";
    match path {
        "items[]" | "object" => format!("{asked} {name}"),
        _ if is_top => format!("{place} {name}"),
        _ => format!("{place}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(real: &Value, ours: &Value) -> Vec<String> {
        answers(1, "create pods", real, ours).into_iter().map(|difference| difference.item).collect()
    }

    #[test]
    fn places_are_relative_to_the_object() {
        let answer = |body: Value| json!({"code": 200, "headers": {}, "body": body});
        let (real, ours) = (json!({"spec": {"a": [{"b": 1}]}}), json!({"spec": {"a": [{"b": 2}], "c": 1}}));
        assert_eq!(
            items(&answer(real.clone()), &answer(ours.clone())),
            ["create pods spec.a[].b", "create pods spec.c"]
        );
        let list = |item: &Value| answer(json!({"items": [item]}));
        assert_eq!(items(&list(&real), &list(&ours)), ["create pods spec.a[].b", "create pods spec.c"]);
        let lists = [answer(json!({"items": []})), list(&ours)];
        assert_eq!(items(&lists[0], &lists[1]), ["create pods items"]);
    }

    #[test]
    fn rejections_are_named_by_their_code() {
        let refusal = |code: u16, message: &str| json!({"code": code, "headers": {}, "body": {"kind": "Status", "message": message, "details": {"name": message}}});
        assert_eq!(items(&refusal(422, "a"), &refusal(400, "a")), ["create pods code 422 400"]);
        assert_eq!(
            items(&refusal(422, "a"), &refusal(422, "b")),
            ["create pods 422 details.name", "create pods 422 message"]
        );
    }

    #[test]
    fn event_sequences_are_compared_before_objects() {
        let event = |kind: &str, value: u8| json!({"type": kind, "object": {"metadata": {"name": "a"}, "data": value}});
        let found = streams(1, "watch pods", &[event("ADDED", 1)], &[event("MODIFIED", 1)]);
        assert_eq!(found[0].item, "watch pods events");
        let found = streams(1, "watch pods", &[event("ADDED", 1)], &[event("ADDED", 2)]);
        assert_eq!(found[0].item, "watch pods data");
    }
}
