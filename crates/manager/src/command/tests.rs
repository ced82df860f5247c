//! The packaged manifests start the program as kubeadm starts the original.

use serde_json::Value;

use super::*;

const MANIFEST: &str = include_str!("../../../../packaging/kubeadm/kube-controller-manager.yaml");
const UNIT: &str = include_str!("../../../../packaging/systemd/kube-controller-manager.service");
const SHADOW: &str = include_str!("../../../../packaging/shadow/shadow.yaml");

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
    let settings = ["LimitCORE=1", "UMask=0077", "ProtectProc=invisible", "SystemCallFilter=@system-service"];
    for setting in settings {
        assert!(UNIT.lines().any(|line| line == setting), "{setting} is missing");
    }
}

#[test]
fn packaged_shadow_may_only_read() {
    let objects = SHADOW.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let objects: Vec<_> = objects.collect();
    let of_kind = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
    let roles = of_kind("ClusterRole");
    let rules: Vec<_> = roles.iter().flat_map(|role| role["rules"].as_array().unwrap()).collect();
    let verbs: Vec<_> = rules.iter().flat_map(|rule| rule["verbs"].as_array().unwrap()).collect();
    assert_eq!(verbs, ["get", "list", "watch"]);
    let bound: Vec<_> =
        of_kind("ClusterRoleBinding").iter().map(|one| one["roleRef"]["name"].clone()).collect();
    assert_eq!(bound, ["keleustes-shadow", "system:auth-delegator"]);
    let container = &of_kind("Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    let command: Vec<String> = serde_json::from_value(container["command"].clone()).unwrap();
    let options = read(command[1..].iter().map(Into::into)).unwrap();
    assert!(options.debugging.shadow && options.warnings.is_empty(), "{:?}", options.warnings);
    assert_eq!(container["ports"][0]["containerPort"], options.serving.secure_port);
}

#[test]
fn journal_has_four_mebibytes_by_default_and_a_flag() {
    let bytes = |args: &[&str]| {
        read(args.iter().map(Into::into)).map(|options| options.debugging.decision_journal_bytes)
    };
    assert_eq!(bytes(&[]).ok(), Some(keleustes_runtime::journal::BYTES_MAX_DEFAULT));
    assert_eq!(bytes(&[]).ok(), Some(4 * 1024 * 1024));
    assert_eq!(bytes(&["--decision-journal-bytes=65536"]).ok(), Some(65536));
}

#[test]
fn shadow_holds_no_lease_and_creates_no_tokens() {
    let flags =
        ["--shadow", "--use-service-account-credentials", "--feature-gates=CoordinatedLeaderElection=true"];
    let options = read(flags.iter().map(Into::into)).unwrap();
    assert!(options.leader_election.leader_elect, "the default");
    assert!(crate::run::election_config(&options, "me").is_none());
    assert!(!crate::process_context::client_options(&options).use_service_account_credentials);
    assert_eq!(crate::run::shadow_window(&options), Some(std::time::Duration::from_secs(30)));
    assert!(read(["--shadow-window=0s"].iter().map(Into::into)).is_err());
}

#[test]
fn version_names_the_platform_that_the_program_was_built_for() {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let wanted = format!("{}/{arch}", std::env::consts::OS);
    with_context(|known| assert_eq!(known.build.platform, wanted));
}
