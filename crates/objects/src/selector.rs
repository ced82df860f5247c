//! Label selectors: decoded leniently, validated before use, matched against labels.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::meta::null_is_empty;
use crate::{InternedStr, Labels};

/// A label selector as in an object. It may be invalid; [`LabelSelector::matcher`] validates it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "Labels::is_empty")]
    match_labels: Labels,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[Expression]>::is_empty")]
    match_expressions: Box<[Expression]>,
}

/// One requirement of a label selector or a node selector, not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Expression {
    pub(crate) key: InternedStr,
    pub(crate) operator: InternedStr,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub(crate) values: Box<[InternedStr]>,
}

/// A validated selector. The empty one matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(InternedStr, Box<[InternedStr]>),
    NotIn(InternedStr, Box<[InternedStr]>),
    Exists(InternedStr),
    DoesNotExist(InternedStr),
    Above(InternedStr, i64),
    Below(InternedStr, i64),
}

/// Why a selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSelector(String);

impl fmt::Display for InvalidSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidSelector {}

impl LabelSelector {
    /// A selector with these `matchLabels`.
    #[must_use]
    pub fn of_labels(match_labels: Labels) -> Self {
        Self { match_labels, match_expressions: Box::default() }
    }

    /// Whether it has no requirements, and so selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// `matchLabels`.
    #[must_use]
    pub fn match_labels(&self) -> &Labels {
        &self.match_labels
    }

    /// Key, operator and values of each of its `matchExpressions`, which may be invalid.
    pub fn expressions(&self) -> impl Iterator<Item = (&str, &str, impl Iterator<Item = &str>)> {
        self.match_expressions
            .iter()
            .map(|one| (&*one.key, &*one.operator, one.values.iter().map(|value| &**value)))
    }

    /// The text that Go prints for a pointer to it.
    #[must_use]
    pub fn go_text(&self) -> String {
        let labels: String =
            self.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
        let expression = |one: &Expression| {
            let values: Vec<&str> = one.values.iter().map(|value| &**value).collect();
            let Expression { key, operator, .. } = one;
            format!(
                "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},",
                values.join(" ")
            )
        };
        let expressions: String = self.match_expressions.iter().map(expression).collect();
        format!(
            "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
             MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
        )
    }

    /// The selector with one more entry in `matchLabels`.
    #[must_use]
    pub fn with_label(&self, key: impl Into<InternedStr>, value: impl Into<InternedStr>) -> Self {
        Self { match_labels: self.match_labels.with(key, value), ..self.clone() }
    }

    /// The selector as the original's messages print it, which is the `String` method of the Go type.
    #[must_use]
    pub fn go_string(&self) -> String {
        let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
        for (key, value) in self.match_labels.iter() {
            text.push_str(&format!("{key}: {value},"));
        }
        text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
        for Expression { key, operator, values } in &self.match_expressions {
            let values = values.iter().map(InternedStr::as_str).collect::<Vec<_>>().join(" ");
            text.push_str(&format!(
                "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},"
            ));
        }
        text + "},}"
    }

    /// Validates the selector.
    ///
    /// # Errors
    /// Names the first invalid requirement.
    pub fn matcher(&self) -> Result<Matcher, InvalidSelector> {
        let mut requirements = Vec::with_capacity(self.match_expressions.len());
        for (key, value) in self.match_labels.iter() {
            check_key(key)?;
            check_value(value)?;
            requirements.push(Requirement::In(key.clone(), Box::new([value.clone()])));
        }
        for expression in &self.match_expressions {
            requirements.push(expression.requirement()?);
        }
        Ok(Matcher(requirements))
    }
}

impl Matcher {
    /// Validates one requirement.
    pub(crate) fn of_expression(expression: &Expression) -> Result<Self, InvalidSelector> {
        Ok(Self(vec![expression.requirement()?]))
    }

    /// Validates the requirements of a node selector, which also has the operators `Gt` and `Lt`.
    pub(crate) fn of_node_expressions(expressions: &[Expression]) -> Result<Self, InvalidSelector> {
        expressions.iter().map(Expression::node_requirement).collect::<Result<_, _>>().map(Self)
    }
}

impl Expression {
    fn node_requirement(&self) -> Result<Requirement, InvalidSelector> {
        let Self { key, operator, values } = self;
        let make = match operator.as_str() {
            "Gt" => Requirement::Above,
            "Lt" => Requirement::Below,
            _ => return self.requirement(),
        };
        check_key(key)?;
        match values.as_ref().iter().map(|value| value.parse().ok()).collect::<Vec<_>>()[..] {
            [Some(bound)] => Ok(make(key.clone(), bound)),
            _ => Err(InvalidSelector(format!("operator {operator:?} on label {key:?} needs one integer"))),
        }
    }

