//! Flags of logging and metrics.

use crate::flag::FlagDefault::{Bool, Level, List, Map, Modules, Quantity, Text};
use crate::flag::{Flag, FlagDefault, flag};
use crate::go_text;

const LABELS: &str = "label values of metrics are not limited";
const ONE_STREAM: &str = "the log goes to stderr, without a buffer";

pub(super) const METRICS: &[Flag] = &[
    flag(
        "allow-metric-labels",
        Map,
        "Values a label may have, as metric,label=value,value; others are counted as 'unexpected'.",
    )
    .unsupported(LABELS),
    flag(
        "allow-metric-labels-manifest",
        Text(""),
        "File with the same mapping in YAML; not together with --allow-metric-labels.",
    )
    .unsupported(LABELS),
    flag(
        "disabled-metrics",
        List(&[]),
        "Full names of metrics to leave out, even hidden ones that are asked for.",
    ),
    flag(
        "show-hidden-metrics-for-version",
        Text(""),
        "Show metrics that were hidden in this release; only the previous one, as major.minor, makes sense.",
    )
    .unsupported("no metric of this manager is hidden"),
];

pub(super) const LOGS: &[Flag] = &[
    flag(
        "log-flush-frequency",
        FlagDefault::Duration(go_text::GoDuration::seconds(5)),
        "Longest time a line may wait before it is written.",
    )
    .no_counterpart("every line is written at once"),
    flag(
        "log-json-info-buffer-size",
        Quantity,
        "Buffer for information in JSON when streams are split, in bytes or with a suffix such as Ki. Needs the LoggingAlphaOptions gate.",
    )
    .unsupported(ONE_STREAM),
    flag(
        "log-json-split-stream",
        Bool(false),
        "In JSON, write errors to stderr and the rest to stdout. Needs the LoggingAlphaOptions gate.",
    )
    .unsupported(ONE_STREAM),
    flag(
        "log-text-info-buffer-size",
        Quantity,
        "Buffer for information in text when streams are split, in bytes or with a suffix such as Ki. Needs the LoggingAlphaOptions gate.",
    )
    .unsupported(ONE_STREAM),
    flag(
        "log-text-split-stream",
        Bool(false),
        "In text, write errors to stderr and the rest to stdout. Needs the LoggingAlphaOptions gate.",
    )
    .unsupported(ONE_STREAM),
    flag("logging-format", Text("text"), "Form of log lines: text or json."),
    flag("v", Level, "How much to log; the higher, the more.").short('v'),
    flag("vmodule", Modules, "Log levels for single modules, as pattern=N,pattern=N. Text format only."),
];
