//! kubectl output without values that differ between any two clusters: times, random names, addresses,
//! column widths.

use std::sync::LazyLock;

use crate::normalize::{HASH, Normalizer, RANDOM, TIME, UID};

static NORMALIZER: LazyLock<Normalizer> = LazyLock::new(|| {
    Normalizer::new(&[
        (r"/tmp/(LIVE|MERGED)-\d+", "/tmp/$1"),
        TIME,
        // Times as `describe` writes them, and ages of less than ten minutes.
        (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r"\b((1[01]\d|\d{1,2})s|[2-9]m(\d{1,2}s)?)\b", "AGE"),
        (r"<(unknown|invalid)>( ago)?", "AGE"),
        UID,
        (r#"("?resourceVersion"?: )"\d+""#, "${1}VERSION"),
        (r"(Resource Version:\s+)\d+", "${1}VERSION"),
        RANDOM,
        HASH,
        // The names of events end in the time.
        (r"\.[0-9a-f]{16}\b", ".EVENT"),
        (r"\b127\.0\.0\.1:\d+", "SERVER"),
        (r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS"),
        (r"\b3[0-2]\d{3}/TCP", "PORT/TCP"),
    ])
});

/// Events that kube-apiserver records for a new Service only sometimes, depending on a race of its own
/// watches.
const RACY_EVENTS: &[&str] = &[" ClusterIPNotAllocated ", " PortNotAllocated "];
/// How `describe` shows that there are no events.
const NO_EVENTS: &str = "Events: <none>";

/// The normalized lines of an output.
pub(super) fn lines(text: &str) -> Vec<String> {
    let all: Vec<String> = text.lines().map(line).collect();
    let (racy, mut lines): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|line| RACY_EVENTS.iter().any(|reason| line.contains(reason)));
    // If there was no other event, `describe` would not have shown the table.
    let is_head = |at: usize| lines.get(at).is_some_and(|line| line.trim_start().starts_with("----"));
    if !racy.is_empty() && lines.len() >= 3 && is_head(lines.len() - 1) {
        lines.truncate(lines.len() - 3);
        lines.push(NO_EVENTS.to_owned());
    }
    lines
}

fn line(text: &str) -> String {
    let normal = NORMALIZER.apply(text);
    // Column widths depend on the values; indentation is kept.
    let words = normal.trim_start();
    let mut shown = normal[..normal.len() - words.len()].to_owned();
    for (at, word) in words.split_whitespace().enumerate() {
        if at > 0 {
            shown.push(' ');
        }
        shown.push_str(word);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_between_clusters_are_replaced() {
        for (text, expected) in [
            ("oar   1/1   Running   0     12s", "oar 1/1 Running 0 AGE"),
            ("oar   1/1   Running   0     2m3s", "oar 1/1 Running 0 AGE"),
            ("  uid: 0d3e5a0c-8b1c-4d9e-9b0a-1d2c3b4a5f60", "  uid: UID"),
            ("    creationTimestamp: \"2026-01-02T03:04:05Z\"", "    creationTimestamp: \"TIME\""),
            ("Start Time:   Sat, 15 Nov 2025 11:00:00 +0000", "Start Time: TIME"),
            ("  resourceVersion: \"123\"", "  resourceVersion: VERSION"),
            ("IP:       10.128.0.7", "IP: ADDRESS"),
            ("rowers-6b7c9d5f4-x2b5c", "rowers-HASH-RANDOM"),
            ("oar.18a1b2c3d4e5f607  Normal", "oar.EVENT Normal"),
            ("is running at https://127.0.0.1:34567", "is running at https://SERVER"),
            ("--- /tmp/LIVE-245678924/v1.ConfigMap", "--- /tmp/LIVE/v1.ConfigMap"),
        ] {
            assert_eq!(line(text), expected);
        }
    }

    #[test]
    fn racy_events_are_left_out() {
        let table = "Name: galley\nEvents:\n  Type     Reason  Age  From  Message\n  ----     ------  ---  ----  -------\n";
        let repair = "  Warning  ClusterIPNotAllocated  5s  ipallocator-repair-controller  repairing\n";
        let other = "  Normal  Scaled  5s  scaler  more\n";
        assert_eq!(lines(&format!("{table}{repair}")), lines("Name: galley\nEvents:   <none>\n"));
        assert_eq!(lines(&format!("{table}{repair}{other}")), lines(&format!("{table}{other}")));
    }

    #[test]
    fn meaningful_values_are_kept() {
        for text in
            ["cpu: 100m", "for 300s", "version v1.37.1", "    key: value", "hollow-0 Ready", "a: \"12\""]
        {
            assert_eq!(line(text), text);
        }
    }
}
