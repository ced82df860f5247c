//! Label and field selectors of list, watch and deletecollection mean here what they mean on the real server.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kept::Kept;
use super::resources::Resource;
use super::status::{Outcome, Status};

/// Which objects of a kind a request concerns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    rule: LabelRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelRule {
    Exists,
    Missing,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    label: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses the two query parameters, checking that the kind knows the fields.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Outcome<Selector> {
        let labels = parse_labels(labels).map_err(|why| {
            Status::bad_request(format!("unable to parse requirement: {why} in selector {labels:?}"))
        })?;
        let requirements = parse_fields(fields)
            .map_err(|why| Status::bad_request(format!("invalid selector: {fields:?}; {why}")))?;
        for requirement in &requirements {
            if resource.field_value(&requirement.label, &Value::Null).is_none() {
                return Err(Status::bad_request(unsupported(resource, &requirement.label)));
            }
        }
        Ok(Selector { labels, fields: requirements })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, resource: &Resource, object: &Value) -> bool {
        self.labels_match(object)
            && self.fields.iter().all(|r| {
                (resource.field_value(&r.label, object).as_deref() == Some(r.value.as_str())) == r.equal
            })
    }
}

/// Kinds that can be selected by nothing but their name say so in words of their own.
fn unsupported(resource: &Resource, label: &str) -> String {
    match resource.kind {
        "Job" if !resource.is_custom() => format!("field label {label:?} not supported for Job"),
        _ if resource.selectable.is_empty() && !resource.is_custom() => {
            let known = "\"metadata.name\", \"metadata.namespace\"";
            format!("{label:?} is not a known field selector: only {known}")
        }
        _ => format!("field label not supported: {label}"),
    }
}

impl Selector {
    /// Like [`Selector::matches`], for an object that is not parsed, as long as that can be avoided.
    pub(crate) fn accepts(&self, resource: &Resource, key: &str, object: &Kept) -> bool {
        match self.fields_accept(resource, key, object) {
            Some(false) => false,
            Some(true) if self.labels.is_empty() => true,
            Some(true) => object
                .with_labels(|label| self.labels.iter().all(|r| r.rule.accepts(label(&r.key).as_deref()))),
            None => self.matches(resource, &object.value()),
        }
    }

    /// Like [`Selector::matches`], for an object that is kept and can be had parsed; most are told by their fields.
    pub(crate) fn chooses<'a>(
        &self,
        resource: &Resource,
        key: &str,
        object: &Kept,
        parsed: impl FnOnce() -> &'a Value,
    ) -> bool {
        match self.fields_accept(resource, key, object) {
            Some(false) => false,
            Some(true) if self.labels.is_empty() => true,
            Some(true) => self.labels_match(parsed()),
            None => self.matches(resource, parsed()),
        }
    }

    /// Whether the fields fit; `None` if that cannot be told without parsing.
    fn fields_accept(&self, resource: &Resource, key: &str, object: &Kept) -> Option<bool> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        for wanted in &self.fields {
            let found = match wanted.label.as_str() {
                "metadata.name" => name,
                "metadata.namespace" => namespace,
                label => object.field(resource, label)?,
            };
            if (found == wanted.value) != wanted.equal {
                return Some(false);
            }
        }
        Some(true)
    }

    fn labels_match(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        self.labels.iter().all(|r| r.rule.accepts(label(&r.key)))
    }
}

