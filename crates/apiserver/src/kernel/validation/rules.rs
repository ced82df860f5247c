//! Rules on single fields, read once from a table.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::super::metadata::{NOT_NEGATIVE, validate_labels};
use super::super::naming::{self, NameErrors};
use super::super::resources::Resource;
use super::super::status::FieldError;
use super::super::types::Quantity;

/// The table; the head of the file describes its syntax.
static BLOCKS: LazyLock<BTreeMap<&'static str, Vec<Rule>>> =
    LazyLock::new(|| read(include_str!("../../../data/rules.txt")));

/// One rule.
#[derive(Debug)]
struct Rule {
    /// Whether it applies only to create.
    new: bool,
    place: Vec<Step>,
    check: Check,
}

/// A step of a field path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Field(&'static str),
    Items,
    Values,
}

/// How the message shows the new value of an immutable field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// As it is.
    Value,
    /// As it is; a missing value as the empty string.
    Text,
    /// Not at all.
    Nothing,
}

/// The condition on the field.
#[derive(Debug)]
enum Check {
    Is(&'static str),
    Needed(&'static str),
    Within(i64, i64, &'static str),
    OneOf(Vec<&'static str>),
    Amount(&'static str),
    Fixed(Shown),
    Kept(&'static str),
    Distinct(&'static str),
    Labels,
    Selector,
    /// A text format, and whether a missing value is checked as the empty string.
    Form(fn(&str) -> NameErrors, bool),
    Port {
        given: bool,
    },
}

/// Validates an object by the rules of its kind.
pub(super) fn validate(
    resource: &Resource,
    subresource: Option<&str>,
    old: Option<&Value>,
    new: &Value,
    errors: &mut Vec<FieldError>,
) {
    if resource.is_custom() {
        return;
    }
    let of_status = subresource == Some("status");
    let rules = BLOCKS.get(resource.kind).map_or(&[][..], Vec::as_slice);
    for rule in rules {
        let fits = (rule.place.first() == Some(&Step::Field("status"))) == of_status;
        if !fits || (rule.new && old.is_some()) {
            continue;
        }
        walk(rule, &rule.place, "", old, Some(new), errors);
    }
}

/// Validates a nested object by the rules of a block.
pub(super) fn check_block(
    block: &str,
    path: &str,
    old: Option<&Value>,
    new: &Value,
    errors: &mut Vec<FieldError>,
) {
    for rule in BLOCKS.get(block).into_iter().flatten() {
        walk(rule, &rule.place, path, old, Some(new), errors);
    }
}

fn walk(
    rule: &Rule,
    place: &[Step],
    path: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let new = new.filter(|value| !value.is_null());
    let Some((step, rest)) = place.split_first() else {
        return rule.check.apply(path, old, new, errors);
    };
    match (step, new) {
        (Step::Field(name), Some(value)) => {
            let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            let old = old.map(|old| old.get(name).unwrap_or(&Value::Null));
            walk(rule, rest, &path, old, value.get(name), errors);
        }
        (Step::Items, Some(Value::Array(items))) => {
            for (at, item) in items.iter().enumerate() {
                walk(rule, rest, &format!("{path}[{at}]"), None, Some(item), errors);
            }
        }
        (Step::Values, Some(Value::Object(map))) => {
            for (key, value) in map {
                walk(rule, rest, &format!("{path}[{key}]"), None, Some(value), errors);
            }
        }
        // A missing parent violates no rule about its fields; decoding has added required structs.
        _ => {}
    }
}

impl Check {
    fn apply(&self, path: &str, old: Option<&Value>, new: Option<&Value>, errors: &mut Vec<FieldError>) {
        match self {
            Check::Needed(text) => {
                if new.is_none_or(is_empty_value) {
                    errors.push(FieldError::required(path, text));
                }
            }
            Check::Fixed(_) | Check::Kept(_) => self.check_change(path, old, new, errors),
            Check::Form(_, true) => self.check_value(path, new.unwrap_or(&Value::from("")), errors),
            _ => {
                if let Some(new) = new {
                    self.check_value(path, new, errors);
                }
            }
        }
    }

    fn check_change(
        &self,
        path: &str,
        old: Option<&Value>,
        new: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) {
        // On create there is no change to check.
        let (Some(old), new) = (old, new.unwrap_or(&Value::Null)) else { return };
        if old == new {
            return;
        }
        let (empty, nothing) = (Value::from(""), Value::Null);
        let new = match self {
            Check::Fixed(Shown::Text) if new.is_null() => &empty,
            Check::Fixed(Shown::Nothing) => &nothing,
            _ => new,
        };
        errors.push(match self {
            Check::Kept(text) => FieldError::forbidden(path, text),
            _ => FieldError::invalid(path, new, IMMUTABLE),
        });
    }

    fn check_value(&self, path: &str, new: &Value, errors: &mut Vec<FieldError>) {
        let invalid = |why: &str| FieldError::invalid(path, new, why);
        match self {
            Check::Is(block) => check_block(block, path, None, new, errors),
            Check::Within(least, most, text) => {
                let outside = new.as_i64().is_some_and(|number| !(*least..=*most).contains(&number));
                errors.extend(outside.then(|| invalid(text)));
            }
            Check::OneOf(words) => {
                let word = new.as_str().unwrap_or_default();
                if !word.is_empty() && !words.contains(&word) {
                    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                    errors.push(FieldError::not_supported(path, word, &quoted.join(", ")));
                }
            }
            Check::Amount(text) => {
                let amount = new.as_str().and_then(Quantity::parse);
                errors.extend(amount.is_some_and(Quantity::is_negative).then(|| invalid(text)));
            }
            Check::Distinct(field) => distinct(path, field, new, errors),
            Check::Labels => validate_labels(path, Some(new), errors),
            Check::Selector => selector(path, new, errors),
            Check::Form(form, given) => {
                let text = new.as_str().unwrap_or_default();
                let messages = if text.is_empty() && !given { NameErrors::new() } else { form(text) };
                errors.extend(messages.iter().map(|message| invalid(message)));
            }
            Check::Port { given } => {
                let messages = new.as_i64().filter(|port| *given || *port != 0).map(naming::port_number);
                errors.extend(messages.into_iter().flatten().map(|message| invalid(&message)));
            }
            Check::Needed(_) | Check::Fixed(_) | Check::Kept(_) => {}
        }
    }
}

const IMMUTABLE: &str = "field is immutable";

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}

fn distinct(path: &str, field: &str, list: &Value, errors: &mut Vec<FieldError>) {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    for (at, item) in items.iter().enumerate() {
        let value = &item[field];
        if !is_empty_value(value) && items[..at].iter().any(|other| other[field] == *value) {
            errors.push(FieldError::duplicate(&format!("{path}[{at}].{field}"), value));
        }
    }
}

/// A valid LabelSelector.
pub(super) fn selector(path: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    validate_labels(&format!("{path}.matchLabels"), selector.get("matchLabels"), errors);
    let rules = selector.get("matchExpressions").and_then(Value::as_array);
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        let none = rule["values"].as_array().is_none_or(Vec::is_empty);
        let operator = rule["operator"].as_str().unwrap_or_default();
        match operator {
            "In" | "NotIn" if none => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&format!("{path}.values"), why));
            }
            "Exists" | "DoesNotExist" if !none => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&format!("{path}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(&format!("{path}.operator"), &json!(other), why));
            }
        }
        let key = rule["key"].as_str().unwrap_or_default();
        let messages = naming::qualified(key);
        let key_path = format!("{path}.key");
        errors.extend(messages.iter().map(|message| FieldError::invalid(&key_path, &json!(key), message)));
    }
}

fn read(text: &'static str) -> BTreeMap<&'static str, Vec<Rule>> {
    let mut blocks: BTreeMap<&'static str, Vec<Rule>> = BTreeMap::new();
    let mut block = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            None => {
                block = line;
                blocks.entry(block).or_default();
            }
            Some(rule) => {
                let new = rule.strip_prefix("new ");
                let mut words = new.unwrap_or(rule).splitn(3, ' ');
                let (place, check) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let rule = Rule {
                    new: new.is_some(),
                    place: steps(place),
                    check: checked(check, words.next().unwrap_or_default()),
                };
                blocks.entry(block).or_default().push(rule);
            }
        }
    }
    blocks
}

fn steps(place: &'static str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in place.split('.') {
        let name = part.trim_end_matches("[]").trim_end_matches("{}");
        steps.push(Step::Field(name));
        if part.ends_with("[]") {
            steps.push(Step::Items);
        } else if part.ends_with("{}") {
            steps.push(Step::Values);
        }
    }
    steps
}

