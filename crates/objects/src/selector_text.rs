//! Label selectors as text, as in query parameters and `status.selector` of a Scale: parsed with apimachinery's errors,
//! matched against labels, and written in canonical form.
//!
//! Parity: k8s.io/apimachinery/pkg/labels.

use std::fmt;

use crate::{LabelSelector, Labels};

/// A parsed selector: requirements sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSelector(Option<Vec<Requirement>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without duplicates.
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Above,
    Below,
    Exists,
    DoesNotExist,
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "<", ">", "(", ")", ",", "!"];

impl TextSelector {
    /// The selector that matches nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self(None)
    }

    /// Parses a selector; the empty text matches everything.
    ///
    /// # Errors
    /// apimachinery's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reading = Reading { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        loop {
            let token = reading.peek();
            if token.is_empty() {
                break;
            }
            if !begins_requirement(token) {
                return Err(format!("found '{token}', expected: !, identifier, or 'end of string'"));
            }
            let requirement =
                reading.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match reading.next() {
                "" => break,
                "," if begins_requirement(reading.peek()) => {}
                "," => return Err(format!("found '{}', expected: identifier after ','", reading.peek())),
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
        Ok(Self::sorted(requirements))
    }

    /// Parses a selector and keeps what a [`LabelSelector`] can say: the last of several values that one key must
    /// equal, and none of the operators of text alone.
    ///
    /// # Errors
    /// The message of `ParseToLabelSelector`.
    pub fn parse_as_label_selector(text: &str) -> Result<Self, String> {
        let parsed = Self::parse(text)
            .map_err(|why| format!("couldn't parse the selector string \"{text}\": {why}"))?;
        let mut requirements = parsed.0.unwrap_or_default();
        for requirement in &mut requirements {
            match requirement.operator {
                Operator::Equals | Operator::DoubleEquals => requirement.operator = Operator::Equals,
                Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
                Operator::Above => return Err("\"gt\" isn't supported in label selectors".to_owned()),
                Operator::Below => return Err("\"lt\" isn't supported in label selectors".to_owned()),
                Operator::NotEquals => {
                    return Err("\"!=\" is not a valid label selector operator".to_owned());
                }
            }
        }
        // Equal keys are neighbours. From the end, because the last value counts; in one pass, because a user decides how
        // many there are.
        let mut equal_key = None;
        let mut kept: Vec<_> = requirements
            .into_iter()
            .rev()
            .filter(|one| {
                let is_overridden = one.operator == Operator::Equals && equal_key.as_ref() == Some(&one.key);
                if one.operator == Operator::Equals {
                    equal_key = Some(one.key.clone());
                }
                !is_overridden
            })
            .collect();
        kept.reverse();
        Ok(Self(Some(kept)))
    }

    /// The selector of an object's field; an unset one matches nothing.
    ///
    /// # Errors
    /// The message of `LabelSelectorAsSelector`.
    pub fn of(selector: Option<&LabelSelector>) -> Result<Self, String> {
        let Some(selector) = selector else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels().iter() {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.to_string()])?);
        }
        for (key, operator, values) in selector.expressions() {
            let operator = match operator {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            requirements.push(Requirement::new(key, operator, values.map(str::to_owned).collect())?);
        }
        Ok(Self::sorted(requirements))
    }

    fn sorted(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Self(Some(requirements))
    }

    /// Whether the labels satisfy every requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.as_ref().is_some_and(|requirements| requirements.iter().all(|one| one.matches(labels)))
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let wrong = key_errors(key);
        if !wrong.is_empty() {
            errors.push(format!("key: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        let listed =
            || format!("[{}]", values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(","));
        match (operator, values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => errors.push(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                    .to_owned(),
            ),
            (Operator::Exists | Operator::DoesNotExist, false) => errors.push(format!(
                "values: Invalid value: {}: values set must be empty for exists and does not exist",
                listed()
            )),
            _ => {}
        }
        for (at, value) in values.iter().enumerate() {
            if matches!(operator, Operator::Above | Operator::Below) && value.parse::<i64>().is_err() {
                errors.push(format!(
                    "values[{at}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                ));
            }
            let wrong = value_errors(value);
            if !wrong.is_empty() {
                errors.push(format!("values[{at}][{key}]: Invalid value: {value:?}: {}", wrong.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => {}
            [only] => return Err(only.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        values.sort();
        values.dedup();
        Ok(Self { key: key.to_owned(), operator, values })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.value(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|one| *one == **value));
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = |wanted: std::cmp::Ordering| {
            let (found, bound) =
                (value.and_then(|value| number(value)), self.values.first().and_then(|one| number(one)));
            found.zip(bound).is_some_and(|(found, bound)| found.cmp(&bound) == wanted)
        };
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => is_listed(),
            Operator::NotEquals | Operator::NotIn => !is_listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Above => compared(std::cmp::Ordering::Greater),
            Operator::Below => compared(std::cmp::Ordering::Less),
        }
    }
}

/// The canonical form, which servers take as a query parameter. Empty for selectors that match everything or nothing.
impl fmt::Display for TextSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { key, operator, values }) in self.0.iter().flatten().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let values = values.join(",");
            match operator {
                Operator::Equals => write!(f, "{comma}{key}={values}"),
                Operator::DoubleEquals => write!(f, "{comma}{key}=={values}"),
                Operator::NotEquals => write!(f, "{comma}{key}!={values}"),
                Operator::In => write!(f, "{comma}{key} in ({values})"),
                Operator::NotIn => write!(f, "{comma}{key} notin ({values})"),
                Operator::Above => write!(f, "{comma}{key}>{values}"),
                Operator::Below => write!(f, "{comma}{key}<{values}"),
                Operator::Exists => write!(f, "{comma}{key}"),
                Operator::DoesNotExist => write!(f, "{comma}!{key}"),
            }?;
        }
        Ok(())
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !SIGNS.contains(&token)
}

fn begins_requirement(token: &str) -> bool {
    is_word(token) || token == "!"
}

fn tokens(text: &str) -> Vec<&str> {
    const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(SPACE);
    while !rest.is_empty() {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).map(|sign| sign.len());
        let ends = |c: char| SPACE.contains(&c) || "=!(),<>".contains(c);
        let (token, after) = rest.split_at(sign.unwrap_or_else(|| rest.find(ends).unwrap_or(rest.len())));
        tokens.push(token);
        rest = after.trim_start_matches(SPACE);
    }
    tokens
}

struct Reading<'a> {
    tokens: Vec<&'a str>,
    at: usize,
}

impl<'a> Reading<'a> {
    /// The next token; empty at the end.
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut key = self.next();
        let is_missing = key == "!";
        if is_missing {
            key = self.next();
        }
        if !is_word(key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let wrong = key_errors(key);
        if !wrong.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        if is_missing {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        let after = self.peek();
        if after.is_empty() || after == "," {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            "=" => Operator::Equals,
            "==" => Operator::DoubleEquals,
            "!=" => Operator::NotEquals,
            ">" => Operator::Above,
            "<" => Operator::Below,
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    /// The value of a comparison, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        let token = self.peek();
        if token.is_empty() || token == "," {
            return Ok(String::new());
        }
        self.at += 1;
        if is_word(token) {
            Ok(token.to_owned())
        } else {
            Err(format!("found '{token}', expected: identifier"))
        }
    }

    /// A list of values in parentheses.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let token = self.next();
        if token != "(" {
            return Err(format!("found '{token}' expected: '('"));
        }
        let first = self.peek();
        if first != ")" && first != "," && !is_word(first) {
            return Err(format!("found '{first}', expected: ',', ')' or identifier"));
        }
        let (mut values, mut is_expected) = (Vec::new(), true);
        loop {
            match self.next() {
                sign @ (")" | ",") => {
                    if is_expected {
                        values.push(String::new());
                    }
                    if sign == ")" {
                        values.sort();
                        values.dedup();
                        return Ok(values);
                    }
                    is_expected = true;
                }
                word if is_word(word) && is_expected => {
                    values.push(word.to_owned());
                    is_expected = false;
                    let after = self.peek();
                    if after != "," && after != ")" {
                        return Err(format!("found '{after}', expected: ',' or ')'"));
                    }
                }
                other => return Err(format!("found '{other}', expected: ',', or identifier")),
            }
        }
    }
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                          and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                          '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                              '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                              for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn key_errors(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let (prefix, name) = match parts[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            let example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME_RULE} {example}")];
        }
    };
    let mut errors = Vec::new();
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > 253 {
                errors.push("prefix part must be no more than 253 characters".to_owned());
            }
            if !prefix.split('.').all(is_dns_label) {
                errors.push(format!("prefix part {SUBDOMAIN_RULE}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    errors
}

fn value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

fn is_name(text: &str) -> bool {
    has_edges(text, |byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_dns_label(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_edges(text, is_plain) && text.bytes().all(|byte| is_plain(byte) || byte == b'-')
}

fn has_edges(text: &str, wanted: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last)) if wanted(first) && wanted(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(json: serde_json::Value) -> Labels {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn text_that_no_label_selector_can_say_is_refused() {
        let parsed = |text| TextSelector::parse_as_label_selector(text).map(|selector| selector.to_string());
        for (text, canonical) in [
            ("", ""),
            ("b==2,a=1", "a=1,b=2"),
            ("a=1,a=2", "a=2"),
            ("a in (x),a=1,!b,c", "a in (x),a=1,!b,c"),
            ("a=", "a="),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(canonical), "{text}");
        }
        for (text, message) in [
            ("a!=1", "\"!=\" is not a valid label selector operator"),
            ("a>1", "\"gt\" isn't supported in label selectors"),
            ("b=1,a<1", "\"lt\" isn't supported in label selectors"),
            (
                "=x",
                "couldn't parse the selector string \"=x\": found '=', expected: !, identifier, or 'end of string'",
            ),
        ] {
            assert_eq!(parsed(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn last_of_several_values_of_a_key_counts_between_other_requirements() {
        let parsed = |text| TextSelector::parse_as_label_selector(text).unwrap().to_string();
        assert_eq!(parsed("a=1,a in (x),a=2,a,a=3,b=1"), "a in (x),a,a=3,b=1");
        assert_eq!(parsed("b=2,a=1,b=1"), "a=1,b=1");
    }

    /// A Deployment may have tens of thousands of labels, and its owner decides how many autoscalers it has. In quadratic
    /// time this takes ten minutes.
    #[test]
    fn selector_with_many_keys_is_parsed_in_linear_time() {
        let text: Vec<_> = (0..200_000).map(|n| format!("key-of-a-label-{n}=x")).collect();
        let text = text.join(",");
        let selector = TextSelector::parse_as_label_selector(&text).unwrap();
        assert_eq!(selector.to_string().len(), text.len());
    }

    #[test]
    fn selectors_match_and_have_a_canonical_form() {
        let web = labels(serde_json::json!({"app": "web", "n": "5"}));
        for (text, canonical, matches) in [
            ("", "", true),
            ("tier!=x, app = web", "app=web,tier!=x", true),
            ("app in (web,,db , web)", "app in (,db,web)", true),
            ("app==web,!x", "app==web,!x", true),
            ("app notin (web)", "app notin (web)", false),
            ("n>4,n<6,n", "n>4,n<6,n", true),
            ("n>5", "n>5", false),
            ("app=", "app=", false),
        ] {
            let selector = TextSelector::parse(text).unwrap();
            assert_eq!((&*selector.to_string(), selector.matches(&web)), (canonical, matches), "{text}");
        }
        assert!(!TextSelector::nothing().matches(&web) && TextSelector::nothing().to_string().is_empty());
    }

    #[test]
    fn errors_have_apimachinery_s_words() {
        for (text, error) in [
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a ~ b", "unable to parse requirement: found '~', expected: in, notin, =, ==, !=, gt, lt"),
        ] {
            assert_eq!(TextSelector::parse(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn label_selectors_of_objects_are_converted_and_printed_as_go_does() {
        let selector = |json: serde_json::Value| serde_json::from_value::<LabelSelector>(json).unwrap();
        let one = selector(serde_json::json!({"matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]}));
        assert_eq!(TextSelector::of(Some(&one)).unwrap().to_string(), "a=1,b=2,c in (x,y)");
        assert_eq!(
            one.go_text(),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:c,Operator:In,Values:[y x],},},}"
        );
        let bad = selector(serde_json::json!({"matchExpressions": [{"key": "c", "operator": "Near"}]}));
        assert_eq!(
            TextSelector::of(Some(&bad)).unwrap_err(),
            "\"Near\" is not a valid label selector operator"
        );
        let empty = selector(serde_json::json!({"matchExpressions": [{"key": "c", "operator": "In"}]}));
        assert!(TextSelector::of(Some(&empty)).unwrap_err().contains("values set can't be empty"));
        assert!(TextSelector::of(None).unwrap().to_string().is_empty());
    }
}
