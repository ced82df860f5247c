//! Texts, their syntax trees and their syntax errors.

use super::*;
use crate::macros::STANDARD;

fn parsed(text: &str) -> String {
    let source = Source::new(text);
    match parse(&source, STANDARD) {
        Ok(expr) => shown(&expr),
        Err(issues) => issues.display(&source),
    }
}

/// Functions with their arguments, and the offset of each node.
fn shown(expr: &Expr) -> String {
    let at = expr.offset;
    match &expr.kind {
        ExprKind::Literal(literal) => format!("{literal:?}@{at}"),
        ExprKind::Ident(name) => format!("{name}@{at}"),
        ExprKind::Select(select) => format!("{}.{}@{at}", shown(&select.operand), select.field),
        ExprKind::Call(call) => {
            let parts: Vec<String> = call.target.iter().chain(&call.args).map(shown).collect();
            format!("{}@{at}({})", call.function, parts.join(", "))
        }
        ExprKind::Struct(built) => format!("{}@{at}", built.type_name),
        other => format!("{}@{at}", format!("{other:?}").split('(').next().unwrap_or_default()),
    }
}

#[test]
fn operators_bind_as_the_grammar_says() {
    assert_eq!(parsed("a+b*c"), "_+_@1(a@0, _*_@3(b@2, c@4))");
    assert_eq!(parsed("a-b-c"), "_-_@3(_-_@1(a@0, b@2), c@4)");
    assert_eq!(parsed("a<b==c"), "_==_@3(_<_@1(a@0, b@2), c@5)");
    assert_eq!(parsed("a?b:c?d:e"), "_?_:_@1(a@0, b@2, _?_:_@5(c@4, d@6, e@8))");
    assert_eq!(parsed("a in b"), "@in@2(a@0, b@5)");
}

#[test]
fn chains_of_logical_operators_are_balanced() {
    assert_eq!(parsed("a&&b&&c&&d"), "_&&_@4(_&&_@1(a@0, b@3), _&&_@7(c@6, d@9))");
    assert_eq!(parsed("a||b||c"), "_||_@4(_||_@1(a@0, b@3), c@6)");
}

#[test]
fn signs_belong_to_numbers_and_pairs_cancel() {
    assert_eq!(parsed("-1"), "Int(-1)@0");
    assert_eq!(parsed("--1"), "Int(1)@2");
    assert_eq!(parsed("a - -1"), "_-_@2(a@0, Int(-1)@4)");
    assert_eq!(parsed("-a"), "-_@0(a@1)");
    assert_eq!(parsed("!!a"), "a@2");
    assert_eq!(parsed("-9223372036854775808"), "Int(-9223372036854775808)@0");
}

#[test]
fn members_are_placed_at_their_operators() {
    assert_eq!(parsed("a.b.c(d)[0]"), "_[_]@8(c@5(a@0.b@1, d@6), Int(0)@9)");
    assert_eq!(parsed("a.?b"), "_?._@1(a@0, String(\"b\")@3)");
    assert_eq!(parsed("a[?b]"), "_[?_]@1(a@0, b@3)");
    assert_eq!(parsed("a.`b-c`"), "a@0.b-c@1");
    assert_eq!(parsed(".a.b{c: d}"), ".a.b@4");
    assert_eq!(
        parsed("f(a,)").lines().next(),
        Some(&*format!("ERROR: <input>:1:5: Syntax error: mismatched input ')' expecting {BEGINNINGS}"))
    );
    assert_eq!(parsed("[a,]"), "List@0");
    assert_eq!(parsed("{,}"), "Map@0");
}

#[test]
fn wrong_names_and_literals_are_reported() {
    let first = |text: &str| parsed(text).lines().next().unwrap_or_default().to_owned();
    assert_eq!(first("a + for"), "ERROR: <input>:1:5: reserved identifier: for");
    assert_eq!(first("9223372036854775808"), "ERROR: <input>:1:1: invalid int literal");
    assert_eq!(first("99999999999999999999u"), "ERROR: <input>:1:1: invalid uint literal");
    assert_eq!(first("1e999"), "ERROR: <input>:1:1: invalid double literal");
    assert_eq!(first("has(a)"), "ERROR: <input>:1:5: invalid argument to has() macro");
    assert_eq!(first("a.all(b.c, d)"), "ERROR: <input>:1:8: argument must be a simple name");
    assert_eq!(first("a.map(1, d)"), "ERROR: <input>:1:7: argument is not an identifier");
    let overwrites = "ERROR: <input>:1:10: iteration variable overwrites accumulator variable";
    assert_eq!(first("a.filter(__result__, d)"), overwrites);
}

#[test]
fn syntax_errors_name_what_was_found() {
    let first = |text: &str| parsed(text).lines().next().unwrap_or_default().to_owned();
    assert_eq!(first("a b"), "ERROR: <input>:1:3: Syntax error: extraneous input 'b' expecting <EOF>");
    assert_eq!(first("(a"), "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'");
    assert_eq!(
        first("a.true"),
        "ERROR: <input>:1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"
    );
    // A sign belongs to a number, and `!` takes no other operator.
    for operand in ["\"b\"", "b'x'", "true", "1u", "a"] {
        let error = format!("ERROR: <input>:1:3: Syntax error: no viable alternative at input '-{operand}'");
        assert_eq!(first(&format!("!-{operand}")), error);
    }
    assert_eq!(parsed("!-1"), "!_@0(Int(-1)@1)");
}

/// Proves VAPS-109.
#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(parsed(&nested(249)), "a@249");
    assert_eq!(parsed(&nested(250)), "ERROR: <input>:-1:0: expression recursion limit exceeded: 250");
    assert_eq!(
        parsed(&format!("a{}", "+a".repeat(250))),
        "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
    );
    let long = "a".repeat(CODE_POINTS_MAX + 1);
    let limit = "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000";
    assert_eq!(parsed(&long), limit);
}
