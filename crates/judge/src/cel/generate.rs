//! Generates policies: collected expressions, changed ones, and expressions that are made from the grammar.

use fastrand::Rng;
use serde_json::{Value, json};

use super::setup::{RESOURCES, Setup};

/// Functions that are called on a receiver, of all libraries.
const MEMBERS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "getFullYear",
    "getHours",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "format",
    "join",
    "isSorted",
    "min",
    "max",
    "sum",
    "includes",
    "slice",
    "flatten",
    "sort",
    "reverse",
    "distinct",
    "find",
    "findAll",
    "getScheme",
    "getQuery",
    "isGreaterThan",
    "compareTo",
    "add",
    "sub",
    "asInteger",
    "major",
    "family",
    "containsIP",
    "containsCIDR",
    "ip",
    "masked",
    "prefixLength",
    "validate",
    "hasValue",
    "value",
    "or",
    "orValue",
    "first",
    "last",
    "unwrapOpt",
    "group",
    "resource",
    "check",
    "allowed",
    "path",
    "name",
    "namespace",
    "nope",
];
const FUNCTIONS: &[&str] = &[
    "size",
    "type",
    "dyn",
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "string",
    "timestamp",
    "uint",
    "matches",
    "quantity",
    "isQuantity",
    "sign",
    "semver",
    "isSemver",
    "url",
    "isURL",
    "ip",
    "isIP",
    "ip.isCanonical",
    "cidr",
    "isCIDR",
    "format.named",
    "format.uri",
    "sets.contains",
    "sets.intersects",
    "lists.range",
    "strings.quote",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "optional.unwrap",
    "nope",
    "has",
];
const BINARY: &[&str] =
    &["+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "in", "&&", "||", "==", "==", "&&", "&&"];
const LITERALS: &[&str] = &[
    "1",
    "0",
    "-3",
    "42u",
    "1.5",
    "'a'",
    "\"b\"",
    "''",
    "b'x'",
    "true",
    "false",
    "null",
    "[]",
    "{}",
    "[1, 2]",
    "['a', 'b']",
    "[1, 'a']",
    "[[1], [2]]",
    "{'a': 1}",
    "{'a': 1, 'b': 'c'}",
    "{1: 'a', 'b': 2}",
    "duration('1h')",
    "duration('1d')",
    "timestamp('2024-01-01T00:00:00Z')",
    "timestamp('2024')",
    "quantity('1Gi')",
    "semver('1.2.3')",
    "ip('10.0.0.1')",
    "cidr('10.0.0.0/8')",
    "url('https://example.com')",
    "optional.of(1)",
    "optional.none()",
    "int",
    "string",
    "list",
    "type(1)",
    "kubernetes.UserInfo{}",
    "kubernetes.UserInfo{uid: 1}",
    "'é'",
    "0x1F",
    "dyn(1)",
    "google.protobuf.Int64Value{value: 1}",
    "google.protobuf.Timestamp{}",
    "'%s %d'.format(['a', 1])",
    "format.uri()",
    "'%d'.format(['a'])",
    "'a'.matches('(')",
    "'a'.matches('a+')",
    "optional_type",
    "net.IP",
    "string{}",
    "duration{}",
];
const ROOTS: &[&str] = &[
    "request.userInfo.username",
    "request.userInfo.groups",
    "request.userInfo.extra",
    "request.kind",
    "request.name",
    "request.dryRun",
    "request.options",
    "request.nope",
    "namespaceObject.metadata.labels",
    "namespaceObject.spec",
    "namespaceObject.status.conditions",
    "namespaceObject.metadata.creationTimestamp",
    "namespaceObject.metadata.uid",
    "authorizer",
    "authorizer.group('').resource('pods')",
    "authorizer.requestResource",
    "variables.first",
    "variables.second",
    "variables.third",
    "variables.nope",
    "nope",
    "params",
    "request",
    "object",
    "oldObject",
];

pub(super) struct Generator<'a> {
    setup: &'a Setup,
    collected: &'a [String],
}

impl<'a> Generator<'a> {
    pub(super) fn new(setup: &'a Setup, collected: &'a [String]) -> Self {
        Self { setup, collected }
    }

    /// The policy with this number. Every second one has a collected expression, until there are no more.
    pub(super) fn policy(&self, rng: &mut Rng, number: usize) -> Value {
        let row = RESOURCES[rng.usize(..RESOURCES.len())];
        let mut expression = match self.collected.get(number / 2).filter(|_| number.is_multiple_of(2)) {
            Some(collected) => collected.clone(),
            None if rng.u8(..4) == 0 && !self.collected.is_empty() => self.changed(rng),
            None => self.expression(rng, &mut Scope::new(row), 4),
        };
        if rng.u8(..30) == 0 {
            expression = expression.replacen(' ', "\n\t", 1);
        }
        let mut validation = json!({ "expression": expression });
        if rng.u8(..5) == 0 {
            validation["messageExpression"] = json!(self.expression(rng, &mut Scope::new(row), 2));
        }
        let mut spec =
            json!({"validations": [validation], "matchConstraints": {"resourceRules": self.rules(rng, row)}});
        if rng.bool() {
            let names = ["first", "second", "third"];
            let variables = names.map(
                |name| json!({"name": name, "expression": self.expression(rng, &mut Scope::new(row), 2)}),
            );
            spec["variables"] = json!(variables);
        }
        if rng.bool() {
            let (group, version, .., kind) = RESOURCES[rng.usize(..RESOURCES.len())];
            let api_version =
                if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            spec["paramKind"] = json!({"apiVersion": api_version, "kind": kind});
            if rng.u8(..20) == 0 {
                spec["paramKind"]["apiVersion"] = json!("a/b/c");
            }
        }
        json!({"metadata": {"name": format!("policy-{number}")}, "spec": spec})
    }

