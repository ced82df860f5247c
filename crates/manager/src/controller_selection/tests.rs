//! Which controllers are selected.

use std::sync::Arc;

use keleustes_test_log::TestLog;
use tracing::Level;

use super::*;
use crate::command;

fn options(args: &[&str]) -> Box<Options> {
    command::read(args.iter().map(Into::into)).unwrap()
}

fn with_key() -> ControllersOptions {
    let settings = keleustes_controllers::serviceaccount_token::ServiceAccountTokenOptions {
        sign: Arc::new(|_| Ok("token".to_owned())),
        ca: Vec::new().into(),
        workers: 1,
    };
    ControllersOptions { serviceaccount_token: Some(settings), ..ControllersOptions::default() }
}

fn names(selection: &ControllerSelection) -> Vec<&'static str> {
    selection.members.iter().map(|controller| controller.name).collect()
}

fn selected(options: &Options, settings: &ControllersOptions) -> ControllerSelection {
    ControllerSelection::choose(options, settings).unwrap()
}

const ACCOUNTS: &str = "serviceaccount-controller";

/// All implemented controllers but the first, without those that `--controllers` must name.
fn rest() -> Vec<&'static str> {
    let named_only = |name: &str| {
        UPSTREAM_CONTROLLERS
            .iter()
            .any(|known| known.name == name && known.default == names::DefaultState::Disabled)
    };
    let all = all_controllers(&ControllersOptions::default()).into_iter().map(|controller| controller.name);
    all.filter(|name| !named_only(name)).collect()
}

/// One that `--controllers` must name.
const NAMED_ONLY: &str = "selinux-warning-controller";

/// Proves RUN-50, RUN-51, OPT-38.
#[test]
fn token_controller_is_first_and_only_a_missing_key_disables_it() {
    let all = selected(&options(&[]), &with_key());
    assert_eq!(names(&all), [&[FIRST], &rest()[..]].concat());
    let others = selected(&options(&["--controllers=-serviceaccount-token"]), &with_key());
    assert_eq!(names(&others), [FIRST]);
    let (log, _listening) = TestLog::capture(Level::INFO);
    assert_eq!(names(&selected(&options(&[]), &ControllersOptions::default())), rest());
    assert_eq!(log.count(&["Warning: skipping controller", FIRST]), 1);
}

/// Proves GC-1.
#[test]
fn flag_disables_the_garbage_collector() {
    const COLLECTOR: &str = "garbage-collector-controller";
    let (log, _listening) = TestLog::capture(Level::INFO);
    let mut settings = ControllersOptions::default();
    assert!(names(&selected(&options(&[]), &settings)).contains(&COLLECTOR));
    assert_eq!(log.count(&["Warning: skipping controller", COLLECTOR]), 0);
    settings.garbage_collector.enabled = false;
    // The migrator refuses to run without it.
    let selection = selected(&options(&["--controllers=*,-storage-version-migrator-controller"]), &settings);
    assert!(!names(&selection).contains(&COLLECTOR) && !selection.missing.contains(&COLLECTOR));
    assert_eq!(log.count(&["Warning: skipping controller", COLLECTOR]), 1);
}

/// Proves RUN-52.
#[test]
fn log_names_disabled_controllers_with_the_reason() {
    let (log, _listening) = TestLog::capture(Level::INFO);
    let args = ["--controllers=*,-serviceaccount,selinux-warning-controller"];
    let selection = selected(&options(&args), &with_key());
    let others: Vec<_> = rest().into_iter().filter(|name| *name != ACCOUNTS).collect();
    assert_eq!(
        names(&selection).into_iter().filter(|name| *name != NAMED_ONLY).collect::<Vec<_>>(),
        [&[FIRST], &others[..]].concat()
    );
    assert!(names(&selection).contains(&NAMED_ONLY));
    let disabled = "Warning: controller is disabled";
    assert_eq!(log.count(&[disabled, "serviceaccount-controller"]), 1);
    assert_eq!(log.count(&[disabled, "token-cleaner-controller"]), 1);
    assert_eq!(log.count(&[disabled, "bootstrap-signer-controller"]), 1);
    assert_eq!(log.count(&[disabled, NAMED_ONLY]), 0);
    assert_eq!(log.count(&["Controller is disabled by a feature gate", "podgroup-protection-controller"]), 1);
    assert_eq!(log.count(&["not implemented yet and not running"]), 0);
    assert!(selection.missing.is_empty(), "{:?}", selection.missing);
}

#[test]
fn names_and_aliases_select_and_no_controller_is_missing() {
    let selection = |list: &str, settings: &ControllersOptions| {
        let selection = selected(&options(&[&format!("--controllers={list}")]), settings);
        (names(&selection), selection.missing)
    };
    let list = "serviceaccount,selinux-warning-controller,-cronjob-controller,*";
    let (members, missing) = selection(list, &with_key());
    assert!(members[0] == FIRST && members.contains(&ACCOUNTS));
    assert!(members.contains(&NAMED_ONLY) && missing.is_empty(), "{missing:?}");
    assert!(!members.contains(&"cronjob-controller") && !members.contains(&"token-cleaner-controller"));
    assert!(!members.contains(&"podgroup-protection-controller"), "its gate is off");
    assert_eq!(selection("serviceaccount", &ControllersOptions::default()), (vec![ACCOUNTS], vec![]));
}

