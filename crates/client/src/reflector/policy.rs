//! The list-and-watch protocol without IO: which request a reflector sends next.
//!
//! A session starts with a watch-list request (`sendInitialEvents=true`), or, if the server refuses that,
//! with a paged list followed by a watch. Then each watch continues from the last resourceVersion until an
//! error makes the cache unreliable; then a new session starts.

use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason, ResourceVersion};
use tokio::time::Instant;

use super::backoff::Backoff;

/// Objects per page of a list.
pub(super) const PAGE_OBJECTS: u32 = 500;
/// A watch that ends earlier without an event counts as failed.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// The range of `timeoutSeconds` of a watch.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 300..=600;
/// After this many interrupted watch-list requests the session falls back to a list.
const INTERRUPTED_WATCH_LISTS_MAX: u32 = 3;

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReflectorRequest {
    /// A watch that begins with all objects (`sendInitialEvents`).
    WatchList { version: String, timeout_seconds: u32 },
    /// A page of a list, or the whole list without a limit. An empty version is omitted.
    List { version: String, limit: Option<u32>, continue_token: Option<String> },
    /// A watch from a resourceVersion.
    Watch { version: String, timeout_seconds: u32 },
}

/// The types of watch events that carry a resourceVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
}

/// The state of a reflector's protocol.
#[derive(Debug)]
pub(super) struct Policy {
    rng: fastrand::Rng,
    backoff: Backoff,
    step: Step,
    last_sync_resource_version: ResourceVersion,
    /// The server no longer, or not yet, has that resourceVersion: request the newest instead.
    last_sync_resource_version_unavailable: bool,
    /// Watch-list requests that ended before the initial events were complete, since the last success.
    interrupted_watch_lists: u32,
    /// Whether a session may start with a watch-list request (feature gate `WatchListClient`).
    uses_watch_list: bool,
}

#[derive(Debug)]
enum Step {
    WatchList,
    List(Listing),
    Watch(Watching),
}

#[derive(Clone, Debug)]
struct Listing {
    version: String,
    limit: Option<u32>,
    continue_token: Option<String>,
    /// The resourceVersion of the first page, which is that of the list.
    first_version: Option<ResourceVersion>,
}

/// The state of a watch.
#[derive(Clone, Copy, Debug)]
struct Watching {
    /// Whether events are now ordered by resourceVersion. A watch without a start version begins with the
    /// existing objects in any order.
    ordered: bool,
}

impl Policy {
    pub(super) fn new(rng: fastrand::Rng) -> Self {
        Self {
            rng,
            backoff: Backoff::new(),
            step: Step::WatchList,
            last_sync_resource_version: ResourceVersion::default(),
            last_sync_resource_version_unavailable: false,
            interrupted_watch_lists: 0,
            uses_watch_list: true,
        }
    }

    /// Starts every session with a list.
    pub(super) fn disable_watch_list(&mut self) {
        self.uses_watch_list = false;
        self.start_session();
    }

    fn start_session(&mut self) {
        if self.uses_watch_list {
            self.step = Step::WatchList;
        } else {
            self.fall_back_to_list();
        }
    }

    /// Starts a new session from the newest state.
    pub(super) fn restart_from_newest(&mut self) {
        self.last_sync_resource_version_unavailable = true;
        self.interrupted_watch_lists = 0;
        self.start_session();
    }

    /// The resourceVersion up to which all events have been received.
    pub(super) fn last_sync_resource_version(&self) -> &ResourceVersion {
        &self.last_sync_resource_version
    }

    /// Whether the initial events of a watch-list request are incomplete.
    pub(super) fn is_receiving_initial_events(&self) -> bool {
        matches!(self.step, Step::WatchList)
    }

    /// The request to send now.
    pub(super) fn next_request(&mut self) -> ReflectorRequest {
        match &self.step {
            Step::WatchList => ReflectorRequest::WatchList {
                version: self.minimum_resource_version(),
                timeout_seconds: self.rng.u32(WATCH_SECONDS),
            },
            Step::List(listing) => ReflectorRequest::List {
                version: listing.version.clone(),
                limit: listing.limit,
                continue_token: listing.continue_token.clone(),
            },
            Step::Watch(_) => ReflectorRequest::Watch {
                version: self.last_sync_resource_version.to_string(),
                timeout_seconds: self.rng.u32(WATCH_SECONDS),
            },
        }
    }

