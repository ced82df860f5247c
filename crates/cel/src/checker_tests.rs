//! Expressions and the types and errors that the checker gives them.

use crate::kubernetes::environment;
use crate::{Source, Type};

/// The type of an expression, or its errors without the source.
fn checked(text: &str) -> String {
    let mut environment = environment();
    environment.add_variable("i", Type::Int);
    environment.add_variable("s", Type::String);
    environment.add_variable("d", Type::Dyn);
    environment.add_variable("m", Type::map(Type::String, Type::Int));
    environment.add_variable("o", Type::optional(Type::list(Type::Int)));
    let source = Source::new(text);
    match environment.compile(&source) {
        Ok(checked) => checked.output_type().to_string(),
        Err(issues) => {
            let lines = issues.display(&source);
            let errors = lines.lines().filter_map(|line| line.strip_prefix("ERROR: <input>:"));
            errors.collect::<Vec<_>>().join("; ")
        }
    }
}

fn check_all(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(checked(text), *expected, "{text}");
    }
}

#[test]
fn overloads_give_types() {
    check_all(&[
        ("i + 1", "int"),
        ("i < 1.5", "bool"),
        ("i == 1.5", "1:3: found no matching overload for '_==_' applied to '(int, double)'"),
        ("s.size()", "int"),
        ("s.size(1)", "1:7: found no matching overload for 'size' applied to 'string.(int)'"),
        ("nope(s)", "1:5: undeclared reference to 'nope' (in container '')"),
        ("s.nope()", "1:7: undeclared reference to 'nope' (in container '')"),
        ("d + 1", "int"),
        ("d + d", "dyn"),
        ("type(s)", "type(string)"),
        ("i && true", "1:1: expected type 'bool' but found 'int'"),
        ("[] && true", "1:1: expected type 'bool' but found 'list(_var0)'"),
        ("true ? 1 : 's'", "1:6: found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        ("[1] + ['a']", "1:5: found no matching overload for '_+_' applied to '(list(int), list(string))'"),
        ("sets.contains([1], [2])", "bool"),
        ("ip.isCanonical('1')", "bool"),
        ("quantity('1').add(1).isGreaterThan(quantity('2'))", "bool"),
    ]);
}

#[test]
fn selections_give_types() {
    check_all(&[
        ("m.a + 1", "int"),
        ("has(m.a)", "bool"),
        ("i.a", "1:2: type 'int' does not support field selection"),
        ("d.a.b", "dyn"),
        ("o[0]", "optional_type(int)"),
        ("o.a", "1:2: type 'list(int)' does not support field selection"),
        ("m.?a", "optional_type(int)"),
        ("m[?'a'].orValue(1)", "int"),
        ("quantity('1').x", "1:14: unexpected failed resolution of 'kubernetes.Quantity'"),
        ("nope.a", "1:1: undeclared reference to 'nope' (in container '')"),
        (
            "kubernetes.UserInfo{uid: 1}",
            "1:24: expected type of field 'uid' is 'string' but provided type is 'int'",
        ),
        ("kubernetes.UserInfo{nope: 1}", "1:25: undefined field 'nope'"),
        ("string{}", "1:7: 'string' is not a message type"),
        ("google.protobuf.Int64Value{value: 1}", "wrapper(int)"),
    ]);
}

#[test]
fn comprehensions_give_types() {
    check_all(&[
        ("[1].all(x, x > 0)", "bool"),
        ("[1].all(x, x)", "1:12: expected type 'bool' but found 'int'"),
        (
            "[1].filter(x, x)",
            "1:11: found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'",
        ),
        ("m.map(k, m[k])", "list(int)"),
        ("[1].map(x, x > 1, string(x))", "list(string)"),
        ("m.transformMap(k, v, string(v))", "map(string, string)"),
        ("[1].transformList(i, v, i + v)", "list(int)"),
        ("[1].exists_one(i, v, i == v)", "bool"),
        (
            "s.all(x, true)",
            "1:1: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("o.optMap(x, x.size())", "optional_type(int)"),
        ("o.optFlatMap(x, x[?0])", "optional_type(int)"),
        ("['b', 'a'].sortBy(x, x.size())", "list(string)"),
        (
            "[1].existsOne(x, true)",
            "1:14: undeclared reference to 'existsOne' (in container ''); 1:15: undeclared reference to 'x' (in container '')",
        ),
        ("[[1]].all(i, i.all(s, s > 0))", "bool"),
    ]);
}

#[test]
fn literals_are_validated_when_types_are_right() {
    check_all(&[
        ("[1, 'a']", "1:5: expected type 'int' but found 'string'"),
        (
            "{'a': 1, 1: 'a'}",
            "1:10: expected type 'string' but found 'int'; 1:13: expected type 'int' but found 'string'",
        ),
        (
            "'%s %d'.format([1, 'a'])",
            "1:20: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s'.format([1, 'a'])", "1:12: too many arguments supplied to string.format (expected 1, got 2)"),
        ("'%s %s'.format([1])", "1:15: index 1 out of range"),
        ("'%'.format([1])", "1:11: unexpected end of string"),
        ("'%y'.format([1])", "1:12: could not parse formatting clause: unrecognized formatting clause \"y\""),
        (
            "'%s'.format([quantity('1')])",
            "1:22: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity",
        ),
        ("duration('1d')", "1:10: invalid duration argument"),
        ("timestamp('x')", "1:11: invalid timestamp argument"),
        ("s.matches('(')", "1:11: invalid matches argument"),
        ("matches('(', '(')", "1:9: invalid matches argument"),
        (
            "s.matches('(') && i == 's'",
            "1:21: found no matching overload for '_==_' applied to '(int, string)'",
        ),
    ]);
}
