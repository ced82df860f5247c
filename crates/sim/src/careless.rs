//! A controller that forgets one kind of caution, and is otherwise what ships.
//!
//! Between what a controller decides and what carries it out stands somebody who leaves out of every write what the
//! caution consists of. That it was left out at all is counted: what no write has ever had cannot be missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keleustes_objects::{ApiError, DiscoveredResources, Key, Resource, TypeMeta, Uid};
use keleustes_plan::{
    Action, Applied, BoxFuture, Context, Controller, Edited, Effects, FetchResult, Item, ListRequest,
    ListResult, LoopKind, Measurement, Plan, ReconcileError, ReconcileIo, Reconciler, Requeue, View, Write,
};
use serde_json::Value;

/// A kind of caution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caution {
    /// The owner is read afresh before something is done in its name.
    OwnerLives,
    /// A write names the life that it is about.
    Life,
    /// A write names the state that it was decided on.
    State,
    /// A key waits until the caches have seen what was written for it.
    Gate,
}

impl Caution {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OwnerLives, Self::Life, Self::State, Self::Gate];

    /// Leaves it out of a write; tells whether there was something to leave out.
    fn leave_out_of(self, write: &mut Write) -> bool {
        match (self, &mut write.action) {
            (Self::OwnerLives, _) => write.guard.take().is_some(),
            // Fields are stated, whatever lives there.
            (Self::Life, Action::Apply { .. }) => false,
            (Self::Gate, Action::Delete { .. }) | (Self::Life, _) => {
                if let Action::Put { body, .. } = &mut write.action {
                    without(body, "uid");
                }
                let named = !write.target.uid.is_empty();
                write.target.uid = Uid::default();
                named
            }
            (Self::State, Action::Delete { resource_version_precondition, .. }) => {
                resource_version_precondition.take().is_some()
            }
            (Self::State, Action::Put { body, .. } | Action::Patch { body, .. }) => stateless(body),
            (Self::State, Action::Edit(edit)) => {
                edit.expected_resource_version = None;
                let change = edit.change.clone();
                edit.change = Arc::new(move |live| {
                    let edited = change(live);
                    if edited == Edited::Changed {
                        stateless(live);
                    }
                    edited
                });
                true
            }
            // What the answer says of the state that a write led to is left out on the way back.
            (Self::Gate, _) => true,
            (Self::State, _) => false,
        }
    }
}

/// Takes the state out of a body; tells whether it was there.
fn stateless(body: &mut Value) -> bool {
    without(body, "resourceVersion")
}

/// Takes a field out of the metadata of a body; tells whether it was there.
fn without(body: &mut Value, field: &str) -> bool {
    let metadata = body.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.is_some_and(|metadata| metadata.remove(field).is_some())
}

/// Lets all loops of a controller forget a kind of caution, and counts how often there was something to forget.
pub fn forget(controller: &mut Controller, caution: Caution, forgotten: &Arc<AtomicU64>) {
    for a_loop in &mut controller.loops {
        let between = Between { caution, forgotten: forgotten.clone() };
        a_loop.loop_kind = match &a_loop.loop_kind {
            LoopKind::Decide(decide) => {
                let decide = decide.clone();
                LoopKind::Decide(Arc::new(move |view, item| between.without(decide(view, item))))
            }
            LoopKind::Reconcile(script) => {
                LoopKind::Reconcile(Arc::new(Careless { script: script.clone(), between }))
            }
        };
    }
}

/// Stands between a decision and what carries it out.
#[derive(Clone)]
struct Between {
    caution: Caution,
    forgotten: Arc<AtomicU64>,
}

impl Between {
    fn without(&self, mut plan: Plan) -> Plan {
        let forgotten = plan.writes_mut().filter_map(|write| self.caution.leave_out_of(write).then_some(1));
        self.forgotten.fetch_add(forgotten.sum(), Ordering::Relaxed);
        plan
    }
}

struct Careless {
    script: Arc<dyn Reconciler>,
    between: Between,
}

impl Reconciler for Careless {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            let mut hands = CarelessHands { hands: cx.io(), between: &self.between };
            self.script.reconcile(&mut Context::new(&mut hands), item).await
        })
    }
}

struct CarelessHands<'a> {
    hands: &'a mut dyn ReconcileIo,
    between: &'a Between,
}

impl ReconcileIo for CarelessHands<'_> {
    fn with_view(&self, eye: &mut dyn FnMut(&View<'_>)) {
        self.hands.with_view(eye);
    }

    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied> {
        self.hands.apply(self.between.without(plan))
    }

    fn measure(&mut self, measurement: Measurement) {
        self.hands.measure(measurement);
    }

    fn enqueue(&mut self, item: Item) {
        self.hands.enqueue(item);
    }

    fn fetch<'a>(&'a mut self, resource: &'a Resource, keys: &'a [Key]) -> BoxFuture<'a, Vec<FetchResult>> {
        self.hands.fetch(resource, keys)
    }

    fn fetch_metadata<'a>(&'a mut self, resource: &'a Resource, key: &'a Key) -> BoxFuture<'a, FetchResult> {
        self.hands.fetch_metadata(resource, key)
    }

    fn resource_of<'a>(
        &'a mut self,
        line: &'a TypeMeta,
    ) -> BoxFuture<'a, Result<Option<Resource>, ApiError>> {
        self.hands.resource_of(line)
    }

    fn effects(&mut self, stir: Effects) {
        self.hands.effects(stir);
    }

    fn list<'a>(&'a mut self, listings: &'a [ListRequest]) -> BoxFuture<'a, Vec<ListResult>> {
        self.hands.list(listings)
    }

    fn discover(&mut self) -> BoxFuture<'_, Result<DiscoveredResources, ApiError>> {
        self.hands.discover()
    }
}
