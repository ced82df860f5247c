//! The value of a flag: how it is parsed and formatted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use keleustes_objects::Quantity;

use crate::build::{self, Build};
use crate::flag::FlagDefault;
use crate::go_text::{self, GoDuration};

/// A certificate for some host names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SniCertKey {
    /// The certificate file.
    pub cert_file: String,
    /// The key file.
    pub key_file: String,
    /// The host names; empty means those in the certificate.
    pub names: Vec<String>,
}

/// The log level of the modules that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleLevel {
    /// A pattern of module names, with wildcards.
    pub pattern: String,
    /// The log level.
    pub verbosity: u32,
}

/// The value of `--version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum VersionFlag {
    /// `false`: run.
    #[default]
    Run,
    /// `true`: print the version and exit.
    Line,
    /// `raw`: print all build information and exit.
    Raw,
    /// `vX.Y.Z-suffix`: run and report this version.
    Report(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int32(i32),
    Int(i64),
    Float32(f32),
    Float64(f64),
    Duration(GoDuration),
    Text(String),
    List(Vec<String>),
    Numbers(Vec<i32>),
    Map(BTreeMap<String, String>),
    Gates(BTreeMap<String, Vec<String>>),
    Ip(IpAddr),
    CertKeys(Vec<SniCertKey>),
    Quantity(Quantity),
    Level(u32),
    Modules(Vec<ModuleLevel>),
    Version(VersionFlag),
}

impl From<FlagDefault> for Value {
    fn from(default: FlagDefault) -> Self {
        match default {
            FlagDefault::Bool(on) => Self::Bool(on),
            FlagDefault::Int32(number) => Self::Int32(number),
            FlagDefault::Int(number) => Self::Int(number),
            FlagDefault::Float32(number) => Self::Float32(number),
            FlagDefault::Float64(number) => Self::Float64(number),
            FlagDefault::Duration(duration) => Self::Duration(duration),
            FlagDefault::Text(text) => Self::Text(text.to_owned()),
            FlagDefault::List(items) => Self::List(items.iter().map(ToString::to_string).collect()),
            FlagDefault::Numbers => Self::Numbers(Vec::new()),
            FlagDefault::Map => Self::Map(BTreeMap::new()),
            FlagDefault::Gates => Self::Gates(BTreeMap::new()),
            FlagDefault::Ip(address) => Self::Ip(address.into()),
            FlagDefault::CertKeys => Self::CertKeys(Vec::new()),
            FlagDefault::Quantity => Self::Quantity(Quantity::default()),
            FlagDefault::Level => Self::Level(0),
            FlagDefault::Modules => Self::Modules(Vec::new()),
            FlagDefault::Version => Self::Version(VersionFlag::Run),
        }
    }
}

impl Value {
    /// Sets the value from text. With `again` the flag was given before, so a list is appended to instead of replaced.
    pub(crate) fn set(&mut self, text: &str, again: bool, build: &Build<'_>) -> Result<(), String> {
        match self {
            Self::Bool(on) => *on = go_text::parse_bool(text)?,
            Self::Int32(number) => *number = parse_int32(text)?,
            Self::Int(number) => *number = go_text::parse_int(text, 64)?,
            Self::Float32(number) => *number = go_text::parse_float32(text)?,
            Self::Float64(number) => *number = go_text::parse_float64(text)?,
            Self::Duration(duration) => *duration = GoDuration::parse(text)?,
            Self::Text(old) => text.clone_into(old),
            Self::List(items) => {
                let read = if text.is_empty() { Vec::new() } else { go_text::read_record(text)? };
                extend(items, read, again);
            }
            Self::Numbers(numbers) => {
                let read = text.split(',').map(parse_int32).collect::<Result<_, _>>()?;
                extend(numbers, read, again);
            }
            Self::Map(pairs) => {
                let read = parse_pairs(text)?;
                if !again {
                    pairs.clear();
                }
                pairs.extend(read);
            }
            Self::Gates(gates) => push_gates(gates, text),
            Self::Ip(address) => {
                // An empty address leaves the default, as in the original.
                if !text.is_empty() {
                    let refuse = |_| format!("failed to parse IP: {}", go_text::quote(text));
                    *address = text.trim().parse::<IpAddr>().map_err(refuse)?.to_canonical();
                }
            }
            Self::CertKeys(pairs) => pairs.push(parse_cert_key(text)?),
            Self::Quantity(quantity) => *quantity = go_text::parse_quantity(text)?,
            Self::Level(level) => *level = go_text::parse_uint31(text)?,
            Self::Modules(modules) => modules.extend(parse_modules(text)?),
            Self::Version(version) => *version = parse_version_flag(text, build)?,
        }
        Ok(())
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(on) => write!(out, "{on}"),
            Self::Int32(number) => write!(out, "{number}"),
            Self::Int(number) => write!(out, "{number}"),
            Self::Float32(number) => out.write_str(&go_text::format_float(&number.to_string())),
            Self::Float64(number) => out.write_str(&go_text::format_float(&number.to_string())),
            Self::Duration(duration) => write!(out, "{duration}"),
            Self::Text(text) => out.write_str(text),
            Self::List(items) => write!(out, "[{}]", go_text::write_record(items.iter().map(String::as_str))),
            Self::Numbers(numbers) => write!(out, "[{}]", join(numbers.iter(), ",")),
            Self::Map(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(out, "[{}]", go_text::write_record(pairs.iter().map(String::as_str)).trim())
            }
            Self::Gates(gates) => {
                let pair = |(component, items): (&String, &Vec<String>)| {
                    items.iter().map(|item| format!("{component}:{item}")).collect::<Vec<_>>()
                };
                out.write_str(&join(gates.iter().flat_map(pair), ","))
            }
            Self::Ip(address) => write!(out, "{address}"),
            Self::CertKeys(pairs) => write!(out, "[{}]", join(pairs.iter().map(show_cert_key), ";")),
            Self::Quantity(quantity) => write!(out, "{quantity}"),
            Self::Level(level) => write!(out, "{level}"),
            Self::Modules(modules) => {
                let shown = modules.iter().map(|module| format!("{}={}", module.pattern, module.verbosity));
                out.write_str(&join(shown, ","))
            }
            Self::Version(VersionFlag::Run) => out.write_str("false"),
            Self::Version(VersionFlag::Line) => out.write_str("true"),
            Self::Version(VersionFlag::Raw) => out.write_str("raw"),
            Self::Version(VersionFlag::Report(version)) => out.write_str(version),
        }
    }
}

