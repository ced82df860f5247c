//! Text is read and written as Go's standard library does, so that the original's command lines keep their meaning
//! and its error messages keep their words.

mod csv;
mod duration;
mod number;
mod quantity;
mod quote;

pub(crate) use csv::{read_record, write_record};
pub use duration::Span;
pub(crate) use number::{format_float, parse_bool, parse_float32, parse_float64, parse_int, parse_uint31};
pub use quantity::Quantity;
pub(crate) use quote::{quote, quote_char, quote_list};
