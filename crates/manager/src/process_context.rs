//! Builds the process context from the options, with the machine's clock and randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use keleustes_client::{ClientOptions, Connection, RateLimit};
use keleustes_options::Options;
use keleustes_runtime::clock::{Clocks, Random};
use keleustes_runtime::metrics::Metrics;
use keleustes_runtime::process_context::ProcessContext;

/// Builds what the parts of this process share.
pub(crate) fn build_process_context(
    options: &Options,
    connection: Connection,
    metrics: Metrics,
) -> ProcessContext {
    let throttle = options.client.throttle.as_ref();
    let client_options = ClientOptions {
        throttle: throttle.map(|rate| RateLimit { qps: rate.qps, burst: rate.burst.unsigned_abs() }),
        use_service_account_credentials: options.cloud.use_service_account_credentials,
        ..ClientOptions::default()
    };
    let (clocks, chance) = (Clocks::new(wall_nanoseconds), Random::seeded(seed()));
    let resync = Some(options.generic.min_resync_period.to_std()).filter(|period| !period.is_zero());
    let context = ProcessContext::new(connection, client_options, clocks, chance, metrics, resync);
    if !options.gates.enabled("WatchListClient") {
        context.caches.disable_watch_list();
    }
    context
}

fn wall_nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The only source of real randomness: two managers that start together must not retry in step.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}
