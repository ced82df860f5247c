//! The two log formats, text and JSON, as the original writes them.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Event, Level};

use super::fields::Fields;
use super::verbosity::of_line;

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// `I1115 10:12:23.510330   24422 loops.rs:107] "started" controller="job-controller"`
    Text,
    /// `{"ts":1794737543510.33,"caller":"src/loops.rs:107","msg":"started","v":0,"controller":"job-controller"}`
    Json,
}

impl LogFormat {
    pub(super) fn line(self, event: &Event<'_>, now: Timestamp) -> String {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let place = Place { file: metadata.file().unwrap_or("unknown"), line: metadata.line().unwrap_or(1) };
        match self {
            Self::Text => text(*metadata.level(), place, &fields, now),
            Self::Json => json(*metadata.level(), metadata.target(), place, fields, now),
        }
    }
}

#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    line: u32,
}

fn text(level: Level, place: Place<'_>, fields: &Fields, now: Timestamp) -> String {
    let severity = match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let file = place.file.rsplit('/').next().unwrap_or_default();
    let mut line = format!(
        "{severity}{} {:>7} {file}:{}] {}",
        now.strftime("%m%d %H:%M:%S%.6f"),
        std::process::id(),
        place.line,
        quoted(&fields.message)
    );
    for (name, value) in &fields.others {
        // Writing to a String cannot fail.
        let _ = match value {
            Value::String(text) => write!(line, " {name}={}", quoted(text)),
            other => write!(line, " {name}={other}"),
        };
    }
    line.push('\n');
    line
}

/// Quotes a value, so that a line break or a quote in it cannot pass for another line or field.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn json(level: Level, target: &str, place: Place<'_>, fields: Fields, now: Timestamp) -> String {
    let mut object = Map::new();
    #[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 fit into 53 bits")]
    object.insert("ts".into(), (now.as_microsecond() as f64 / 1000.0).into());
    let crate_and_file: Vec<_> = place.file.rsplit('/').take(2).collect();
    let file = crate_and_file.into_iter().rev().collect::<Vec<_>>().join("/");
    object.insert("caller".into(), format!("{file}:{}", place.line).into());
    object.insert("msg".into(), fields.message.into());
    if level != Level::ERROR {
        object.insert("v".into(), of_line(level, target).into());
    }
    for (name, value) in fields.others {
        // A field must not pass for one of the fixed ones.
        let name = if object.contains_key(name) { format!("{name}_") } else { name.to_owned() };
        object.insert(name, value);
    }
    format!("{}\n", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let others =
            vec![("item", Value::from("a/\"b\"\n")), ("tries", Value::from(3)), ("msg", Value::from("x"))];
        Fields { message: "trying again".into(), others }
    }

    const PLACE: Place<'_> = Place { file: "crates/runtime/src/loops.rs", line: 7 };

    #[test]
    fn text_format_equals_the_originals() {
        let now = "2026-11-15T10:12:23.51033Z".parse().unwrap();
        let line = text(Level::WARN, PLACE, &fields(), now);
        let pid = std::process::id();
        let wanted = format!(
            "W1115 10:12:23.510330 {pid:>7} loops.rs:7] \"trying again\" item=\"a/\\\"b\\\"\\n\" tries=3 msg=\"x\"\n"
        );
        assert_eq!(line, wanted);
        assert!(text(Level::DEBUG, PLACE, &fields(), now).starts_with('I'));
        assert!(text(Level::ERROR, PLACE, &fields(), now).starts_with('E'));
    }

    #[test]
    fn json_format_has_fixed_fields_that_no_other_field_can_replace() {
        let now = "2026-11-15T10:12:23.51033Z".parse().unwrap();
        let line: Value = serde_json::from_str(&json(Level::DEBUG, "loops", PLACE, fields(), now)).unwrap();
        assert_eq!(line["ts"], 1_794_737_543_510.33);
        assert_eq!(
            (&line["caller"], &line["msg"]),
            (&Value::from("src/loops.rs:7"), &Value::from("trying again"))
        );
        assert_eq!((&line["v"], &line["msg_"], &line["tries"]), (&4.into(), &"x".into(), &3.into()));
        let error: Value = serde_json::from_str(&json(Level::ERROR, "loops", PLACE, fields(), now)).unwrap();
        assert_eq!(error.get("v"), None);
    }
}
