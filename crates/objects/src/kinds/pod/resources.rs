//! Resource requests of containers and pods.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::{InternedStr, Quantity};

/// Amounts by resource name, sorted by name. An amount that cannot be parsed is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceList(Box<[(InternedStr, Quantity)]>);

impl ResourceList {
    /// The amount of a resource.
    #[must_use]
    pub fn amount(&self, resource: &str) -> Option<Quantity> {
        self.0.iter().find(|(name, _)| *name == resource).map(|(_, amount)| *amount)
    }

    /// Whether it names no resource.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All resources, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &(InternedStr, Quantity)> {
        self.0.iter()
    }

    /// Sets one amount to what `change` makes of the present one.
    pub(crate) fn update(&mut self, name: InternedStr, change: impl FnOnce(Option<Quantity>) -> Quantity) {
        match self.0.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(at) => self.0[at].1 = change(Some(self.0[at].1)),
            Err(at) => {
                let mut amounts = std::mem::take(&mut self.0).into_vec();
                amounts.insert(at, (name, change(None)));
                self.0 = amounts.into();
            }
        }
    }

    /// The amounts of both lists combined by `join`; a resource that only one of them names keeps its amount.
    fn joined(&self, other: &Self, join: impl Fn(Quantity, Quantity) -> Quantity) -> Self {
        let mut amounts: Vec<_> = self.0.to_vec();
        for (name, amount) in &other.0 {
            match amounts.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = join(*known, *amount),
                None => amounts.push((name.clone(), *amount)),
            }
        }
        amounts.into_iter().collect()
    }
}

impl FromIterator<(InternedStr, Quantity)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (InternedStr, Quantity)>>(amounts: I) -> Self {
        let mut amounts: Vec<_> = amounts.into_iter().collect();
        amounts.sort_by(|one, other| one.0.cmp(&other.0));
        Self(amounts.into())
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amounts;
        impl<'de> Visitor<'de> for Amounts {
            type Value = ResourceList;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of quantities")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ResourceList, M::Error> {
                let mut amounts = Vec::with_capacity(map.size_hint().unwrap_or(2));
                while let Some((name, Amount(amount))) = map.next_entry::<InternedStr, Amount>()? {
                    amounts.extend(amount.map(|amount| (name, amount)));
                }
                Ok(amounts.into_iter().collect())
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<ResourceList, E> {
                Ok(ResourceList::default())
            }
        }
        deserializer.deserialize_any(Amounts)
    }
}

/// A quantity; `None` if it cannot be parsed. One odd amount must not hide the whole object.
struct Amount(Option<Quantity>);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Amount;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(Quantity::parse(text)))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<Amount, E> {
                Ok(Amount(None))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// The requests of an init container.
pub(super) struct InitRequests<'a> {
    pub(super) requests: &'a ResourceList,
    pub(super) is_sidecar: bool,
}

/// The requests of a pod that sets some of them for the pod as a whole: those, the sum of its containers' for all other
/// resources, and the overhead. `None` if the pod sets none.
///
/// Parity: `PodRequests` of k8s.io/component-helpers/resource.
pub(super) fn pod_level_requests<'a>(
    pod: &ResourceList,
    overhead: &ResourceList,
    containers: impl Iterator<Item = &'a ResourceList>,
    init_containers: impl Iterator<Item = InitRequests<'a>>,
) -> Option<ResourceList> {
    let is_supported =
        |name: &InternedStr| *name == "cpu" || *name == "memory" || name.starts_with("hugepages-");
    let set: ResourceList = pod.iter().filter(|(name, _)| is_supported(name)).cloned().collect();
    if set.is_empty() {
        return None;
    }
    let sum = |one: Quantity, other: Quantity| one.plus(other);
    let mut total = containers.fold(ResourceList::default(), |total, one| total.joined(one, sum));
    let (mut sidecars, mut initial) = (ResourceList::default(), ResourceList::default());
    for init in init_containers {
        let during = sidecars.joined(init.requests, sum);
        if init.is_sidecar {
            total = total.joined(init.requests, sum);
            sidecars = during.clone();
        }
        initial = initial.joined(&during, Quantity::max);
    }
    let total = total.joined(&initial, Quantity::max).joined(&set, |_, set| set);
    Some(total.joined(overhead, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(json: serde_json::Value) -> ResourceList {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn amounts_are_read_and_odd_ones_left_out() {
        let read = list(serde_json::json!({"memory": "1Ki", "cpu": 2, "odd": "x", "none": null}));
        assert_eq!(read.amount("cpu").map(Quantity::milli), Some(2000));
        assert_eq!(read.amount("memory").map(Quantity::whole), Some(1024));
        assert_eq!((read.amount("odd"), read.amount("none"), read.iter().count()), (None, None, 2));
        assert!(list(serde_json::Value::Null).is_empty());
    }

    #[test]
    fn pod_level_requests_replace_those_of_containers_and_include_overhead() {
        let one = list(serde_json::json!({"cpu": "1", "memory": "10", "example.com/x": "1"}));
        let (init, sidecar) =
            (list(serde_json::json!({"memory": "30"})), list(serde_json::json!({"memory": "5"})));
        let overhead = list(serde_json::json!({"cpu": "100m"}));
        let requests = |pod: serde_json::Value| {
            let init = [
                InitRequests { requests: &sidecar, is_sidecar: true },
                InitRequests { requests: &init, is_sidecar: false },
            ];
            pod_level_requests(&list(pod), &overhead, [&one, &one].into_iter(), init.into_iter())
        };
        let set = requests(serde_json::json!({"cpu": "3"})).unwrap();
        let milli = |name: &str| set.amount(name).map(Quantity::milli);
        assert_eq!(
            (milli("cpu"), milli("memory"), milli("example.com/x")),
            (Some(3100), Some(35_000), Some(2000))
        );
        assert_eq!(requests(serde_json::json!({"example.com/x": "1"})), None);
    }
}
