//! What a reflector asks for next, given what it heard: the whole protocol of list and watch, without IO.
//!
//! A session starts with a streaming list. Where the server does not offer one it is a list in pages
//! followed by a watch. After that, watches follow each other from version to version until one fails
//! in a way that puts the cache in doubt; then a new session starts.

use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason, ResourceVersion};
use tokio::time::Instant;

use super::backoff::Backoff;

/// How many objects a page of a list holds.
pub(super) const PAGE_OBJECTS: u32 = 500;
/// A watch that is over before this, without an event, did not work.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// The server ends a watch after a time between these, in seconds.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 300..=600;
/// A streaming list that is cut this often before its end is not worth another try.
const CUT_STREAMS_MAX: u32 = 3;

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A watch that starts with all objects.
    Stream { version: String, timeout_seconds: u32 },
    /// A page of a list, or all of it if there is no limit. An empty version is left out.
    List { version: String, limit: Option<u32>, continue_token: Option<String> },
    /// A watch of what happened after a version.
    Watch { version: String, timeout_seconds: u32 },
}

/// The types of watch events that carry a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
}

/// Where a reflector stands.
#[derive(Debug)]
pub(super) struct Policy {
    chance: fastrand::Rng,
    backoff: Backoff,
    step: Step,
    last_seen: ResourceVersion,
    /// The server no longer, or not yet, has the last seen version: ask for the newest instead.
    last_seen_unavailable: bool,
    /// Streaming lists that ended before their end, since the last success.
    cut_streams: u32,
}

#[derive(Debug)]
enum Step {
    Stream,
    List(Listing),
    Watch(Watching),
}

#[derive(Clone, Debug)]
struct Listing {
    version: String,
    limit: Option<u32>,
    continue_token: Option<String>,
    /// The version that the first page names; it is the list's.
    first_version: Option<ResourceVersion>,
}

/// How far a watch has come.
#[derive(Clone, Copy, Debug)]
struct Watching {
    /// Whether events are in the order of their versions by now. A watch without a version to start
    /// from begins with the objects that exist, in any order.
    ordered: bool,
}

impl Policy {
    pub(super) fn new(chance: fastrand::Rng) -> Self {
        Self {
            chance,
            backoff: Backoff::new(),
            step: Step::Stream,
            last_seen: ResourceVersion::default(),
            last_seen_unavailable: false,
            cut_streams: 0,
        }
    }

    /// Begins a new session with the newest state that there is.
    pub(super) fn renew(&mut self) {
        self.last_seen_unavailable = true;
        self.cut_streams = 0;
        self.step = Step::Stream;
    }

    /// The version up to which everything has been heard.
    pub(super) fn last_seen(&self) -> &ResourceVersion {
        &self.last_seen
    }

