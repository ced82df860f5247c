//! Compares the choice of a volume for an unbound claim with the original's.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::Result;
use fastrand::Rng;
use keleustes_controllers::persistentvolume_binder::choose_volume;
use keleustes_objects::{PersistentVolume, PersistentVolumeClaim};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::original::Original;

/// A claim and the volumes that it may get.
#[derive(Debug, Serialize)]
pub struct Question {
    claim: Value,
    volumes: Vec<Value>,
    delayed: bool,
}

/// The volumes that the original may choose, or that it refuses the claim.
#[derive(Debug, Deserialize)]
pub struct Answer {
    error: bool,
    chosen: Vec<String>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// How many claims got a volume.
    pub chosen: usize,
    /// How many claims were refused.
    pub refused: usize,
    /// One line per difference.
    pub differences: Vec<String>,
}

/// Generates sets of volumes with a claim each. Unreserved volumes have different sizes, and at most one is reserved, so
/// that only the order of groups with as many access modes is left open.
#[must_use]
pub fn generate(seed: u64, sets: usize) -> Vec<Question> {
    let mut rng = Rng::with_seed(seed);
    (0..sets).map(|_| question(&mut rng)).collect()
}

fn one_of<'a>(rng: &mut Rng, values: &[&'a str]) -> &'a str {
    values[rng.usize(..values.len())]
}

fn modes(rng: &mut Rng) -> Vec<&'static str> {
    const MODES: [&str; 5] =
        ["ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
    let count = [1, 1, 1, 2, 3, 0][rng.usize(..6)];
    let mut modes: Vec<&str> = (0..count).map(|_| one_of(rng, &MODES)).collect();
    if rng.u8(..60) == 0 {
        modes.push("WriteNever");
    }
    modes
}

/// Sets optional fields that claims and volumes share.
fn common_fields(rng: &mut Rng, object: &mut Value) {
    match rng.u8(..8) {
        0 => object["spec"]["volumeMode"] = json!("Filesystem"),
        1 => object["spec"]["volumeMode"] = json!("Block"),
        _ => {}
    }
    match rng.u8(..10) {
        0 => object["spec"]["volumeAttributesClassName"] = json!(""),
        1 => object["spec"]["volumeAttributesClassName"] = json!("gold"),
        _ => {}
    }
    match rng.u8(..4) {
        0 => object["spec"]["storageClassName"] = json!(""),
        1 => object["spec"]["storageClassName"] = json!("fast"),
        _ => {}
    }
    if rng.u8(..12) == 0 {
        let class = one_of(rng, &["", "fast"]);
        object["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": class});
    }
}

fn question(rng: &mut Rng) -> Question {
    let sizes = ["1Gi", "1024Mi", "500M", "0.5Gi", "1073741824", "3Gi", "20E", "1500m"];
    let mut claim = json!({
        "metadata": {"namespace": "a", "name": "data", "uid": "c-1"},
        "spec": {"accessModes": modes(rng), "resources": {"requests": {"storage": one_of(rng, &sizes)}}},
    });
    common_fields(rng, &mut claim);
    if rng.u8(..20) == 0 {
        claim["spec"]["resources"] = json!({});
    }
    match rng.u8(..8) {
        0 => claim["spec"]["selector"] = json!({"matchLabels": {"disk": "fast"}}),
        1 => {
            let operator = one_of(rng, &["In", "NotIn", "Exists", "DoesNotExist", "Near"]);
            let values = if operator.ends_with("In") { json!(["fast"]) } else { json!([]) };
            claim["spec"]["selector"] =
                json!({"matchExpressions": [{"key": "disk", "operator": operator, "values": values}]});
        }
        _ => {}
    }
    let count = rng.usize(..9);
    let reserved = rng.usize(..16);
    let volumes = (0..count).map(|at| volume(rng, at, at == reserved)).collect();
    Question { claim, volumes, delayed: rng.u8(..6) == 0 }
}

fn volume(rng: &mut Rng, at: usize, is_reserved: bool) -> Value {
    // Different sizes around those of claims.
    let base = [1u64, 300, 512, 1024, 1024, 2048, 4096][rng.usize(..7)];
    let mut volume = json!({
        "metadata": {"name": format!("pv-{at}"), "uid": format!("v-{at}")},
        "spec": {"accessModes": modes(rng), "capacity": {"storage": format!("{}Ki", base * 1024 + at as u64)}},
        "status": {"phase": one_of(rng, &["Available", "Available", "Available", "Available", "Released", "Pending", "Bound"])},
    });
    if rng.u8(..12) == 0 {
        volume["spec"]["capacity"] = json!({"storage": format!("{}E", 19 + at)});
    }
    common_fields(rng, &mut volume);
    if rng.bool() {
        volume["metadata"]["labels"] = json!({"disk": one_of(rng, &["fast", "slow"])});
    }
    if rng.u8(..16) == 0 {
        volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if is_reserved {
        volume["spec"]["claimRef"] =
            json!({"namespace": "a", "name": "data", "uid": one_of(rng, &["", "c-1"])});
    } else if rng.u8(..8) == 0 {
        let (namespace, name) = (one_of(rng, &["a", "b"]), one_of(rng, &["data", "other"]));
        volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": name, "uid": "c-0"});
    }
    volume
}

/// Asks the original.
///
/// # Errors
/// If the program fails or answers less than it was asked.
pub fn ask_original(program: &Path, questions: &[Question]) -> Result<Vec<Answer>> {
    Original::start(&mut Command::new(program))?.ask_all(questions, questions.len())
}

/// Compares our choices with the original's.
///
/// # Errors
/// If a generated object cannot be decoded.
pub fn compare(questions: &[Question], answers: &[Answer]) -> Result<Report> {
    let mut report = Report::default();
    for (question, answer) in questions.iter().zip(answers) {
        let claim = PersistentVolumeClaim::deserialize(&question.claim)?;
        let volumes: Vec<Arc<PersistentVolume>> = question
            .volumes
            .iter()
            .map(|volume| PersistentVolume::deserialize(volume).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let ours = choose_volume(&claim, &volumes, question.delayed);
        let is_equal = match &ours {
            Err(_) => answer.error,
            Ok(None) => !answer.error && answer.chosen.is_empty(),
            Ok(Some(name)) => !answer.error && answer.chosen.contains(name),
        };
        report.refused += usize::from(ours.is_err());
        report.chosen += usize::from(matches!(ours, Ok(Some(_))));
        if !is_equal {
            report
                .differences
                .push(format!("{ours:?}, original {answer:?}: {}", serde_json::to_string(question)?));
        }
    }
    Ok(report)
}