    /// The initial events are complete; the request continues as a watch.
    pub(super) fn initial_events_complete(&mut self, version: &ResourceVersion) {
        self.synced(version, Watching { ordered: true });
    }

    /// A page was received. After the last one, returns the resourceVersion of the list.
    pub(super) fn page_received(
        &mut self,
        version: ResourceVersion,
        continue_token: Option<String>,
    ) -> Option<ResourceVersion> {
        let Step::List(listing) = &mut self.step else {
            unreachable!("a page is received only in the list step")
        };
        let version = listing.first_version.get_or_insert(version).clone();
        if let Some(token) = continue_token {
            listing.continue_token = Some(token);
            // The continue token includes the version; the server refuses both together.
            listing.version = String::new();
            return None;
        }
        let text = version.to_string();
        let ordered = !(text.is_empty() || text == "0");
        self.synced(&version, Watching { ordered });
        Some(version)
    }

    fn synced(&mut self, version: &ResourceVersion, watching: Watching) {
        self.last_sync_resource_version = version.clone();
        self.last_sync_resource_version_unavailable = false;
        self.interrupted_watch_lists = 0;
        self.step = Step::Watch(watching);
    }

    /// A watch event was received; returns whether it advances the last resourceVersion.
    pub(super) fn event(&mut self, event: EventType, version: &ResourceVersion) -> bool {
        let Step::Watch(watching) = &mut self.step else {
            return false;
        };
        watching.ordered |= event != EventType::Added;
        let advances = watching.ordered && !version.is_empty();
        if advances {
            self.last_sync_resource_version = version.clone();
        }
        advances
    }

    /// The response ended without an error. Returns the delay before the next request.
    pub(super) fn response_ended(&mut self, now: Instant, lasted: Duration, events: u64) -> Duration {
        let very_short = lasted < VERY_SHORT_WATCH && events == 0;
        match &mut self.step {
            Step::WatchList => {
                self.interrupted_watch_lists += 1;
                if very_short || self.interrupted_watch_lists >= INTERRUPTED_WATCH_LISTS_MAX {
                    self.fall_back_to_list();
                }
                Duration::ZERO
            }
            Step::Watch(_) if very_short => self.restart_session(now),
            Step::Watch(watching) => {
                // The next watch starts at the last resourceVersion; only without one is the order unknown.
                watching.ordered = !matches!(self.last_sync_resource_version.to_string().as_str(), "" | "0");
                Duration::ZERO
            }
            // Not reached for a truncated list, which is a decoding error.
            Step::List(_) => self.restart_session(now),
        }
    }

    /// The request failed, or the server ended the watch with an error. Returns the delay before the next
    /// request.
    pub(super) fn request_failed(&mut self, now: Instant, failure: &ApiError) -> Duration {
        let server_unavailable =
            matches!(failure.reason, ErrorReason::ConnectionRefused | ErrorReason::TooManyRequests);
        let version_unavailable =
            matches!(failure.reason, ErrorReason::Gone | ErrorReason::ResourceVersionTooLarge);
        match &mut self.step {
            Step::WatchList | Step::Watch(_) if server_unavailable => self.backoff_delay(now, failure),
            Step::WatchList if version_unavailable => {
                // A request for the newest state should not fail this way; back off from a server that does.
                let repeated = std::mem::replace(&mut self.last_sync_resource_version_unavailable, true);
                if repeated { self.backoff_delay(now, failure) } else { Duration::ZERO }
            }
            Step::WatchList => {
                self.fall_back_to_list();
                Duration::ZERO
            }
            Step::List(listing)
                if failure.reason == ErrorReason::Gone && listing.continue_token.is_some() =>
            {
                let unpaged = Listing::of(self.minimum_resource_version(), None);
                self.step = Step::List(unpaged);
                Duration::ZERO
            }
            Step::List(_) if version_unavailable && !self.last_sync_resource_version_unavailable => {
                self.last_sync_resource_version_unavailable = true;
                self.fall_back_to_list();
                Duration::ZERO
            }
            Step::List(_) | Step::Watch(_) => {
                let delay = self.backoff_delay(now, failure);
                self.start_session();
                delay
            }
        }
    }