    /// Whether the initial objects of a streaming list are still coming.
    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.step, Step::Stream)
    }

    /// The request to send now.
    pub(super) fn ask(&mut self) -> Ask {
        match &self.step {
            Step::Stream => {
                Ask::Stream { version: self.newest_known(), timeout_seconds: self.chance.u32(WATCH_SECONDS) }
            }
            Step::List(listing) => Ask::List {
                version: listing.version.clone(),
                limit: listing.limit,
                continue_token: listing.continue_token.clone(),
            },
            Step::Watch(_) => Ask::Watch {
                version: self.last_seen.to_string(),
                timeout_seconds: self.chance.u32(WATCH_SECONDS),
            },
        }
    }

    /// A streaming list is complete; its connection goes on as a watch.
    pub(super) fn streamed(&mut self, version: &ResourceVersion) {
        self.synced(version, Watching { ordered: true });
    }

    /// A page came. When it was the last one, the version of the whole list is returned.
    pub(super) fn paged(
        &mut self,
        version: ResourceVersion,
        continue_token: Option<String>,
    ) -> Option<ResourceVersion> {
        let Step::List(listing) = &mut self.step else {
            unreachable!("a page only answers the question for one")
        };
        let version = listing.first_version.get_or_insert(version).clone();
        if let Some(token) = continue_token {
            listing.continue_token = Some(token);
            // The token holds the version; the server refuses both together.
            listing.version = String::new();
            return None;
        }
        let text = version.to_string();
        let ordered = !(text.is_empty() || text == "0");
        self.synced(&version, Watching { ordered });
        Some(version)
    }

    fn synced(&mut self, version: &ResourceVersion, watching: Watching) {
        self.last_seen = version.clone();
        self.last_seen_unavailable = false;
        self.cut_streams = 0;
        self.step = Step::Watch(watching);
    }

    /// A watch event came; returns whether its version counts as seen.
    pub(super) fn event(&mut self, event: EventType, version: &ResourceVersion) -> bool {
        let Step::Watch(watching) = &mut self.step else {
            return false;
        };
        watching.ordered |= event != EventType::Added;
        let moves = watching.ordered && !version.is_empty();
        if moves {
            self.last_seen = version.clone();
        }
        moves
    }

    /// The answer ended without an error. Returns how long to wait before asking on.
    pub(super) fn closed(&mut self, now: Instant, lasted: Duration, events: u64) -> Duration {
        let very_short = lasted < VERY_SHORT && events == 0;
        match &mut self.step {
            Step::Stream => {
                self.cut_streams += 1;
                if very_short || self.cut_streams >= CUT_STREAMS_MAX {
                    self.list();
                }
                Duration::ZERO
            }
            Step::Watch(_) if very_short => self.start_over(now),
            Step::Watch(watching) => {
                // The next watch starts at the last seen version; only without one is order in doubt.
                watching.ordered = !matches!(self.last_seen.to_string().as_str(), "" | "0");
                Duration::ZERO
            }
            // A list that ends in the middle is an answer that cannot be read, not a close.
            Step::List(_) => self.start_over(now),
        }
    }

    /// The request failed, or the server ended its answer with an error. Returns how long to wait before
    /// asking on.
    pub(super) fn failed(&mut self, now: Instant, failure: &ApiError) -> Duration {
        let server_is_busy =
            matches!(failure.reason, ErrorReason::ConnectionRefused | ErrorReason::TooManyRequests);
        let version_is_gone =
            matches!(failure.reason, ErrorReason::Gone | ErrorReason::ResourceVersionTooLarge);
        match &mut self.step {
            Step::Stream | Step::Watch(_) if server_is_busy => self.wait(now, failure),
            Step::Stream if version_is_gone => {
                // Asking for the newest state cannot be answered so; a server that does is left alone a while.
                let again = std::mem::replace(&mut self.last_seen_unavailable, true);
                if again { self.wait(now, failure) } else { Duration::ZERO }
            }
            Step::Stream => {
                self.list();
                Duration::ZERO
            }
            Step::List(listing)
                if failure.reason == ErrorReason::Gone && listing.continue_token.is_some() =>
            {
                let whole = Listing::of(self.newest_known(), None);
                self.step = Step::List(whole);
                Duration::ZERO
            }
            Step::List(_) if version_is_gone && !self.last_seen_unavailable => {
                self.last_seen_unavailable = true;
                self.list();
                Duration::ZERO
            }
            Step::List(_) | Step::Watch(_) => {
                let wait = self.wait(now, failure);
                self.step = Step::Stream;
                wait
            }
        }
    }

    fn start_over(&mut self, now: Instant) -> Duration {
        self.step = Step::Stream;
        self.backoff.wait(now, &mut self.chance)
    }

    fn wait(&mut self, now: Instant, failure: &ApiError) -> Duration {
        let wait = self.backoff.wait(now, &mut self.chance);
        wait.max(failure.retry_after.unwrap_or_default())
    }

    fn list(&mut self) {
        let version = self.newest_known();
        // A cache answers "not older than" only without a limit; the newest state comes in pages.
        let paged = version.is_empty();
        self.step = Step::List(Listing::of(version, paged.then_some(PAGE_OBJECTS)));
    }

    /// What the next state must not be older than: nothing that was seen, and at first nothing at all, which asks for
    /// the newest. The original's first list takes any state that the server has at hand. A process that starts again
    /// may then go back in time, and do once more what has been done.
    fn newest_known(&self) -> String {
        if self.last_seen_unavailable { String::new() } else { self.last_seen.to_string() }
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

    fn streamed(version: &str) -> Policy {
        let mut policy = policy();
        policy.streamed(&ResourceVersion::from(version));
        policy
    }

    /// A policy that knows a version and is about to list from it.
    fn listing_from(version: &str) -> Policy {
        let mut policy = streamed(version);
        policy.failed(Instant::now(), &failure(410));
        policy.failed(Instant::now(), &failure(400));
        policy
    }

    fn list(version: &str, limit: Option<u32>, continue_token: Option<&str>) -> Ask {
        Ask::List { version: version.to_owned(), limit, continue_token: continue_token.map(str::to_owned) }
    }

    fn asks_stream_from(policy: &mut Policy, wanted: &str) {
        match policy.ask() {
            Ask::Stream { version, .. } => assert_eq!(version, wanted),
            other => panic!("{other:?}"),
        }
    }

    fn asks_watch_from(policy: &mut Policy, wanted: &str) {
        match policy.ask() {
            Ask::Watch { version, .. } => assert_eq!(version, wanted),
            other => panic!("{other:?}"),
        }
    }

    const LONG: Duration = Duration::from_secs(400);

    /// Proves INF-10.
    #[test]
    fn a_session_starts_with_a_stream_from_nothing_or_from_the_last_seen_version() {
        let mut first = policy();
        asks_stream_from(&mut first, "");
        let mut later = streamed("7");
        assert!(later.failed(Instant::now(), &failure(500)) > Duration::ZERO);
        asks_stream_from(&mut later, "7");
    }

    /// Proves INF-13.
    #[test]
    fn a_stream_that_does_not_get_to_its_end_is_tried_again() {
        let now = Instant::now();
        for busy in [refused(), failure(429)] {
            let mut policy = policy();
            assert!(policy.failed(now, &busy) >= Duration::from_millis(800));
            asks_stream_from(&mut policy, "");
        }
        for gone in [failure(410), too_large()] {
            let mut policy = streamed("7");
            policy.failed(now, &failure(410));
            asks_stream_from(&mut policy, "7");
            assert_eq!(policy.failed(now, &gone), Duration::ZERO);
            asks_stream_from(&mut policy, "");
            // A server that says so of its newest state is not asked in a tight loop.
            assert!(policy.failed(now, &gone) > Duration::ZERO);
        }
        let mut cut = policy();
        assert_eq!(cut.closed(now, LONG, 3), Duration::ZERO);
        asks_stream_from(&mut cut, "");
    }

    #[test]
    fn the_servers_wish_to_be_left_alone_is_heeded() {
        let wish = ApiError::from_status(429, "", "", [], 50);
        assert_eq!(policy().failed(Instant::now(), &wish), Duration::from_secs(50));
    }

    /// Proves INF-14, INF-24.
    #[test]
    fn a_stream_that_is_refused_or_does_not_work_falls_back_to_a_list_for_this_session() {
        let now = Instant::now();
        for rejected in [failure(400), failure(422), failure(500), failure(403)] {
            let mut policy = policy();
            assert_eq!(policy.failed(now, &rejected), Duration::ZERO);
            assert_eq!(policy.ask(), list("", Some(500), None));
        }
        let mut short = policy();
        assert_eq!(short.closed(now, Duration::from_millis(999), 0), Duration::ZERO);
        assert_eq!(short.ask(), list("", Some(500), None));
        // The next session tries the stream again.
        assert!(short.failed(now, &failure(500)) > Duration::ZERO);
        asks_stream_from(&mut short, "");
    }

    #[test]
    fn streams_that_are_cut_again_and_again_fall_back_to_a_list() {
        let mut policy = policy();
        for _ in 0..CUT_STREAMS_MAX {
            asks_stream_from(&mut policy, "");
            policy.closed(Instant::now(), Duration::from_millis(5), 1);
        }
        assert_eq!(policy.ask(), list("", Some(500), None));
    }

    /// Proves INF-15.
    #[test]
    fn lists_come_in_pages_only_where_that_does_not_bypass_the_servers_cache() {
        let mut first = policy();
        first.failed(Instant::now(), &failure(400));
        assert_eq!(first.ask(), list("", Some(500), None));
        assert_eq!(first.paged(ResourceVersion::from("9"), None), Some(ResourceVersion::from("9")));
        asks_watch_from(&mut first, "9");

        assert_eq!(listing_from("7").ask(), list("7", None, None));

        let mut without_cache = policy();
        without_cache.failed(Instant::now(), &failure(400));
        assert_eq!(without_cache.paged(ResourceVersion::from("9"), Some("a".to_owned())), None);
        assert_eq!(without_cache.ask(), list("", Some(500), Some("a")));
        // The version of a list is that of its first page.
        assert_eq!(without_cache.paged(ResourceVersion::from("11"), None), Some(ResourceVersion::from("9")));
        without_cache.failed(Instant::now(), &failure(410));
        without_cache.failed(Instant::now(), &failure(400));
        assert_eq!(without_cache.ask(), list("9", None, None));
    }

    /// Proves INF-16.
    #[test]
    fn pages_that_expire_are_followed_by_one_whole_list() {
        let mut policy = policy();
        policy.failed(Instant::now(), &failure(400));
        policy.paged(ResourceVersion::from("9"), Some("a".to_owned()));
        assert_eq!(policy.failed(Instant::now(), &failure(410)), Duration::ZERO);
        assert_eq!(policy.ask(), list("", None, None));
        assert_eq!(policy.paged(ResourceVersion::from("12"), None), Some(ResourceVersion::from("12")));
    }

    /// Proves INF-17.
    #[test]
    fn a_list_of_a_version_that_is_not_there_is_repeated_once_for_the_newest() {
        let now = Instant::now();
        for gone in [failure(410), too_large()] {
            let mut policy = listing_from("7");
            assert_eq!(policy.failed(now, &gone), Duration::ZERO);
            assert_eq!(policy.ask(), list("", Some(500), None));
            let mut unlucky = listing_from("7");
            unlucky.failed(now, &gone);
            assert!(unlucky.failed(now, &gone) > Duration::ZERO, "only once");
            // Success clears the state: the next session asks for what was seen.
            policy.paged(ResourceVersion::from("20"), None);
            policy.failed(now, &failure(500));
            asks_stream_from(&mut policy, "20");
        }
    }

    /// Proves INF-20.
    #[test]
    fn watches_last_between_five_and_ten_minutes() {
        let mut policy = streamed("7");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            match policy.ask() {
                Ask::Watch { timeout_seconds, .. } => seen.insert(timeout_seconds),
                other => panic!("{other:?}"),
            };
        }
        assert_eq!((seen.first(), seen.last()), (Some(&300), Some(&600)));
        assert!(seen.len() > 250);
    }

    /// Proves INF-21.
    #[test]
    fn every_event_moves_the_last_seen_version() {
        let mut policy = streamed("7");
        for (event, version) in [
            (EventType::Added, "8"),
            (EventType::Modified, "9"),
            (EventType::Deleted, "10"),
            (EventType::Bookmark, "11"),
        ] {
            assert!(policy.event(event, &ResourceVersion::from(version)));
            assert_eq!(policy.last_seen(), &ResourceVersion::from(version));
        }
    }

    /// Proves INF-22.
    #[test]
    fn objects_at_the_start_of_a_watch_from_nowhere_do_not_move_it() {
        for nowhere in ["", "0"] {
            let mut policy = policy();
            policy.failed(Instant::now(), &failure(400));
            policy.paged(ResourceVersion::from(nowhere), None);
            assert!(!policy.event(EventType::Added, &ResourceVersion::from("50")));
            assert_eq!(policy.last_seen(), &ResourceVersion::from(nowhere));
            assert!(policy.event(EventType::Modified, &ResourceVersion::from("51")));
            assert!(policy.event(EventType::Added, &ResourceVersion::from("52")));
            assert_eq!(policy.last_seen(), &ResourceVersion::from("52"));
        }
    }

    /// Proves INF-23, INF-24.
    #[test]
    fn a_watch_that_ends_goes_on_at_once_unless_it_never_worked() {
        let now = Instant::now();
        let mut policy = streamed("7");
        policy.event(EventType::Modified, &ResourceVersion::from("8"));
        assert_eq!(policy.closed(now, Duration::from_millis(10), 1), Duration::ZERO);
        asks_watch_from(&mut policy, "8");
        assert_eq!(policy.closed(now, Duration::from_secs(1), 0), Duration::ZERO);
        asks_watch_from(&mut policy, "8");
        assert!(policy.closed(now, Duration::from_millis(999), 0) >= Duration::from_millis(800));
        asks_stream_from(&mut policy, "8");
    }

    /// Proves INF-25.
    #[test]
    fn a_busy_or_absent_server_is_waited_for_without_a_new_list() {
        let mut now = Instant::now();
        let mut policy = streamed("7");
        let mut longest = Duration::ZERO;
        for busy in [refused(), failure(429), refused(), refused(), refused()] {
            let wait = policy.failed(now, &busy);
            longest = longest.max(wait);
            now += wait;
            asks_watch_from(&mut policy, "7");
        }
        assert!(longest > Duration::from_secs(10), "waits grow");
    }

    /// Proves INF-26, INF-28.
    #[test]
    fn any_other_failure_starts_over_from_the_last_seen_version() {
        for other in [failure(410), failure(500), failure(401), failure(403), too_large()] {
            let mut policy = streamed("7");
            assert!(policy.failed(Instant::now(), &other) >= Duration::from_millis(800));
            asks_stream_from(&mut policy, "7");
        }
    }
}
