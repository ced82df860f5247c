//! The definition of a flag, from which parsing, help, completion, the man page and the reference page derive.

use std::net::Ipv4Addr;

use crate::go_text::GoDuration;

/// A flag of the manager.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The long name, with hyphens.
    pub name: &'static str,
    /// The shorthand.
    pub short: Option<char>,
    /// The type and the default value.
    pub default: FlagDefault,
    /// The help text, in sentences.
    pub help: &'static str,
    /// Where it has an effect.
    pub scope: FlagScope,
    /// The deprecation message. Help omits deprecated flags.
    pub deprecated: Option<&'static str>,
}

/// The type of a flag with its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlagDefault {
    /// A boolean.
    Bool(bool),
    /// A 32-bit integer.
    Int32(i32),
    /// A 64-bit integer.
    Int(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// A duration.
    Duration(GoDuration),
    /// A string.
    Text(&'static str),
    /// A list of strings; comma-separated and repeatable.
    List(&'static [&'static str]),
    /// A list of integers.
    Numbers,
    /// Key-value pairs.
    Map,
    /// Feature gates, each with an optional component prefix.
    Gates,
    /// An IP address.
    Ip(Ipv4Addr),
    /// A certificate and key file with optional host names; repeatable.
    CertKeys,
    /// A quantity.
    Quantity,
    /// A log level.
    Level,
    /// Log levels per module.
    Modules,
    /// `--version`.
    Version,
}

impl FlagDefault {
    /// The placeholder of the value in help; empty for booleans.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "",
            Self::Int32(_) => "int32",
            Self::Int(_) => "int",
            Self::Float32(_) => "float32",
            Self::Float64(_) => "float",
            Self::Duration(_) => "duration",
            Self::Text(_) => "string",
            Self::List(_) => "strings",
            Self::Numbers => "int32Slice",
            Self::Map => "stringToString",
            Self::Gates => "colonSeparatedMultimapStringString",
            Self::Ip(_) => "ip",
            Self::CertKeys => "namedCertKey",
            Self::Quantity => "quantity",
            Self::Level => "Level",
            Self::Modules => "pattern=N,...",
            Self::Version => "version[=true]",
        }
    }

    /// pflag's `NoOptDefVal`: the value of a flag that is given without one; `None` if it needs a value.
    #[must_use]
    pub const fn no_opt_default(self) -> Option<&'static str> {
        match self {
            Self::Bool(_) | Self::Version => Some("true"),
            _ => None,
        }
    }
}

/// Where a flag has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagScope {
    /// In the manager itself.
    Manager,
    /// In any of these controllers, once it is implemented.
    Controllers(&'static [&'static str]),
    /// Nowhere, neither here nor in the original; it is accepted for compatibility.
    Nothing,
    /// In the original, but not here. A value other than the default is warned about, with this reason.
    Unsupported(&'static str),
    /// In the original, but not here, where every value has the same effect, for this reason.
    NoCounterpart(&'static str),
}

impl FlagScope {
    /// Whether the flag has an effect, given the implemented controllers.
    #[must_use]
    pub fn has_effect(self, implemented: &[&str]) -> bool {
        match self {
            Self::Manager => true,
            Self::Controllers(names) => names.iter().any(|name| implemented.contains(name)),
            Self::Nothing | Self::Unsupported(_) | Self::NoCounterpart(_) => false,
        }
    }
}

/// A section of the help text.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The title, without the word `flags`.
    pub title: &'static str,
    /// Its flags, sorted by name.
    pub flags: &'static [Flag],
}

/// A flag of the manager itself.
pub(crate) const fn flag(name: &'static str, default: FlagDefault, help: &'static str) -> Flag {
    Flag { name, short: None, default, help, scope: FlagScope::Manager, deprecated: None }
}

impl Flag {
    pub(crate) const fn of(self, controllers: &'static [&'static str]) -> Self {
        Self { scope: FlagScope::Controllers(controllers), ..self }
    }

    pub(crate) const fn without_effect(self) -> Self {
        Self { scope: FlagScope::Nothing, ..self }
    }

    pub(crate) const fn unsupported(self, reason: &'static str) -> Self {
        Self { scope: FlagScope::Unsupported(reason), ..self }
    }

    pub(crate) const fn no_counterpart(self, reason: &'static str) -> Self {
        Self { scope: FlagScope::NoCounterpart(reason), ..self }
    }

    pub(crate) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(crate) const fn deprecated(self, text: &'static str) -> Self {
        Self { deprecated: Some(text), ..self }
    }

    /// The remark in help for a flag without effect.
    #[must_use]
    pub fn remark(&self, implemented: &[&str]) -> Option<&'static str> {
        match self.scope {
            FlagScope::Nothing | FlagScope::Unsupported(_) | FlagScope::NoCounterpart(_) => {
                Some("(accepted and without effect)")
            }
            scope if !scope.has_effect(implemented) => Some("(its controller is not there yet)"),
            _ => None,
        }
    }
}
