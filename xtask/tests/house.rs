//! The house checks pass for the repository.

use xtask::house::RULES;
use xtask::workspace::Workspace;

#[track_caller]
fn holds(name: &str) {
    let rule = RULES.iter().find(|rule| rule.name == name).expect("a rule of that name");
    let workspace = Workspace::open().expect("a readable checkout");
    let problems = (rule.check)(&workspace).expect("a check that can run");
    let shown: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}:\n  {}", rule.keeps, shown.join("\n  "));
}

#[test]
fn dependencies_follow_the_map() {
    holds("crates");
}

#[test]
fn decisions_have_no_runtime_socket_clock_or_chance() {
    holds("purity");
}

#[test]
fn every_crate_keeps_the_lints() {
    holds("config");
}

#[test]
fn functions_and_modules_stay_small() {
    holds("sizes");
}

#[test]
fn the_text_is_tidy() {
    holds("tidy");
}

#[test]
fn the_map_names_crates_and_tests_that_exist() {
    holds("architecture");
}

#[test]
fn text_uses_upstream_vocabulary() {
    holds("words");
}

#[test]
fn changelog_fragments_are_well_formed() {
    holds("changelog");
}

#[test]
fn every_behaviour_id_is_proved_or_excused() {
    holds("behaviour");
}

#[test]
fn every_rule_has_its_test_here() {
    let here = include_str!("house.rs");
    for rule in RULES {
        assert!(here.contains(&format!("holds(\"{}\")", rule.name)), "no test for the rule `{}`", rule.name);
    }
}