fn checked(name: &'static str, words: &'static str) -> Check {
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let number = |text: &str| text.parse().unwrap_or(0);
    let text_or_default = |text: &'static str| if text.is_empty() { NOT_NEGATIVE } else { text };
    match name {
        "is" => Check::Is(first),
        "needed" => Check::Needed(words),
        "at-least" => Check::Within(number(first), i64::MAX, text_or_default(rest)),
        "between" => {
            let (most, text) = rest.split_once(' ').unwrap_or((rest, ""));
            Check::Within(number(first), number(most), text)
        }
        "one-of" => Check::OneOf(words.split(' ').collect()),
        "amount" => Check::Amount(text_or_default(words)),
        "fixed" => Check::Fixed(Shown::Value),
        "fixed-text" => Check::Fixed(Shown::Text),
        "fixed-unnamed" => Check::Fixed(Shown::Nothing),
        "kept" => Check::Kept(words),
        "distinct" => Check::Distinct(first),
        "labels" => Check::Labels,
        "selector" => Check::Selector,
        "port" => Check::Port { given: false },
        "port-given" => Check::Port { given: true },
        "subdomain" => Check::Form(naming::subdomain, false),
        "label" => Check::Form(naming::label, false),
        "qualified" => Check::Form(naming::qualified, false),
        "port-name" => Check::Form(naming::port_name, false),
        "domain-path" => Check::Form(naming::domain_path, false),
        "ip" => Check::Form(naming::ip, false),
        "subdomain-given" => Check::Form(naming::subdomain, true),
        // Cannot happen: a test reads the table.
        other => unreachable!("rules.txt: unknown rule {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_table_parses_and_has_no_dangling_blocks() {
        for (name, rules) in &*BLOCKS {
            for rule in rules {
                if let Check::Is(block) = rule.check {
                    assert!(BLOCKS.contains_key(block), "{name} is made of {block}");
                }
            }
        }
    }

    #[test]
    fn paths_have_indexes_and_keys() {
        let mut errors = Vec::new();
        let spec = json!({"containers": [{"name": "Bad", "image": "i"}, {"name": "b", "image": "", "resources":
            {"limits": {"cpu": "-1"}}}], "restartPolicy": "Odd"});
        check_block("PodSpec", "spec", None, &spec, &mut errors);
        let mut fields: Vec<String> = errors.iter().map(|error| error.field().to_owned()).collect();
        fields.sort();
        let wanted = [
            "spec.containers[0].name",
            "spec.containers[1].image",
            "spec.containers[1].resources.limits[cpu]",
            "spec.restartPolicy",
        ];
        assert_eq!(fields, wanted);
    }
}
