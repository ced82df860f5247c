//! Kinds with their Rust type erased, so that the runtime is compiled once and holds stores of every kind.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use keleustes_objects::{
    Decoder, Key, Kind, Object, ObjectMeta, PartialObjectMeta, PodParts, Projection, Resource,
    ResourceVersion,
};

use crate::{Change, Store};

/// An object with its type erased.
pub trait AnyObject: Send + Sync + 'static {
    /// Its metadata.
    fn meta(&self) -> &ObjectMeta;
    /// For downcasting.
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

/// A [`Change`] with its type erased.
#[derive(Clone)]
pub struct AnyChange {
    /// The old state.
    pub old: Option<Arc<dyn AnyObject>>,
    /// The new state.
    pub new: Option<Arc<dyn AnyObject>>,
    /// Whether this is a resync of an unchanged object.
    pub resync: bool,
}

impl AnyChange {
    /// The change with its type.
    ///
    /// # Panics
    /// If it is of another kind; event handlers are matched to stores by kind.
    pub(crate) fn typed<T: Object>(&self) -> Change<T> {
        let typed = |object: &Option<Arc<dyn AnyObject>>| {
            object.clone().map(|object| {
                object.into_any().downcast::<T>().unwrap_or_else(|_| panic!("the change is of another kind"))
            })
        };
        Change::from_parts(typed(&self.old), typed(&self.new), self.resync)
    }

    /// Whether the object is the same as before: a resync, or delivered again by a list.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let states = self.old.as_ref().zip(self.new.as_ref());
        states.is_some_and(|(old, new)| std::ptr::addr_eq(Arc::as_ptr(old), Arc::as_ptr(new)))
    }

    /// Metadata of the latest known state.
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

/// A [`Store`] with its type erased. It panics if it is given an object of another kind.
pub trait AnyStore: Send + Sync {
    /// For downcasting.
    fn as_any(&self) -> &dyn Any;
    /// For downcasting, to change the store.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// See [`Store::replace`].
    fn replace(
        &mut self,
        objects: Vec<Arc<dyn AnyObject>>,
        unreadable: &[Key],
        resource_version: ResourceVersion,
    ) -> Vec<AnyChange>;
    /// See [`Store::apply`].
    fn apply(&mut self, object: Arc<dyn AnyObject>) -> AnyChange;
    /// See [`Store::delete`].
    fn delete(&mut self, last: Arc<dyn AnyObject>) -> AnyChange;
    /// See [`Store::delete_key`].
    fn delete_key(&mut self, key: &Key, resource_version: ResourceVersion) -> Option<AnyChange>;
    /// See [`Store::bookmark`].
    fn bookmark(&mut self, resource_version: ResourceVersion);
    /// See [`Store::resource_version`].
    fn resource_version(&self) -> &ResourceVersion;
    /// Every object as a resync.
    fn resync(&self) -> Vec<AnyChange>;
    /// Every object as an addition.
    fn additions(&self) -> Vec<AnyChange>;
    /// Metadata of one object.
    fn meta(&self, key: &Key) -> Option<&ObjectMeta>;
    /// One object.
    fn object(&self, key: &Key) -> Option<Arc<dyn AnyObject>>;
    /// Calls `f` with the metadata of every object, sorted by namespace and name.
    fn for_each_meta(&self, f: &mut dyn FnMut(&ObjectMeta));
    /// How many objects there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn typed<T: Object>(object: Arc<dyn AnyObject>) -> Arc<T> {
    object.into_any().downcast().unwrap_or_else(|_| panic!("the object is of another kind than the store"))
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
        resource_version: ResourceVersion,
    ) -> Vec<AnyChange> {
        let changes = Store::replace(self, objects.into_iter().map(typed::<T>), unreadable, resource_version);
        changes.into_iter().map(AnyChange::from).collect()
    }

    fn apply(&mut self, object: Arc<dyn AnyObject>) -> AnyChange {
        Store::apply(self, typed::<T>(object)).into()
    }

    fn delete(&mut self, last: Arc<dyn AnyObject>) -> AnyChange {
        Store::delete(self, typed::<T>(last)).into()
    }

    fn delete_key(&mut self, key: &Key, resource_version: ResourceVersion) -> Option<AnyChange> {
        Store::delete_key(self, key, resource_version).map(AnyChange::from)
    }

    fn bookmark(&mut self, resource_version: ResourceVersion) {
        Store::bookmark(self, resource_version);
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

    fn object(&self, key: &Key) -> Option<Arc<dyn AnyObject>> {
        self.get(key).map(|object| object.clone() as Arc<dyn AnyObject>)
    }

    fn for_each_meta(&self, f: &mut dyn FnMut(&ObjectMeta)) {
        self.all().for_each(|object| f(Object::meta(&**object)));
    }

    fn len(&self) -> usize {
        Store::len(self)
    }
}

/// A kind with its Rust type erased: its resource, its decoder and the constructor of its store.
#[derive(Clone)]
pub struct KindEntry {
    type_id: TypeId,
    resource: Resource,
    projection: Projection,
    supports_protobuf: bool,
    decoder: Decoder<Arc<dyn AnyObject>>,
    store: fn() -> Box<dyn AnyStore>,
}

impl KindEntry {
    /// The entry of a kind with its own Rust type.
    #[must_use]
    pub fn of<T: Kind>() -> Self {
        Self::entry::<T>(T::RESOURCE, T::PROJECTION)
    }

    /// The entry of any resource, of which only the metadata is read.
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
            decoder: Decoder::new(
                |object, parts| Ok(Arc::new(T::read_parts(object, parts)?)),
                PodParts::NONE,
            ),
            store: || Box::new(Store::<T>::default()),
        }
    }

    /// The API resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The part of the resource that its cache holds.
    #[must_use]
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// Decodes objects.
    #[must_use]
    pub fn decoder(&self) -> Decoder<Arc<dyn AnyObject>> {
        self.decoder
    }

    /// The parts of pods that are decoded; none unless [`KindEntry::keeping`] adds some.
    #[must_use]
    pub fn pod_parts(&self) -> PodParts {
        self.decoder.pod_parts()
    }

    /// The same entry, which decodes these parts of pods as well.
    #[must_use]
    pub fn keeping(mut self, parts: PodParts) -> Self {
        self.decoder = self.decoder.keeping(self.pod_parts().and(parts));
        self
    }

    /// Whether the decoder reads protobuf.
    #[must_use]
    pub fn supports_protobuf(&self) -> bool {
        self.supports_protobuf
    }

    /// A new, empty store.
    #[must_use]
    pub fn new_store(&self) -> Box<dyn AnyStore> {
        (self.store)()
    }
}

/// Entries are equal if they hold the same resource in the same Rust type. The parts that they decode do not matter, because
/// all loops share one cache.
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
