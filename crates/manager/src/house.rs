//! What the parts of the process share: the way to the API, caches, clocks, metrics.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use keleustes_client::{ClientFactory, ClientOptions, Connection, Rate};
use keleustes_options::Options;
use keleustes_runtime::caches::Caches;
use keleustes_runtime::clock::{Chance, Clocks};
use keleustes_runtime::metrics::Metrics;

/// How many requests of one controller, and how many writes of one plan, may wait for an answer at once.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// What the parts of the process share.
pub(crate) struct House {
    pub(crate) factory: ClientFactory,
    pub(crate) metrics: Metrics,
    pub(crate) clocks: Clocks,
    pub(crate) chance: Chance,
    pub(crate) caches: Caches,
}

impl House {
    pub(crate) fn new(options: &Options, connection: Connection, metrics: Metrics) -> Self {
        let throttle = options.client.throttle.as_ref();
        let client_options = ClientOptions {
            throttle: throttle.map(|rate| Rate { qps: rate.qps, burst: rate.burst.unsigned_abs() }),
            in_flight_max: Some(IN_FLIGHT_MAX),
            observer: Some(Arc::new(metrics.clone())),
            use_service_account_credentials: options.cloud.use_service_account_credentials,
        };
        let factory = ClientFactory::new(connection, client_options);
        let clocks = Clocks::new(wall_nanoseconds);
        let chance = Chance::seeded(seed());
        let resync = Some(options.generic.min_resync_period.to_std()).filter(|period| !period.is_zero());
        let informers = factory.root("shared-informers");
        let caches = Caches::new(informers, clocks.clone(), chance.clone(), metrics.clone(), resync);
        Self { factory, metrics, clocks, chance, caches }
    }
}

fn wall_nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The one place where real chance comes in: two managers that start together must not wait in step.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}
