//! Parsing and formatting as in Go's standard library, so that command lines keep their meaning and errors keep the
//! original's wording.

mod csv;
mod duration;
mod number;
mod quantity;
mod quote;

pub(crate) use csv::{read_record, write_record};
pub use duration::GoDuration;
pub(crate) use number::{format_float, parse_bool, parse_float32, parse_float64, parse_int, parse_uint31};
pub(crate) use quantity::parse_quantity;
pub(crate) use quote::{quote, quote_char, quote_list};
