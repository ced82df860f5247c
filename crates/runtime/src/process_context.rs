//! What the parts of one process share: the way to the API, caches, clocks, chance, metrics.

use std::sync::Arc;
use std::time::Duration;

use keleustes_client::{ClientFactory, ClientOptions, Connection};

use crate::caches::Caches;
use crate::clock::{Clocks, Random};
use crate::metrics::Metrics;

/// How many requests of one controller, and how many writes of one plan, may wait for an answer at once.
pub const IN_FLIGHT_MAX: usize = 64;

/// What the parts of a process share.
pub struct ProcessContext {
    /// Makes clients.
    pub factory: ClientFactory,
    /// The metrics.
    pub metrics: Metrics,
    /// The clocks.
    pub clocks: Clocks,
    /// The source of chance.
    pub random: Random,
    /// The shared caches.
    pub caches: Caches,
}

impl ProcessContext {
    /// Furnishes a process that speaks over this connection. How many requests are under way and who hears of them
    /// is settled here; the other options are the caller's. Caches show everything again after the resync period.
    #[must_use]
    pub fn new(
        connection: Connection,
        mut options: ClientOptions,
        clocks: Clocks,
        chance: Random,
        metrics: Metrics,
        resync: Option<Duration>,
    ) -> Self {
        options.in_flight_max = Some(IN_FLIGHT_MAX);
        options.observer = Some(Arc::new(metrics.clone()));
        let factory = ClientFactory::new(connection, options);
        let informers = factory.root("shared-informers");
        let caches = Caches::new(informers, clocks.clone(), chance.clone(), metrics.clone(), resync);
        Self { factory, metrics, clocks, random: chance, caches }
    }
}
