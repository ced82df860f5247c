//! Correlates events, so that few requests reach the API while the counts stay right.
//!
//! An event passes three steps. **Aggregation**: the tenth and later distinct messages about one object for
//! one reason become one aggregated event. **Counting**: an event that was written before is not created
//! again, its count increases. **Spam filter**: an object may have 25 events at once, then one every five
//! minutes.
//!
//! All state is kept here and is lost with the process: a new leader starts to count at one. The sizes are
//! bounded; the least recently used entries are evicted. One correlator serves one component of one process,
//! so component and host, which are part of every key of the original, are the same for all keys and are left
//! out. So is the resourceVersion of the counted event, which no request carries.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use keleustes_objects::Time;
use keleustes_rate::TokenBucket;
use lru::LruCache;

use super::event::{Event, EventNames, StoredEvent, WallNanos};

/// How many groups, counts and buckets are kept, each.
const ENTRIES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// How many messages of one group are passed on unchanged.
const MESSAGES_MAX: usize = 9;

/// A group without events for longer than this is reset.
const GROUP_RESET_AFTER: Duration = Duration::from_secs(600);

/// The time after which one more event about an object is allowed.
const EVENT_INTERVAL: Duration = Duration::from_secs(300);

/// How many events about an object are allowed at once.
const EVENTS_BURST: u32 = 25;

/// A reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Wall time, for timestamps and names. It may jump.
    pub wall: WallNanos,
    /// Time since a fixed moment in the past, for intervals. It never goes back.
    pub monotonic: Duration,
}

/// Whether an event is written.
#[derive(Debug, PartialEq, Eq)]
pub enum EventCorrelateResult {
    /// It is written.
    Write(Box<CorrelatedEvent>),
    /// The spam filter drops it.
    Skip,
}

/// An event as it is written; a count above one means that the API should have it already.
#[derive(Debug, PartialEq, Eq)]
pub struct CorrelatedEvent {
    /// The event.
    pub event: Event,
    counted_as: CountKey,
}

impl CorrelatedEvent {
    /// The key of its count.
    pub(super) fn counted_as(&self) -> &CountKey {
        &self.counted_as
    }
}

/// Decides which events are written, and under which name and count.
pub struct Correlator {
    groups: LruCache<GroupKey, Group>,
    counts: LruCache<CountKey, Counted>,
    buckets: LruCache<BucketKey, TokenBucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self::new()
    }
}

impl Correlator {
    /// A correlator without history.
    #[must_use]
    pub fn new() -> Self {
        // Most components stay far below the bound, so no capacity is reserved.
        Self {
            groups: LruCache::sparse(ENTRIES_MAX),
            counts: LruCache::sparse(ENTRIES_MAX),
            buckets: LruCache::sparse(ENTRIES_MAX),
        }
    }

    /// Takes one event through the three steps.
    pub fn correlate(
        &mut self,
        event: Event,
        now: ClockReading,
        names: &mut EventNames,
    ) -> EventCorrelateResult {
        let (event, counted_as) = self.aggregate(event, now, names);
        let event = self.count(event, &counted_as);
        // The filter comes last: a skipped event has been counted, and shows in the next patch.
        let full = || TokenBucket::every(Some(EVENT_INTERVAL), EVENTS_BURST);
        if self.buckets.get_or_insert_mut(BucketKey::of(&event), full).try_accept(now.monotonic) {
            EventCorrelateResult::Write(Box::new(CorrelatedEvent { event, counted_as }))
        } else {
            EventCorrelateResult::Skip
        }
    }

    /// Takes over the name and count of the API's response to a write. Repetitions that were counted since the
    /// written one, while it waited, stay counted.
    pub fn refresh(&mut self, written: CorrelatedEvent, stored: StoredEvent) {
        let known = self.counts.peek(&written.counted_as).map_or(0, |known| known.count);
        let counted_since = known.saturating_sub(written.event.count());
        let counted = Counted {
            count: stored.count.saturating_add(counted_since),
            first_timestamp: stored.first_timestamp.unwrap_or(written.event.first_timestamp),
            name: stored.into_name(),
        };
        self.counts.put(written.counted_as, counted);
    }

    fn aggregate(&mut self, event: Event, now: ClockReading, names: &mut EventNames) -> (Event, CountKey) {
        let key = GroupKey::of(&event);
        let group = self.groups.get_or_insert_mut(key.clone(), || Group::empty(now));
        if group.passes_unchanged(&event.message, now) {
            let key = CountKey::Single(SingleKey::of(&event));
            (event, key)
        } else {
            (event.aggregated(now.wall, names), CountKey::Aggregated(key))
        }
    }

