//! Alerts and dashboard name only metrics that the manager has, and the systemd unit protects what the process knows.

use std::collections::BTreeSet;

use xtask::workspace::Workspace;

const RULES: &str = "packaging/prometheus/rules.yaml";
const RULES_TEST: &str = "packaging/prometheus/rules-test.yaml";
const UNIT: &str = "packaging/systemd/kube-controller-manager.service";
const DASHBOARD: &str = "packaging/grafana/dashboard.json";

/// What Prometheus itself records about a scrape.
const OF_PROMETHEUS: &str = "up";

/// The metrics that are selected by `NAME{job=…`, as every expression of ours does.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let part_of_a_name = |character: &char| character.is_ascii_alphanumeric() || *character == '_';
    let name_before = |before: &str| before.chars().rev().take_while(part_of_a_name).collect::<Vec<_>>();
    let parts: Vec<_> = text.split("{job=").collect();
    parts[..parts.len() - 1].iter().map(|before| name_before(before).into_iter().rev().collect()).collect()
}

/// Every string in the code that could be the name of a metric.
fn names_in_the_code(workspace: &Workspace) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in workspace.rust_files().filter(|file| file.starts_with("crates/") && !file.contains("/tests"))
    {
        let text = workspace.read(file).expect("a readable source");
        names.extend(text.split('"').filter(|part| part.contains('_')).map(str::to_owned));
    }
    names
}

#[test]
fn alerts_and_dashboard_name_metrics_that_exist() {
    let workspace = Workspace::open().unwrap();
    let known = names_in_the_code(&workspace);
    for file in [RULES, RULES_TEST, DASHBOARD] {
        let metrics = metrics_in(&workspace.read(file).unwrap());
        assert!(metrics.len() >= 4, "{file} names no metrics: {metrics:?}");
        for metric in metrics.iter().filter(|metric| *metric != OF_PROMETHEUS) {
            // A histogram is written as three metrics.
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| metric.strip_suffix(suffix));
            let exists = known.contains(metric) || family.is_some_and(|family| known.contains(family));
            assert!(exists, "{file}: the manager has no metric {metric}");
        }
    }
}

/// Without a job in every selector the alerts would also look at other programs, and the test above would miss metrics.
#[test]
fn every_expression_selects_the_job() {
    let workspace = Workspace::open().unwrap();
    let rules = workspace.read(RULES).unwrap();
    let expressions = rules.split("expr:").skip(1);
    for expression in expressions.map(|text| text.split("labels:").next().unwrap_or_default()) {
        assert!(expression.contains("{job=\"kube-controller-manager\""), "{expression}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&workspace.read(DASHBOARD).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets: Vec<_> = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten().collect();
    assert!(targets.len() > 20, "{}", targets.len());
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        assert!(expression.contains("{job=\"kube-controller-manager\""), "{expression}");
    }
}

/// The process holds tokens and private keys, and needs few system calls.
#[test]
fn systemd_unit_keeps_secrets_out_of_files_and_restricts_the_process() {
    let unit = Workspace::open().unwrap().read(UNIT).unwrap();
    let service = unit.split("[Service]").nth(1).unwrap().split("[Install]").next().unwrap();
    let values = |setting: &str| -> Vec<&str> {
        service.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).collect()
    };
    for (setting, wanted) in [
        ("LimitCORE", vec!["1"]),
        ("UMask", vec!["0077"]),
        ("ProtectProc", vec!["invisible"]),
        ("SystemCallFilter", vec!["@system-service", "~@privileged @resources"]),
        ("NoNewPrivileges", vec!["yes"]),
        ("CapabilityBoundingSet", vec![""]),
    ] {
        assert_eq!(values(setting), wanted, "{setting}");
    }
}

#[test]
fn names_are_found_before_the_job() {
    let text = r#"sum(rate(a_total{job="x"}[5m])) / max(b_count{job="x"})"#;
    assert_eq!(metrics_in(text), BTreeSet::from(["a_total".to_owned(), "b_count".to_owned()]));
}
