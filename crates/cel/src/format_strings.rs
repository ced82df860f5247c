//! Checks the clauses of literal format strings against the arguments in a list literal.

use crate::ast::{Expr, ExprKind, Literal, NodeId};
use crate::checker::Checked;
use crate::types::Type;

type Wrong = (NodeId, String);

/// Checks one node, if it is a call of `format` on a literal with a list literal.
pub(crate) fn check(expr: &Expr, checked: &Checked) -> Result<(), Wrong> {
    let ExprKind::Call(call) = &expr.kind else { return Ok(()) };
    let (Some(target), [argument]) = (&call.target, call.args.as_slice()) else { return Ok(()) };
    let (ExprKind::Literal(Literal::String(text)), ExprKind::List(list)) = (&target.kind, &argument.kind)
    else {
        return Ok(());
    };
    if call.function != "format" {
        return Ok(());
    }
    let used = clauses(text.as_bytes(), &list.elements, expr.id, checked)?;
    if list.elements.len() > used {
        let message = format!(
            "too many arguments supplied to string.format (expected {used}, got {})",
            list.elements.len()
        );
        return Err((expr.id, message));
    }
    Ok(())
}

/// Checks all clauses; how many arguments they use.
fn clauses(text: &[u8], arguments: &[Expr], call: NodeId, checked: &Checked) -> Result<usize, Wrong> {
    let (mut at, mut used) = (0, 0);
    while at < text.len() {
        if text[at] != b'%' {
            at += 1;
            continue;
        }
        if text.get(at + 1) == Some(&b'%') {
            at += 2;
            continue;
        }
        let Some(rest) = text.get(at + 1..).filter(|rest| !rest.is_empty()) else {
            return Err((call, "unexpected end of string".to_owned()));
        };
        let Some(argument) = arguments.get(used) else {
            return Err((call, format!("index {used} out of range")));
        };
        at += 1 + clause(rest, argument, call, checked)?;
        used += 1;
    }
    Ok(used)
}

/// Checks the clause at the start of a text that follows a percent sign; how long it is.
fn clause(rest: &[u8], argument: &Expr, call: NodeId, checked: &Checked) -> Result<usize, Wrong> {
    let unreadable = |reason: String| (call, format!("could not parse formatting clause: {reason}"));
    let precision =
        precision(rest).map_err(|reason| unreadable(format!("error while parsing precision: {reason}")))?;
    let letter = rest.get(precision).copied().unwrap_or_default();
    let found = checked.type_of(argument.id);
    let (is_valid, wanted) = match letter {
        b's' => {
            if let Some(wrong) = unprintable(argument, checked) {
                let shown = checked.type_of(wrong).runtime_name();
                return Err((wrong, format!("error during formatting: {STRING_CLAUSE}, was given {shown}")));
            }
            return Ok(precision + 1);
        }
        b'd' => (is_integer(&found), "decimal clause can only be used on integers"),
        b'o' => (is_integer(&found), "octal clause can only be used on integers"),
        b'b' => (
            is_integer(&found) || matches!(found, Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        b'x' | b'X' => (
            is_integer(&found) || matches!(found, Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        b'f' => (is_double(&found), "fixed-point clause can only be used on doubles"),
        b'e' => (is_double(&found), "scientific clause can only be used on doubles"),
        other => {
            // The original shows bytes as Latin-1.
            return Err(unreadable(format!("unrecognized formatting clause \"{}\"", char::from(other))));
        }
    };
    if is_valid || matches!(found, Type::Dyn) {
        return Ok(precision + 1);
    }
    let message = format!("error during formatting: {wanted}, was given {}", found.runtime_name());
    Err((argument.id, message))
}

const STRING_CLAUSE: &str = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
    types, durations, and timestamps";

fn is_integer(found: &Type) -> bool {
    matches!(found, Type::Int | Type::Uint)
}

/// Strings may be "NaN" or "Infinity".
fn is_double(found: &Type) -> bool {
    matches!(found, Type::Double | Type::String)
}

/// How long a precision such as `.3` is.
fn precision(rest: &[u8]) -> Result<usize, String> {
    if rest.first() != Some(&b'.') {
        return Ok(0);
    }
    let digits = rest[1..].iter().take_while(|one| one.is_ascii_digit()).count();
    if 1 + digits >= rest.len() {
        return Err("could not find end of precision specifier".to_owned());
    }
    let text = String::from_utf8_lossy(&rest[1..=digits]);
    let refused = |reason: &str| {
        format!("error while converting precision to integer: strconv.Atoi: parsing \"{text}\": {reason}")
    };
    match text.parse::<i64>() {
        Ok(_) => Ok(1 + digits),
        Err(_) if text.is_empty() => Err(refused("invalid syntax")),
        Err(_) => Err(refused("value out of range")),
    }
}

/// The first part that has no text form.
fn unprintable(argument: &Expr, checked: &Checked) -> Option<NodeId> {
    let printable = match checked.type_of(argument.id) {
        Type::Opaque(..) | Type::Struct(_) | Type::Any | Type::Error => false,
        other => !other.is_parameter(),
    };
    if !printable {
        return Some(argument.id);
    }
    match &argument.kind {
        ExprKind::List(_) | ExprKind::Map(_) => {
            argument.children().into_iter().find_map(|child| unprintable(child, checked))
        }
        _ => None,
    }
}