    fn rules(&self, rng: &mut Rng, row: (&str, &str, &str, &str, &str)) -> Value {
        let (group, version, plural, singular, _) = row;
        let mut rules = vec![json!({"apiGroups": [group], "apiVersions": [version], "resources": [plural]})];
        match rng.u8(..16) {
            0 => rules[0]["resources"] = json!([singular, "pods/status", "*"]),
            1 => rules[0]["resources"] = json!([plural.to_uppercase()]),
            2 => {
                let other = RESOURCES[rng.usize(..RESOURCES.len())];
                rules.push(json!({"apiGroups": [other.0], "apiVersions": [other.1], "resources": [other.2]}));
            }
            3 => rules[0]["apiGroups"] = json!([group, "", "nope"]),
            4 if rng.u8(..4) == 0 => {
                let all: Vec<&str> = RESOURCES.iter().map(|row| row.2).collect();
                rules[0] = json!({"apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": all});
            }
            5 if rng.u8(..4) == 0 => rules[0]["apiVersions"] = json!([version, "*"]),
            _ => {}
        }
        Value::from(rules)
    }

    /// A collected expression with a part of it replaced, left out or doubled.
    fn changed(&self, rng: &mut Rng) -> String {
        let Some(original) = rng.choice(self.collected) else { return String::new() };
        let words: Vec<&str> = split_words(original);
        let at = rng.usize(..words.len().max(1));
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if words.is_empty() {
            return "true".to_owned();
        }
        match rng.u8(..4) {
            0 => words[at] = (*rng.choice(LITERALS).unwrap_or(&"1")).to_owned(),
            1 => words[at] = (*rng.choice(BINARY).unwrap_or(&"+")).to_owned(),
            2 if words.len() > 1 => drop(words.remove(at)),
            _ => words[at] = (*rng.choice(ROOTS).unwrap_or(&"object")).to_owned(),
        }
        words.concat()
    }

    fn expression(&self, rng: &mut Rng, scope: &mut Scope, depth: u8) -> String {
        if depth == 0 {
            return self.leaf(rng, scope);
        }
        let deeper = depth - 1;
        match rng.u8(..20) {
            0..=4 => {
                let operator = rng.choice(BINARY).unwrap_or(&"+");
                let (left, right) =
                    (self.expression(rng, scope, deeper), self.expression(rng, scope, deeper));
                format!("{} {operator} {}", wrapped(&left), wrapped(&right))
            }
            5 => format!("!{}", wrapped(&self.expression(rng, scope, deeper))),
            6 => format!("-{}", wrapped(&self.expression(rng, scope, deeper))),
            7 => {
                let parts: Vec<String> =
                    (0..3).map(|_| wrapped(&self.expression(rng, scope, deeper))).collect();
                format!("{} ? {} : {}", parts[0], parts[1], parts[2])
            }
            8 | 9 => {
                let function = rng.choice(FUNCTIONS).unwrap_or(&"size");
                format!("{function}({})", self.arguments(rng, scope, deeper))
            }
            10 | 11 => {
                let (receiver, member) =
                    (self.expression(rng, scope, deeper), rng.choice(MEMBERS).unwrap_or(&"size"));
                format!("{}.{member}({})", wrapped(&receiver), self.arguments(rng, scope, deeper))
            }
            12..=14 => self.macro_call(rng, scope, deeper),
            15 => format!("has({})", self.path(rng, scope)),
            16 => {
                let (operand, index) = (self.expression(rng, scope, deeper), self.expression(rng, scope, 0));
                let optional = if rng.bool() { "?" } else { "" };
                format!("{}[{optional}{index}]", wrapped(&operand))
            }
            17 => {
                let elements: Vec<String> =
                    (0..rng.u8(..4)).map(|_| self.expression(rng, scope, deeper)).collect();
                format!("[{}]", elements.join(", "))
            }
            18 => {
                let key = self.expression(rng, scope, 0);
                format!("{{{key}: {}, 'x': {}}}", self.expression(rng, scope, deeper), self.leaf(rng, scope))
            }
            _ => self.path(rng, scope),
        }
    }

    fn arguments(&self, rng: &mut Rng, scope: &mut Scope, depth: u8) -> String {
        let count = [0, 1, 1, 1, 2, 3][rng.usize(..6)];
        let arguments: Vec<String> = (0..count).map(|_| self.expression(rng, scope, depth)).collect();
        arguments.join(", ")
    }

