//! The items of work queues: keys of objects, and the types of what else a loop is keyed by.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use keleustes_objects::Key;

/// An item of a work queue, without its type: queues, gate and journal treat all items alike. A reconcile gets the value
/// in the type that its loop is keyed by.
#[derive(Clone)]
pub struct Item {
    key: Key,
    /// `None` if the item is the key of an object, as most are.
    value: Option<Arc<dyn AnyItem>>,
}

/// An item that is not just the key of an object: an enum or a struct of one controller, such as a periodic pass, or an
/// object together with what the cache may no longer hold when it is reconciled.
pub trait QueueItem: Clone + Ord + Send + Sync + 'static {
    /// What logs show.
    fn text(&self) -> String;

    /// The object that the item is about, else its text. Items of one key wait until the caches have observed each other's
    /// writes.
    fn key(&self) -> Key {
        Key::cluster(self.text())
    }
}

/// What a loop is keyed by: [`Key`], any [`QueueItem`], or both with [`ObjectOr`].
pub trait LoopItem: Clone + Send + Sync + 'static {
    /// The value of an item; `None` if the item has another type.
    fn from_item(item: &Item) -> Option<Cow<'_, Self>>;
}

/// What a loop is keyed by that reconciles objects and something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOr<T> {
    /// The key of an object.
    Object(Key),
    /// Something else.
    Other(T),
}

/// A pass over all objects, the only item of its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass;

impl QueueItem for Pass {
    fn text(&self) -> String {
        "pass".to_owned()
    }
}

impl LoopItem for Key {
    fn from_item(item: &Item) -> Option<Cow<'_, Self>> {
        item.value.is_none().then_some(Cow::Borrowed(&item.key))
    }
}

impl<T: QueueItem> LoopItem for T {
    fn from_item(item: &Item) -> Option<Cow<'_, Self>> {
        item.value.as_ref()?.as_any().downcast_ref().map(Cow::Borrowed)
    }
}

impl<T: QueueItem> LoopItem for ObjectOr<T> {
    fn from_item(item: &Item) -> Option<Cow<'_, Self>> {
        let other = || T::from_item(item).map(|other| Self::Other(other.into_owned()));
        Key::from_item(item).map(|key| Self::Object(key.into_owned())).or_else(other).map(Cow::Owned)
    }
}

impl Item {
    /// What the runtime knows the item by; see [`QueueItem::key`].
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The name of its type, for messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.value.as_ref().map_or(type_name::<Key>(), |value| value.type_name())
    }
}

/// A [`QueueItem`] with its type erased.
trait AnyItem: Send + Sync {
    fn text(&self) -> String;
    fn as_any(&self) -> &dyn Any;
    fn type_name(&self) -> &'static str;
    fn compare(&self, other: &dyn AnyItem) -> Ordering;
}

impl<T: QueueItem> AnyItem for T {
    fn text(&self) -> String {
        QueueItem::text(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn type_name(&self) -> &'static str {
        type_name::<T>()
    }

    fn compare(&self, other: &dyn AnyItem) -> Ordering {
        let by_type =
            || (type_name::<T>(), TypeId::of::<T>()).cmp(&(other.type_name(), other.as_any().type_id()));
        other.as_any().downcast_ref().map_or_else(by_type, |other| self.cmp(other))
    }
}

impl From<Key> for Item {
    fn from(key: Key) -> Self {
        Self { key, value: None }
    }
}

impl From<&Key> for Item {
    fn from(key: &Key) -> Self {
        key.clone().into()
    }
}

impl<T: QueueItem> From<T> for Item {
    fn from(item: T) -> Self {
        Self { key: item.key(), value: Some(Arc::new(item)) }
    }
}

/// By key; the object itself comes before other items about it.
impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then_with(|| match (&self.value, &other.value) {
            (Some(value), Some(other)) => value.compare(&**other),
            (value, other) => value.is_some().cmp(&other.is_some()),
        })
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Item {}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => f.write_str(&value.text()),
            None => self.key.fmt(f),
        }
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deleted object.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Deleted(Key, u32);

    impl QueueItem for Deleted {
        fn text(&self) -> String {
            format!("{} uid={}", self.0, self.1)
        }

        fn key(&self) -> Key {
            self.0.clone()
        }
    }

    fn key(name: &str) -> Key {
        Key::namespaced("a", name)
    }

    fn value<I: LoopItem>(item: &Item) -> Option<I> {
        I::from_item(item).map(Cow::into_owned)
    }

    #[test]
    fn item_has_the_type_that_it_was_made_of_and_no_other() {
        let [object, deleted, pass] = [key("b").into(), Deleted(key("b"), 1).into(), Pass.into()];
        assert_eq!(
            (value(&object), value(&deleted), value(&pass)),
            (Some(key("b")), None::<Key>, None::<Key>)
        );
        assert_eq!((value::<Deleted>(&object), value(&deleted)), (None, Some(Deleted(key("b"), 1))));
        assert_eq!((value::<Pass>(&object), value::<Pass>(&deleted), value(&pass)), (None, None, Some(Pass)));
        assert_eq!(value(&object), Some(ObjectOr::<Pass>::Object(key("b"))));
        assert_eq!((value(&pass), value::<ObjectOr<Pass>>(&deleted)), (Some(ObjectOr::Other(Pass)), None));
    }

    #[test]
    fn items_order_by_key_then_object_then_value() {
        let mut items: Vec<Item> = vec![
            key("b").into(),
            Deleted(key("a"), 2).into(),
            Deleted(key("a"), 1).into(),
            key("a").into(),
            Pass.into(),
            Deleted(Key::cluster("pass"), 1).into(),
        ];
        items.sort();
        let shown: Vec<_> = items.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["pass", "pass uid=1", "a/a", "a/a uid=1", "a/a uid=2", "a/b"]);
        assert_ne!(items[0], items[1], "other types are other items");
        assert_eq!(items[3], Deleted(key("a"), 1).into());
        assert_eq!((items[0].key(), items[3].key()), (&Key::cluster("pass"), &key("a")));
    }
}
