//! What is said without what no two clusters have in common: times, random names, addresses, and the width of columns.

use std::sync::LazyLock;

use crate::rules::{HASH, RANDOM, Rules, TIME, UID};

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    Rules::new(&[
        (r"/tmp/(LIVE|MERGED)-\d+", "/tmp/$1"),
        TIME,
        // Times as `describe` writes them, and ages of less than ten minutes.
        (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r"\b((1[01]\d|\d{1,2})s|[2-9]m(\d{1,2}s)?)\b", "AGE"),
        (r"<(unknown|invalid)>( ago)?", "AGE"),
        UID,
        (r#"("?resourceVersion"?: )"\d+""#, "${1}VERSION"),
        RANDOM,
        HASH,
        // The names of events end in the time.
        (r"\.[0-9a-f]{16}\b", ".EVENT"),
        (r"\b127\.0\.0\.1:\d+", "SERVER"),
        (r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS"),
        (r"\b3[0-2]\d{3}/TCP", "PORT/TCP"),
    ])
});

/// What kube-apiserver says of a new Service or does not, as its own watches happen to race.
const AT_TIMES: &[&str] = &[" ClusterIPNotAllocated ", " PortNotAllocated "];
/// How `describe` shows that nothing has happened.
const NO_EVENTS: &str = "Events: <none>";

/// The lines of a text, made plain.
pub(super) fn lines(text: &str) -> Vec<String> {
    let said: Vec<String> = text.lines().map(line).collect();
    let (at_times, mut lines): (Vec<_>, Vec<_>) =
        said.into_iter().partition(|line| AT_TIMES.iter().any(|reason| line.contains(reason)));
    // A table that held nothing else is what `describe` would not have shown.
    let is_head = |at: usize| lines.get(at).is_some_and(|line| line.trim_start().starts_with("----"));
    if !at_times.is_empty() && lines.len() >= 3 && is_head(lines.len() - 1) {
        lines.truncate(lines.len() - 3);
        lines.push(NO_EVENTS.to_owned());
    }
    lines
}

fn line(text: &str) -> String {
    let plain = RULES.plain(text);
    // Columns are as wide as what stands in them; the indentation of a line means something.
    let words = plain.trim_start();
    let mut shown = plain[..plain.len() - words.len()].to_owned();
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
    fn what_differs_between_any_two_clusters_is_replaced() {
        for (said, expected) in [
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
            assert_eq!(line(said), expected);
        }
    }

    #[test]
    fn events_that_come_or_do_not_are_left_out() {
        let table = "Name: galley\nEvents:\n  Type     Reason  Age  From  Message\n  ----     ------  ---  ----  -------\n";
        let repair = "  Warning  ClusterIPNotAllocated  5s  ipallocator-repair-controller  repairing\n";
        let other = "  Normal  Scaled  5s  somebody  more\n";
        assert_eq!(lines(&format!("{table}{repair}")), lines("Name: galley\nEvents:   <none>\n"));
        assert_eq!(lines(&format!("{table}{repair}{other}")), lines(&format!("{table}{other}")));
    }

    #[test]
    fn what_means_something_stays() {
        for said in
            ["cpu: 100m", "for 300s", "version v1.37.1", "    key: value", "hollow-0 Ready", "a: \"12\""]
        {
            assert_eq!(line(said), said);
        }
    }
}
