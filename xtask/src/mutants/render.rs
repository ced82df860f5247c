//! Writes source files in which the environment decides which mutant is active.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use super::{Change, Mutant};

/// Reads the number of the active mutant once; every crate root gets it.
pub(super) const SWITCH: &str = r#"
#[allow(warnings, clippy::all)]
pub(crate) fn mutant_is(number: u32) -> bool {
    static ACTIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ACTIVE.get_or_init(|| std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)) == number
}
"#;

/// The text of a file with its mutants, each behind a check of its number.
pub(super) fn render(text: &str, mutants: &BTreeMap<usize, &Mutant>) -> String {
    render_range(text, 0..text.len(), mutants)
}

fn render_range(text: &str, range: Range<usize>, mutants: &BTreeMap<usize, &Mutant>) -> String {
    let inside = |mutant: &Mutant| range.start <= mutant.range.start && mutant.range.end <= range.end;
    let mut outermost: Vec<_> = mutants.iter().filter(|(_, mutant)| inside(mutant)).collect();
    outermost.sort_by_key(|(number, mutant)| (mutant.range.start, usize::MAX - mutant.range.end, **number));
    let (mut rendered, mut position) = (String::new(), range.start);
    let mut index = 0;
    while let Some((_, mutant)) = outermost.get(index) {
        if mutant.range.start >= position {
            // Several mutants of one range, such as the values of one function, are rendered together.
            let same: BTreeMap<usize, &Mutant> = outermost[index..]
                .iter()
                .take_while(|(_, other)| other.range == mutant.range)
                .map(|(number, mutant)| (**number, **mutant))
                .collect();
            let inner: BTreeMap<usize, &Mutant> = mutants
                .iter()
                .filter(|(number, _)| !same.contains_key(number))
                .map(|(number, mutant)| (*number, *mutant))
                .collect();
            rendered.push_str(&text[position..mutant.range.start]);
            rendered.push_str(&render_mutants(text, &same, &inner));
            position = mutant.range.end;
        }
        index += 1;
    }
    rendered.push_str(&text[position..range.end]);
    rendered
}

fn render_mutants(text: &str, same: &BTreeMap<usize, &Mutant>, inner: &BTreeMap<usize, &Mutant>) -> String {
    let Some(range) = same.values().next().map(|mutant| mutant.range.clone()) else { return String::new() };
    let part = |range: &Range<usize>| render_range(text, range.clone(), inner);
    let is_body = same.values().all(|mutant| matches!(mutant.change, Change::Body { .. }));
    if is_body {
        let mut returns = String::new();
        for (number, mutant) in same {
            if let Change::Body { value, .. } = &mutant.change {
                let _ = write!(returns, " if crate::mutant_is({number}) {{ return {value}; }}");
            }
        }
        let whole = part(&(range.start + 1..range.end));
        return format!("{{{returns}{whole}");
    }
    let mut rendered = part(&range);
    for (number, mutant) in same {
        let changed = match &mutant.change {
            Change::Operator { left, right, to, .. } => format!("({}) {to} ({})", part(left), part(right)),
            Change::Not { operand } => part(operand),
            Change::Body { .. } => continue,
        };
        rendered = format!("(if crate::mutant_is({number}) {{ {changed} }} else {{ {rendered} }})");
    }
    rendered
}

#[cfg(test)]
mod tests {
    use super::super::find::mutants_of;
    use super::*;

    #[test]
    fn nested_mutants_are_all_rendered() {
        let text = "fn f(a: u8) -> bool { a < 2 && !g(a) }\n";
        let found = mutants_of("a.rs", text).unwrap();
        let numbered = found.iter().enumerate().collect();
        let rendered = render(text, &numbered);
        assert!(syn::parse_file(&rendered).is_ok(), "{rendered}");
        for number in 0..found.len() {
            assert!(rendered.contains(&format!("crate::mutant_is({number})")), "{number}: {rendered}");
        }
    }
}
