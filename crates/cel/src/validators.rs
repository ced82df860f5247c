//! Checks of literals in an expression whose types are right.

use crate::ast::{Call, Expr, ExprKind, Literal, NodeId};
use crate::checker::Checked;
use crate::format_strings;
use crate::issues::Issues;
use crate::types::Type;
use crate::{regexp, times};

/// Literals of mixed types, and arguments that would fail when the expression is evaluated.
pub(crate) fn validate(checked: &Checked) -> Issues {
    let mut found = Found { checked, issues: Issues::default() };
    let mut nodes = Vec::new();
    collect(&checked.expr, false, &mut nodes);
    // In the order of cel-go: it decides which of two errors at one place comes first.
    nodes.iter().filter(|(_, exempt)| !exempt).for_each(|(expr, _)| found.list(expr));
    nodes.iter().filter(|(_, exempt)| !exempt).for_each(|(expr, _)| found.map(expr));
    for (function, is_valid) in ARGUMENTS {
        nodes.iter().for_each(|(expr, _)| found.argument(expr, function, is_valid));
    }
    for (expr, _) in &nodes {
        if let Err((id, message)) = format_strings::check(expr, checked) {
            let offset = offset_of(expr, id);
            found.issues.report(offset, message);
        }
    }
    found.issues
}

type IsValid = fn(&Literal) -> bool;

/// Functions whose first argument, if it is a literal, must be valid.
const ARGUMENTS: [(&str, IsValid); 3] =
    [("duration", is_duration), ("timestamp", is_timestamp), ("matches", is_pattern)];

fn is_duration(literal: &Literal) -> bool {
    matches!(literal, Literal::String(text) if times::is_duration(text))
}

fn is_timestamp(literal: &Literal) -> bool {
    match literal {
        Literal::String(text) => times::is_timestamp(text),
        Literal::Int(second) => times::is_timestamp_second(*second),
        _ => false,
    }
}

fn is_pattern(literal: &Literal) -> bool {
    matches!(literal, Literal::String(text) if regexp::is_valid(text))
}

/// All nodes, parents first, and whether they are part of a call of `format`.
fn collect<'a>(expr: &'a Expr, exempt: bool, nodes: &mut Vec<(&'a Expr, bool)>) {
    nodes.push((expr, exempt));
    let exempt = exempt || matches!(&expr.kind, ExprKind::Call(call) if call.function == "format");
    expr.children().into_iter().for_each(|child| collect(child, exempt, nodes));
}

fn offset_of(expr: &Expr, id: NodeId) -> usize {
    fn find(expr: &Expr, id: NodeId) -> Option<usize> {
        if expr.id == id {
            return Some(expr.offset);
        }
        expr.children().into_iter().find_map(|child| find(child, id))
    }
    find(expr, id).unwrap_or(expr.offset)
}

struct Found<'a> {
    checked: &'a Checked,
    issues: Issues,
}

impl Found<'_> {
    fn type_of(&self, expr: &Expr, optional: bool) -> Type {
        let found = self.checked.type_of(expr.id);
        if optional { found.unwrap_optional().0.clone() } else { found }
    }

    fn mismatch(&mut self, at: &Expr, expected: &Type, found: &Type) {
        self.issues.report(at.offset, format!("expected type '{expected}' but found '{found}'"));
    }

    fn list(&mut self, expr: &Expr) {
        let ExprKind::List(list) = &expr.kind else { return };
        let mut expected = None;
        for (index, element) in list.elements.iter().enumerate() {
            let found = self.type_of(element, list.optional.contains(&index));
            match &expected {
                None => expected = Some(found),
                Some(expected) if expected.is_equivalent(&found) => {}
                Some(expected) => return self.mismatch(element, expected, &found),
            }
        }
    }

    fn map(&mut self, expr: &Expr) {
        let ExprKind::Map(entries) = &expr.kind else { return };
        let mut expected: Option<(Type, Type)> = None;
        for entry in entries {
            let (key, value) = (self.type_of(&entry.key, false), self.type_of(&entry.value, entry.optional));
            let Some((keys, values)) = &expected else {
                expected = Some((key, value));
                continue;
            };
            if !keys.is_equivalent(&key) {
                self.mismatch(&entry.key, keys, &key);
            }
            if !values.is_equivalent(&value) {
                self.mismatch(&entry.value, values, &value);
            }
        }
    }

    fn argument(&mut self, expr: &Expr, function: &str, is_valid: IsValid) {
        if let ExprKind::Call(call) = &expr.kind
            && call.function == function
            && let Some((argument, literal)) = first_literal(call)
            && !is_valid(literal)
        {
            self.issues.report(argument.offset, format!("invalid {function} argument"));
        }
    }
}

fn first_literal(call: &Call) -> Option<(&Expr, &Literal)> {
    let argument = call.args.first()?;
    match &argument.kind {
        ExprKind::Literal(literal) => Some((argument, literal)),
        _ => None,
    }
}
