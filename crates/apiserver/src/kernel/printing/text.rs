//! Texts of table cells: ages, selectors, lists.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The age in kubectl's short form; `<unknown>` without a time.
pub(super) fn age(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => duration(now.as_second() - time.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// A duration in kubectl's short form: at most two units.
pub(super) fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: i64, a: char, second: i64, b: char| {
        if second == 0 { format!("{first}{a}") } else { format!("{first}{a}{second}{b}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// A map of labels as `a=b,c=d`; `<none>` if there are none.
pub(super) fn labels(map: Option<&Value>) -> String {
    let pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    none_if_empty(pairs.join(","))
}

/// A label selector as text; `<none>` if it selects everything.
pub(crate) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return "<none>".to_owned();
    };
    let mut parts: Vec<String> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for rule in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = rule["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            rule["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match rule["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    none_if_empty(parts.join(","))
}

/// `<none>` for an empty text.
pub(super) fn none_if_empty(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// A field of all list items, joined by commas.
pub(super) fn joined(object: &Value, list: &str, field: &str) -> String {
    let items = object.pointer(list).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item[field].as_str()).collect::<Vec<_>>().join(",")
}

/// The value of a custom resource's printer column.
pub(super) fn by_path(object: &Value, path: &str, kind: &str, now: Timestamp) -> Value {
    // Supports plain paths only: names separated by dots, list indexes in brackets.
    let pointer = path
        .replace("\\.", "\u{0}")
        .replace('[', ".")
        .replace(']', "")
        .replace('.', "/")
        .replace('\u{0}', ".");
    match object.pointer(&pointer) {
        None | Some(Value::Null) => Value::Null,
        Some(value) if kind == "date" => json!(age(value.as_str().unwrap_or_default(), now)),
        Some(value) if kind == "string" && !value.is_string() => json!(value.to_string()),
        Some(value) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_kubectl_form() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (601, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 61, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (49 * 3600, "2d1h"),
            (9 * 86_400, "9d"),
            (800 * 86_400, "2y70d"),
            (3650 * 86_400, "10y"),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn selectors_are_formatted() {
        let all = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}]});
        assert_eq!(selector(Some(&all)), "a=b,c in (d,e),!f");
        assert_eq!(selector(Some(&json!({}))), "<none>");
    }
}
