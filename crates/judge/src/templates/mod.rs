//! Compares what becomes of pod templates here and in the original: hashes, revision data and equality.
//!
//! The original answers through a Go program that is linked from its published packages.

pub mod generate;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use keleustes_objects::template::{TABLE, semantically_equal};
use keleustes_objects::{PodTemplate, escape_html};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::original::Original;

use generate::Generator;

/// A question to the original.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    template: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    collision_count: Option<i32>,
    #[serde(default)]
    dump: bool,
}

/// What the original does.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    error: String,
    served: Value,
    other_served: Value,
    hash: String,
    daemon_set_data: String,
    stateful_set_data: String,
    equal: bool,
    dump: String,
}

/// Starts the program, in UTC as its images are.
///
/// # Errors
/// If it does not start.
pub fn start(program: &Path) -> anyhow::Result<Original> {
    Original::start(Command::new(program).arg("answer").env("TZ", ""))
}

fn ask(original: &mut Original, question: &Question) -> anyhow::Result<Answer> {
    let answer: Answer = original.ask(question)?;
    ensure!(answer.error.is_empty(), "{}\n{}", answer.error, question.template);
    Ok(answer)
}

/// The table of fields as the Go types declare them.
///
/// # Errors
/// If the program fails.
pub fn fields(program: &Path) -> anyhow::Result<String> {
    let ran = Command::new(program).arg("fields").output().context("printing the fields")?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?)
}

/// Whether the table that is compiled in is the original's.
#[must_use]
pub fn table_is_current(fields: &str) -> bool {
    fields == TABLE
}

/// What a run compared.
#[derive(Debug, Default)]
pub struct Report {
    /// How many templates were hashed.
    pub templates: usize,
    /// How many pairs were equal to the original.
    pub equal_pairs: usize,
    /// The sample that tests use: templates as lines, with the answers of the original.
    pub sample: Vec<String>,
}

/// The sample has the shortest of this many templates.
const SAMPLE_SHARE: usize = 64;

impl Report {
    fn add_to_sample(&mut self, number: usize, line: String) {
        match self.sample.last_mut() {
            Some(last) if !number.is_multiple_of(SAMPLE_SHARE) => {
                if line.len() < last.len() {
                    *last = line;
                }
            }
            _ => self.sample.push(line),
        }
    }
}

/// Compares this many templates.
///
/// # Errors
/// At the first difference, which it describes.
pub fn run(original: &mut Original, seed: u64, templates: usize) -> anyhow::Result<Report> {
    let mut generator = Generator::new(seed);
    let mut report = Report::default();
    for number in 0..templates {
        let template = generator.template(number);
        let other = generator.variant(&template);
        let question =
            Question { template, other: Some(other), collision_count: generator.collisions(), dump: false };
        let answer = ask(original, &question)?;
        if let Err(difference) = compare(&mut generator, &question, &answer) {
            let dump = ask(original, &Question { dump: true, ..question.clone() })?.dump;
            bail!(
                "template {number}: {difference}\n{}\n{}",
                answer.served,
                first_difference(&dump, &text(&answer.served)?)
            );
        }
        report.templates += 1;
        report.equal_pairs += usize::from(answer.equal);
        report.add_to_sample(number, vector(&question, &answer));
    }
    Ok(report)
}

fn compare(generator: &mut Generator, question: &Question, answer: &Answer) -> anyhow::Result<()> {
    let mut newer = answer.served.clone();
    generator.add_unknown_fields(&mut newer);
    for served in [&answer.served, &newer] {
        let template = PodTemplate::parse(&served.to_string())?;
        let hash = template.pod_template_hash(question.collision_count);
        ensure!(hash == answer.hash, "the hash is {hash} and must be {}", answer.hash);
        let data = revision_data(template.typed_json());
        ensure!(
            data == answer.daemon_set_data,
            "the data is\n{data}\nand must be\n{}",
            answer.daemon_set_data
        );
    }
    if !has_large_numbers(&answer.served) {
        let data = &answer.stateful_set_data;
        ensure!(*data == answer.daemon_set_data, "the data of a StatefulSet is\n{data}");
    }
    let other = question.other.as_ref().context("two templates")?;
    for (one, other) in [(&answer.served, &answer.other_served), (&question.template, other)] {
        let equal = semantically_equal(&without_hash(one), &without_hash(other));
        ensure!(equal == answer.equal, "equal is {equal} and must be {}:\n{one}\n{other}", answer.equal);
    }
    Ok(())
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Whether a number is not exact as a float64, through which the original encodes the data of StatefulSets.
fn has_large_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().is_some_and(|number| number.unsigned_abs() > 1 << 53),
        Value::Array(list) => list.iter().any(has_large_numbers),
        Value::Object(map) => map.values().any(has_large_numbers),
        _ => false,
    }
}

/// A Deployment compares templates without the label that it adds.
fn without_hash(template: &Value) -> Map<String, Value> {
    let mut object = object(template);
    if let Some(labels) = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"))
        && let Some(labels) = labels.as_object_mut()
    {
        labels.remove("pod-template-hash");
    }
    object
}

fn revision_data(mut template: Map<String, Value>) -> String {
    template.insert("$patch".to_owned(), json!("replace"));
    escape_html(json!({"spec": {"template": template}}).to_string())
}

fn text(template: &Value) -> anyhow::Result<String> {
    Ok(PodTemplate::parse(&template.to_string())?.go_text())
}

/// Where two dumps differ.
fn first_difference(original: &str, here: &str) -> String {
    let same = original.bytes().zip(here.bytes()).take_while(|(one, other)| one == other).count();
    let from = |text: &str| {
        text[text.floor_char_boundary(same.saturating_sub(60))..].chars().take(300).collect::<String>()
    };
    match original == here {
        true => "the dumps are equal".to_owned(),
        false => format!("original: …{}\n    here: …{}", from(original), from(here)),
    }
}

/// One line of the checked-in sample.
fn vector(question: &Question, answer: &Answer) -> String {
    json!({
        "template": answer.served,
        "other": answer.other_served,
        "collisionCount": question.collision_count,
        "hash": answer.hash,
        "equal": answer.equal,
    })
    .to_string()
}
