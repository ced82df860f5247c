//! The packaged manifests start the program as kubeadm starts the original.

use serde_json::Value;

use super::*;

const MANIFEST: &str = include_str!("../../../../packaging/kubeadm/kube-controller-manager.yaml");
const UNIT: &str = include_str!("../../../../packaging/systemd/kube-controller-manager.service");

/// The flags of kubeadm's manifest.
fn flags_of_the_manifest() -> Vec<String> {
    let pod: Value = serde_saphyr::from_str(MANIFEST).unwrap();
    let container = &pod["spec"]["containers"][0];
    let command: Vec<String> = serde_json::from_value(container["command"].clone()).unwrap();
    assert_eq!(command[0], "kube-controller-manager");
    command[1..].to_vec()
}

fn flags_of_the_unit() -> Vec<String> {
    let start = UNIT.split_once("ExecStart=").unwrap().1;
    let lines = start.lines().take_while(|line| !line.starts_with(['#', '[']));
    lines
        .flat_map(|line| line.split_whitespace())
        .skip(1)
        .filter(|word| *word != "\\")
        .map(str::to_owned)
        .collect()
}

#[test]
fn flags_of_a_kubeadm_manifest_are_accepted() {
    let flags = flags_of_the_manifest();
    assert_eq!(flags.len(), 18);
    let options = read(flags.into_iter().map(Into::into)).unwrap();
    assert!(options.notices.is_empty() && options.warnings.is_empty(), "{:?}", options.warnings);
    assert!(options.leader_election.leader_elect && options.cloud.use_service_account_credentials);
    assert!(options.generic.controllers.enables("bootstrap-signer-controller", false));
    assert_eq!(options.serving.secure_port, 10257);
    let pod: Value = serde_saphyr::from_str(MANIFEST).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], 10257);
    for (probe, path) in
        [("livenessProbe", "/healthz"), ("startupProbe", "/healthz"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"]["path"], path, "{probe}");
        assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"], "{probe}");
    }
}

#[test]
fn systemd_unit_has_the_flags_of_the_manifest() {
    let unit = flags_of_the_unit();
    assert_eq!(unit, flags_of_the_manifest());
}

#[test]
fn systemd_unit_protects_secrets_of_the_process() {
    let settings = ["LimitCORE=0", "UMask=0077", "ProtectProc=invisible", "SystemCallFilter=@system-service"];
    for setting in settings {
        assert!(UNIT.lines().any(|line| line == setting), "{setting} is missing");
    }
}