    fn macro_call(&self, rng: &mut Rng, scope: &mut Scope, depth: u8) -> String {
        let range = if rng.bool() { self.path(rng, scope) } else { self.expression(rng, scope, depth) };
        let range = wrapped(&range);
        let (one, other) = (scope.new_variable(), scope.new_variable());
        let mut body = |rng: &mut Rng| {
            scope.variables.extend([one.clone(), other.clone()]);
            let body = self.expression(rng, scope, depth);
            scope.variables.truncate(scope.variables.len() - 2);
            body
        };
        let (first, second) = (body(rng), body(rng));
        match rng.u8(..15) {
            0 | 1 => format!("{range}.all({one}, {first})"),
            2 | 3 => format!("{range}.exists({one}, {first})"),
            4 => format!("{range}.exists_one({one}, {first})"),
            5 => format!("{range}.map({one}, {first})"),
            6 => format!("{range}.map({one}, {first}, {second})"),
            7 => format!("{range}.filter({one}, {first})"),
            8 => format!("{range}.all({one}, {other}, {first})"),
            9 => format!("{range}.transformList({one}, {other}, {first}, {second})"),
            10 => format!("{range}.transformMap({one}, {other}, {first})"),
            11 => format!("{range}.transformMapEntry({one}, {other}, {{{one}: {first}}})"),
            12 => format!("{range}.optMap({one}, {first})"),
            13 => format!("{range}.optFlatMap({one}, {first})"),
            _ => format!("{range}.sortBy({one}, {first})"),
        }
    }

    fn leaf(&self, rng: &mut Rng, scope: &Scope) -> String {
        match rng.u8(..8) {
            0..=2 => (*rng.choice(LITERALS).unwrap_or(&"1")).to_owned(),
            3 => (*rng.choice(ROOTS).unwrap_or(&"request")).to_owned(),
            4 | 5 if !scope.variables.is_empty() => rng.choice(&scope.variables).cloned().unwrap_or_default(),
            _ => self.path(rng, scope),
        }
    }

    /// A path through the fields of the object, sometimes wrong.
    fn path(&self, rng: &mut Rng, scope: &Scope) -> String {
        let (group, version, .., kind) = scope.row;
        let mut path =
            (*rng.choice(&["object", "object", "object", "oldObject"]).unwrap_or(&"object")).to_owned();
        let Some(mut schema) = self.setup.schema(group, version, kind) else {
            return format!("{path}.metadata.name");
        };
        if rng.u8(..8) == 0 {
            path.push_str(".metadata");
        }
        for _ in 0..rng.u8(1..6) {
            if rng.u8(..25) == 0 {
                path.push_str([".nope", ".?nope", "[0]", ".`a-b`", "['a']"][rng.usize(..5)]);
                return path;
            }
            schema = self.setup.resolve(schema);
            if schema["items"].is_object() {
                schema = &schema["items"];
                path.push_str(if rng.u8(..4) == 0 { "[?0]" } else { "[0]" });
                continue;
            }
            if schema["additionalProperties"].is_object() {
                schema = &schema["additionalProperties"];
                path.push_str("['a']");
                continue;
            }
            let Some(fields) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) else {
                break;
            };
            let Some((name, next)) = fields.iter().nth(rng.usize(..fields.len())) else { break };
            path.push_str(if rng.u8(..10) == 0 { ".?" } else { "." });
            path.push_str(&escaped(rng, name));
            schema = next;
        }
        path
    }
}

/// The field as an identifier, or in backquotes.
fn escaped(rng: &mut Rng, name: &str) -> String {
    let plain = name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    if !plain && rng.bool() {
        return format!("`{name}`");
    }
    let name = name.replace("__", "__underscores__").replace('-', "__dash__").replace('.', "__dot__");
    let name = name.replace('/', "__slash__").replace(' ', "_");
    if rng.u8(..4) == 0 && ["namespace", "if", "in"].contains(&name.as_str()) {
        return format!("__{name}__");
    }
    name.trim_start_matches(|one: char| one.is_ascii_digit()).to_owned()
}

fn wrapped(text: &str) -> String {
    if text.contains(' ') && !text.ends_with(')') { format!("({text})") } else { text.to_owned() }
}

/// Words and the characters between them.
fn split_words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut was_word) = (Vec::new(), 0, false);
    for (at, one) in text.char_indices() {
        let is_word = one.is_ascii_alphanumeric() || one == '_';
        if at > start && !(is_word && was_word) {
            words.push(&text[start..at]);
            start = at;
        }
        was_word = is_word;
    }
    words.push(&text[start..]);
    words
}

/// The kind and the variables of comprehensions around an expression.
struct Scope {
    row: (&'static str, &'static str, &'static str, &'static str, &'static str),
    variables: Vec<String>,
    made: usize,
}

impl Scope {
    fn new(row: (&'static str, &'static str, &'static str, &'static str, &'static str)) -> Self {
        Self { row, variables: Vec::new(), made: 0 }
    }

    fn new_variable(&mut self) -> String {
        self.made += 1;
        format!("v{}", self.made)
    }
}