fn join(items: impl Iterator<Item = impl ToString>, separator: &str) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

fn extend<T>(items: &mut Vec<T>, read: Vec<T>, again: bool) {
    if !again {
        items.clear();
    }
    items.extend(read);
}

fn parse_int32(text: &str) -> Result<i32, String> {
    let wide = go_text::parse_int(text, 32)?;
    // The line above has checked the bounds; saturating never happens.
    Ok(i32::try_from(wide).unwrap_or(i32::MAX))
}

fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = match text.matches('=').count() {
        0 => return Err(format!("{text} must be formatted as key=value")),
        // A single pair may hold commas without being quoted.
        1 => vec![text.trim_matches('"').to_owned()],
        _ => go_text::read_record(text)?,
    };
    parts
        .into_iter()
        .map(|part| match part.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("{part} must be formatted as key=value")),
        })
        .collect()
}

fn push_gates(gates: &mut BTreeMap<String, Vec<String>>, text: &str) {
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (component, item) = pair.split_once(':').unwrap_or(("", pair));
        gates.entry(component.trim().to_owned()).or_default().push(item.trim().to_owned());
    }
}

fn parse_cert_key(text: &str) -> Result<SniCertKey, String> {
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files.trim(), Some(names.trim())),
        None => (text.trim(), None),
    };
    if names == Some("") {
        return Err("empty names list is not allowed".to_owned());
    }
    let names = names.map(|names| names.split(',').map(|name| name.trim().to_owned()).collect());
    match files.split(',').collect::<Vec<_>>()[..] {
        [cert, key] => Ok(SniCertKey {
            cert_file: cert.trim().to_owned(),
            key_file: key.trim().to_owned(),
            names: names.unwrap_or_default(),
        }),
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

fn show_cert_key(pair: &SniCertKey) -> String {
    let files = format!("{},{}", pair.cert_file, pair.key_file);
    if pair.names.is_empty() { files } else { format!("{files}:{}", pair.names.join(",")) }
}

fn parse_modules(text: &str) -> Result<Vec<ModuleLevel>, String> {
    let module = |item: &str| match item.split('=').collect::<Vec<_>>()[..] {
        [pattern, level] if !pattern.is_empty() && !level.is_empty() => {
            let refuse = |error| format!("parsing verbosity in {}: {error}", go_text::quote(item));
            let verbosity = go_text::parse_uint31(level).map_err(refuse)?;
            Ok(ModuleLevel { pattern: pattern.to_owned(), verbosity })
        }
        _ => Err(format!("{} does not have the pattern=N format", go_text::quote(item))),
    };
    text.split(',').filter(|item| !item.is_empty()).map(module).collect()
}

fn parse_version_flag(text: &str, build: &Build<'_>) -> Result<VersionFlag, String> {
    if text == "raw" {
        return Ok(VersionFlag::Raw);
    }
    if text.starts_with('v') {
        build::may_report(text, build.git_version)?;
        return Ok(VersionFlag::Report(text.to_owned()));
    }
    Ok(if go_text::parse_bool(text)? { VersionFlag::Line } else { VersionFlag::Run })
}
