//! Compares which bootstrap tokens sign cluster-info, their signatures and their expirations with the original's, and lets
//! the code by which kubeadm verifies cluster-info check our signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fastrand::Rng;
use keleustes_controllers::bootstrap_signer::{self, BootstrapSignerOptions};
use keleustes_controllers::token_cleaner;
use keleustes_objects::go_time::parse_rfc3339;
use keleustes_objects::{BootstrapToken, ClusterInfo, Key, Time};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Loop, Requeue};
use keleustes_runtime::signing::hmac_sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::original::Original;

/// A kubeconfig, the tokens that may sign it, and times to parse.
#[derive(Debug, Serialize)]
pub struct Question {
    now: i64,
    content: String,
    tokens: Vec<Value>,
    signatures: BTreeMap<String, String>,
    /// base64.
    times: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    signatures: BTreeMap<String, String>,
    expirations: Vec<TokenLife>,
    refused: Vec<String>,
    times: Vec<Option<Instant>>,
}

/// How long a token lasts, in nanoseconds; 0 if it lasts for ever or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct TokenLife {
    remaining: i64,
    expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Instant {
    seconds: i64,
    nanoseconds: u32,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// How many signatures are equal and accepted by kubeadm's code.
    pub signatures: usize,
    /// How many tokens sign nothing on both sides.
    pub silent: usize,
    /// How many tokens have expired on both sides.
    pub expired: usize,
    /// How many times are equal.
    pub times: usize,
    /// How many times cannot be parsed on both sides.
    pub unparsable: usize,
    /// One line per difference.
    pub differences: Vec<String>,
}

/// 2027-01-15T08:00:00Z.
const NOW_SECONDS: i64 = 1_800_000_000;
const SECOND: i64 = 1_000_000_000;
const TIMES_PER_SET: usize = 6;
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// Compares this many kubeconfigs, each with up to five tokens and six times.
///
/// # Errors
/// If the Go program cannot be started or ends early.
pub fn run(program: &Path, seed: u64, sets: usize) -> Result<Report> {
    let mut rng = Rng::with_seed(seed);
    let questions: Vec<Question> = (0..sets).map(|_| with_signatures(question(&mut rng))).collect();
    let answers: Vec<Answer> = Original::start(&mut Command::new(program))?.ask_all(&questions, sets)?;
    let mut report = Report::default();
    questions.iter().zip(&answers).for_each(|(question, answer)| compare(question, answer, &mut report));
    Ok(report)
}

fn compare(question: &Question, answer: &Answer, report: &mut Report) {
    if question.signatures != answer.signatures || !answer.refused.is_empty() {
        let (ours, theirs, refused) = (&question.signatures, &answer.signatures, &answer.refused);
        let (content, tokens) = (&question.content, &question.tokens);
        report.differences.push(format!(
            "signatures {ours:?}, original {theirs:?}, kubeadm refuses {refused:?}: {content:?} {tokens:?}"
        ));
    } else {
        report.signatures += answer.signatures.len();
        report.silent += question.tokens.len() - answer.signatures.len();
    }
    for (token, theirs) in question.tokens.iter().zip(&answer.expirations) {
        let ours = life_of(token, question.now);
        if ours.as_ref() == Ok(theirs) {
            report.expired += usize::from(theirs.expired);
        } else {
            report.differences.push(format!("{ours:?}, original {theirs:?}: {token}"));
        }
    }
    for (encoded, theirs) in question.times.iter().zip(&answer.times) {
        let text = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        let ours = std::str::from_utf8(&text).ok().and_then(parse_rfc3339).map(instant);
        match ours {
            _ if ours != *theirs => {
                let text = String::from_utf8_lossy(&text).into_owned();
                report.differences.push(format!("{text:?}: {ours:?}, original {theirs:?}"));
            }
            Some(_) => report.times += 1,
            None => report.unparsable += 1,
        }
    }
}

fn instant(nanoseconds: i128) -> Instant {
    let second = i128::from(SECOND);
    Instant {
        seconds: i64::try_from(nanoseconds.div_euclid(second)).unwrap_or(i64::MAX),
        nanoseconds: u32::try_from(nanoseconds.rem_euclid(second)).unwrap_or_default(),
    }
}

fn cluster_of(a_loop: &Loop, now: i64) -> RehearsalCluster {
    let mut cluster = RehearsalCluster::of(a_loop);
    let subsecond = u32::try_from(now.rem_euclid(SECOND)).unwrap_or_default();
    cluster.set_wall_clock(Time::from_unix_seconds(now.div_euclid(SECOND)), subsecond);
    cluster
}