impl LabelRule {
    fn accepts(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            LabelRule::Exists => value.is_some(),
            LabelRule::Missing => value.is_none(),
            LabelRule::In(values) => value.is_some_and(|v| values.contains(v)),
            LabelRule::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            LabelRule::Above(bound) => number().is_some_and(|n| n > *bound),
            LabelRule::Below(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// Whether a selector object (`matchLabels`, `matchExpressions`) accepts the labels; an empty one accepts all.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let rules = selector.get("matchExpressions").and_then(Value::as_array);
    equal.into_iter().flatten().all(|(key, value)| label(key) == value.as_str())
        && rules.into_iter().flatten().all(|rule| {
            let values = rule["values"].as_array().into_iter().flatten();
            let values: BTreeSet<String> = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let found = label(rule["key"].as_str().unwrap_or_default());
            match rule["operator"].as_str() {
                Some("In") => LabelRule::In(values).accepts(found),
                Some("NotIn") => LabelRule::NotIn(values).accepts(found),
                Some("Exists") => LabelRule::Exists.accepts(found),
                Some("DoesNotExist") => LabelRule::Missing.accepts(found),
                _ => false,
            }
        })
}

/// Splits at commas outside parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_labels(text: &str) -> Result<Vec<LabelRequirement>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    requirements(text).into_iter().map(|part| parse_label(part.trim())).collect()
}

fn parse_label(part: &str) -> Result<LabelRequirement, String> {
    if let Some(key) = part.strip_prefix('!') {
        return requirement(key.trim(), LabelRule::Missing);
    }
    let end = part.find(|c: char| c.is_whitespace() || "=!<>(".contains(c)).unwrap_or(part.len());
    let (key, rest) = (&part[..end], part[end..].trim());
    if rest.is_empty() {
        return requirement(key, LabelRule::Exists);
    }
    let single = |value: &str| label_value(value).map(|v| BTreeSet::from([v]));
    let number =
        |value: &str| value.trim().parse::<i64>().map_err(|_| format!("{value:?} is not an integer"));
    let rule = if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        LabelRule::In(single(value)?)
    } else if let Some(value) = rest.strip_prefix("!=") {
        LabelRule::NotIn(single(value)?)
    } else if let Some(values) = rest.strip_prefix("notin") {
        LabelRule::NotIn(value_set(values)?)
    } else if let Some(values) = rest.strip_prefix("in") {
        LabelRule::In(value_set(values)?)
    } else if let Some(value) = rest.strip_prefix('>') {
        LabelRule::Above(number(value)?)
    } else if let Some(value) = rest.strip_prefix('<') {
        LabelRule::Below(number(value)?)
    } else {
        return Err(format!("found {rest:?}, expected an operator"));
    };
    requirement(key, rule)
}

fn requirement(key: &str, rule: LabelRule) -> Result<LabelRequirement, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(plain) {
        return Err(format!("{key:?} is not a label key"));
    }
    Ok(LabelRequirement { key: key.to_owned(), rule })
}

fn label_value(text: &str) -> Result<String, String> {
    let text = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.len() > 63 || !text.chars().all(plain) {
        return Err(format!("{text:?} is not a label value"));
    }
    Ok(text.to_owned())
}

fn value_set(text: &str) -> Result<BTreeSet<String>, String> {
    let inner = text.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let inner = inner.ok_or_else(|| format!("found {text:?}, expected a list in parentheses"))?;
    inner.split(',').map(label_value).collect()
}

fn parse_fields(text: &str) -> Result<Vec<FieldRequirement>, String> {
    let mut all = Vec::new();
    for part in split_unescaped(text) {
        if part.is_empty() {
            continue;
        }
        let at = part.find(['=', '!']).ok_or_else(|| format!("can't understand {part:?}"))?;
        let (label, rest) = part.split_at(at);
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else {
            (true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).ok_or("'!' without '='")?)
        };
        all.push(FieldRequirement { label: label.to_owned(), value: unescape(value)?, equal });
    }
    Ok(all)
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                _ => return Err(format!("invalid escape sequence in {value:?}")),
            },
            '=' => return Err(format!("unescaped '=' in {value:?}")),
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resources::by_name;
    use super::*;

    fn selects(labels: &str, object_labels: &Value) -> bool {
        let pods = by_name("pods").unwrap();
        let object = json!({"metadata": {"labels": object_labels}});
        Selector::parse(pods, labels, "").unwrap().matches(pods, &object)
    }

    #[test]
    fn label_requirements_match_as_documented() {
        let web = json!({"app": "web", "tier": "front", "n": "5"});
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("app=web,tier==front", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web, db)", true),
            ("app in(db)", false),
            ("app notin (db),!other", true),
            ("other notin (db)", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>1", false),
            ("app=", false),
            ("in in (x)", false),
        ] {
            assert_eq!(selects(selector, &web), expected, "{selector}");
        }
    }

    #[test]
    fn malformed_selectors_are_refused() {
        let pods = by_name("pods").unwrap();
        for labels in ["=a", "a in b", "a in (", "a ~ b", "a=b=c", ",", "a>x", "a=b c"] {
            assert_eq!(Selector::parse(pods, labels, "").unwrap_err().reason.code(), 400, "{labels}");
        }
        for fields in ["a", "a!b", "spec.nodeName=a\\x", "spec.unknown=1", "spec.nodeName=a=b"] {
            assert_eq!(Selector::parse(pods, "", fields).unwrap_err().reason.code(), 400, "{fields}");
        }
    }

    #[test]
    fn field_requirements_read_the_kinds_own_fields() {
        let pods = by_name("pods").unwrap();
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n,1"}});
        let matches = |text: &str| Selector::parse(pods, "", text).unwrap().matches(pods, &pod);
        assert!(matches("spec.nodeName=n\\,1,metadata.name==a"));
        assert!(matches("spec.nodeName!=,status.phase="));
        assert!(!matches("metadata.name!=a"));
    }
}
