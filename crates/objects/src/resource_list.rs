//! The arithmetic of resource lists: sums, maxima and differences by resource name.
//!
//! Parity: k8s.io/apiserver/pkg/quota/v1/resources.go and k8s.io/component-helpers/resource.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::{InternedStr, Quantity, ResourceList};

impl ResourceList {
    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &InternedStr> {
        self.iter().map(|(name, _)| name)
    }

    /// Sets an amount.
    pub fn set(&mut self, name: impl Into<InternedStr>, amount: Quantity) {
        self.update(name.into(), |_| amount);
    }

    /// Adds an amount.
    pub fn add(&mut self, name: impl Into<InternedStr>, amount: Quantity) {
        self.update(name.into(), |known| known.map_or(amount, |known| known.plus(amount)));
    }

    /// Adds all amounts of another list.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(name, amount)| self.add(name.clone(), *amount));
    }

    /// Takes the larger amount of each resource.
    pub fn max_all(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.update(name.clone(), |known| known.filter(|known| known >= amount).unwrap_or(*amount));
        }
    }

    /// Keeps the entries with these names.
    pub fn retain(&mut self, keep: impl FnMut(&InternedStr) -> bool) {
        *self = self.masked(keep);
    }

    /// The entries with these names.
    #[must_use]
    pub fn masked(&self, mut keep: impl FnMut(&InternedStr) -> bool) -> Self {
        self.iter().filter(|(name, _)| keep(name)).cloned().collect()
    }

    /// What is left of this list after subtracting another one, with zero instead of negative amounts. A name of the
    /// other list alone becomes zero.
    #[must_use]
    pub fn minus_not_negative(&self, other: &Self) -> Self {
        let rest = |(name, amount): &(InternedStr, Quantity)| {
            let rest = other.amount(name).map_or(*amount, |known| amount.minus(known));
            (name.clone(), if rest.is_positive() { rest } else { Quantity::default() })
        };
        let others = other.names().filter(|name| self.amount(name).is_none());
        let zeros = others.map(|name| (name.clone(), Quantity::default()));
        self.iter().map(rest).chain(zeros).collect()
    }
}

impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.iter().try_for_each(|(name, amount)| map.serialize_entry(name, amount))?;
        map.end()
    }
}

/// `name=amount` separated by commas, as in the messages of the API server.
impl fmt::Display for ResourceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            write!(f, "{}{name}={amount}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(json: serde_json::Value) -> ResourceList {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn lists_are_added_compared_and_subtracted_by_amount() {
        let mut sum = list(serde_json::json!({"cpu": "500m", "memory": "1Gi"}));
        sum.add_all(&list(serde_json::json!({"cpu": 1, "pods": "2"})));
        assert_eq!(sum.to_string(), "cpu=1500m,memory=1Gi,pods=2");
        assert_eq!(sum, list(serde_json::json!({"cpu": "1.5", "memory": "1024Mi", "pods": 2})));
        assert_ne!(sum, list(serde_json::json!({"cpu": "1.5", "memory": "1024Mi"})));
        assert_ne!(sum, list(serde_json::json!({"cpu": "1.5", "memory": "1Gi", "podz": 2})));
        let rest =
            sum.minus_not_negative(&list(serde_json::json!({"cpu": "2", "memory": "512Mi", "x": "1"})));
        assert_eq!(rest.to_string(), "cpu=0,memory=512Mi,pods=2,x=0");
        sum.max_all(&list(serde_json::json!({"cpu": "1", "memory": "2Gi", "x": "0"})));
        assert_eq!(sum.to_string(), "cpu=1500m,memory=2Gi,pods=2,x=0");
        assert_eq!(
            serde_json::to_string(&sum).unwrap(),
            r#"{"cpu":"1500m","memory":"2Gi","pods":"2","x":"0"}"#
        );
        sum.retain(|name| *name == "pods");
        assert_eq!(sum.to_string(), "pods=2");
    }
}