    fn count(&mut self, event: Event, key: &CountKey) -> Event {
        let event = match self.counts.get(key) {
            // A response with a count of zero makes no sense; such an event starts over.
            Some(known) if known.count > 0 => {
                event.repeating(&known.name, known.first_timestamp, known.count.saturating_add(1))
            }
            _ => event,
        };
        let counted = Counted {
            count: event.count(),
            first_timestamp: event.first_timestamp,
            name: event.name().to_owned(),
        };
        self.counts.put(key.clone(), counted);
        event
    }
}

/// The messages about one object for one reason.
struct Group {
    messages: BTreeSet<String>,
    last_event_at: Duration,
}

impl Group {
    fn empty(now: ClockReading) -> Self {
        Self { messages: BTreeSet::new(), last_event_at: now.monotonic }
    }

    /// Whether the message is passed on unchanged: it is known, or the group has room for it. Otherwise it is
    /// aggregated.
    ///
    /// The original makes room by dropping an arbitrary message. Here the current one is dropped: messages
    /// that were passed on keep their own events, the rest share one, and no message changes sides.
    fn passes_unchanged(&mut self, message: &str, now: ClockReading) -> bool {
        if now.monotonic.saturating_sub(self.last_event_at) > GROUP_RESET_AFTER {
            self.messages.clear();
        }
        self.last_event_at = now.monotonic;
        if self.messages.contains(message) {
            return true;
        }
        let has_room = self.messages.len() < MESSAGES_MAX;
        if has_room {
            self.messages.insert(message.to_owned());
        }
        has_room
    }
}

/// An event as the API stores it or soon will.
struct Counted {
    name: String,
    first_timestamp: Time,
    count: u32,
}

/// All events about one object of one type (Normal or Warning).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BucketKey(Box<str>);

/// All events about one object for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey(Box<str>);

/// One message about one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SingleKey(Box<str>);

/// The key of a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CountKey {
    Single(SingleKey),
    Aggregated(GroupKey),
}

impl BucketKey {
    fn of(event: &Event) -> Self {
        Self(joined(event, &[]))
    }
}

impl GroupKey {
    fn of(event: &Event) -> Self {
        Self(joined(event, &[&event.reason]))
    }
}

impl SingleKey {
    fn of(event: &Event) -> Self {
        let field_path = &event.involved_object.field_path;
        // The message comes last: of all parts only it may contain any character.
        Self(joined(event, &[&event.reason, field_path, &event.message]))
    }
}

