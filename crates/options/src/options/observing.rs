//! Logging and metrics.

use std::collections::BTreeMap;

use keleustes_objects::Quantity;

use crate::gates::FeatureGates;
use crate::go_text::{GoDuration, quote};
use crate::leader_migration::one_line;
use crate::parser::Values;
use crate::value::ModuleLevel;
use crate::versions::{Version, hidden_metrics_problem};
use crate::{CommandLineContext, aggregate};

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// The log format.
    pub format: LogFormat,
    /// The verbosity.
    pub verbosity: u32,
    /// The verbosity per module.
    pub vmodule: Vec<ModuleLevel>,
    /// The maximum time between flushes.
    pub flush_frequency: GoDuration,
    /// Streams of the text format.
    pub text: Stream,
    /// Streams of the JSON format.
    pub json: Stream,
}

/// The log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// klog's text format.
    Text,
    /// JSON.
    Json,
}

/// The output streams of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Whether errors go to stderr and the rest to stdout.
    pub split: bool,
    /// The buffer size of info messages; 0 or less disables buffering.
    pub info_buffer_size: Quantity,
}

impl Logs {
    /// Reads and validates the flags; the original sets up logging before it validates anything else.
    pub(super) fn read(values: &Values, gates: &FeatureGates) -> Result<Self, String> {
        let stream = |form: &str| Stream {
            split: values.bool(&format!("log-{form}-split-stream")),
            info_buffer_size: values.quantity(&format!("log-{form}-info-buffer-size")),
        };
        let format = values.text("logging-format");
        let logs = Self {
            format: if format == "json" { LogFormat::Json } else { LogFormat::Text },
            verbosity: values.level("v"),
            vmodule: values.modules("vmodule"),
            flush_frequency: values.duration("log-flush-frequency"),
            text: stream("text"),
            json: stream("json"),
        };
        aggregate(logs.problems(&format, gates))?;
        Ok(logs)
    }

    fn problems(&self, format: &str, gates: &FeatureGates) -> Vec<String> {
        let mut problems = Vec::new();
        if self.flush_frequency <= GoDuration::ZERO {
            let given = quote(&self.flush_frequency.to_string());
            problems.push(format!("flushFrequency: Invalid value: {given}: Must be greater than zero"));
        }
        match format {
            "text" => {}
            "json" if gates.enabled("LoggingBetaOptions") => {}
            "json" => {
                problems.push(
                    "format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"
                        .to_owned(),
                );
            }
            other => {
                problems.push(format!("format: Invalid value: {}: Unsupported log format", quote(other)));
            }
        }
        if !self.vmodule.is_empty() && format != "text" && !format.is_empty() {
            problems.push("vmodule: Forbidden: Only supported for text log format".to_owned());
        }
        if !gates.enabled("LoggingAlphaOptions") {
            for (form, stream) in [("text", self.text), ("json", self.json)] {
                let fields =
                    [("splitStream", stream.split), ("infoBufferSize", !stream.info_buffer_size.is_zero())];
                for (field, _) in fields.into_iter().filter(|(_, used)| *used) {
                    let text = "Forbidden: Feature LoggingAlphaOptions is disabled";
                    problems.push(format!("options.{form}.{field}: {text}"));
                }
            }
        }
        problems
    }
}

/// Metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Allowed label values by `metric,label`, from the flag or from the file.
    pub allow_labels: BTreeMap<String, String>,
    /// Disabled metrics.
    pub disabled: Vec<String>,
    /// Whether metrics that were hidden in the previous release are served.
    pub show_hidden: bool,
    show_hidden_for_version: String,
    labels_given: bool,
    manifest: String,
}

impl Metrics {
    pub(super) fn read(values: &Values) -> Self {
        let show_hidden_for_version = values.text("show-hidden-metrics-for-version");
        Self {
            allow_labels: values.map("allow-metric-labels"),
            disabled: values.list("disabled-metrics"),
            show_hidden: !show_hidden_for_version.is_empty(),
            show_hidden_for_version,
            labels_given: values.given("allow-metric-labels"),
            manifest: values.text("allow-metric-labels-manifest"),
        }
    }

    /// The validation errors; also takes over the labels of the file.
    pub(super) fn problems(&mut self, binary: Version, known: &CommandLineContext<'_>) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(hidden_metrics_problem(&self.show_hidden_for_version, binary));
        if let Some(name) = self.disabled.iter().find(|name| !is_metric(name)) {
            let text =
                format!("must be fully qualified metric names matching \"^{METRIC}$\", got {}", quote(name));
            problems
                .push(format!("metrics.disabledMetrics: Invalid value: {}: {text}", json(&self.disabled)));
        }
        problems.extend(label_problem("metrics.allowListMapping", &self.allow_labels));
        if self.manifest.is_empty() {
            return problems;
        }
        match read_manifest(&self.manifest, known) {
            Ok(labels) if !self.labels_given => self.allow_labels = labels,
            Ok(_) => {}
            Err(reason) => {
                let manifest = quote(&self.manifest);
                problems
                    .push(format!("metrics.allowListMappingManifest: Invalid value: {manifest}: {reason}"));
            }
        }
        if self.labels_given {
            let both = self.both();
            let text = "cannot specify both allowListMapping and allowListMappingManifest";
            problems.push(format!("metrics: Invalid value: {both}: {text}"));
        }
        problems
    }

    /// The two fields as the original formats them in its error.
    fn both(&self) -> serde_json::Value {
        serde_json::json!({ "allowListMapping": self.allow_labels, "allowListMappingManifest": self.manifest })
    }
}

const METRIC: &str = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const LABEL: &str = "[a-zA-Z_][a-zA-Z0-9_]*";

fn is_metric(name: &str) -> bool {
    let start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(start) && name.chars().all(|c| start(c) || c.is_ascii_digit())
}

fn is_label(name: &str) -> bool {
    is_metric(name) && !name.contains(':')
}

fn label_problem(field: &str, labels: &BTreeMap<String, String>) -> Option<String> {
    let is_valid = |key: &String| {
        key.split_once(',').is_some_and(|(metric, label)| is_metric(metric) && is_label(label))
    };
    let has_invalid = labels.keys().any(|key| !is_valid(key));
    has_invalid.then(|| {
        let text = format!(
            "must have keys with format `metricName,labelName` where metricName matches \"{METRIC}\" and labelName matches \"{LABEL}\""
        );
        format!("{field}: Invalid value: {}: {text}", json(labels))
    })
}

fn read_manifest(path: &str, known: &CommandLineContext<'_>) -> Result<BTreeMap<String, String>, String> {
    let unreadable =
        |error| format!("failed to read allow list manifest: {}", crate::file_problem(path, &error));
    let text = (known.read_file)(path).map_err(unreadable)?;
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let unparsable = |error| format!("failed to parse allow list manifest: {}", one_line(&error));
    let labels: BTreeMap<String, String> = serde_saphyr::from_str(&text).map_err(unparsable)?;
    match label_problem("metrics.allowListMappingManifest", &labels) {
        Some(problem) => Err(format!("invalid allow list mapping in manifest: [{problem}]")),
        None => Ok(labels),
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    // Maps and lists of strings always serialize.
    serde_json::to_string(value).unwrap_or_default()
}
