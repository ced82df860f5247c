//! However much is said about one object, little of it reaches the API, and the counts are right.
//!
//! An event passes three stations. **Combining**: the tenth and later distinct messages about one object
//! for one reason become one combined event. **Counting**: what was said before is not said again, its
//! count rises. **Filtering**: an object may be spoken of 25 times at once, then once in five minutes.
//!
//! All memory is here and is lost with the process: a new leader starts to count at one. The sizes are
//! bounded, and what is forgotten is what was heard of longest ago. One correlator serves one component
//! of one process, so component and host, which the original puts into every key, are the same for all
//! keys and are left out of them. So is the resourceVersion of the counted event, which no request carries.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use keleustes_objects::Time;
use lru::LruCache;

use super::event::{Event, EventNames, StoredEvent, WallNanos};

/// How many groups, counts and buckets are remembered, each.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// How many messages of one group are passed on as they are.
const MESSAGES_MAX: usize = 9;

/// A group of which nothing is heard for longer than this is forgotten.
const GROUP_QUIET_MAX: Duration = Duration::from_secs(600);

/// What one more event about an object has to be saved up for.
const EVENT_COST: Duration = Duration::from_secs(300);

/// A rested object may be spoken of this often at once.
const EVENTS_BURST: u32 = 25;

/// A reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Wall time, for timestamps and names. It may jump.
    pub wall: WallNanos,
    /// Time since some moment in the past, for intervals. It never goes back.
    pub monotonic: Duration,
}

/// What is to be done with an event.
#[derive(Debug, PartialEq, Eq)]
pub enum EventCorrelateResult {
    /// It goes to the API.
    Write(Box<CorrelatedEvent>),
    /// Enough has been said about the object for now.
    Skip,
}

/// An event as it goes to the API; a count above one says that the API should know it already.
#[derive(Debug, PartialEq, Eq)]
pub struct CorrelatedEvent {
    /// The event.
    pub event: Event,
    counted_as: CountKey,
}

impl CorrelatedEvent {
    /// What it shares its count with.
    pub(super) fn counted_as(&self) -> &CountKey {
        &self.counted_as
    }
}

/// Decides which events reach the API, and under which name and count.
pub struct Correlator {
    groups: LruCache<GroupKey, Group>,
    counts: LruCache<CountKey, Counted>,
    buckets: LruCache<BucketKey, Bucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self::new()
    }
}

impl Correlator {
    /// One that has heard nothing yet.
    #[must_use]
    pub fn new() -> Self {
        // Most components stay far below the bound, so room for it is not taken in advance.
        Self {
            groups: LruCache::sparse(REMEMBERED_MAX),
            counts: LruCache::sparse(REMEMBERED_MAX),
            buckets: LruCache::sparse(REMEMBERED_MAX),
        }
    }

    /// Takes one event through the three stations.
    pub fn correlate(
        &mut self,
        event: Event,
        now: ClockReading,
        names: &mut EventNames,
    ) -> EventCorrelateResult {
        let (event, counted_as) = self.combine(event, now, names);
        let event = self.count(event, &counted_as);
        // Filtering comes last: what is skipped has been counted, and shows in the next patch.
        let bucket = self.buckets.get_or_insert_mut(BucketKey::of(&event), || Bucket::full(now));
        if bucket.takes_one(now) {
            EventCorrelateResult::Write(Box::new(CorrelatedEvent { event, counted_as }))
        } else {
            EventCorrelateResult::Skip
        }
    }

    /// Takes over what the API answered to a write.
    pub fn refresh(&mut self, written: CorrelatedEvent, stored: StoredEvent) {
        let counted = Counted {
            count: stored.count,
            first_timestamp: stored.first_timestamp.unwrap_or(written.event.first_timestamp),
            name: stored.into_name(),
        };
        self.counts.put(written.counted_as, counted);
    }

    fn combine(&mut self, event: Event, now: ClockReading, names: &mut EventNames) -> (Event, CountKey) {
        let key = GroupKey::of(&event);
        let group = self.groups.get_or_insert_mut(key.clone(), || Group::silent(now));
        if group.hears(&event.message, now) {
            let key = CountKey::Single(SingleKey::of(&event));
            (event, key)
        } else {
            (event.combined(now.wall, names), CountKey::Combined(key))
        }
    }

