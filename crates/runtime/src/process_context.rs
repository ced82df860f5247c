//! What the parts of one process share: API clients, caches, clocks, randomness, metrics.

use std::sync::Arc;
use std::time::Duration;

use keleustes_client::{ClientFactory, ClientOptions, Connection};

use crate::caches::{Caches, InformerClients};
use crate::clock::{Clocks, Random};
use crate::inspection::Inspection;
use crate::metrics::Metrics;
use crate::shadow::Shadow;

/// How many requests of one controller, and how many writes of one plan, may be in flight at once.
pub const IN_FLIGHT_MAX: usize = 64;

/// What the parts of a process share.
pub struct ProcessContext {
    /// Builds API clients.
    pub factory: ClientFactory,
    /// The metrics.
    pub metrics: Metrics,
    /// The clocks.
    pub clocks: Clocks,
    /// The source of randomness.
    pub random: Random,
    /// The shared caches.
    pub caches: Caches,
    /// The running loops and the journal of their decisions.
    pub inspection: Inspection,
    /// Set if this process writes nothing and compares its decisions with the leader's.
    pub shadow: Option<Shadow>,
}

impl ProcessContext {
    /// Builds the context of a process that uses this connection. This function sets the in-flight limit and
    /// the request observer; all other options are the caller's. Caches resync their event handlers after the
    /// resync period.
    #[must_use]
    pub fn new(
        connection: Connection,
        mut options: ClientOptions,
        clocks: Clocks,
        random: Random,
        metrics: Metrics,
        resync: Option<Duration>,
    ) -> Self {
        options.in_flight_max = Some(IN_FLIGHT_MAX);
        options.observer = Some(Arc::new(metrics.clone()));
        let factory = ClientFactory::new(connection, options);
        let clients = InformerClients {
            informers: factory.root("shared-informers"),
            metadata: factory.root("metadata-informers"),
            discovery: factory.discovery("controller-discovery"),
        };
        let caches = Caches::new(clients, clocks.clone(), random.clone(), metrics.clone(), resync);
        let inspection = Inspection::new(clocks.clone());
        Self { factory, metrics, clocks, random, caches, inspection, shadow: None }
    }

    /// Makes this process a shadow: none of its clients can write from now on.
    #[must_use]
    pub fn shadowing(mut self, window: Duration) -> Self {
        self.factory = self.factory.with_write_fence(Arc::new(|| false));
        self.shadow = Some(Shadow::new(self.clocks.clone(), &self.metrics, window));
        self
    }
}
