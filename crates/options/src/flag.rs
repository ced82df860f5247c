//! What a flag is: everything that parsing, help, completion, the man page and the reference page know about it.

use std::net::Ipv4Addr;

use crate::go_text::Span;

/// A flag of the manager.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its long name, with hyphens.
    pub name: &'static str,
    /// Its one-letter name.
    pub short: Option<char>,
    /// Its type and the value it has when it is not given.
    pub start: Start,
    /// What it does, in whole sentences.
    pub help: &'static str,
    /// What makes it take effect.
    pub part: Part,
    /// Why not to use it, for a flag that is only kept for old command lines. Help does not show such a flag.
    pub deprecated: Option<&'static str>,
}

/// The type of a flag together with its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// On or off.
    Bool(bool),
    /// A number of 32 bits.
    Int32(i32),
    /// A number of 64 bits.
    Int(i64),
    /// A number with a point, in single precision.
    Float32(f32),
    /// A number with a point, in double precision.
    Float64(f64),
    /// A duration with units.
    Span(Span),
    /// Any text.
    Text(&'static str),
    /// A comma-separated list that may be given repeatedly.
    List(&'static [&'static str]),
    /// A list of numbers.
    Numbers,
    /// Pairs of key and value.
    Map,
    /// Feature gates, each with an optional component before it.
    Gates,
    /// An IP address.
    Ip(Ipv4Addr),
    /// Pairs of certificate and key file with optional names, one pair a flag.
    CertKeys,
    /// A size.
    Quantity,
    /// A log level.
    Level,
    /// Log levels by module.
    Modules,
    /// Whether to print the version.
    Version,
}

impl Start {
    /// What help writes in the place of the value; nothing for flags that need none.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "",
            Self::Int32(_) => "int32",
            Self::Int(_) => "int",
            Self::Float32(_) => "float32",
            Self::Float64(_) => "float",
            Self::Span(_) => "duration",
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

    /// The value a flag of this type has when it is named without one; `None` if it needs one.
    #[must_use]
    pub const fn bare(self) -> Option<&'static str> {
        match self {
            Self::Bool(_) | Self::Version => Some("true"),
            _ => None,
        }
    }
}

/// What makes a flag take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The manager itself.
    Manager,
    /// Any of these controllers, once it has landed.
    Controllers(&'static [&'static str]),
    /// Nothing at all, in the original as little as here; the flag is accepted for old command lines.
    Nothing,
}

impl Part {
    /// Whether the flag does something, given the controllers that have landed.
    #[must_use]
    pub fn landed(self, landed: &[&str]) -> bool {
        match self {
            Self::Manager => true,
            Self::Controllers(names) => names.iter().any(|name| landed.contains(name)),
            Self::Nothing => false,
        }
    }
}

/// A section of the help text.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What stands before the word `flags`.
    pub title: &'static str,
    /// Its flags, by name.
    pub flags: &'static [Flag],
}

/// A flag of the manager itself.
pub(crate) const fn flag(name: &'static str, start: Start, help: &'static str) -> Flag {
    Flag { name, short: None, start, help, part: Part::Manager, deprecated: None }
}

impl Flag {
    pub(crate) const fn of(self, controllers: &'static [&'static str]) -> Self {
        Self { part: Part::Controllers(controllers), ..self }
    }

    pub(crate) const fn without_effect(self) -> Self {
        Self { part: Part::Nothing, ..self }
    }

    pub(crate) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(crate) const fn deprecated(self, text: &'static str) -> Self {
        Self { deprecated: Some(text), ..self }
    }

    /// What help says about a flag that does nothing yet.
    #[must_use]
    pub fn remark(&self, landed: &[&str]) -> Option<&'static str> {
        match self.part {
            Part::Nothing => Some("(accepted and without effect)"),
            part if !part.landed(landed) => Some("(its controller is not there yet)"),
            _ => None,
        }
    }
}
