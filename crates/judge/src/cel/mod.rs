//! Compares the type checking of ValidatingAdmissionPolicies with the original's.
//!
//! Policies are generated, and made of the expressions in the tests of cel-go and of the original. Both sides get the
//! same resources and the same schemas: the original its compiled-in definitions, this side the document that they make.

mod collect;
mod generate;
mod setup;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use keleustes_cel::kubernetes::{OpenApiDocument, environment};
use keleustes_controllers::validatingadmissionpolicy_status::{
    ExpressionWarning, GroupVersionKind, Lookup, kinds, params_kind, warnings,
};
use keleustes_objects::ValidatingAdmissionPolicy;
use serde_json::{Value, json};

use crate::original::Original;

use self::generate::Generator;
use self::setup::Setup;

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// How many policies were compared.
    pub policies: usize,
    /// How many of their expressions come from tests of the original.
    pub collected: usize,
    /// How many have warnings.
    pub with_warnings: usize,
    /// How many warnings are equal.
    pub equal: usize,
    /// How many warnings begin with a syntax error of both sides at the same place; their words are not compared.
    pub syntax_errors: usize,
    /// One text per difference.
    pub differences: Vec<String>,
}

/// Compares policies with the original's checker, a Go program.
///
/// # Errors
/// If the program fails.
pub fn run(program: &Path, seed: u64, policies: usize) -> Result<Report> {
    let mut report = Report { policies, ..Report::default() };
    compare_declarations(program, &mut report)?;
    let definitions = output(program, "definitions")?;
    let setup = Setup::new(&definitions)?;
    let collected = collect::expressions()?;
    let mut rng = Rng::with_seed(seed);
    let generator = Generator::new(&setup, &collected);
    let questions: Vec<Value> = (0..policies).map(|number| generator.policy(&mut rng, number)).collect();
    report.collected = collected.len().min(policies / 2);
    let answers = ask(program, &setup, &questions)?;
    for (question, theirs) in questions.iter().zip(&answers) {
        let policy: ValidatingAdmissionPolicy = serde_json::from_value(question.clone())?;
        let ours = check(&setup, &policy);
        report.with_warnings += usize::from(!theirs.is_empty());
        compare(question, &ours, theirs, &setup, &mut report);
    }
    Ok(report)
}

fn output(program: &Path, mode: &str) -> Result<Vec<u8>> {
    let output = Command::new(program).arg(mode).output().context("starting the Go program")?;
    ensure!(output.status.success(), "the Go program failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Every overload, in the same order.
fn compare_declarations(program: &Path, report: &mut Report) -> Result<()> {
    let theirs = String::from_utf8(output(program, "declarations")?)?;
    let ours = environment().declarations().join("\n");
    if ours != theirs.trim_end() {
        let differs = ours.lines().zip(theirs.lines()).find(|(one, other)| one != other);
        report.differences.push(format!("declarations differ, first: {differs:?}"));
    }
    Ok(())
}

fn ask(program: &Path, setup: &Setup, questions: &[Value]) -> Result<Vec<Vec<ExpressionWarning>>> {
    // Two processes, because the original makes an environment for every expression.
    let half = questions.len().div_ceil(2);
    let (first, second) = questions.split_at(half);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| ask_one(program, setup, second));
        let mut answers = ask_one(program, setup, first)?;
        answers.extend(second.join().ok().context("a thread panicked")??);
        Ok(answers)
    })
}

fn ask_one(program: &Path, setup: &Setup, questions: &[Value]) -> Result<Vec<Vec<ExpressionWarning>>> {
    let first = json!({"documents": [setup.custom], "resources": setup.resource_rows()});
    let all = [&first].into_iter().chain(questions);
    // The first line has no answer.
    let answers: Vec<Option<Vec<ExpressionWarning>>> =
        Original::start(&mut Command::new(program))?.ask_all(all, questions.len())?;
    Ok(answers.into_iter().map(Option::unwrap_or_default).collect())
}

/// The warnings of this side.
fn check(setup: &Setup, policy: &ValidatingAdmissionPolicy) -> Vec<ExpressionWarning> {
    let Lookup::Kinds(kinds) = kinds(&policy.resource_rules, &setup.discovered, true) else {
        return Vec::new();
    };
    let find = |kind: &GroupVersionKind, number: u32| {
        let GroupVersionKind { group, version, kind } = kind;
        let object = |document: &OpenApiDocument| {
            document.object_type(group, version, kind, &format!("{kind}{number}"))
        };
        object(&setup.built_in).or_else(|| object(&setup.served))
    };
    let typed: Vec<_> = kinds.into_iter().filter_map(|kind| Some((kind.clone(), find(&kind, 1)?))).collect();
    let params = params_kind(policy.param_kind.as_ref());
    let params_type = params.as_ref().map(|kind| find(kind, 2).flatten());
    warnings(policy, &typed, params_type.as_ref().map(Option::as_ref))
}

fn compare(
    question: &Value,
    ours: &[ExpressionWarning],
    theirs: &[ExpressionWarning],
    setup: &Setup,
    report: &mut Report,
) {
    let fields = |all: &[ExpressionWarning]| -> Vec<String> {
        all.iter().map(|warning| warning.field_ref.clone()).collect()
    };
    if fields(ours) != fields(theirs) {
        report.differences.push(difference(question, &json!(ours), &json!(theirs)));
        return;
    }
    for (one, other) in ours.iter().zip(theirs) {
        let (here, there) = (syntax_error(&one.warning), syntax_error(&other.warning));
        if here.is_some() && here == there {
            report.syntax_errors += 1;
        } else if setup.normalize(&one.warning) == setup.normalize(&other.warning) {
            report.equal += 1;
        } else {
            let (one, other) = (setup.normalize(&one.warning), setup.normalize(&other.warning));
            let lines = one.lines().map(Some).chain([None]).zip(other.lines().map(Some).chain([None]));
            let first = lines.into_iter().find(|(one, other)| one != other).unwrap_or_default();
            report.differences.push(difference(question, &json!(first.0), &json!(first.1)));
        }
    }
}

/// Line and column of the first syntax error of a warning, if there is one. The words are those of a generated parser, which
/// this side does not have.
fn syntax_error(warning: &str) -> Option<&str> {
    let (before, _) = warning.split_once(": Syntax error: ")?;
    Some(before.rsplit_once("<input>:").map_or("", |(_, place)| place))
}

fn difference(question: &Value, ours: &Value, theirs: &Value) -> String {
    format!("{}\n  ours:   {ours}\n  theirs: {theirs}", question["spec"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_are_compared_by_the_place_of_the_first() {
        let theirs = "apps/v1, Kind=Deployment: ERROR: <input>:1:5: Syntax error: mismatched input ')'\n | a +)\n | ....^";
        assert_eq!(syntax_error(theirs), Some("1:5"));
        let several = "ERROR: <input>:2:1: Syntax error: a\n | x\nERROR: <input>:3:7: Syntax error: b\n";
        assert_eq!(syntax_error(several), Some("2:1"));
        assert_eq!(syntax_error("ERROR: <input>:1:5: undeclared reference to 'a' (in container '')"), None);
    }
}