/// One allocation per key. Only messages may contain the separator.
fn joined(event: &Event, suffix: &[&str]) -> Box<str> {
    let object = &event.involved_object;
    let uid = object.uid.to_string();
    let mut parts =
        vec![event.severity, &object.kind, &object.api_version, &object.namespace, &object.name, &uid];
    parts.extend_from_slice(suffix);
    parts.join("\0").into_boxed_str()
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{ResourceVersion, Uid};
    use keleustes_plan::{EventType, InvolvedObject, PlannedEvent};
    use serde_json::{Value, json};

    use super::super::event::tests::{NOW, names, pod};
    use super::*;

    /// A correlator and a clock.
    struct Pipeline {
        correlator: Correlator,
        names: EventNames,
        seconds: u64,
    }

    impl Pipeline {
        fn new() -> Self {
            Self { correlator: Correlator::new(), names: names(), seconds: 0 }
        }

        fn moment(&self) -> ClockReading {
            ClockReading {
                wall: WallNanos(NOW.0 + i64::try_from(self.seconds).unwrap() * 1_000_000_000),
                monotonic: Duration::from_secs(self.seconds),
            }
        }

        fn correlate(&mut self, event: PlannedEvent) -> EventCorrelateResult {
            let now = self.moment();
            let event = Event::new(event, "job-controller", now.wall, &mut self.names);
            self.correlator.correlate(event, now, &mut self.names)
        }

        fn written(&mut self, event: PlannedEvent) -> CorrelatedEvent {
            match self.correlate(event) {
                EventCorrelateResult::Write(correlated) => *correlated,
                EventCorrelateResult::Skip => panic!("the event was skipped"),
            }
        }

        fn warning(&mut self, reason: &str, message: &str) -> Event {
            self.written(PlannedEvent::warning(pod(), reason, message)).event
        }
    }

    fn json_of(event: &Event) -> Value {
        serde_json::to_value(event).unwrap()
    }

    /// Proves EVT-32, EVT-33, EVT-34, EVT-75.
    #[test]
    fn tenth_and_later_messages_are_aggregated() {
        let mut pipeline = Pipeline::new();
        let mut singles = BTreeSet::new();
        for at in 1..=9 {
            let event = pipeline.warning("Failed", &format!("attempt {at}"));
            assert_eq!((event.message.as_str(), event.count()), (format!("attempt {at}").as_str(), 1));
            singles.insert(event.name().to_owned());
        }
        assert_eq!(singles.len(), 9);

        pipeline.seconds = 2;
        let tenth = pipeline.warning("Failed", "attempt 10");
        assert_eq!(tenth.message, "(combined from similar events): attempt 10");
        assert_eq!(tenth.count(), 1);
        assert!(!singles.contains(tenth.name()));
        let body = json_of(&tenth);
        assert_eq!(body["firstTimestamp"], "2026-11-15T09:00:03Z");
        assert_eq!(body["lastTimestamp"], "2026-11-15T09:00:03Z");

        let eleventh = pipeline.warning("Failed", "attempt 11");
        assert_eq!(eleventh.message, "(combined from similar events): attempt 11");
        assert_eq!((eleventh.name(), eleventh.count()), (tenth.name(), 2));

        for at in 1..=9 {
            pipeline.warning("Lost", &format!("attempt {at}"));
        }
        let other = pipeline.warning("Lost", "attempt 10");
        assert_eq!(other.message, "(combined from similar events): attempt 10");
        assert_eq!(other.count(), 1, "another reason is another group");
        assert_ne!(other.name(), tenth.name());
    }

    /// Proves EVT-35.
    #[test]
    fn aggregated_event_keeps_object_and_reason_but_no_annotations_and_no_reporter() {
        let mut pipeline = Pipeline::new();
        for at in 1..=9 {
            pipeline.warning("Failed", &format!("attempt {at}"));
        }
        let mut event = PlannedEvent::warning(pod(), "Failed", "attempt 10");
        event.annotations.insert("a".to_owned(), "b".to_owned());
        let body = json_of(&pipeline.written(event).event);
        assert_eq!(body["metadata"].get("annotations"), None);
        assert_eq!(body.get("reportingComponent"), None);
        assert_eq!(body["metadata"]["namespace"], "shop");
        assert_eq!(body["involvedObject"]["uid"], pod().uid.to_string());
        assert_eq!(body["type"], "Warning");
        assert_eq!(body["reason"], "Failed");
        assert_eq!(body["source"], json!({"component": "job-controller"}));
    }

    /// Proves EVT-35, EVT-85.
    #[test]
    fn known_message_is_not_aggregated() {
        let mut pipeline = Pipeline::new();
        for at in 1..=12 {
            pipeline.warning("Failed", &format!("attempt {at}"));
        }
        let group = pipeline.correlator.groups.peek_mru().unwrap().1;
        assert_eq!(group.messages.len(), 9);
        let known = group.messages.first().unwrap().clone();
        let event = pipeline.warning("Failed", &known);
        assert_eq!((event.message.as_str(), event.count()), (known.as_str(), 2));
    }

    /// Proves EVT-32.
    #[test]
    fn group_is_reset_after_ten_minutes_without_events() {
        let mut pipeline = Pipeline::new();
        for at in 1..=9 {
            pipeline.seconds += 600;
            pipeline.warning("Failed", &format!("attempt {at}"));
        }
        pipeline.seconds += 600;
        let still = pipeline.warning("Failed", "attempt 10");
        assert!(still.message.starts_with("(combined"), "{}", still.message);
        pipeline.seconds += 601;
        assert_eq!(pipeline.warning("Failed", "attempt 11").message, "attempt 11");
    }

    fn changed(change: impl FnOnce(&mut PlannedEvent)) -> Event {
        let mut event = PlannedEvent::warning(pod(), "Failed", "no");
        change(&mut event);
        Event::new(event, "job-controller", NOW, &mut names())
    }

    /// A change of a planned event, and whether it leads to another group, single event and bucket.
    type KeyCase = (fn(&mut PlannedEvent), [bool; 3]);

    /// Proves EVT-31, EVT-36, EVT-39.
    #[test]
    fn keys_differ_where_they_should() {
        let cases: [KeyCase; 10] = [
            (|event| event.involved_object.kind = "Job".to_owned(), [true, true, true]),
            (|event| event.involved_object.namespace = "b".to_owned(), [true, true, true]),
            (|event| event.involved_object.name = "b".to_owned(), [true, true, true]),
            (|event| event.involved_object.uid = Uid::from("b"), [true, true, true]),
            (|event| event.involved_object.api_version = "v2".to_owned(), [true, true, true]),
            (|event| event.event_type = EventType::Normal, [true, true, true]),
            (|event| event.reason = "Other".to_owned(), [true, true, false]),
            (|event| event.message = "yes".to_owned(), [false, true, false]),
            (|event| event.involved_object.field_path = "spec".to_owned(), [false, true, false]),
            (|event| event.involved_object.resource_version = ResourceVersion::from("42"), [false; 3]),
        ];
        let plain = changed(|_| {});
        for (at, (change, expected)) in cases.into_iter().enumerate() {
            let event = changed(change);
            let differs = [
                GroupKey::of(&event) != GroupKey::of(&plain),
                SingleKey::of(&event) != SingleKey::of(&plain),
                BucketKey::of(&event) != BucketKey::of(&plain),
            ];
            assert_eq!(differs, expected, "case {at}");
        }
        let shifted = changed(|event| {
            event.involved_object.namespace = "shopw".to_owned();
            event.involved_object.name = "eb-1".to_owned();
        });
        assert_ne!(BucketKey::of(&shifted), BucketKey::of(&plain));
    }

    /// Proves EVT-37, EVT-38, EVT-75, EVT-81.
    #[test]
    fn repetition_increases_the_count_of_the_first_event() {
        let mut pipeline = Pipeline::new();
        let first = pipeline.warning("Failed", "no");
        pipeline.seconds = 60;
        let later = InvolvedObject { resource_version: ResourceVersion::from("99"), ..pod() };
        let second = pipeline.written(PlannedEvent::warning(later, "Failed", "no")).event;
        assert_eq!((second.name(), second.count()), (first.name(), 2));
        let body = json_of(&second);
        assert_eq!(body["firstTimestamp"], "2026-11-15T09:00:01Z");
        assert_eq!(
            serde_json::to_value(second.repetition()).unwrap(),
            json!({"count": 2, "lastTimestamp": "2026-11-15T09:01:01Z", "message": "no"})
        );
    }

    /// Proves EVT-46.
    #[test]
    fn response_of_the_api_replaces_the_count() {
        let mut pipeline = Pipeline::new();
        let written = pipeline.written(PlannedEvent::warning(pod(), "Failed", "no"));
        let answer = json!({
            "metadata": {"name": "other", "resourceVersion": "7"},
            "count": 5,
            "firstTimestamp": "2026-01-01T00:00:00Z",
        });
        let stored = serde_json::from_value(answer).unwrap();
        pipeline.correlator.refresh(written, stored);
        let next = pipeline.warning("Failed", "no");
        assert_eq!((next.name(), next.count()), ("other", 6));
        assert_eq!(json_of(&next)["firstTimestamp"], "2026-01-01T00:00:00Z");
    }

    /// Proves EVT-30, EVT-39, EVT-40, EVT-83.
    #[test]
    fn events_beyond_the_burst_are_skipped_but_counted() {
        let mut pipeline = Pipeline::new();
        for at in 1..=24 {
            pipeline.warning(&format!("Reason{at}"), "no");
        }
        assert_eq!(pipeline.warning("Failed", "no").count(), 1);
        let failed = || PlannedEvent::warning(pod(), "Failed", "no");
        assert_eq!(pipeline.correlate(PlannedEvent::warning(pod(), "New", "no")), EventCorrelateResult::Skip);
        assert_eq!(pipeline.correlate(failed()), EventCorrelateResult::Skip);
        pipeline.seconds = 299;
        assert_eq!(pipeline.correlate(failed()), EventCorrelateResult::Skip);
        pipeline.seconds = 300;
        assert_eq!(pipeline.warning("Failed", "no").count(), 4);
        assert_eq!(pipeline.correlate(failed()), EventCorrelateResult::Skip);
        pipeline.seconds = 100_000;
        for at in 1..=25 {
            assert_eq!(pipeline.warning("Failed", "no").count(), 5 + at);
        }
        assert_eq!(pipeline.correlate(failed()), EventCorrelateResult::Skip, "the bucket holds 25 at most");
    }

    /// Proves EVT-40, EVT-46.
    #[test]
    fn response_to_a_write_keeps_what_was_counted_since() {
        let mut pipeline = Pipeline::new();
        let failed = || PlannedEvent::warning(pod(), "Failed", "no");
        let stored = |count: u32| {
            let body = json!({"metadata": {"name": "stored"}, "count": count});
            serde_json::from_value::<StoredEvent>(body).unwrap()
        };
        let first = pipeline.written(failed());
        pipeline.correlator.refresh(first, stored(1));
        let second = pipeline.written(failed());
        let third = pipeline.written(failed());
        assert_eq!((second.event.count(), third.event.count()), (2, 3));
        pipeline.correlator.refresh(second, stored(2));
        assert_eq!(pipeline.written(failed()).event.count(), 4, "the third was counted");
        pipeline.correlator.refresh(third, stored(30));
        assert_eq!(pipeline.written(failed()).event.count(), 32, "the server's count, and the fourth");
    }

    /// Proves EVT-30, EVT-39.
    #[test]
    fn aggregated_events_are_filtered_like_others() {
        let mut pipeline = Pipeline::new();
        for at in 1..=25 {
            pipeline.warning("Failed", &format!("attempt {at}"));
        }
        let event = PlannedEvent::warning(pod(), "Failed", "attempt 26");
        assert_eq!(pipeline.correlate(event), EventCorrelateResult::Skip);
        pipeline.seconds = 300;
        let event = pipeline.warning("Failed", "attempt 27");
        assert_eq!(event.message, "(combined from similar events): attempt 27");
        assert_eq!(event.count(), 18, "attempts 10 to 27, the skipped one included");
    }

    /// Proves EVT-41.
    #[test]
    fn normal_and_warning_have_separate_buckets_and_eviction_refills_them() {
        let mut pipeline = Pipeline::new();
        for _ in 1..=25 {
            pipeline.warning("Failed", "no");
        }
        let warning = || PlannedEvent::warning(pod(), "Failed", "no");
        assert_eq!(pipeline.correlate(warning()), EventCorrelateResult::Skip);
        pipeline.written(PlannedEvent::normal(pod(), "Failed", "no"));

        let mut restarted = Pipeline::new();
        restarted.written(warning());

        assert_eq!(pipeline.correlate(warning()), EventCorrelateResult::Skip);
        for at in 0..4096 {
            let other = InvolvedObject { name: format!("other-{at}"), ..pod() };
            pipeline.written(PlannedEvent::normal(other, "Fine", "yes"));
        }
        assert_eq!(pipeline.written(warning()).event.count(), 1, "the count was evicted as well");
    }

    /// Proves EVT-30.
    #[test]
    fn each_cache_holds_4096_entries_and_evicts_the_least_recently_used() {
        let mut pipeline = Pipeline::new();
        let failure_of = |at: usize| {
            let object = InvolvedObject { name: format!("pod-{at}"), ..pod() };
            PlannedEvent::warning(object, "Failed", "no")
        };
        for at in 0..4096 {
            pipeline.written(failure_of(at));
        }
        assert_eq!(pipeline.written(failure_of(0)).event.count(), 2, "all are kept");
        pipeline.written(failure_of(4096));
        let correlator = &pipeline.correlator;
        let sizes = [correlator.groups.len(), correlator.counts.len(), correlator.buckets.len()];
        assert_eq!(sizes, [4096; 3]);
        assert_eq!(pipeline.written(failure_of(0)).event.count(), 3, "recently used");
        assert_eq!(pipeline.written(failure_of(1)).event.count(), 1, "least recently used");
    }

    /// Proves EVT-82.
    #[test]
    fn new_leader_counts_from_one_under_a_new_name() {
        let mut old = Pipeline::new();
        let first = old.warning("Failed", "no");
        let mut new = Pipeline::new();
        new.seconds = 15;
        let again = new.warning("Failed", "no");
        assert_eq!(again.count(), 1);
        assert_ne!(again.name(), first.name());
    }

    /// Proves EVT-88.
    #[test]
    fn wall_clock_that_goes_back_is_used() {
        let mut pipeline = Pipeline::new();
        pipeline.seconds = 3600;
        pipeline.warning("Failed", "no");
        let back = ClockReading { wall: NOW, monotonic: Duration::from_secs(3601) };
        let event = PlannedEvent::warning(pod(), "Failed", "no");
        let event = Event::new(event, "job-controller", back.wall, &mut pipeline.names);
        let result = pipeline.correlator.correlate(event, back, &mut pipeline.names);
        let EventCorrelateResult::Write(written) = result else {
            panic!("the event was skipped");
        };
        let body = json_of(&written.event);
        assert_eq!(body["firstTimestamp"], "2026-11-15T10:00:01Z");
        assert_eq!(body["lastTimestamp"], "2026-11-15T09:00:01Z");
    }
}
