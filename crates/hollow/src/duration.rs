//! Durations in annotations.

use std::time::Duration;

/// Parses a duration such as `1m30s`, `1.5s` or `200ms`.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|char: char| !(char.is_ascii_digit() || char == '.'))?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end = tail.find(|char: char| char.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_go_format() {
        for (text, wanted) in [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("200ms", Some(200)),
            ("1.5s", Some(1500)),
            ("2h", Some(7_200_000)),
            ("0s", Some(0)),
            ("30", None),
            ("-1s", None),
            ("s", None),
            ("", None),
        ] {
            assert_eq!(parse(text), wanted.map(Duration::from_millis), "{text}");
        }
    }
}