    fn restart_session(&mut self, now: Instant) -> Duration {
        self.start_session();
        self.backoff.delay(now, &mut self.rng)
    }

    fn backoff_delay(&mut self, now: Instant, failure: &ApiError) -> Duration {
        let delay = self.backoff.delay(now, &mut self.rng);
        delay.max(failure.retry_after.unwrap_or_default())
    }

    fn fall_back_to_list(&mut self) {
        let version = self.minimum_resource_version();
        // The watch cache serves "not older than" only without a limit; the newest state is listed in pages.
        let use_pages = version.is_empty();
        self.step = Step::List(Listing::of(version, use_pages.then_some(PAGE_OBJECTS)));
    }

    /// The resourceVersion that the next state must not be older than. It is empty at first, which requests
    /// the newest state. The original's first list uses `0`, any state of the watch cache; a restarted
    /// process could then go back in time and repeat writes.
    fn minimum_resource_version(&self) -> String {
        if self.last_sync_resource_version_unavailable {
            String::new()
        } else {
            self.last_sync_resource_version.to_string()
        }
    }
}

impl Listing {
    fn of(version: String, limit: Option<u32>) -> Self {
        Self { version, limit, continue_token: None, first_version: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::new(fastrand::Rng::with_seed(42))
    }

    fn failure(code: u16) -> ApiError {
        ApiError::from_status(code, "", "", [], 0)
    }

    fn refused() -> ApiError {
        ApiError::transport(ErrorReason::ConnectionRefused, "")
    }

    fn too_large() -> ApiError {
        ApiError::from_status(504, "Timeout", "", ["ResourceVersionTooLarge"], 0)
    }

    fn synced_policy(version: &str) -> Policy {
        let mut policy = policy();
        policy.initial_events_complete(&ResourceVersion::from(version));
        policy
    }

    /// A policy that has synced this version and lists next.
    fn listing_from(version: &str) -> Policy {
        let mut policy = synced_policy(version);
        policy.request_failed(Instant::now(), &failure(410));
        policy.request_failed(Instant::now(), &failure(400));
        policy
    }

    fn list(version: &str, limit: Option<u32>, continue_token: Option<&str>) -> ReflectorRequest {
        ReflectorRequest::List {
            version: version.to_owned(),
            limit,
            continue_token: continue_token.map(str::to_owned),
        }
    }

    fn expect_watch_list_from(policy: &mut Policy, expected: &str) {
        match policy.next_request() {
            ReflectorRequest::WatchList { version, .. } => assert_eq!(version, expected),
            other => panic!("{other:?}"),
        }
    }

    fn expect_watch_from(policy: &mut Policy, expected: &str) {
        match policy.next_request() {
            ReflectorRequest::Watch { version, .. } => assert_eq!(version, expected),
            other => panic!("{other:?}"),
        }
    }

    const LONG: Duration = Duration::from_secs(400);

    /// Proves INF-10.
    #[test]
    fn session_starts_with_watch_list_from_newest_or_last_resource_version() {
        let mut first = policy();
        expect_watch_list_from(&mut first, "");
        let mut later = synced_policy("7");
        assert!(later.request_failed(Instant::now(), &failure(500)) > Duration::ZERO);
        expect_watch_list_from(&mut later, "7");
    }

    /// Proves INF-13.
    #[test]
    fn interrupted_watch_list_is_retried() {
        let now = Instant::now();
        for busy in [refused(), failure(429)] {
            let mut policy = policy();
            assert!(policy.request_failed(now, &busy) >= Duration::from_millis(800));
            expect_watch_list_from(&mut policy, "");
        }
        for gone in [failure(410), too_large()] {
            let mut policy = synced_policy("7");
            policy.request_failed(now, &failure(410));
            expect_watch_list_from(&mut policy, "7");
            assert_eq!(policy.request_failed(now, &gone), Duration::ZERO);
            expect_watch_list_from(&mut policy, "");
            // A server that refuses its newest state is not requested in a tight loop.
            assert!(policy.request_failed(now, &gone) > Duration::ZERO);
        }
        let mut cut = policy();
        assert_eq!(cut.response_ended(now, LONG, 3), Duration::ZERO);
        expect_watch_list_from(&mut cut, "");
    }

    #[test]
    fn retry_after_is_the_minimum_delay() {
        let busy = ApiError::from_status(429, "", "", [], 50);
        assert_eq!(policy().request_failed(Instant::now(), &busy), Duration::from_secs(50));
    }

    /// Proves INF-14, INF-24.
    #[test]
    fn refused_watch_list_falls_back_to_list_for_this_session() {
        let now = Instant::now();
        for rejected in [failure(400), failure(422), failure(500), failure(403)] {
            let mut policy = policy();
            assert_eq!(policy.request_failed(now, &rejected), Duration::ZERO);
            assert_eq!(policy.next_request(), list("", Some(500), None));
        }
        let mut short = policy();
        assert_eq!(short.response_ended(now, Duration::from_millis(999), 0), Duration::ZERO);
        assert_eq!(short.next_request(), list("", Some(500), None));
        // The next session tries the watch-list request again.
        assert!(short.request_failed(now, &failure(500)) > Duration::ZERO);
        expect_watch_list_from(&mut short, "");
    }

    #[test]
    fn watch_list_interrupted_three_times_falls_back_to_list() {
        let mut policy = policy();
        for _ in 0..INTERRUPTED_WATCH_LISTS_MAX {
            expect_watch_list_from(&mut policy, "");
            policy.response_ended(Instant::now(), Duration::from_millis(5), 1);
        }
        assert_eq!(policy.next_request(), list("", Some(500), None));
    }

    /// Proves INF-15.
    #[test]
    fn list_is_paged_only_if_it_does_not_bypass_the_watch_cache() {
        let mut first = policy();
        first.request_failed(Instant::now(), &failure(400));
        assert_eq!(first.next_request(), list("", Some(500), None));
        assert_eq!(first.page_received(ResourceVersion::from("9"), None), Some(ResourceVersion::from("9")));
        expect_watch_from(&mut first, "9");

        assert_eq!(listing_from("7").next_request(), list("7", None, None));

        let mut without_cache = policy();
        without_cache.request_failed(Instant::now(), &failure(400));
        assert_eq!(without_cache.page_received(ResourceVersion::from("9"), Some("a".to_owned())), None);
        assert_eq!(without_cache.next_request(), list("", Some(500), Some("a")));
        // The resourceVersion of a list is that of its first page.
        assert_eq!(
            without_cache.page_received(ResourceVersion::from("11"), None),
            Some(ResourceVersion::from("9"))
        );
        without_cache.request_failed(Instant::now(), &failure(410));
        without_cache.request_failed(Instant::now(), &failure(400));
        assert_eq!(without_cache.next_request(), list("9", None, None));
    }

    /// Proves INF-16.
    #[test]
    fn expired_continue_token_is_followed_by_a_list_without_limit() {
        let mut policy = policy();
        policy.request_failed(Instant::now(), &failure(400));
        policy.page_received(ResourceVersion::from("9"), Some("a".to_owned()));
        assert_eq!(policy.request_failed(Instant::now(), &failure(410)), Duration::ZERO);
        assert_eq!(policy.next_request(), list("", None, None));
        assert_eq!(
            policy.page_received(ResourceVersion::from("12"), None),
            Some(ResourceVersion::from("12"))
        );
    }

    /// Proves INF-17.
    #[test]
    fn list_at_unavailable_resource_version_is_repeated_once_for_the_newest() {
        let now = Instant::now();
        for gone in [failure(410), too_large()] {
            let mut policy = listing_from("7");
            assert_eq!(policy.request_failed(now, &gone), Duration::ZERO);
            assert_eq!(policy.next_request(), list("", Some(500), None));
            let mut repeated_failure = listing_from("7");
            repeated_failure.request_failed(now, &gone);
            assert!(repeated_failure.request_failed(now, &gone) > Duration::ZERO, "only once");
            // Success resets this: the next session requests the last resourceVersion again.
            policy.page_received(ResourceVersion::from("20"), None);
            policy.request_failed(now, &failure(500));
            expect_watch_list_from(&mut policy, "20");
        }
    }

    /// Proves INF-20.
    #[test]
    fn watch_timeout_is_between_five_and_ten_minutes() {
        let mut policy = synced_policy("7");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            match policy.next_request() {
                ReflectorRequest::Watch { timeout_seconds, .. } => seen.insert(timeout_seconds),
                other => panic!("{other:?}"),
            };
        }
        assert_eq!((seen.first(), seen.last()), (Some(&300), Some(&600)));
        assert!(seen.len() > 250);
    }

