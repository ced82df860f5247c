//! The I/O of a reconcile between a controller and the runtime, for mutants and for the checks of reconciles.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, DiscoveredResources, Key, Resource, TypeMeta};
use keleustes_plan::{
    Applied, BoxFuture, Effects, FetchResult, KindEntry, ListRequest, ListResult, MetadataPage, MonitorState,
    PageRequest, Plan, ReadRequest, ReconcileIo, View,
};

/// The I/O of a reconcile with places to intervene.
pub(crate) struct WrappedIo<'a> {
    pub(crate) io: &'a mut dyn ReconcileIo,
    /// Changes a plan before it is applied.
    pub(crate) edit_plan: Option<&'a (dyn Fn(Plan) -> Plan + Sync)>,
    /// Receives the kind of every read from the caches.
    pub(crate) on_read: Option<&'a (dyn Fn(&KindEntry) + Sync)>,
    /// Receives the outcomes of every plan.
    pub(crate) on_applied: Option<&'a (dyn Fn(&Applied) + Sync)>,
}

impl<'a> WrappedIo<'a> {
    /// The same I/O, unchanged.
    pub(crate) fn new(io: &'a mut dyn ReconcileIo) -> Self {
        Self { io, edit_plan: None, on_read: None, on_applied: None }
    }
}

impl ReconcileIo for WrappedIo<'_> {
    fn may_change_host(&self) -> bool {
        self.io.may_change_host()
    }

    fn with_view(&self, f: &mut dyn FnMut(&View<'_>)) {
        match self.on_read {
            Some(on_read) => self.io.with_view(&mut |view| f(&view.recording(on_read))),
            None => self.io.with_view(f),
        }
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        let plan = match self.edit_plan {
            Some(edit_plan) => edit_plan(plan),
            None => plan,
        };
        let on_applied = self.on_applied;
        Box::pin(async move {
            let applied = self.io.apply(plan).await;
            on_applied.into_iter().for_each(|on_applied| on_applied(&applied));
            applied
        })
    }

    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        self.io.fetch(resource, keys)
    }

    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult> {
        self.io.fetch_metadata(resource, key)
    }

    fn resource_of<'a>(
        &'a mut self,
        type_meta: &'a TypeMeta,
    ) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        self.io.resource_of(type_meta)
    }

    fn effects(&mut self, effects: Effects) {
        self.io.effects(effects);
    }

    fn list<'a>(&'a mut self, requests: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        self.io.list(requests)
    }

    fn read<'a>(&'a mut self, request: &'a ReadRequest) -> BoxFuture<'a, FetchResult> {
        self.io.read(request)
    }

    fn list_page<'a>(
        &'a mut self,
        request: &'a PageRequest,
    ) -> BoxFuture<'a, Result<MetadataPage, ApiError>> {
        self.io.list_page(request)
    }

    fn monitor<'a>(&'a mut self, resource: &'a Resource, wait: Duration) -> BoxFuture<'a, MonitorState> {
        self.io.monitor(resource, wait)
    }

    fn read_openapi<'a>(&'a mut self, document: &'a str, hash: &'a str) -> BoxFuture<'a, FetchResult> {
        self.io.read_openapi(document, hash)
    }

    fn cached_discovery(&mut self) -> BoxFuture<'_, Result<Arc<DiscoveredResources>, ApiError>> {
        self.io.cached_discovery()
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        self.io.discover()
    }
}
