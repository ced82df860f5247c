//! Parses label selectors; errors have kube-apiserver's wording.

use std::collections::BTreeSet;

use super::naming;

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelRequirement {
    pub(crate) key: String,
    pub(crate) rule: LabelRule,
}

/// The condition on the label's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabelRule {
    Exists,
    Missing,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

const OPERATORS: &[&str] = &["==", "!=", "=", "<", ">", "(", ")", ",", "!"];

/// Parses a selector.
pub(crate) fn parse(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut reading = Reading { tokens: tokens(text), at: 0 };
    let mut all = Vec::new();
    loop {
        let token = reading.peek();
        if token.is_end() {
            return Ok(all);
        }
        if !token.begins_requirement() {
            return Err(format!("found '{}', expected: !, identifier, or 'end of string'", token.0));
        }
        all.push(reading.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
        let token = reading.next();
        if token.is_end() {
            return Ok(all);
        }
        if token.0 != "," {
            return Err(format!("found '{}', expected: ',' or 'end of string'", token.0));
        }
        let after = reading.peek();
        if !after.begins_requirement() {
            return Err(format!("found '{}', expected: identifier after ','", after.0));
        }
    }
}

/// A token of the selector; the end is an empty token.
#[derive(Clone, Copy)]
struct Token<'a>(&'a str);

impl Token<'_> {
    fn is_end(self) -> bool {
        self.0.is_empty()
    }

    fn is_word(self) -> bool {
        !self.is_end() && !OPERATORS.contains(&self.0)
    }

    fn begins_requirement(self) -> bool {
        self.is_word() || self.0 == "!"
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
    while !rest.is_empty() {
        let sign = OPERATORS.iter().find(|sign| rest.starts_with(**sign)).map(|sign| sign.len());
        let ends = |c: char| " \t\r\n=!(),<>".contains(c);
        let length = sign.unwrap_or_else(|| rest.find(ends).unwrap_or(rest.len()));
        let (token, after) = rest.split_at(length);
        tokens.push(Token(token));
        rest = after.trim_start_matches([' ', '\t', '\r', '\n']);
    }
    tokens
}

struct Reading<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Reading<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token(""))
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut token = self.next();
        let missing = token.0 == "!";
        if missing {
            token = self.next();
        }
        if !token.is_word() {
            return Err(format!("found '{}', expected: identifier", token.0));
        }
        let errors = naming::qualified(token.0);
        if !errors.is_empty() {
            return Err(format!("<nil>: Invalid value: {:?}: {}", token.0, errors.join("; ")));
        }
        let key = token.0.to_owned();
        let after = self.peek();
        let rule = if missing {
            LabelRule::Missing
        } else if after.is_end() || after.0 == "," {
            LabelRule::Exists
        } else {
            self.rule(&key)?
        };
        Ok(LabelRequirement { key, rule })
    }

    fn rule(&mut self, key: &str) -> Result<LabelRule, String> {
        let operator = self.next().0;
        let values = match operator {
            "in" | "notin" => self.values()?,
            "=" | "==" | "!=" | "<" | ">" => BTreeSet::from([self.value()?]),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let mut errors = Vec::new();
        let mut number = 0;
        for (at, value) in values.iter().enumerate() {
            match value.parse() {
                Ok(parsed) => number = parsed,
                Err(_) if matches!(operator, "<" | ">") => errors.push(format!(
                    "values[{at}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                )),
                Err(_) => {}
            }
            let wrong = naming::label_value(value);
            if !wrong.is_empty() {
                errors.push(format!("values[{at}][{key}]: Invalid value: {value:?}: {}", wrong.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => {}
            [only] => return Err(only.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        Ok(match operator {
            "in" | "=" | "==" => LabelRule::In(values),
            "notin" | "!=" => LabelRule::NotIn(values),
            ">" => LabelRule::Above(number),
            _ => LabelRule::Below(number),
        })
    }

    /// The value of a comparison, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        let token = self.peek();
        if token.is_end() || token.0 == "," {
            return Ok(String::new());
        }
        self.at += 1;
        if token.is_word() {
            Ok(token.0.to_owned())
        } else {
            Err(format!("found '{}', expected: identifier", token.0))
        }
    }

    /// A list of values in parentheses.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let token = self.next();
        if token.0 != "(" {
            return Err(format!("found '{}' expected: '('", token.0));
        }
        let first = self.peek();
        if first.0 != ")" && first.0 != "," && !first.is_word() {
            return Err(format!("found '{}', expected: ',', ')' or identifier", first.0));
        }
        let mut values = BTreeSet::new();
        let mut expected = true;
        loop {
            let token = self.next();
            match token.0 {
                ")" => {
                    if expected {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                "," => {
                    if expected {
                        values.insert(String::new());
                    }
                    expected = true;
                }
                word if token.is_word() && expected => {
                    values.insert(word.to_owned());
                    expected = false;
                    let after = self.peek();
                    if after.0 != "," && after.0 != ")" {
                        return Err(format!("found '{}', expected: ',' or ')'", after.0));
                    }
                }
                other => return Err(format!("found '{other}', expected: ',', or identifier")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_name_the_token_found() {
        for (text, complaint) in [
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a ~ b", "unable to parse requirement: found '~', expected: in, notin, =, ==, !=, gt, lt"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
                 an integer",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), complaint, "{text}");
        }
    }

    #[test]
    fn value_sets_may_be_empty() {
        let values = |text: &str| match &parse(text).unwrap()[0].rule {
            LabelRule::In(values) => values.iter().cloned().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(values("a in (b,,c)"), ["", "b", "c"]);
        assert_eq!(values("a in ()"), [""]);
        assert_eq!(values("in in (in)"), ["in"]);
    }
}
