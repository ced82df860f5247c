//! Normalizes responses: removes what differs between any two processes.

use std::collections::{BTreeMap, BTreeSet};

use super::client::{TestRequest, TestResponse};

/// Metrics of this crate; the others belong to other crates.
const METRIC_PREFIXES: [&str; 11] = [
    "apiserver_client_certificate_",
    "apiserver_delegated_",
    "authenticated_user_requests",
    "authentication_",
    "authorization_",
    "disabled_metrics_total",
    "hidden_metrics_total",
    "kubernetes_build_info",
    "process_",
    "registered_metrics_total",
    "version_info",
];

pub(crate) fn normalize(
    test_request: &TestRequest,
    mut response: TestResponse,
    flags: &BTreeMap<String, String>,
) -> TestResponse {
    // Bodies with process-specific values differ in length, too.
    response.headers.remove("content-length");
    if response.status == 200 {
        response.body = match test_request.target.split('?').next().unwrap_or_default() {
            "/metrics" => families(&response.body),
            "/metrics/slis" => without_values(&response.body),
            "/statusz" => statusz(&response.body),
            "/flagz" => flagz(&response.body, flags),
            "/configz" => json(&response.body),
            _ => response.body,
        };
    }
    response
}

/// Name, type and labels of every metric of this crate.
fn families(text: &str) -> String {
    let mut families = BTreeMap::<String, BTreeSet<String>>::new();
    let mut types = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (name, labels) =
                line.split_once('{').unwrap_or((line.split(' ').next().unwrap_or_default(), ""));
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix).filter(|name| types.contains_key(*name)));
            let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
            let labels = labels.map(|(name, _)| name.to_owned()).filter(|name| name != "le");
            families.entry(family.unwrap_or(name).to_owned()).or_default().extend(labels);
        }
    }
    let our_server =
        families.iter().filter(|(name, _)| METRIC_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    let line = |(name, labels): (&String, &BTreeSet<String>)| {
        let labels: Vec<_> = labels.iter().cloned().collect();
        format!("{name} {} {}\n", types.get(name).map_or("?", String::as_str), labels.join(","))
    };
    our_server.map(line).collect()
}

fn without_values(text: &str) -> String {
    let samples = text.lines().filter(|line| !line.starts_with("# HELP"));
    samples.map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name).to_owned() + "\n").collect()
}

/// Removes times, the language and the separator.
fn statusz(text: &str) -> String {
    if text.starts_with(['{', 'a']) {
        let words = ["startTime", "uptimeSeconds", "goVersion"];
        let parts = text.split_inclusive(['\n', ',']);
        return parts.filter(|part| !words.iter().any(|word| part.contains(word))).collect();
    }
    let values = [("Started", ""), ("Up", ""), ("Go version", "")];
    let line = |line: &str| {
        let without_value =
            values.iter().find(|(name, _)| line.starts_with(name)).map(|(name, _)| (*name).to_owned());
        let names = ["Binary version", "Emulation version", "Paths"];
        let separated = || {
            let name = names.iter().find(|name| line.starts_with(**name))?;
            Some(format!("{name}|{}", line[name.len()..].trim_start_matches([':', '=', ' '])))
        };
        without_value.or_else(separated).unwrap_or_else(|| line.to_owned()) + "\n"
    };
    text.lines().map(line).collect()
}

/// Replaces the random separator.
fn flagz(text: &str, flags: &BTreeMap<String, String>) -> String {
    if text.starts_with(['{', 'a']) {
        return text.to_owned();
    }
    let line = |line: &str| {
        let mut flag = flags.iter().filter(|(name, value)| {
            line.strip_prefix(name.as_str())
                .and_then(|rest| rest.strip_suffix(value.as_str()))
                .is_some_and(|separator| [":", ": ", "=", " "].contains(&separator))
        });
        flag.next_back().map_or_else(|| line.to_owned(), |(name, value)| format!("{name}|{value}")) + "\n"
    };
    text.split('\n').map(line).collect()
}

/// Sorts the keys.
fn json(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .map_or_else(|_| text.to_owned(), |value| value.to_string())
}
