//! The same flags give the same `/configz`, `/flagz` and gates as recorded from the original.

mod common;

use std::collections::BTreeMap;

use common::{print, recorded, run};
use keleustes_options::flags;
use serde::Deserialize;
use serde_json::Value;

/// `/configz`, `/flagz` and `/metrics` of the original, v1.37.1, started with these flags.
#[derive(Deserialize)]
struct Recording {
    args: Vec<String>,
    configz: Value,
    flags: BTreeMap<String, String>,
    /// Stage and 0 or 1, by name.
    gates: BTreeMap<String, (String, u8)>,
    /// Labels of the metric.
    version_info: Vec<String>,
}

const GROUP: &str = "kubecontrollermanager.config.k8s.io";
const NAMES: [&str; 6] = ["plain", "kubeadm", "emulating", "beta-off", "alpha-on", "every-kind"];

fn recordings() -> impl Iterator<Item = (&'static str, Recording)> {
    NAMES.into_iter().map(|name| {
        (name, serde_json::from_str(&recorded(&format!("{name}.json"))).expect("a recording is JSON"))
    })
}

fn options_of(recording: &Recording) -> keleustes_options::Options {
    run(&recording.args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Sorts the list whose order is that of a hash map in the original.
fn sorted(mut configz: Value) -> Value {
    let ignored = &mut configz[GROUP]["GarbageCollectorController"]["GCIgnoredResources"];
    ignored.as_array_mut().expect("a list of resources").sort_by_key(ToString::to_string);
    configz
}

/// Proves OPT-2, OPT-4, OPT-33, OPT-45, OPT-90, OPT-91, OPT-92, OPT-93.
#[test]
fn configz_equals_the_original() {
    for (name, recording) in recordings() {
        let options = options_of(&recording);
        let (ours, mut theirs) = (sorted(options.configz()), sorted(recording.configz));
        if options.client.throttle.is_none() && options.client.qps > 0.0 {
            // The only difference: without a flag there is no rate limit here.
            theirs[GROUP]["Generic"]["ClientConnection"]["qps"] = (-1).into();
        }
        for (section, value) in theirs[GROUP].as_object().expect("an object") {
            assert_eq!(&ours[GROUP][section], value, "{name}: {section}");
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Proves OPT-10, OPT-102.
#[test]
fn flagz_equals_the_original() {
    for (name, recording) in recordings() {
        let options = options_of(&recording);
        assert_eq!(options.flagz(), recording.flags, "{name}");
        let page = options.flagz_text("=");
        for (flag, value) in &recording.flags {
            assert!(page.contains(&format!("\n{flag}={value}\n")), "{name}: {flag}");
        }
        assert!(page.starts_with(
            "\nkube-controller-manager flagz\nWarning: This endpoint is not meant to be machine"
        ));
    }
}

/// Proves OPT-74, OPT-76, OPT-77.
#[test]
fn gates_and_versions_equal_the_original() {
    for (name, recording) in recordings() {
        let options = options_of(&recording);
        let ours: BTreeMap<_, _> = options
            .gates
            .all()
            .map(|gate| (gate.name.to_owned(), (gate.stage.name().to_owned(), u8::from(gate.enabled))))
            .collect();
        assert_eq!(ours, recording.gates, "{name}");
        let versions = options.versions;
        let binary = options.reported_version.trim_start_matches('v').to_owned();
        let info = format!(
            "binary=\"{binary}\",component=\"kube\",emulation=\"{}\",min_compat=\"{}\"",
            versions.emulation, versions.min_compatibility
        );
        assert_eq!([info], recording.version_info[..], "{name}");
    }
}

/// Proves OPT-10, OPT-11, OPT-14.
#[test]
fn the_list_of_flags_equals_the_original() {
    let shown = |text: &str| if matches!(text, "" | "[]") { String::new() } else { text.to_owned() };
    let theirs: Vec<_> = recorded("flags.tsv")
        .lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<_> = line.split('\t').collect();
            let deprecated = columns.get(4).is_some_and(|text| !text.is_empty());
            (
                columns[0].to_owned(),
                columns[1].to_owned(),
                columns[2].to_owned(),
                shown(columns.get(3).unwrap_or(&"")),
                deprecated,
            )
        })
        .collect();
    let help = print(&["--help"]);
    let ours: Vec<_> = flags::GROUPS
        .iter()
        .flat_map(|group| group.flags.iter().map(move |flag| (group.title, flag)))
        .map(|(group, flag)| {
            let kind = if flag.default.type_name().is_empty() { "bool" } else { flag.default.type_name() };
            let starts = |line: &&str| line.trim_start().starts_with(&format!("--{} ", flag.name));
            let line = help.lines().find(starts).unwrap_or_default();
            let default = line.split_once(" (default ").and_then(|(_, rest)| rest.split_once(')'));
            let default = default.map_or(String::new(), |(default, _)| default.to_owned());
            (group.to_owned(), flag.name.to_owned(), kind.to_owned(), default, flag.deprecated.is_some())
        })
        .collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!((ours.len(), theirs.len()), (150, 150));
}
