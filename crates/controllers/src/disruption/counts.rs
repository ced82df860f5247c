//! How many pods a budget expects and how many of them must be healthy.

use keleustes_objects::{IntOrString, PodDisruptionBudgetSpec, Rounding};

/// The numbers that a budget asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PodCounts {
    /// How many pods there should be.
    pub(super) expected: i32,
    /// How many of them must be healthy.
    pub(super) desired_healthy: i32,
}

/// Whether a budget counts the desired pods of the controllers. With an integer `minAvailable` it counts the existing
/// pods.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// The numbers of a budget that expects this many pods.
///
/// # Errors
/// If a string is not a percentage.
pub(super) fn counts(spec: &PodDisruptionBudgetSpec, expected: i32) -> Result<PodCounts, String> {
    if let Some(max_unavailable) = &spec.max_unavailable {
        let desired_healthy = expected.saturating_sub(rounded_up(max_unavailable, expected)?).max(0);
        return Ok(PodCounts { expected, desired_healthy });
    }
    let Some(min_available) = &spec.min_available else { return Ok(PodCounts::default()) };
    Ok(PodCounts { expected, desired_healthy: rounded_up(min_available, expected)? })
}

fn rounded_up(value: &IntOrString, total: i32) -> Result<i32, String> {
    if let Some(number) = value.scaled(total, Rounding::Up) {
        return Ok(number);
    }
    // Only a string is not scaled. The texts are those of Go's `intstr` and `strconv`.
    let IntOrString::String(text) = value else { return Ok(0) };
    let error = match text.strip_suffix('%') {
        None => "invalid type: string is not a percentage".to_owned(),
        Some(number) => {
            format!("invalid value \"{text}\": strconv.Atoi: parsing \"{number}\": invalid syntax")
        }
    };
    Err(format!("invalid value for IntOrString: {error}"))
}
