//! What is left of an answer once all that differs between any two processes is taken out.

use std::collections::{BTreeMap, BTreeSet};

use super::client::{Answer, Question};

/// Metrics that serving itself counts; all others are other rooms' business.
const OURS: [&str; 11] = [
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

pub(crate) fn normal(question: &Question, mut answer: Answer, flags: &BTreeMap<String, String>) -> Answer {
    // Bodies that differ in what they tell of a process differ in length too.
    answer.headers.remove("content-length");
    if answer.status == 200 {
        answer.body = match question.target.split('?').next().unwrap_or_default() {
            "/metrics" => families(&answer.body),
            "/metrics/slis" => without_values(&answer.body),
            "/statusz" => statusz(&answer.body),
            "/flagz" => flagz(&answer.body, flags),
            "/configz" => json(&answer.body),
            _ => answer.body,
        };
    }
    answer
}

/// Name, type and labels of every metric that is serving's.
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
    let ours = families.iter().filter(|(name, _)| OURS.iter().any(|prefix| name.starts_with(prefix)));
    let line = |(name, labels): (&String, &BTreeSet<String>)| {
        let labels: Vec<_> = labels.iter().cloned().collect();
        format!("{name} {} {}\n", types.get(name).map_or("?", String::as_str), labels.join(","))
    };
    ours.map(line).collect()
}

fn without_values(text: &str) -> String {
    let samples = text.lines().filter(|line| !line.starts_with("# HELP"));
    samples.map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name).to_owned() + "\n").collect()
}

/// Takes times, the language and the separator out of it.
fn statusz(text: &str) -> String {
    if text.starts_with(['{', 'a']) {
        let words = ["startTime", "uptimeSeconds", "goVersion"];
        let parts = text.split_inclusive(['\n', ',']);
        return parts.filter(|part| !words.iter().any(|word| part.contains(word))).collect();
    }
    let values = [("Started", ""), ("Up", ""), ("Go version", "")];
    let line = |line: &str| {
        let normal =
            values.iter().find(|(name, _)| line.starts_with(name)).map(|(name, _)| (*name).to_owned());
        let names = ["Binary version", "Emulation version", "Paths"];
        let separated = || {
            let name = names.iter().find(|name| line.starts_with(**name))?;
            Some(format!("{name}|{}", line[name.len()..].trim_start_matches([':', '=', ' '])))
        };
        normal.or_else(separated).unwrap_or_else(|| line.to_owned()) + "\n"
    };
    text.lines().map(line).collect()
}

/// Takes the separator out of it.
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

/// Objects have no order.
fn json(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .map_or_else(|_| text.to_owned(), |value| value.to_string())
}
