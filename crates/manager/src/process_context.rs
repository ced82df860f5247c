//! Builds the process context from the options, with the machine's clock and randomness.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    let (clocks, chance) = (Clocks::new(wall_nanoseconds), Random::seeded(seed()));
    let CacheOptions { resync, streaming_lists } = cache_options(options);
    let context = ProcessContext::new(connection, client_options(options), clocks, chance, metrics, resync);
    context.inspection.journal().set_bytes_max(options.debugging.decision_journal_bytes);
    if !streaming_lists {
        context.caches.disable_watch_list();
    }
    match crate::run::shadow_window(options) {
        Some(window) => context.shadowing(window),
        None => context,
    }
}

/// The options of all clients.
pub(crate) fn client_options(options: &Options) -> ClientOptions {
    let throttle = options.client.throttle.as_ref();
    ClientOptions {
        throttle: throttle.map(|rate| RateLimit { qps: rate.qps, burst: rate.burst.unsigned_abs() }),
        // A shadow creates no tokens: all its reads use its own credentials.
        use_service_account_credentials: options.cloud.use_service_account_credentials
            && !options.debugging.shadow,
        json_only: options.client.json_only(),
        ..ClientOptions::default()
    }
}

/// How caches are filled.
#[derive(Debug)]
pub(crate) struct CacheOptions {
    /// The minimum resync period; `None` disables resyncs.
    resync: Option<Duration>,
    /// Whether lists may be streamed.
    streaming_lists: bool,
}

pub(crate) fn cache_options(options: &Options) -> CacheOptions {
    CacheOptions {
        resync: Some(options.generic.min_resync_period.to_std()).filter(|period| !period.is_zero()),
        streaming_lists: options.gates.enabled("WatchListClient"),
    }
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