    /// Proves INF-21.
    #[test]
    fn every_event_advances_the_last_resource_version() {
        let mut policy = synced_policy("7");
        for (event, version) in [
            (EventType::Added, "8"),
            (EventType::Modified, "9"),
            (EventType::Deleted, "10"),
            (EventType::Bookmark, "11"),
        ] {
            assert!(policy.event(event, &ResourceVersion::from(version)));
            assert_eq!(policy.last_sync_resource_version(), &ResourceVersion::from(version));
        }
    }

    /// Proves INF-22.
    #[test]
    fn synthetic_added_events_do_not_advance_the_last_resource_version() {
        for unset in ["", "0"] {
            let mut policy = policy();
            policy.request_failed(Instant::now(), &failure(400));
            policy.page_received(ResourceVersion::from(unset), None);
            assert!(!policy.event(EventType::Added, &ResourceVersion::from("50")));
            assert_eq!(policy.last_sync_resource_version(), &ResourceVersion::from(unset));
            assert!(policy.event(EventType::Modified, &ResourceVersion::from("51")));
            assert!(policy.event(EventType::Added, &ResourceVersion::from("52")));
            assert_eq!(policy.last_sync_resource_version(), &ResourceVersion::from("52"));
        }
    }

    /// Proves INF-23, INF-24.
    #[test]
    fn ended_watch_continues_immediately_unless_it_was_very_short() {
        let now = Instant::now();
        let mut policy = synced_policy("7");
        policy.event(EventType::Modified, &ResourceVersion::from("8"));
        assert_eq!(policy.response_ended(now, Duration::from_millis(10), 1), Duration::ZERO);
        expect_watch_from(&mut policy, "8");
        assert_eq!(policy.response_ended(now, Duration::from_secs(1), 0), Duration::ZERO);
        expect_watch_from(&mut policy, "8");
        assert!(policy.response_ended(now, Duration::from_millis(999), 0) >= Duration::from_millis(800));
        expect_watch_list_from(&mut policy, "8");
    }

    /// Proves INF-25.
    #[test]
    fn refused_connection_and_429_back_off_without_a_new_list() {
        let mut now = Instant::now();
        let mut policy = synced_policy("7");
        let mut longest = Duration::ZERO;
        for busy in [refused(), failure(429), refused(), refused(), refused()] {
            let delay = policy.request_failed(now, &busy);
            longest = longest.max(delay);
            now += delay;
            expect_watch_from(&mut policy, "7");
        }
        assert!(longest > Duration::from_secs(10), "delays grow");
    }

    /// Proves INF-26, INF-28.
    #[test]
    fn other_errors_start_a_new_session_from_the_last_resource_version() {
        for other in [failure(410), failure(500), failure(401), failure(403), too_large()] {
            let mut policy = synced_policy("7");
            assert!(policy.request_failed(Instant::now(), &other) >= Duration::from_millis(800));
            expect_watch_list_from(&mut policy, "7");
        }
    }
}