/// Lets the bootstrap signer sign.
fn with_signatures(mut question: Question) -> Question {
    let options = BootstrapSignerOptions { hmac_sha256 };
    let a_loop = bootstrap_signer::controller(options).loops.remove(0);
    // A signature of a token that is gone, so that there is always something to write.
    let data = json!({"kubeconfig": question.content, "jws-kubeconfig-gone00": "stale"});
    let info =
        json!({"metadata": {"namespace": "kube-public", "name": "cluster-info", "uid": "i"}, "data": data});
    let mut cluster = cluster_of(&a_loop, question.now).with::<ClusterInfo>(info);
    for token in &question.tokens {
        cluster = cluster.with::<BootstrapToken>(token.clone());
    }
    let bodies = cluster.bodies(&a_loop, Key::namespaced("kube-public", "cluster-info"), "put");
    let data = bodies.first().and_then(|(_, body)| body["data"].as_object()).cloned().unwrap_or_default();
    let signature = |(key, value): (&String, &Value)| {
        Some((key.strip_prefix(SIGNATURE_PREFIX)?.to_owned(), value.as_str()?.to_owned()))
    };
    question.signatures = data.iter().filter_map(signature).collect();
    question
}

/// What the token cleaner makes of a token.
fn life_of(token: &Value, now: i64) -> Result<TokenLife, String> {
    let a_loop = token_cleaner::controller().loops.remove(0);
    let name = token["metadata"]["name"].as_str().unwrap_or_default();
    let key = Key::namespaced("kube-system", name);
    let cluster = || cluster_of(&a_loop, now).with::<BootstrapToken>(token.clone());
    let expired = cluster().outline(&a_loop, key.clone()).starts_with("delete");
    let remaining = match cluster().requeue(&a_loop, key) {
        Ok(Requeue::Forget) => 0,
        Ok(Requeue::After(delay)) => i64::try_from(delay.duration.as_nanos()).unwrap_or(i64::MAX),
        other => return Err(format!("{other:?}")),
    };
    Ok(TokenLife { remaining, expired })
}

fn question(rng: &mut Rng) -> Question {
    let now = NOW_SECONDS * SECOND + rng.i64(..SECOND);
    let mut ids = BTreeSet::new();
    let tokens = (0..rng.u8(..6)).filter_map(|_| token(rng, now, &mut ids)).collect();
    let times = (0..TIMES_PER_SET).map(|_| BASE64_STANDARD.encode(time(rng, now))).collect();
    Question { now, content: content(rng), tokens, signatures: BTreeMap::new(), times }
}

/// Mostly a kubeconfig as kubeadm writes it, with servers and CAs of any length, else anything.
fn content(rng: &mut Rng) -> String {
    match rng.u8(..8) {
        0 => String::new(),
        1 => (0..rng.usize(..200)).map(|_| rng.char(..)).collect(),
        2 => "\u{0}\u{7f}\u{2028}<&>\"\\\n\t: {".repeat(rng.usize(..9)),
        _ => {
            let ca: Vec<u8> = (0..rng.usize(..3000)).map(|_| rng.u8(..)).collect();
            let server = format!("https://10.{}.{}.{}:6443", rng.u8(..), rng.u8(..), rng.u8(..));
            format!(
                "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {server}\n  name: \"\"\n\
                 contexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
                BASE64_STANDARD.encode(ca)
            )
        }
    }
}