    fn requirement(&self) -> Result<Requirement, InvalidSelector> {
        let Self { key, operator, values } = self;
        check_key(key)?;
        values.iter().try_for_each(check_value)?;
        match (operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Requirement::In(key.clone(), values.clone())),
            ("NotIn", false) => Ok(Requirement::NotIn(key.clone(), values.clone())),
            ("Exists", true) => Ok(Requirement::Exists(key.clone())),
            ("DoesNotExist", true) => Ok(Requirement::DoesNotExist(key.clone())),
            ("In" | "NotIn", true) => Err(InvalidSelector(format!(
                "operator {operator:?} on label {key:?} needs at least one value"
            ))),
            ("Exists" | "DoesNotExist", false) => {
                Err(InvalidSelector(format!("operator {operator:?} on label {key:?} takes no values")))
            }
            _ => Err(InvalidSelector(format!("{operator:?} is not a valid label selector operator"))),
        }
    }
}

impl Matcher {
    /// Whether the labels satisfy every requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.value(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.value(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.value(key).is_some(),
            Requirement::DoesNotExist(key) => labels.value(key).is_none(),
            Requirement::Above(key, bound) => number(labels, key).is_some_and(|number| number > *bound),
            Requirement::Below(key, bound) => number(labels, key).is_some_and(|number| number < *bound),
        })
    }
}

fn number(labels: &Labels, key: &str) -> Option<i64> {
    labels.value(key)?.parse().ok()
}

/// A label key is a name of at most 63 characters, with an optional DNS prefix before a slash.
fn check_key(key: &InternedStr) -> Result<(), InvalidSelector> {
    let (prefix, name) =
        key.split_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
    let prefix_is_good = prefix.is_none_or(|prefix| {
        (1..=253).contains(&prefix.len())
            && prefix.split('.').all(|part| {
                edges(part, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                    && part
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            })
    });
    if prefix_is_good && !name.is_empty() && is_label_name(name) {
        Ok(())
    } else {
        Err(InvalidSelector(format!("{key:?} is not a valid label key")))
    }
}

fn check_value(value: &InternedStr) -> Result<(), InvalidSelector> {
    if value.is_empty() || is_label_name(value) {
        Ok(())
    } else {
        Err(InvalidSelector(format!("{value:?} is not a valid label value")))
    }
}

fn is_label_name(text: &str) -> bool {
    text.len() <= 63
        && edges(text, |byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether a text is not empty and its first and last byte satisfy `wanted`.
fn edges(text: &str, wanted: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last)) if wanted(first) && wanted(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (InternedStr::from(*key), InternedStr::from(*value))).collect()
    }

    fn matches(selector: &str, pairs: &[(&str, &str)]) -> bool {
        let selector: LabelSelector = serde_json::from_str(selector).unwrap();
        selector.matcher().unwrap().matches(&labels(pairs))
    }

    #[test]
    fn each_operator_matches_as_documented() {
        let web = [("app", "web"), ("tier", "front")];
        assert!(matches(r#"{}"#, &web));
        assert!(matches(r#"{"matchLabels":{"app":"web","tier":"front"}}"#, &web));
        assert!(!matches(r#"{"matchLabels":{"app":"web","tier":"back"}}"#, &web));
        let expression = |operator: &str, values: &str| {
            format!(r#"{{"matchExpressions":[{{"key":"app","operator":"{operator}","values":{values}}}]}}"#)
        };
        assert!(matches(&expression("In", r#"["web","db"]"#), &web));
        assert!(!matches(&expression("In", r#"["db"]"#), &web));
        assert!(!matches(&expression("NotIn", r#"["web"]"#), &web));
        assert!(matches(&expression("NotIn", r#"["web"]"#), &[]));
        assert!(matches(&expression("Exists", "[]"), &web));
        assert!(!matches(&expression("Exists", "null"), &[]));
        assert!(matches(&expression("DoesNotExist", "[]"), &[]));
    }

    #[test]
    fn a_selector_prints_like_the_go_type() {
        let selector: LabelSelector = serde_json::from_str(
            r#"{"matchLabels":{"b":"2","a":"1"},
                "matchExpressions":[{"key":"k","operator":"In","values":["x","y"]},{"key":"n","operator":"Exists"}]}"#,
        )
        .unwrap();
        assert_eq!(
            selector.go_string(),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},\
             LabelSelectorRequirement{Key:n,Operator:Exists,Values:[],},},}"
        );
        assert_eq!(
            LabelSelector::default().go_string(),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}"
        );
    }

    #[test]
    fn errors_name_the_invalid_requirement() {
        for (selector, message) in [
            (r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#, "needs at least one value"),
            (r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]}"#, "takes no values"),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"Near"}]}"#,
                "not a valid label selector operator",
            ),
            (r#"{"matchLabels":{"a b":"c"}}"#, "not a valid label key"),
            (r#"{"matchLabels":{"UP/a":"c"}}"#, "not a valid label key"),
            (r#"{"matchLabels":{"/a":"c"}}"#, "not a valid label key"),
            (r#"{"matchLabels":{"a":"-c"}}"#, "not a valid label value"),
        ] {
            let selector: LabelSelector = serde_json::from_str(selector).unwrap();
            let error = selector.matcher().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