/// Proves RUN-62, RUN-63.
#[test]
fn all_gates_of_a_controller_must_be_enabled() {
    let members = |gates: &str| {
        let settings = ControllersOptions { storageversion_garbage_collector: true, ..with_key() };
        names(&selected(&options(&[&format!("--feature-gates={gates}")]), &settings))
    };
    let two = "storageversion-garbage-collector-controller";
    assert!(!members("AllAlpha=false").contains(&two), "one of its gates is off by default");
    assert!(members("StorageVersionAPI=true").contains(&two));
    let migrator = "storage-version-migrator-controller";
    assert!(members("AllAlpha=false").contains(&migrator));
    assert!(!members("StorageVersionMigrator=false").contains(&migrator));
    assert!(!members("InformerResourceVersion=false").contains(&migrator));
    let running = |gates: &str| {
        let options = options(&[&format!("--feature-gates={gates}")]);
        let mut settings = with_key();
        settings.podgroup_protection.enable_generic_workload = options.gates.enabled("GenericWorkload");
        settings.resourcepoolstatusrequest.enabled = options.gates.enabled("DRAResourcePoolStatus");
        names(&selected(&options, &settings))
    };
    for (gate, controller) in [
        ("GenericWorkload", "podgroup-protection-controller"),
        ("DRAResourcePoolStatus", "resourcepoolstatusrequest-controller"),
    ] {
        assert!(running(&format!("{gate}=true")).contains(&controller));
        assert!(!running(&format!("{gate}=false")).contains(&controller));
    }
}

/// Proves TOK-3, BSS-4.
#[test]
fn bootstrap_controllers_run_only_if_they_are_named() {
    let selected = |list: &str| {
        let settings = ControllersOptions {
            bootstrap_signer: Some(BootstrapSignerOptions { hmac_sha256 }),
            ..ControllersOptions::default()
        };
        names(&selected(&options(&[&format!("--controllers={list}")]), &settings))
    };
    let (signer, cleaner) = ("bootstrap-signer-controller", "token-cleaner-controller");
    let by_default = selected("*");
    assert!(!by_default.contains(&signer) && !by_default.contains(&cleaner));
    assert!(by_default.contains(&"legacy-serviceaccount-token-cleaner-controller"));
    for list in ["*,bootstrapsigner,tokencleaner", "bootstrap-signer-controller,token-cleaner-controller"] {
        let named = selected(list);
        assert!(named.contains(&signer) && named.contains(&cleaner), "{list}");
    }
    assert!(selected("bootstrapsigner") == [signer] && selected("tokencleaner") == [cleaner]);
    assert!(implemented_controllers().contains(&signer) && implemented_controllers().contains(&cleaner));
}

/// Proves PCRC-32.
#[test]
fn gate_disables_the_cleaner_of_pod_certificate_requests() {
    const CLEANER: &str = "podcertificaterequest-cleaner-controller";
    let selected =
        |args: &[&str]| names(&selected(&options(args), &ControllersOptions::default())).contains(&CLEANER);
    assert!(selected(&[]));
    assert!(!selected(&["--feature-gates=PodCertificateRequest=false"]));
}

/// Proves IPAM-4, IPAM-69.
#[test]
fn wrong_cluster_cidr_fails_the_start_only_if_the_controller_runs() {
    const IPAM: &str = "node-ipam-controller";
    let settings = |allocate_node_cidrs: bool, cluster_cidr: &str| ControllersOptions {
        node_ipam: NodeIpamOptions {
            allocate_node_cidrs,
            cluster_cidr: cluster_cidr.to_owned(),
            ..NodeIpamOptions::default()
        },
        ..ControllersOptions::default()
    };
    let (log, _listening) = TestLog::capture(Level::INFO);
    assert!(names(&selected(&options(&[]), &settings(true, "10.0.0.0/8"))).contains(&IPAM));
    assert_eq!(log.count(&["Warning: skipping controller", IPAM]), 0);
    let error = ControllerSelection::choose(&options(&[]), &settings(true, "10.0.0.0")).err().unwrap();
    assert_eq!(error.to_string(), "invalid CIDR[0]: <nil> (invalid CIDR address: 10.0.0.0)");
    assert_eq!(log.count(&["Error initializing a controller", IPAM, "invalid CIDR[0]"]), 1);
    let disabled = selected(&options(&["--controllers=*,-nodeipam"]), &settings(true, "10.0.0.0"));
    assert!(!names(&disabled).contains(&IPAM));
    assert!(!names(&selected(&options(&[]), &settings(false, "10.0.0.0"))).contains(&IPAM));
    assert_eq!(log.count(&["Warning: skipping controller", IPAM]), 1);
}