/// Mostly a token that signs; `None` if its name is taken.
fn token(rng: &mut Rng, now: i64, names: &mut BTreeSet<String>) -> Option<Value> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let text = |rng: &mut Rng, length: usize| -> String {
        (0..length).map(|_| char::from(LETTERS[rng.usize(..LETTERS.len())])).collect()
    };
    let id = text(rng, 6);
    let name = match rng.u8(..24) {
        0 => format!("bootstrap-token-{}", text(rng, 5)),
        1 => format!("bootstrap-token-{id}x"),
        2 => format!("token-{id}"),
        3 => format!("bootstrap-token-{}", id.to_uppercase()),
        _ => format!("bootstrap-token-{id}"),
    };
    let secret: Vec<u8> = match rng.u8(..6) {
        0 => (0..rng.usize(..200)).map(|_| rng.u8(..)).collect(),
        _ => text(rng, 16).into_bytes(),
    };
    let mut data = BTreeMap::from([
        ("token-id", id.into_bytes()),
        ("token-secret", secret),
        ("usage-bootstrap-signing", b"true".to_vec()),
        ("usage-bootstrap-authentication", b"true".to_vec()),
    ]);
    if rng.u8(..4) > 0 {
        data.insert("expiration", time(rng, now));
    }
    let others: [&[u8]; 8] = [b"", b"True", b"true\n", b"false", b"abcdef", b"\xff", b"\x00", b"1"];
    if rng.u8(..4) == 0 {
        let key = ["token-id", "token-secret", "usage-bootstrap-signing"][rng.usize(..3)];
        data.insert(key, others[rng.usize(..others.len())].to_vec());
    }
    if rng.u8(..20) == 0 {
        data.remove(["token-id", "token-secret", "usage-bootstrap-signing"][rng.usize(..3)]);
    }
    let data: BTreeMap<_, _> =
        data.into_iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value))).collect();
    let metadata = json!({"namespace": "kube-system", "name": name, "uid": name, "resourceVersion": "1"});
    names
        .insert(name)
        .then(|| json!({"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "data": data}))
}

/// A time in the layout of RFC 3339, near the present or far from it, or something close to one.
fn time(rng: &mut Rng, now: i64) -> Vec<u8> {
    let seconds = match rng.u8(..6) {
        0 => rng.i64(-62_167_219_200..253_402_300_800),
        1 => now / SECOND,
        2 => now / SECOND + rng.i64(-3..4),
        _ => now / SECOND + rng.i64(-100_000..10_000_000),
    };
    let offset_minutes = if rng.bool() { 0 } else { rng.i64(-24 * 60 - 60..=24 * 60 + 60) };
    let local = seconds + offset_minutes * 60;
    let civil = jiff::Timestamp::from_second(local.clamp(-62_167_219_200, 253_402_207_200))
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_zoned(jiff::tz::TimeZone::UTC)
        .datetime();
    let (date, clock) = (civil.date(), civil.time());
    let fraction = match rng.u8(..5) {
        0 => format!(".{}", rng.u32(..)),
        1 => format!(".{:09}", now % SECOND),
        2 if rng.u8(..4) == 0 => format!(",{}", rng.u8(..)),
        3 if rng.u8(..6) == 0 => ".".to_owned(),
        _ => String::new(),
    };
    let zone = match (offset_minutes, rng.u8(..4)) {
        (0, 0) => "+00:00".to_owned(),
        (0, _) => "Z".to_owned(),
        (minutes, _) => {
            let sign = if minutes < 0 { '-' } else { '+' };
            format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
        }
    };
    let mut text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}{zone}",
        date.year(),
        date.month(),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second()
    )
    .into_bytes();
    if rng.u8(..3) == 0 {
        disturb(rng, &mut text);
    }
    text
}

/// Changes, removes, repeats or inserts bytes, or removes a leading zero of the hour.
fn disturb(rng: &mut Rng, text: &mut Vec<u8>) {
    const BYTES: &[u8] = b"0123456789-+:.,TtZz \n\xff\xd9";
    let at = rng.usize(..text.len());
    let other = BYTES[rng.usize(..BYTES.len())];
    match rng.u8(..7) {
        0 => text[at] = other,
        1 => drop(text.remove(at)),
        2 => text.insert(at, other),
        3 => text.truncate(at),
        4 => text.push(other),
        // Any digit, so that months, days, hours and minutes are out of range.
        5 => text[at] = b'0' + rng.u8(..10),
        _ => drop(text.remove(11.min(text.len() - 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_sign_and_expire_and_some_do_not() {
        let mut rng = Rng::with_seed(1);
        let questions: Vec<_> = (0..300).map(|_| with_signatures(question(&mut rng))).collect();
        let tokens: usize = questions.iter().map(|question| question.tokens.len()).sum();
        let signatures: usize = questions.iter().map(|question| question.signatures.len()).sum();
        assert!(signatures > 200 && tokens > signatures + 100, "{tokens} tokens, {signatures} signatures");
        let lives = questions
            .iter()
            .flat_map(|question| question.tokens.iter().map(|token| life_of(token, question.now).unwrap()));
        let (expired, valid): (Vec<_>, Vec<_>) = lives.partition(|life| life.expired);
        assert!(expired.len() > 100 && valid.iter().any(|life| life.remaining > 0));
    }

    #[test]
    fn other_signatures_expirations_and_times_are_differences() {
        let mut rng = Rng::with_seed(2);
        let mut asked = with_signatures(question(&mut rng));
        while asked.signatures.is_empty() {
            asked = with_signatures(question(&mut rng));
        }
        let answer = |signatures: BTreeMap<String, String>, late: i64| Answer {
            signatures,
            expirations: asked
                .tokens
                .iter()
                .map(|token| life_of(token, asked.now).unwrap())
                .map(|life| TokenLife { remaining: life.remaining + late, ..life })
                .collect(),
            refused: vec![],
            times: asked.times.iter().map(|_| Some(Instant { seconds: -1, nanoseconds: 0 })).collect(),
        };
        let differences = |answer: &Answer| {
            let mut report = Report::default();
            compare(&asked, answer, &mut report);
            report.differences.len() - TIMES_PER_SET
        };
        let equal = answer(asked.signatures.clone(), 0);
        assert_eq!(differences(&equal), 0);
        assert_eq!(
            differences(&Answer { refused: vec!["x".into()], ..answer(asked.signatures.clone(), 0) }),
            1
        );
        assert_eq!(differences(&answer(BTreeMap::new(), 0)), 1);
        assert_eq!(differences(&answer(asked.signatures.clone(), 1)), asked.tokens.len());
    }
}
