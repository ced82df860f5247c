//! Arguments become values by the rules of Go's pflag, which the original's command lines rely on.
//!
//! Differences from the usual Rust parsers are on purpose: `--flag false` leaves `false` over for a boolean,
//! underscores in names are hyphens, the first use of a list flag replaces its default and later ones append, and
//! everything after `--` is left over.

use std::collections::{BTreeMap, VecDeque};

use crate::build::Build;
use crate::flag::Flag;
use crate::flags;
use crate::go_text::{quote, quote_char};
use crate::value::Value;

/// The values of all flags after the arguments have been read.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    flags: BTreeMap<&'static str, Held>,
    /// What is not a flag.
    pub(crate) left_over: Vec<String>,
    /// What to tell the operator at once.
    pub(crate) notices: Vec<String>,
}

#[derive(Clone, Debug)]
struct Held {
    flag: &'static Flag,
    value: Value,
    /// Whether the command line has named the flag.
    given: bool,
}

impl Values {
    /// The values without any argument.
    pub(crate) fn defaults() -> Self {
        let hold = |flag: &'static Flag| (flag.name, Held { flag, value: flag.start.into(), given: false });
        Self { flags: flags::all().map(hold).collect(), left_over: Vec::new(), notices: Vec::new() }
    }

    /// Reads the arguments.
    pub(crate) fn read(args: impl IntoIterator<Item = String>, build: &Build<'_>) -> Result<Self, String> {
        let mut values = Self::defaults();
        let mut args: VecDeque<String> = args.into_iter().collect();
        while let Some(arg) = args.pop_front() {
            if arg == "--" {
                values.left_over.extend(args.drain(..));
            } else if arg.starts_with("--") {
                values.read_long(&arg, &mut args, build)?;
            } else if arg.starts_with('-') && arg.len() > 1 {
                values.read_short(&arg, &mut args, build)?;
            } else {
                values.left_over.push(arg);
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
        let value = match (value, flag.start.bare()) {
            (Some(value), _) => value.to_owned(),
            (None, Some(bare)) => bare.to_owned(),
            (None, None) => args.pop_front().ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        self.set(flag, &value, build)
    }

    /// Reads a cluster of one-letter flags: `-hv4`, `-v 4`, `-v=4`.
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
            let (value, rest) = match (after.strip_prefix('='), flag.start.bare()) {
                // Without anything behind the sign, the sign itself is the value or the next letter.
                (Some(value), _) if !value.is_empty() => (value.to_owned(), ""),
                (_, Some(bare)) => (bare.to_owned(), after),
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
        let held = self.held_mut(flag.name);
        if let Err(reason) = held.value.set(text, held.given, build) {
            let short = flag.short.map_or(String::new(), |short| format!("-{short}, "));
            return Err(format!(
                "invalid argument {} for \"{short}--{}\" flag: {reason}",
                quote(text),
                flag.name
            ));
        }
        held.given = true;
        if let Some(reason) = flag.deprecated {
            self.notices.push(format!("Flag --{} has been deprecated, {reason}", flag.name));
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&'static Flag> {
        self.flags.get(name.replace('_', "-").as_str()).map(|held| held.flag)
    }

    /// The value of a flag of the list.
    ///
    /// # Panics
    /// If the list has no such flag. Names are written in this crate only, and reading the defaults, as every start
    /// does, looks at each of them.
    pub(crate) fn value(&self, name: &str) -> &Value {
        match self.flags.get(name) {
            Some(held) => &held.value,
            None => panic!("there is no flag --{name} in the list"),
        }
    }

    fn held_mut(&mut self, name: &str) -> &mut Held {
        match self.flags.get_mut(name) {
            Some(held) => held,
            None => panic!("there is no flag --{name} in the list"),
        }
    }

    /// Whether the command line has named the flag.
    pub(crate) fn given(&self, name: &str) -> bool {
        self.flags.get(name).is_some_and(|held| held.given)
    }

    /// All flags by name, with their values as text.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.flags.iter().map(|(name, held)| (*name, held.value.to_string()))
    }
}

/// Typed reading; a wrong type is a mistake in this crate that the defaults already show.
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
    span: Span -> crate::go_text::Span;
    text: Text -> String;
    list: List -> Vec<String>;
    numbers: Numbers -> Vec<i32>;
    map: Map -> BTreeMap<String, String>;
    gates: Gates -> BTreeMap<String, Vec<String>>;
    ip: Ip -> std::net::IpAddr;
    cert_keys: CertKeys -> Vec<crate::value::SniCertKey>;
    quantity: Quantity -> crate::go_text::Quantity;
    level: Level -> u32;
    modules: Modules -> Vec<crate::value::ModuleLevel>;
    version: Version -> crate::value::VersionWish;
}
