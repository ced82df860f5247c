//! The rules of a queue, without a clock: every call passes the time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use keleustes_plan::{Item, RateLimiter};
use keleustes_rate::{TokenBucket, exponential_delay};

/// The state of a queue.
pub(super) struct Core {
    /// Items to hand out, oldest first, each with the time it was added.
    ready: VecDeque<(Item, Duration)>,
    /// Items that need processing: those in `ready`, and those added while being processed.
    dirty: BTreeMap<Item, Duration>,
    /// Items being processed, each with the time it was taken.
    processing: BTreeMap<Item, Duration>,
    /// Items to be added later, by time; the number keeps equal times in the order in which they came.
    waiting: BTreeSet<(Duration, u64, Item)>,
    /// Where an item is in `waiting`.
    waiting_at: BTreeMap<Item, (Duration, u64)>,
    sequence: u64,
    /// The worker that sleeps until the earliest time in `waiting`.
    alarm: Option<Alarm>,
    failures: BTreeMap<Item, u32>,
    /// How often an item was requeued with backoff.
    retries: u64,
    bucket: TokenBucket,
    limiter: RateLimiter,
    closed: Option<Closing>,
}

/// When a worker that waits for an item looks for one by itself. One does so for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    /// The time.
    pub(super) at: Duration,
    number: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Closing {
    /// Hands out what is queued, takes nothing more.
    Plain,
    /// Also hands out items that were added while being processed.
    Draining,
}

/// The state of a queue at the time of a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueSnapshot {
    /// Items that need processing.
    pub depth: usize,
    /// Seconds of processing that has begun and not ended, over all items.
    pub unfinished_seconds: f64,
    /// Seconds the longest running item has been processed so far.
    pub longest_seconds: f64,
}

/// Where an item is in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemState {
    /// The item.
    pub item: Item,
    /// Whether it is queued, or will be when its processing ends.
    pub queued: bool,
    /// Since when it is being processed, as monotonic time.
    pub processing_since: Option<Duration>,
    /// When it will be queued, as monotonic time.
    pub due: Option<Duration>,
    /// How often it was requeued with backoff since it was last forgotten.
    pub failures: u32,
}

/// How many items a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Queued now.
    pub queued: usize,
    /// Being processed.
    pub processing: usize,
    /// To be queued later.
    pub waiting: usize,
    /// Failed at the last attempt.
    pub failing: usize,
    /// Requeued with backoff since the start.
    pub retries: u64,
}

impl Core {
    pub(super) fn new(limiter: RateLimiter) -> Self {
        Self {
            ready: VecDeque::new(),
            dirty: BTreeMap::new(),
            processing: BTreeMap::new(),
            waiting: BTreeSet::new(),
            waiting_at: BTreeMap::new(),
            sequence: 0,
            alarm: None,
            failures: BTreeMap::new(),
            retries: 0,
            bucket: TokenBucket::new(limiter.retries_per_second, limiter.retries_burst),
            limiter,
            closed: None,
        }
    }

    /// Whether the item was not queued before and is now.
    pub(super) fn add(&mut self, item: Item, now: Duration) -> bool {
        if self.closed.is_some() && !(self.is_draining() && self.processing.contains_key(&item)) {
            return false;
        }
        if self.dirty.contains_key(&item) {
            return false;
        }
        self.dirty.insert(item.clone(), now);
        if !self.processing.contains_key(&item) {
            self.ready.push_back((item, now));
        }
        true
    }

    pub(super) fn add_after(&mut self, item: Item, delay: Duration, now: Duration) {
        if self.closed.is_some() {
            return;
        }
        let due = now.saturating_add(delay);
        if let Some(&(earlier, sequence)) = self.waiting_at.get(&item) {
            if earlier <= due {
                return;
            }
            self.waiting.remove(&(earlier, sequence, item.clone()));
        }
        self.sequence += 1;
        self.waiting.insert((due, self.sequence, item.clone()));
        self.waiting_at.insert(item, (due, self.sequence));
    }

    pub(super) fn add_rate_limited(&mut self, item: Item, at_least: Duration, now: Duration) {
        self.retries += 1;
        let failures = self.failures.entry(item.clone()).or_default();
        let backoff = exponential_delay(self.limiter.base_delay, self.limiter.max_delay, *failures);
        *failures += 1;
        // Every retry takes a token of the queue-wide bucket, even if the item's own backoff is longer.
        let delay = backoff.max(self.bucket.reserve(now)).max(at_least);
        self.add_after(item, delay, now);
    }

    pub(super) fn forget(&mut self, item: &Item) {
        self.failures.remove(item);
    }

    pub(super) fn failures(&self, item: &Item) -> u32 {
        self.failures.get(item).copied().unwrap_or_default()
    }

