//! How long a pod tolerates the taints of its node.

use std::time::Duration;

use keleustes_objects::{Taint, Toleration, first_that_tolerates};

/// How long a pod may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tolerance {
    /// Some taint is not tolerated.
    None,
    /// This long after the first reconcile with these taints.
    For(Duration),
    /// As long as the taints do not change.
    Forever,
}

/// How long a pod with these tolerations may stay on a node with these taints. For each taint the first
/// matching toleration counts; of these, the shortest `tolerationSeconds`.
pub(super) fn tolerance(
    taints: &[&Taint],
    tolerations: &[Toleration],
    enable_comparison_operators: bool,
) -> Tolerance {
    let mut shortest = None;
    for taint in taints {
        match first_that_tolerates(tolerations, taint, enable_comparison_operators) {
            None => return Tolerance::None,
            Some(Toleration { toleration_seconds: None, .. }) => {}
            Some(Toleration { toleration_seconds: Some(seconds), .. }) => {
                // Negative seconds mean zero.
                let seconds = u64::try_from(*seconds).unwrap_or(0);
                shortest = Some(shortest.map_or(seconds, |there: u64| there.min(seconds)));
            }
        }
    }
    shortest.map_or(Tolerance::Forever, |seconds| Tolerance::For(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(taints: Value, tolerations: Value) -> Tolerance {
        let taints: Vec<Taint> = serde_json::from_value(taints).unwrap();
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
        tolerance(&taints.iter().collect::<Vec<_>>(), &tolerations, false)
    }

    fn taint(key: &str) -> Value {
        json!({"key": key, "effect": "NoExecute"})
    }

    fn exists(key: &str) -> Value {
        json!({"key": key, "operator": "Exists"})
    }

    fn exists_for(key: &str, seconds: i64) -> Value {
        json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds})
    }

    fn seconds(seconds: u64) -> Tolerance {
        Tolerance::For(Duration::from_secs(seconds))
    }

    /// Proves TE-17.
    #[test]
    fn first_matching_toleration_counts() {
        assert_eq!(read(json!([taint("a")]), json!([exists_for("a", 60), exists("a")])), seconds(60));
        assert_eq!(read(json!([taint("a")]), json!([exists("a"), exists_for("a", 60)])), Tolerance::Forever);
        assert_eq!(read(json!([taint("a")]), json!([exists_for("b", 5), exists_for("", 7)])), seconds(7));
    }

    /// Proves TE-19, TE-20.
    #[test]
    fn shortest_toleration_seconds_counts() {
        let two = json!([taint("a"), taint("b")]);
        assert_eq!(read(two.clone(), json!([exists_for("a", 60), exists_for("b", 30)])), seconds(30));
        assert_eq!(read(two.clone(), json!([exists_for("a", 60), exists("b")])), seconds(60));
        assert_eq!(read(two.clone(), json!([exists("a"), exists("b")])), Tolerance::Forever);
        assert_eq!(read(two, json!([exists("a")])), Tolerance::None);
    }

    /// Proves TE-50.
    #[test]
    fn negative_toleration_seconds_mean_zero() {
        for none in [0, -1, i64::MIN] {
            assert_eq!(read(json!([taint("a")]), json!([exists_for("a", none)])), seconds(0));
        }
        assert_eq!(read(json!([taint("a")]), json!([exists_for("a", i64::MAX)])), seconds(i64::MAX as u64));
    }

    /// Proves TE-51.
    #[test]
    fn pod_that_tolerates_everything_stays() {
        let everything = json!([{"operator": "Exists"}]);
        assert_eq!(read(json!([taint("a"), taint("b")]), everything), Tolerance::Forever);
    }
}
