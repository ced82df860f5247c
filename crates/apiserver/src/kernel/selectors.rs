//! Label and field selectors of list, watch and deletecollection.

use std::collections::BTreeSet;

use serde_json::Value;

use super::label_syntax::{self, LabelRequirement, LabelRule};
use super::request::Query;
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, Status};
use super::stored_object::StoredObject;

/// The label and field selector of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    label: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both query parameters.
    pub(crate) fn parse(query: &Query) -> ApiResult<Selector> {
        let labels = label_syntax::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
        let fields = parse_fields(query.text("fieldSelector")).map_err(Status::bad_request)?;
        Ok(Selector { labels, fields })
    }

    /// Checks that the kind supports the selected fields.
    pub(crate) fn check(&self, resource: &Resource) -> ApiResult<()> {
        let unsupported = |r: &&FieldRequirement| resource.field_value(&r.label, &Value::Null).is_none();
        let Some(FieldRequirement { label, .. }) = self.fields.iter().find(unsupported) else {
            return Ok(());
        };
        Err(Status::bad_request(match resource.strategy {
            Strategy::Job => format!("field label {label:?} not supported for Job"),
            _ if resource.kind == "ResourceSlice" => {
                format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
            }
            _ if resource.is_custom() || !resource.selectable.is_empty() => {
                format!("field label not supported: {label}")
            }
            _ => format!(
                "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
        }))
    }

    /// The single name that is selected, if any.
    pub(crate) fn name(&self) -> Option<&str> {
        let named = self.fields.iter().find(|r| r.equal && r.label == "metadata.name");
        named.map(|r| r.value.as_str())
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

impl Selector {
    /// Like [`Selector::matches`] for a stored object, which is parsed only if necessary.
    pub(crate) fn matches_stored(&self, resource: &Resource, key: &str, object: &StoredObject) -> bool {
        match self.fields_accept(resource, key, object) {
            Some(false) => false,
            Some(true) if self.labels.is_empty() => true,
            Some(true) => object
                .with_labels(|label| self.labels.iter().all(|r| r.rule.accepts(label(&r.key).as_deref()))),
            None => self.matches(resource, &object.value()),
        }
    }

    /// Like [`Selector::matches_stored`] for an object whose parsed form is available on demand; usually the fields
    /// decide.
    pub(crate) fn matches_parsing_late<'a>(
        &self,
        resource: &Resource,
        key: &str,
        object: &StoredObject,
        parsed: impl FnOnce() -> &'a Value,
    ) -> bool {
        match self.fields_accept(resource, key, object) {
            Some(false) => false,
            Some(true) if self.labels.is_empty() => true,
            Some(true) => self.labels_match(parsed()),
            None => self.matches(resource, parsed()),
        }
    }

    /// Whether the fields match; `None` if that requires parsing.
    fn fields_accept(&self, resource: &Resource, key: &str, object: &StoredObject) -> Option<bool> {
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

/// Whether a LabelSelector (`matchLabels`, `matchExpressions`) matches the labels; an empty one matches all.
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

fn parse_fields(text: &str) -> Result<Vec<FieldRequirement>, String> {
    let mut parts = split_unescaped(text);
    parts.sort_unstable();
    let mut all = Vec::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let not_understood = || format!("invalid selector: '{text}'; can't understand '{part}'");
        let found = (0..part.len()).filter(|at| part.is_char_boundary(*at)).find_map(|at| {
            let sign = ["!=", "==", "="].into_iter().find(|sign| part[at..].starts_with(sign))?;
            Some((&part[..at], sign, &part[at + sign.len()..]))
        });
        let (label, sign, value) = found.ok_or_else(not_understood)?;
        all.push(FieldRequirement { label: label.to_owned(), value: unescape(value)?, equal: sign != "!=" });
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
                Some(other) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => {
                let number = u32::from(c);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
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

    fn selector(labels: &str, fields: &str) -> ApiResult<Selector> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("labelSelector", labels).append_pair("fieldSelector", fields);
        let selector = Selector::parse(&Query::parse(&query.finish()))?;
        selector.check(by_name("pods").unwrap())?;
        Ok(selector)
    }

    fn selects(labels: &str, object_labels: &Value) -> bool {
        let object = json!({"metadata": {"labels": object_labels}});
        selector(labels, "").unwrap().matches(by_name("pods").unwrap(), &object)
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
    fn malformed_selectors_are_rejected() {
        for labels in ["=a", "a in b", "a in (", "a ~ b", "a=b=c", ",", "a>x", "a=b c"] {
            assert_eq!(selector(labels, "").unwrap_err().reason.code(), 400, "{labels}");
        }
        for fields in ["a", "a!b", "spec.nodeName=a\\x", "spec.unknown=1", "spec.nodeName=a=b"] {
            assert_eq!(selector("", fields).unwrap_err().reason.code(), 400, "{fields}");
        }
    }

    #[test]
    fn field_requirements_read_the_kinds_own_fields() {
        let pods = by_name("pods").unwrap();
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n,1"}});
        let matches = |text: &str| selector("", text).unwrap().matches(pods, &pod);
        assert!(matches("spec.nodeName=n\\,1,metadata.name==a"));
        assert!(matches("spec.nodeName!=,status.phase="));
        assert!(!matches("metadata.name!=a"));
    }
}
