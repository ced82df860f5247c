//! Short texts of the API: selectors, quantities, times and cron schedules.

use std::sync::LazyLock;

use keleustes_controllers::cronjob::TimeZones;
use keleustes_controllers::cronjob::schedule::{parse, rfc3339};
use keleustes_objects::{LabelSelector, Labels, Quantity, TextSelector, Time, go_time};

use crate::text;

/// A selector in either form, and the labels of two objects that it may select.
pub(crate) fn selectors(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let labels = labels_from(text);
    if let Ok(selector) = TextSelector::parse(text) {
        let printed = selector.to_string();
        let again = TextSelector::parse(&printed).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
        assert_eq!(printed, again.to_string());
        for labels in &labels {
            assert_eq!(selector.matches(labels), again.matches(labels), "{printed:?} with {labels:?}");
        }
    }
    let _ = TextSelector::parse_as_label_selector(text);
    if let Ok(selector) = serde_json::from_str::<LabelSelector>(text) {
        let _ = (selector.go_text(), selector.go_string());
        // Both compile the same selector; where both accept it they agree.
        if let (Ok(matcher), Ok(other)) = (selector.matcher(), TextSelector::of(Some(&selector))) {
            for labels in &labels {
                assert_eq!(matcher.matches(labels), other.matches(labels), "{selector:?} with {labels:?}");
            }
        }
    }
}

/// No labels, and labels whose keys and values occur in the text.
fn labels_from(text: &str) -> [Labels; 2] {
    let words: Vec<_> = text
        .split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.' | '/'))
        .filter(|word| !word.is_empty())
        .collect();
    let pairs = words.windows(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
    let object: serde_json::Map<_, _> = pairs.map(|(key, value)| (key, value.into())).collect();
    let labels = serde_json::from_value(object.into()).unwrap_or_else(|error| panic!("labels: {error}"));
    [Labels::default(), labels]
}

/// One quantity, or two separated by a space.
pub(crate) fn quantities(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let (one, other) = text.split_once(' ').unwrap_or((text, "1"));
    let _ = Quantity::approximate_float(one);
    let (Some(one), Some(other)) = (Quantity::parse(one), Quantity::parse(other)) else { return };
    for quantity in [one, other, one.plus(other), one.minus(other), one.to_whole()] {
        // What is parsed is limited to 64 bits, what is calculated is not, as in the original.
        if quantity.whole() == i64::MAX || quantity.whole() <= -i64::MAX {
            continue;
        }
        let printed = quantity.to_string();
        let again = Quantity::parse(&printed).unwrap_or_else(|| panic!("{printed:?} cannot be parsed"));
        assert_eq!(again, quantity, "{printed:?}");
        assert_eq!(again.to_string(), printed, "printed once more");
        let (milli, whole) = (i128::from(quantity.milli()), i128::from(quantity.whole()));
        assert!(milli.abs() <= whole.abs() * 1000, "{milli} {whole}");
    }
    assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
    assert_eq!(one.plus(other), other.plus(one));
}

/// RFC 3339, as JSON has it.
pub(crate) fn times(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let _ = (go_time::parse_rfc3339(text), go_time::parse_date(text));
    let Ok(time) = serde_json::from_value::<Time>(text.into()) else { return };
    let printed = time.to_string();
    let again = serde_json::from_value::<Time>(printed.as_str().into());
    assert_eq!(again.unwrap_or_else(|error| panic!("{printed:?}: {error}")), time, "{printed:?}");
}

/// A schedule. Starts in summer, in winter, in a leap year, and shortly before the clocks change.
pub(crate) fn cron(input: &[u8]) {
    static ZONES: LazyLock<TimeZones> = LazyLock::new(TimeZones::embedded);
    const STARTS: [i64; 5] = [0, 1_709_164_799, 1_711_846_799, 1_730_077_199, 4_102_444_800];
    let Some(text) = text(input) else { return };
    let Ok(schedule) = parse(text, &ZONES) else { return };
    for start in STARTS {
        let Some(next) = schedule.next(start) else { continue };
        assert!(next > start, "{next} is not after {start}");
        let _ = rfc3339(ZONES.local(), next);
        if !text.contains("@every") {
            // No time is left out: from any instant before it, the next time is the same.
            assert_eq!(schedule.next(next - 1), Some(next), "from {start}");
            assert_eq!(schedule.next(start + (next - start) / 2), Some(next), "from {start}");
        }
    }
}
