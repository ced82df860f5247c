//! Content negotiation by the `Accept` header.

use http::HeaderMap;
use http::header::ACCEPT;

/// The supported media types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Yaml,
    Text,
}

/// The parameters of a media type in the `Accept` header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Group, version and kind (`g`, `v`, `as`) to convert to.
    pub(super) kind: Option<(String, String, String)>,
    pub(super) pretty: bool,
    /// Requests a stream or server version, which are not supported.
    pub(super) impossible: bool,
}

/// The negotiated media type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) format: Format,
    pub(super) wanted: Wanted,
}

/// One media range of an `Accept` header.
struct Clause {
    main: String,
    sub: String,
    quality: f32,
    wanted: Wanted,
}

impl Wanted {
    /// Whether no conversion is requested.
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

/// The client's preferred media type among those `offered`; `None` if it accepts none of them. Without a
/// header the first one is used.
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

/// The media ranges of a header, preferred ones first.
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
    fn preferred_supported_media_type_is_chosen() {
        let offered = [Format::Json, Format::Yaml, Format::Text];
        let negotiated = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, header.parse().unwrap());
            // Like the pages: text without conversion, JSON and YAML only with.
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
            assert_eq!(negotiated(header), wanted, "{header}");
        }
        assert_eq!(accept(&HeaderMap::new(), &offered, |_, _| false).unwrap().format, Format::Json);
    }
}
