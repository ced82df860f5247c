//! Kubernetes quantities, for buffer sizes, with the original's messages.

use keleustes_objects::Quantity;

const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Parses a quantity with a decimal or binary suffix, such as `512`, `1k` or `1.5Ki`.
pub(crate) fn parse_quantity(text: &str) -> Result<Quantity, String> {
    Quantity::parse(text).ok_or_else(|| {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let suffix = unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &unsigned[..unsigned.len() - suffix.len()];
        let has_number = number.contains(|c: char| c.is_ascii_digit()) && number.matches('.').count() < 2;
        let letters = suffix.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['+', '-']);
        let is_known = letters.chars().all(|c| "eEinumkKMGTP".contains(c));
        if has_number && is_known { SUFFIX } else { FORMAT }.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_and_formatted_canonically() {
        for (text, value, shown) in [
            ("0", 0, "0"),
            ("512", 512, "512"),
            ("1k", 1000, "1k"),
            ("1000", 1000, "1k"),
            ("1024", 1024, "1024"),
            ("2Ki", 2048, "2Ki"),
            ("1.5Ki", 1536, "1536"),
            ("1024Ki", 1_048_576, "1Mi"),
            ("1.5", 2, "1500m"),
            ("-1", -1, "-1"),
            ("3M", 3_000_000, "3M"),
            ("1e3", 1000, "1e3"),
        ] {
            let read = parse_quantity(text).unwrap();
            assert_eq!((read.whole(), read.to_string().as_str()), (value, shown), "{text}");
        }
        for text in ["", "abc", "1.2.3", "+", "1 k", "1x"] {
            assert_eq!(parse_quantity(text), Err(FORMAT.to_owned()), "{text}");
        }
        for text in ["1ki", "1e", "1Kim", "1e+"] {
            assert_eq!(parse_quantity(text), Err(SUFFIX.to_owned()), "{text}");
        }
    }
}
