//! Which form of a page a client takes, by its `Accept` header.

use http::HeaderMap;
use http::header::ACCEPT;

/// The forms there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Yaml,
    Text,
}

/// What a client wants beyond a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Group, version and kind (`g`, `v`, `as`) to be converted to.
    pub(super) kind: Option<(String, String, String)>,
    pub(super) pretty: bool,
    /// Asks for a stream or a server's version, of which there are none.
    pub(super) impossible: bool,
}

/// The form that was agreed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) format: Format,
    pub(super) wanted: Wanted,
}

/// One range of an `Accept` header.
struct Clause {
    main: String,
    sub: String,
    quality: f32,
    wanted: Wanted,
}

impl Wanted {
    /// Whether a form without conversion will do.
    pub(super) fn is_plain(&self) -> bool {
        self.kind.is_none()
    }
}

impl Format {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("application", "json"),
            Self::Yaml => ("application", "yaml"),
            Self::Text => ("text", "plain"),
        }
    }
}

/// The best form for a client of those `offered`, best first; `None` if it takes none of them. Without a
/// header the first is taken.
///
/// Parity: staging/src/k8s.io/apiserver/pkg/endpoints/handlers/negotiation.
pub(super) fn accept(
    headers: &HeaderMap,
    offered: &[Format],
    allowed: impl Fn(Format, &Wanted) -> bool,
) -> Option<Accepted> {
    let header = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header.is_empty() {
        return offered.first().map(|format| Accepted { format: *format, wanted: Wanted::default() });
    }
    for clause in clauses(header) {
        for format in offered {
            let (main, sub) = format.names();
            let fits = (clause.main == "*" && clause.sub == "*")
                || (clause.main == main && (clause.sub == sub || clause.sub == "*"));
            if fits && !clause.wanted.impossible && allowed(*format, &clause.wanted) {
                return Some(Accepted { format: *format, wanted: clause.wanted });
            }
        }
    }
    None
}

/// The ranges of a header, preferred ones first.
fn clauses(header: &str) -> Vec<Clause> {
    let mut clauses: Vec<_> = header.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| {
        let vague = |clause: &Clause| (clause.main == "*", clause.sub == "*");
        b.quality.total_cmp(&a.quality).then_with(|| vague(a).cmp(&vague(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause> {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next()?;
    let (main, sub) = if range == "*" { ("*", "*") } else { range.split_once('/')? };
    let (mut quality, mut wanted) = (1.0, Wanted::default());
    let (mut group, mut version, mut kind) = (None, None, None);
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        let value = value.trim().to_owned();
        match name.trim() {
            "q" => quality = value.parse().unwrap_or(1.0),
            "g" => group = Some(value),
            "v" => version = Some(value),
            "as" => kind = Some(value),
            "pretty" => wanted.pretty = value == "1",
            "stream" | "sv" => wanted.impossible |= !value.is_empty(),
            _ => {}
        }
    }
    if group.is_some() || version.is_some() || kind.is_some() {
        wanted.kind = Some([group, version, kind].map(Option::unwrap_or_default).into());
    }
    Some(Clause { main: main.trim().to_owned(), sub: sub.trim().to_owned(), quality, wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_form_that_both_know_is_agreed_on() {
        let offered = [Format::Json, Format::Yaml, Format::Text];
        let ask = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, header.parse().unwrap());
            // As the pages do: text as it is, the others only converted.
            let accepted = accept(&headers, &offered, |format, wanted| match format {
                Format::Text => wanted.is_plain(),
                _ => !wanted.is_plain(),
            });
            accepted.map(|accepted| accepted.format)
        };
        for (header, wanted) in [
            ("text/plain", Some(Format::Text)),
            ("*/*", Some(Format::Text)),
            ("*", Some(Format::Text)),
            ("text/*", Some(Format::Text)),
            ("text/html,*/*;q=0.8", Some(Format::Text)),
            ("application/json", None),
            ("application/json, text/plain", Some(Format::Text)),
            ("application/json;as=X", Some(Format::Json)),
            ("application/*;as=X", Some(Format::Json)),
            ("*/*;as=X", Some(Format::Json)),
            ("application/yaml;as=X;q=0.5, application/json;as=X;q=0.4", Some(Format::Yaml)),
            ("text/plain;as=X", None),
            ("text/plain;stream=watch", None),
            ("garbage", None),
        ] {
            assert_eq!(ask(header), wanted, "{header}");
        }
        assert_eq!(accept(&HeaderMap::new(), &offered, |_, _| false).unwrap().format, Format::Json);
    }
}
