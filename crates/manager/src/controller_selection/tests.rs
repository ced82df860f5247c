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

fn names(team: &ControllerSelection) -> Vec<&'static str> {
    team.members.iter().map(|controller| controller.name).collect()
}

const ACCOUNTS: &str = "serviceaccount-controller";

/// All implemented controllers but the first, without those that `--controllers` must name.
fn rest() -> Vec<&'static str> {
    all_controllers(&ControllersOptions::default()).into_iter().map(|controller| controller.name).collect()
}

/// A controller that is not implemented yet. Once it is, use another; once all are, these tests are moot.
const UNWRITTEN: &str = "resourcequota-controller";

/// Proves RUN-50, RUN-51, OPT-38.
#[test]
fn token_controller_is_first_and_only_a_missing_key_disables_it() {
    let all = ControllerSelection::choose(&options(&[]), &with_key());
    assert_eq!(names(&all), [&[FIRST], &rest()[..]].concat());
    let others = ControllerSelection::choose(&options(&["--controllers=-serviceaccount-token"]), &with_key());
    assert_eq!(names(&others), [FIRST]);
    let (log, _listening) = TestLog::capture(Level::INFO);
    assert_eq!(names(&ControllerSelection::choose(&options(&[]), &ControllersOptions::default())), rest());
    assert_eq!(log.count(&["Warning: skipping controller", FIRST]), 1);
}

/// Proves GC-1.
#[test]
fn flag_disables_the_garbage_collector() {
    const COLLECTOR: &str = "garbage-collector-controller";
    let (log, _listening) = TestLog::capture(Level::INFO);
    let mut settings = ControllersOptions::default();
    assert!(names(&ControllerSelection::choose(&options(&[]), &settings)).contains(&COLLECTOR));
    assert_eq!(log.count(&["Warning: skipping controller", COLLECTOR]), 0);
    settings.garbage_collector.enabled = false;
    let team = ControllerSelection::choose(&options(&[]), &settings);
    assert!(!names(&team).contains(&COLLECTOR) && !team.missing.contains(&COLLECTOR));
    assert_eq!(log.count(&["Warning: skipping controller", COLLECTOR]), 1);
}

/// Proves RUN-52.
#[test]
fn log_names_disabled_controllers_with_the_reason() {
    let (log, _listening) = TestLog::capture(Level::INFO);
    let args = ["--controllers=*,-serviceaccount,bootstrapsigner"];
    let team = ControllerSelection::choose(&options(&args), &with_key());
    let others: Vec<_> = rest().into_iter().filter(|name| *name != ACCOUNTS).collect();
    assert_eq!(names(&team), [&[FIRST], &others[..]].concat());
    let disabled = "Warning: controller is disabled";
    assert_eq!(log.count(&[disabled, "serviceaccount-controller"]), 1);
    assert_eq!(log.count(&[disabled, "token-cleaner-controller"]), 1);
    assert_eq!(log.count(&[disabled, "bootstrap-signer-controller"]), 0);
    assert_eq!(log.count(&["Controller is disabled by a feature gate", "podgroup-protection-controller"]), 1);
    assert_eq!(log.count(&["not implemented yet and not running", "bootstrap-signer-controller"]), 1);
    assert!(team.missing.contains(&UNWRITTEN));
    assert!(!team.missing.contains(&"token-cleaner-controller"));
}

#[test]
fn names_and_aliases_select_and_missing_controllers_are_listed() {
    let team = |list: &str, settings: &ControllersOptions| {
        let team = ControllerSelection::choose(&options(&[&format!("--controllers={list}")]), settings);
        (names(&team), team.missing)
    };
    let (members, missing) = team("serviceaccount,bootstrapsigner,-cronjob-controller,*", &with_key());
    assert!(members[0] == FIRST && members.contains(&ACCOUNTS));
    assert!(missing.contains(&"bootstrap-signer-controller") && missing.contains(&UNWRITTEN));
    assert!(!missing.contains(&"cronjob-controller") && !missing.contains(&"token-cleaner-controller"));
    assert!(!missing.contains(&"podgroup-protection-controller"), "its gate is off");
    assert_eq!(team("serviceaccount", &ControllersOptions::default()), (vec![ACCOUNTS], vec![]));
}

/// Proves RUN-62.
#[test]
fn all_gates_of_a_controller_must_be_enabled() {
    let missing = |gates: &str| {
        let gates = format!("--feature-gates={gates}");
        ControllerSelection::choose(&options(&[&gates]), &with_key()).missing
    };
    let two = "storageversion-garbage-collector-controller";
    assert!(!missing("AllAlpha=false").contains(&two), "one of its gates is off by default");
    assert!(missing("StorageVersionAPI=true").contains(&two));
    let migrator = "storage-version-migrator-controller";
    assert!(missing("AllAlpha=false").contains(&migrator));
    assert!(!missing("StorageVersionMigrator=false").contains(&migrator));
    assert!(missing("GenericWorkload=true").contains(&"podgroup-protection-controller"));
}