    /// Queues what is due and returns how many of those items were not queued before.
    pub(super) fn move_due(&mut self, now: Duration) -> usize {
        let mut added = 0;
        while let Some((due, _, _)) = self.waiting.first() {
            if *due > now {
                break;
            }
            let Some((_, _, item)) = self.waiting.pop_first() else { break };
            self.waiting_at.remove(&item);
            added += usize::from(self.add(item, now));
        }
        added
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.waiting.first().map(|(due, _, _)| *due)
    }

    /// Whether an item will be due before any worker looks for it.
    pub(super) fn needs_alarm(&self) -> bool {
        self.next_due().is_some_and(|due| self.alarm.is_none_or(|alarm| due < alarm.at))
    }

    /// The alarm of a worker that waits from now on, if it needs one.
    pub(super) fn set_alarm(&mut self) -> Option<Alarm> {
        let at = self.next_due().filter(|_| self.needs_alarm())?;
        self.sequence += 1;
        self.alarm = Some(Alarm { at, number: self.sequence });
        self.alarm
    }

    /// The worker with this alarm does not wait any more. A later alarm of another worker stays.
    pub(super) fn end_alarm(&mut self, alarm: Alarm) {
        self.alarm.take_if(|there| *there == alarm);
    }

    /// How many items can be taken.
    pub(super) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The oldest item, and how long it waited.
    pub(super) fn take(&mut self, now: Duration) -> Option<(Item, Duration)> {
        let (item, since) = self.ready.pop_front()?;
        self.dirty.remove(&item);
        self.processing.insert(item.clone(), now);
        Some((item, now.saturating_sub(since)))
    }

    /// How long the processing took. An item that was added meanwhile joins the end of the queue, so an item
    /// that keeps requeueing itself cannot starve the others.
    pub(super) fn done(&mut self, item: &Item, now: Duration) -> Option<Duration> {
        let began = self.processing.remove(item)?;
        if let Some(since) = self.dirty.get(item) {
            self.ready.push_back((item.clone(), *since));
        }
        Some(now.saturating_sub(began))
    }

    pub(super) fn shut_down(&mut self, drain: bool) {
        self.closed = Some(if drain { Closing::Draining } else { Closing::Plain });
        self.waiting.clear();
        self.waiting_at.clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    fn is_draining(&self) -> bool {
        self.closed == Some(Closing::Draining)
    }

    /// Whether no item will ever be handed out again.
    pub(super) fn is_finished(&self) -> bool {
        self.closed.is_some() && self.ready.is_empty() && (!self.is_draining() || self.processing.is_empty())
    }

    pub(super) fn is_drained(&self) -> bool {
        self.closed.is_some() && self.ready.is_empty() && self.processing.is_empty()
    }

    pub(super) fn counts(&self) -> QueueCounts {
        QueueCounts {
            queued: self.dirty.len(),
            processing: self.processing.len(),
            waiting: self.waiting.len(),
            failing: self.failures.len(),
            retries: self.retries,
        }
    }

    /// The items that `wanted` accepts and that the queue knows anything about.
    pub(super) fn states(&self, wanted: &dyn Fn(&Item) -> bool) -> Vec<ItemState> {
        let known = self.dirty.keys().chain(self.processing.keys()).chain(self.waiting_at.keys());
        let known = known.chain(self.failures.keys());
        let items: BTreeSet<_> = known.filter(|item| wanted(item)).collect();
        items.into_iter().map(|item| self.state(item)).collect()
    }

    /// Some of the items that wait, at most `limit` of each sort: those that fail, those being processed, those that are
    /// due next.
    pub(super) fn some_waiting(&self, limit: usize) -> Vec<ItemState> {
        let due = self.waiting.iter().map(|(_, _, item)| item);
        let items = self.failures.keys().take(limit).chain(self.processing.keys().take(limit));
        let items: BTreeSet<_> = items.chain(due.take(limit)).collect();
        items.into_iter().map(|item| self.state(item)).collect()
    }

    fn state(&self, item: &Item) -> ItemState {
        ItemState {
            item: item.clone(),
            queued: self.dirty.contains_key(item),
            processing_since: self.processing.get(item).copied(),
            due: self.waiting_at.get(item).map(|(due, _)| *due),
            failures: self.failures(item),
        }
    }

    pub(super) fn running(&self, now: Duration) -> QueueSnapshot {
        let ages = self.processing.values().map(|began| now.saturating_sub(*began).as_secs_f64());
        QueueSnapshot {
            depth: self.dirty.len(),
            unfinished_seconds: ages.clone().sum(),
            longest_seconds: ages.fold(0.0, f64::max),
        }
    }
}
