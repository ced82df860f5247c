//! Parses arguments by the rules of Go's pflag, on which command lines of the original rely.
//!
//! Unlike common Rust parsers: `false` in `--flag false` is a positional argument if the flag is a boolean, underscores
//! in names are hyphens, the first use of a list flag replaces its default and later ones append, and everything after
//! `--` is positional.

use std::collections::{BTreeMap, VecDeque};

use crate::build::Build;
use crate::flag::{Flag, FlagScope};
use crate::flags;
use crate::go_text::{quote, quote_char};
use crate::value::Value;

/// The values of all flags after parsing.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    flags: BTreeMap<&'static str, FlagValue>,
    /// The positional arguments.
    pub(crate) positional: Vec<String>,
    /// Notices for stderr, about deprecated flags.
    pub(crate) notices: Vec<String>,
}

#[derive(Clone, Debug)]
struct FlagValue {
    flag: &'static Flag,
    value: Value,
    /// Whether the command line sets the flag.
    given: bool,
}

impl Values {
    /// The default values.
    pub(crate) fn defaults() -> Self {
        let hold =
            |flag: &'static Flag| (flag.name, FlagValue { flag, value: flag.default.into(), given: false });
        Self { flags: flags::all().map(hold).collect(), positional: Vec::new(), notices: Vec::new() }
    }

    /// Parses the arguments.
    pub(crate) fn read(args: impl IntoIterator<Item = String>, build: &Build<'_>) -> Result<Self, String> {
        let mut values = Self::defaults();
        let mut args: VecDeque<String> = args.into_iter().collect();
        while let Some(arg) = args.pop_front() {
            if arg == "--" {
                values.positional.extend(args.drain(..));
            } else if arg.starts_with("--") {
                values.read_long(&arg, &mut args, build)?;
            } else if arg.starts_with('-') && arg.len() > 1 {
                values.read_short(&arg, &mut args, build)?;
            } else {
                values.positional.push(arg);
            }
        }
        Ok(values)
    }

    fn read_long(&mut self, arg: &str, args: &mut VecDeque<String>, build: &Build<'_>) -> Result<(), String> {
        let body = &arg[2..];
        if body.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {arg}"));
        }
        let (name, value) = body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
        let Some(flag) = self.find(name) else {
            return Err(format!("unknown flag: --{name}"));
        };
        let value = match (value, flag.default.no_opt_default()) {
            (Some(value), _) => value.to_owned(),
            (None, Some(value)) => value.to_owned(),
            (None, None) => args.pop_front().ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        self.set(flag, &value, build)
    }

    /// Parses a group of shorthand flags: `-hv4`, `-v 4`, `-v=4`.
    fn read_short(
        &mut self,
        arg: &str,
        args: &mut VecDeque<String>,
        build: &Build<'_>,
    ) -> Result<(), String> {
        let mut letters = &arg[1..];
        while let Some(letter) = letters.chars().next() {
            let after = &letters[letter.len_utf8()..];
            let Some(flag) = flags::all().find(|flag| flag.short == Some(letter)) else {
                return Err(format!("unknown shorthand flag: {} in -{letters}", quote_char(letter)));
            };
            let (value, rest) = match (after.strip_prefix('='), flag.default.no_opt_default()) {
                // With nothing after the equals sign, the sign itself is the value or the next shorthand.
                (Some(value), _) if !value.is_empty() => (value.to_owned(), ""),
                (_, Some(value)) => (value.to_owned(), after),
                (_, None) if !after.is_empty() => (after.to_owned(), ""),
                (_, None) => {
                    let missing = || format!("flag needs an argument: {} in -{letters}", quote_char(letter));
                    (args.pop_front().ok_or_else(missing)?, "")
                }
            };
            self.set(flag, &value, build)?;
            letters = rest;
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, text: &str, build: &Build<'_>) -> Result<(), String> {
        let entry = self.entry_mut(flag.name);
        if let Err(reason) = entry.value.set(text, entry.given, build) {
            let short = flag.short.map_or(String::new(), |short| format!("-{short}, "));
            return Err(format!(
                "invalid argument {} for \"{short}--{}\" flag: {reason}",
                quote(text),
                flag.name
            ));
        }
        entry.given = true;
        if let Some(reason) = flag.deprecated {
            self.notices.push(format!("Flag --{} has been deprecated, {reason}", flag.name));
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&'static Flag> {
        self.flags.get(name.replace('_', "-").as_str()).map(|entry| entry.flag)
    }

    /// The value of a flag of the list.
    ///
    /// # Panics
    /// If the list has no such flag. Only this crate passes names, and every start reads all of them.
    pub(crate) fn value(&self, name: &str) -> &Value {
        match self.flags.get(name) {
            Some(entry) => &entry.value,
            None => panic!("there is no flag --{name} in the list"),
        }
    }

    fn entry_mut(&mut self, name: &str) -> &mut FlagValue {
        match self.flags.get_mut(name) {
            Some(entry) => entry,
            None => panic!("there is no flag --{name} in the list"),
        }
    }

    /// Whether the command line sets the flag.
    pub(crate) fn given(&self, name: &str) -> bool {
        self.flags.get(name).is_some_and(|entry| entry.given)
    }

    /// Warnings about flags that have an effect in the original only.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warning = |entry: &FlagValue| match entry.flag.scope {
            FlagScope::Unsupported(reason) if entry.value != entry.flag.default.into() => {
                let (name, value) = (entry.flag.name, &entry.value);
                Some(format!("--{name}={value} has no effect in this manager: {reason}"))
            }
            FlagScope::Controllers(_) => match &entry.value {
                Value::Int32(count) if *count < 1 && entry.flag.name.starts_with("concurrent-") => {
                    let name = entry.flag.name;
                    Some(format!("--{name}={count} has no effect in this manager: at least one worker runs"))
                }
                _ => None,
            },
            _ => None,
        };
        self.flags.values().filter_map(warning).collect()
    }

    /// All flags by name, with their formatted values; those that the original does not have only if they are set.
    pub(crate) fn formatted(&self) -> impl Iterator<Item = (&'static str, String)> {
        let is_shown = |name: &str, entry: &FlagValue| entry.given || !flags::is_own(name);
        self.flags
            .iter()
            .filter(move |(name, entry)| is_shown(name, entry))
            .map(|(name, entry)| (*name, entry.value.to_string()))
    }
}

/// Typed accessors. A wrong type is a bug in this crate that reading the defaults reveals.
macro_rules! typed {
    ($($method:ident: $variant:ident -> $type:ty;)*) => {
        impl Values {
            $(pub(crate) fn $method(&self, name: &str) -> $type {
                match self.value(name) {
                    Value::$variant(value) => value.clone(),
                    other => panic!("--{name} is not of this type: {other:?}"),
                }
            })*
        }
    };
}

typed! {
    bool: Bool -> bool;
    int32: Int32 -> i32;
    int: Int -> i64;
    float32: Float32 -> f32;
    float64: Float64 -> f64;
    duration: Duration -> crate::go_text::GoDuration;
    text: Text -> String;
    list: List -> Vec<String>;
    numbers: Numbers -> Vec<i32>;
    map: Map -> BTreeMap<String, String>;
    gates: Gates -> BTreeMap<String, Vec<String>>;
    ip: Ip -> std::net::IpAddr;
    cert_keys: CertKeys -> Vec<crate::value::SniCertKey>;
    quantity: Quantity -> keleustes_objects::Quantity;
    level: Level -> u32;
    modules: Modules -> Vec<crate::value::ModuleLevel>;
    version: Version -> crate::value::VersionFlag;
}
