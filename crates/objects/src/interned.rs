//! Interned values: equal values share one allocation, which is freed with its last user.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;

use internment::ArcIntern;
use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// An interned value: all equal values share one allocation.
pub struct Interned<T: Eq + Hash + Send + Sync + 'static>(ArcIntern<T>);

impl<T: Eq + Hash + Send + Sync> Interned<T> {
    /// Returns the existing allocation of an equal value, or interns this one.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(ArcIntern::new(value))
    }
}

impl<T: Eq + Hash + Send + Sync> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Compares addresses, because equal values share one allocation.
impl<T: Eq + Hash + Send + Sync> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq + Hash + Send + Sync> Eq for Interned<T> {}

impl<T: Eq + Hash + Send + Sync + Default> Default for Interned<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Eq + Hash + Send + Sync> Deref for Interned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Eq + Hash + Send + Sync + fmt::Debug> fmt::Debug for Interned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Eq + Hash + Send + Sync + Serialize> Serialize for Interned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Eq + Hash + Send + Sync + Deserialize<'de>> Deserialize<'de> for Interned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

/// An interned list. The empty list takes no allocation.
pub struct InternedList<T: Eq + Hash + Send + Sync + 'static>(Option<Interned<Box<[T]>>>);

impl<T: Eq + Hash + Send + Sync> Clone for InternedList<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Eq + Hash + Send + Sync> PartialEq for InternedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq + Hash + Send + Sync> Eq for InternedList<T> {}

impl<T: Eq + Hash + Send + Sync> Hash for InternedList<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl<T: Eq + Hash + Send + Sync> Default for InternedList<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Eq + Hash + Send + Sync> Deref for InternedList<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0.as_ref().map_or(&[], |list| list)
    }
}

impl<'a, T: Eq + Hash + Send + Sync> IntoIterator for &'a InternedList<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Eq + Hash + Send + Sync> From<Vec<T>> for InternedList<T> {
    fn from(list: Vec<T>) -> Self {
        Self((!list.is_empty()).then(|| Interned::new(list.into())))
    }
}

impl<T: Eq + Hash + Send + Sync> FromIterator<T> for InternedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<T: Eq + Hash + Send + Sync + fmt::Debug> fmt::Debug for InternedList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

impl<T: Eq + Hash + Send + Sync + Serialize> Serialize for InternedList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self[..].serialize(serializer)
    }
}

/// `null` is the empty list, as in objects written by hand.
impl<'de, T: Eq + Hash + Send + Sync + Deserialize<'de>> Deserialize<'de> for InternedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_share_one_allocation_and_empty_ones_take_none() {
        let one: InternedList<u32> = serde_json::from_str("[1,2]").unwrap();
        let two = InternedList::from(vec![1, 2]);
        assert_eq!(one, two);
        assert!(std::ptr::eq(one.as_ptr(), two.as_ptr()));
        assert_eq!(serde_json::from_str::<InternedList<u32>>("null").unwrap(), InternedList::default());
        assert_eq!(InternedList::<u32>::from(vec![]), InternedList::default());
        assert_eq!(size_of::<InternedList<u32>>(), 8);
    }
}