    fn count(&mut self, event: Event, key: &CountKey) -> Event {
        let event = match self.counts.get(key) {
            // A count of zero is an answer that made no sense; such an event starts anew.
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
    last_heard: Duration,
}

impl Group {
    fn silent(now: ClockReading) -> Self {
        Self { messages: BTreeSet::new(), last_heard: now.monotonic }
    }

    /// Remembers the message, if there is room; without room it will have to be combined.
    ///
    /// The original makes room by forgetting any of the messages. Here that is always the one at hand:
    /// those that were passed on keep their own events, the rest share one, and no message changes sides.
    fn hears(&mut self, message: &str, now: ClockReading) -> bool {
        if now.monotonic.saturating_sub(self.last_heard) > GROUP_QUIET_MAX {
            self.messages.clear();
        }
        self.last_heard = now.monotonic;
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

/// An event that was said, as the API knows it or soon will.
struct Counted {
    name: String,
    first_timestamp: Time,
    count: u32,
}

/// How much may still be said about an object, in time saved up. Whole nanoseconds: no rounding.
struct Bucket {
    saved: Duration,
    filled_at: Duration,
}

impl Bucket {
    fn full(now: ClockReading) -> Self {
        Self { saved: EVENT_COST * EVENTS_BURST, filled_at: now.monotonic }
    }

    fn takes_one(&mut self, now: ClockReading) -> bool {
        let saved = self.saved + now.monotonic.saturating_sub(self.filled_at);
        self.filled_at = now.monotonic;
        let saved = saved.min(EVENT_COST * EVENTS_BURST);
        let left = saved.checked_sub(EVENT_COST);
        self.saved = left.unwrap_or(saved);
        left.is_some()
    }
}

/// All that is said about one object at one severity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BucketKey(Box<str>);

/// All that is said about one object for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey(Box<str>);

/// One thing said about one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SingleKey(Box<str>);

/// What shares a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CountKey {
    Single(SingleKey),
    Combined(GroupKey),
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
        // The message comes last: of all parts it is the only one that may hold any character.
        Self(joined(event, &[&event.reason, field_path, &event.message]))
    }
}

/// One allocation per key. Only messages may hold the separator.
fn joined(event: &Event, more: &[&str]) -> Box<str> {
    let object = &event.involved_object;
    let uid = object.uid.to_string();
    let mut parts =
        vec![event.severity, &object.kind, &object.api_version, &object.namespace, &object.name, &uid];
    parts.extend_from_slice(more);
    parts.join("\0").into_boxed_str()
}

#[cfg(test)]
mod tests {
    use keleustes_objects::{ResourceVersion, Uid};
    use keleustes_plan::{EventType, InvolvedObject, PlannedEvent};
    use serde_json::{Value, json};

    use super::super::event::tests::{NOW, names, pod};
    use super::*;

    /// A correlator, a clock, and what a component says.
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

        fn says(&mut self, note: PlannedEvent) -> EventCorrelateResult {
            let now = self.moment();
            let event = Event::new(note, "job-controller", now.wall, &mut self.names);
            self.correlator.correlate(event, now, &mut self.names)
        }

        fn writes(&mut self, note: PlannedEvent) -> CorrelatedEvent {
            match self.says(note) {
                EventCorrelateResult::Write(correlated) => *correlated,
                EventCorrelateResult::Skip => panic!("the event was skipped"),
            }
        }

        fn warns(&mut self, reason: &str, message: &str) -> Event {
            self.writes(PlannedEvent::warning(pod(), reason, message)).event
        }
    }

    fn json_of(event: &Event) -> Value {
        serde_json::to_value(event).unwrap()
    }

    /// Proves EVT-32, EVT-33, EVT-34, EVT-75.
    #[test]
    fn the_tenth_message_and_later_ones_are_combined() {
        let mut pipeline = Pipeline::new();
        let mut singles = BTreeSet::new();
        for at in 1..=9 {
            let event = pipeline.warns("Failed", &format!("attempt {at}"));
            assert_eq!((event.message.as_str(), event.count()), (format!("attempt {at}").as_str(), 1));
            singles.insert(event.name().to_owned());
        }
        assert_eq!(singles.len(), 9);

        pipeline.seconds = 2;
        let tenth = pipeline.warns("Failed", "attempt 10");
        assert_eq!(tenth.message, "(combined from similar events): attempt 10");
        assert_eq!(tenth.count(), 1);
        assert!(!singles.contains(tenth.name()));
        let body = json_of(&tenth);
        assert_eq!(body["firstTimestamp"], "2026-11-15T09:00:03Z");
        assert_eq!(body["lastTimestamp"], "2026-11-15T09:00:03Z");

        let eleventh = pipeline.warns("Failed", "attempt 11");
        assert_eq!(eleventh.message, "(combined from similar events): attempt 11");
        assert_eq!((eleventh.name(), eleventh.count()), (tenth.name(), 2));

        for at in 1..=9 {
            pipeline.warns("Lost", &format!("attempt {at}"));
        }
        let other = pipeline.warns("Lost", "attempt 10");
        assert_eq!(other.message, "(combined from similar events): attempt 10");
        assert_eq!(other.count(), 1, "another reason is another group");
        assert_ne!(other.name(), tenth.name());
    }

    /// Proves EVT-35.
    #[test]
    fn a_combined_event_keeps_whom_and_why_but_no_annotations_and_no_reporter() {
        let mut pipeline = Pipeline::new();
        for at in 1..=9 {
            pipeline.warns("Failed", &format!("attempt {at}"));
        }
        let mut note = PlannedEvent::warning(pod(), "Failed", "attempt 10");
        note.annotations.insert("a".to_owned(), "b".to_owned());
        let body = json_of(&pipeline.writes(note).event);
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
    fn a_remembered_message_still_passes_by_itself() {
        let mut pipeline = Pipeline::new();
        for at in 1..=12 {
            pipeline.warns("Failed", &format!("attempt {at}"));
        }
        let group = pipeline.correlator.groups.peek_mru().unwrap().1;
        assert_eq!(group.messages.len(), 9);
        let known = group.messages.first().unwrap().clone();
        let event = pipeline.warns("Failed", &known);
        assert_eq!((event.message.as_str(), event.count()), (known.as_str(), 2));
    }

    /// Proves EVT-32.
    #[test]
    fn a_group_is_forgotten_after_ten_quiet_minutes() {
        let mut pipeline = Pipeline::new();
        for at in 1..=9 {
            pipeline.seconds += 600;
            pipeline.warns("Failed", &format!("attempt {at}"));
        }
        pipeline.seconds += 600;
        let still = pipeline.warns("Failed", "attempt 10");
        assert!(still.message.starts_with("(combined"), "{}", still.message);
        pipeline.seconds += 601;
        assert_eq!(pipeline.warns("Failed", "attempt 11").message, "attempt 11");
    }

    fn changed(change: impl FnOnce(&mut PlannedEvent)) -> Event {
        let mut note = PlannedEvent::warning(pod(), "Failed", "no");
        change(&mut note);
        Event::new(note, "job-controller", NOW, &mut names())
    }

    /// A change of a note, and whether it leads to another group, single event and bucket.
    type KeyCase = (fn(&mut PlannedEvent), [bool; 3]);

    /// Proves EVT-31, EVT-36, EVT-39.
    #[test]
    fn keys_tell_apart_what_they_should() {
        let cases: [KeyCase; 10] = [
            (|note| note.involved_object.kind = "Job".to_owned(), [true, true, true]),
            (|note| note.involved_object.namespace = "b".to_owned(), [true, true, true]),
            (|note| note.involved_object.name = "b".to_owned(), [true, true, true]),
            (|note| note.involved_object.uid = Uid::from("b"), [true, true, true]),
            (|note| note.involved_object.api_version = "v2".to_owned(), [true, true, true]),
            (|note| note.event_type = EventType::Normal, [true, true, true]),
            (|note| note.reason = "Other".to_owned(), [true, true, false]),
            (|note| note.message = "yes".to_owned(), [false, true, false]),
            (|note| note.involved_object.field_path = "spec".to_owned(), [false, true, false]),
            (|note| note.involved_object.resource_version = ResourceVersion::from("42"), [false; 3]),
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
        let shifted = changed(|note| {
            note.involved_object.namespace = "shopw".to_owned();
            note.involved_object.name = "eb-1".to_owned();
        });
        assert_ne!(BucketKey::of(&shifted), BucketKey::of(&plain));
    }

    /// Proves EVT-37, EVT-38, EVT-75, EVT-81.
    #[test]
    fn a_repetition_raises_the_count_of_the_first_event() {
        let mut pipeline = Pipeline::new();
        let first = pipeline.warns("Failed", "no");
        pipeline.seconds = 60;
        let later = InvolvedObject { resource_version: ResourceVersion::from("99"), ..pod() };
        let second = pipeline.writes(PlannedEvent::warning(later, "Failed", "no")).event;
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
    fn the_answer_of_the_api_replaces_what_was_counted() {
        let mut pipeline = Pipeline::new();
        let written = pipeline.writes(PlannedEvent::warning(pod(), "Failed", "no"));
        let answer = json!({
            "metadata": {"name": "other", "resourceVersion": "7"},
            "count": 5,
            "firstTimestamp": "2026-01-01T00:00:00Z",
        });
        let stored = serde_json::from_value(answer).unwrap();
        pipeline.correlator.refresh(written, stored);
        let next = pipeline.warns("Failed", "no");
        assert_eq!((next.name(), next.count()), ("other", 6));
        assert_eq!(json_of(&next)["firstTimestamp"], "2026-01-01T00:00:00Z");
    }

    /// Proves EVT-30, EVT-39, EVT-40, EVT-83.
    #[test]
    fn beyond_the_burst_events_are_skipped_but_counted() {
        let mut pipeline = Pipeline::new();
        for at in 1..=24 {
            pipeline.warns(&format!("Reason{at}"), "no");
        }
        assert_eq!(pipeline.warns("Failed", "no").count(), 1);
        let failed = || PlannedEvent::warning(pod(), "Failed", "no");
        assert_eq!(pipeline.says(PlannedEvent::warning(pod(), "New", "no")), EventCorrelateResult::Skip);
        assert_eq!(pipeline.says(failed()), EventCorrelateResult::Skip);
        pipeline.seconds = 299;
        assert_eq!(pipeline.says(failed()), EventCorrelateResult::Skip);
        pipeline.seconds = 300;
        assert_eq!(pipeline.warns("Failed", "no").count(), 4);
        assert_eq!(pipeline.says(failed()), EventCorrelateResult::Skip);
        pipeline.seconds = 100_000;
        for at in 1..=25 {
            assert_eq!(pipeline.warns("Failed", "no").count(), 5 + at);
        }
        assert_eq!(pipeline.says(failed()), EventCorrelateResult::Skip, "the bucket holds 25 at most");
    }

    /// Proves EVT-30, EVT-39.
    #[test]
    fn what_is_combined_is_filtered_like_everything_else() {
        let mut pipeline = Pipeline::new();
        for at in 1..=25 {
            pipeline.warns("Failed", &format!("attempt {at}"));
        }
        let note = PlannedEvent::warning(pod(), "Failed", "attempt 26");
        assert_eq!(pipeline.says(note), EventCorrelateResult::Skip);
        pipeline.seconds = 300;
        let event = pipeline.warns("Failed", "attempt 27");
        assert_eq!(event.message, "(combined from similar events): attempt 27");
        assert_eq!(event.count(), 18, "attempts 10 to 27, the skipped one included");
    }

    /// Proves EVT-41.
    #[test]
    fn normal_and_warning_have_buckets_of_their_own_and_eviction_fills_them() {
        let mut pipeline = Pipeline::new();
        for _ in 1..=25 {
            pipeline.warns("Failed", "no");
        }
        let warning = || PlannedEvent::warning(pod(), "Failed", "no");
        assert_eq!(pipeline.says(warning()), EventCorrelateResult::Skip);
        pipeline.writes(PlannedEvent::normal(pod(), "Failed", "no"));

        let mut restarted = Pipeline::new();
        restarted.writes(warning());

        assert_eq!(pipeline.says(warning()), EventCorrelateResult::Skip);
        for at in 0..4096 {
            let other = InvolvedObject { name: format!("other-{at}"), ..pod() };
            pipeline.writes(PlannedEvent::normal(other, "Fine", "yes"));
        }
        assert_eq!(pipeline.writes(warning()).event.count(), 1, "the count was evicted as well");
    }

    /// Proves EVT-30.
    #[test]
    fn each_memory_holds_4096_entries_and_forgets_the_oldest() {
        let mut pipeline = Pipeline::new();
        let about = |at: usize| {
            let object = InvolvedObject { name: format!("pod-{at}"), ..pod() };
            PlannedEvent::warning(object, "Failed", "no")
        };
        for at in 0..4096 {
            pipeline.writes(about(at));
        }
        assert_eq!(pipeline.writes(about(0)).event.count(), 2, "all are remembered");
        pipeline.writes(about(4096));
        let correlator = &pipeline.correlator;
        let sizes = [correlator.groups.len(), correlator.counts.len(), correlator.buckets.len()];
        assert_eq!(sizes, [4096; 3]);
        assert_eq!(pipeline.writes(about(0)).event.count(), 3, "heard of lately");
        assert_eq!(pipeline.writes(about(1)).event.count(), 1, "heard of longest ago");
    }

    /// Proves EVT-82.
    #[test]
    fn a_new_leader_counts_from_one_under_a_new_name() {
        let mut old = Pipeline::new();
        let first = old.warns("Failed", "no");
        let mut new = Pipeline::new();
        new.seconds = 15;
        let again = new.warns("Failed", "no");
        assert_eq!(again.count(), 1);
        assert_ne!(again.name(), first.name());
    }

    /// Proves EVT-88.
    #[test]
    fn a_clock_that_goes_back_is_believed() {
        let mut pipeline = Pipeline::new();
        pipeline.seconds = 3600;
        pipeline.warns("Failed", "no");
        let back = ClockReading { wall: NOW, monotonic: Duration::from_secs(3601) };
        let note = PlannedEvent::warning(pod(), "Failed", "no");
        let event = Event::new(note, "job-controller", back.wall, &mut pipeline.names);
        let verdict = pipeline.correlator.correlate(event, back, &mut pipeline.names);
        let EventCorrelateResult::Write(written) = verdict else {
            panic!("the event was skipped");
        };
        let body = json_of(&written.event);
        assert_eq!(body["firstTimestamp"], "2026-11-15T10:00:01Z");
        assert_eq!(body["lastTimestamp"], "2026-11-15T09:00:01Z");
    }
}
