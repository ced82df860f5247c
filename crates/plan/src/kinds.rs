//! Kinds without their types: what lets one runtime, compiled once, keep tables of every kind.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use keleustes_objects::{
    DecodeError, Encoded, Key, Kind, Object, ObjectMeta, PartialObjectMeta, Projection, Resource,
    ResourceVersion,
};

use crate::{Change, Store};

/// An object whose type is known to the table it belongs to.
pub trait AnyObject: Send + Sync + 'static {
    /// Its metadata.
    fn meta(&self) -> &ObjectMeta;
    /// The way back to its type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Object> AnyObject for T {
    fn meta(&self) -> &ObjectMeta {
        Object::meta(self)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A [`Change`] whose type is known to the table it came from.
#[derive(Clone)]
pub struct AnyChange {
    /// The state before.
    pub old: Option<Arc<dyn AnyObject>>,
    /// The state after.
    pub new: Option<Arc<dyn AnyObject>>,
    /// Whether nothing happened and the object is only shown again.
    pub resync: bool,
}

impl AnyChange {
    /// The change with its type.
    ///
    /// # Panics
    /// If it is of another kind; tables and those who listen to them are matched by kind.
    pub(crate) fn typed<T: Object>(&self) -> Change<T> {
        let typed = |object: &Option<Arc<dyn AnyObject>>| {
            object.clone().map(|object| {
                object.into_any().downcast::<T>().unwrap_or_else(|_| panic!("a change of another kind"))
            })
        };
        Change::from_parts(typed(&self.old), typed(&self.new), self.resync)
    }

    /// Metadata of the newest state that is known.
    #[must_use]
    pub fn meta(&self) -> Option<&ObjectMeta> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| object.meta())
    }
}

impl<T: Object> From<Change<T>> for AnyChange {
    fn from(change: Change<T>) -> Self {
        let erased = |object: Arc<T>| -> Arc<dyn AnyObject> { object };
        let (old, new, resync) = change.into_parts();
        Self { old: old.map(erased), new: new.map(erased), resync }
    }
}

/// A [`Table`] of some kind. Objects of another kind than its own are a bug and end in a panic.
pub trait AnyStore: Send + Sync {
    /// The way back to its type.
    fn as_any(&self) -> &dyn Any;
    /// The way back to its type, for changes to the table itself.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// See [`Table::replace`].
    fn replace(
        &mut self,
        objects: Vec<Arc<dyn AnyObject>>,
        unreadable: &[Key],
        version: ResourceVersion,
    ) -> Vec<AnyChange>;
    /// See [`Table::apply`].
    fn apply(&mut self, object: Arc<dyn AnyObject>) -> AnyChange;
    /// See [`Table::delete`].
    fn delete(&mut self, last: Arc<dyn AnyObject>) -> AnyChange;
    /// See [`Table::bookmark`].
    fn bookmark(&mut self, version: ResourceVersion);
    /// See [`Table::version`].
    fn resource_version(&self) -> &ResourceVersion;
    /// Every object, as a change that shows it again.
    fn resync(&self) -> Vec<AnyChange>;
    /// Every object, as a change that adds it.
    fn additions(&self) -> Vec<AnyChange>;
    /// Metadata of one object.
    fn meta(&self, key: &Key) -> Option<&ObjectMeta>;
    /// How many objects there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn typed<T: Object>(object: Arc<dyn AnyObject>) -> Arc<T> {
    object.into_any().downcast().unwrap_or_else(|_| panic!("an object of another kind than its table"))
}

impl<T: Object> AnyStore for Store<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn replace(
        &mut self,
        objects: Vec<Arc<dyn AnyObject>>,
        unreadable: &[Key],
        version: ResourceVersion,
    ) -> Vec<AnyChange> {
        let changes = Store::replace(self, objects.into_iter().map(typed::<T>), unreadable, version);
        changes.into_iter().map(AnyChange::from).collect()
    }

    fn apply(&mut self, object: Arc<dyn AnyObject>) -> AnyChange {
        Store::apply(self, typed::<T>(object)).into()
    }

    fn delete(&mut self, last: Arc<dyn AnyObject>) -> AnyChange {
        Store::delete(self, typed::<T>(last)).into()
    }

    fn bookmark(&mut self, version: ResourceVersion) {
        Store::bookmark(self, version);
    }

    fn resource_version(&self) -> &ResourceVersion {
        Store::resource_version(self)
    }

    fn resync(&self) -> Vec<AnyChange> {
        self.all().map(|object| Change::resync(object.clone()).into()).collect()
    }

    fn additions(&self) -> Vec<AnyChange> {
        self.all().map(|object| Change::added(object.clone()).into()).collect()
    }

    fn meta(&self, key: &Key) -> Option<&ObjectMeta> {
        self.get(key).map(|object| Object::meta(&**object))
    }

    fn len(&self) -> usize {
        Store::len(self)
    }
}

/// Reads one object of some kind.
pub type Decode = fn(Encoded<'_>) -> Result<Arc<dyn AnyObject>, DecodeError>;

/// A kind, by what can be done with it: decode one of its objects, make a table for them.
#[derive(Clone)]
pub struct KindEntry {
    type_id: TypeId,
    resource: Resource,
    projection: Projection,
    supports_protobuf: bool,
    decode: Decode,
    table: fn() -> Box<dyn AnyStore>,
}

impl KindEntry {
    /// The entry of a kind with a type of its own.
    #[must_use]
    pub fn of<T: Kind>() -> Self {
        Self::entry::<T>(T::RESOURCE, T::PROJECTION)
    }

    /// The entry of any resource of which only metadata is needed.
    #[must_use]
    pub fn metadata_of(resource: Resource) -> Self {
        Self::entry::<PartialObjectMeta>(resource, Projection::METADATA)
    }

    fn entry<T: Object>(resource: Resource, projection: Projection) -> Self {
        Self {
            type_id: TypeId::of::<T>(),
            resource,
            projection,
            supports_protobuf: T::SUPPORTS_PROTOBUF,
            decode: |object| Ok(Arc::new(object.read::<T>()?)),
            table: || Box::new(Store::<T>::default()),
        }
    }

    /// The API resource behind it.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Which part of the resource a cache of it holds.
    #[must_use]
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The way to decode one object.
    #[must_use]
    pub fn decode(&self) -> Decode {
        self.decode
    }

    /// Whether that also reads protobuf.
    #[must_use]
    pub fn supports_protobuf(&self) -> bool {
        self.supports_protobuf
    }

    /// A new, empty table for its objects.
    #[must_use]
    pub fn new_store(&self) -> Box<dyn AnyStore> {
        (self.table)()
    }
}

/// Two entries are equal if they stand for the same objects in the same form.
impl PartialEq for KindEntry {
    fn eq(&self, other: &Self) -> bool {
        (self.type_id, &self.resource) == (other.type_id, &other.resource)
    }
}

impl Eq for KindEntry {}

impl fmt::Debug for KindEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource)
    }
}
