//! The journal: what the controllers of this process decided and wrote lately, in a bounded ring of bytes.
//!
//! Every write is an entry with its controller, reason and outcome, and so is every recorded event and every failed
//! reconcile. A reconcile that decides to do nothing leaves no entry. Entries are encoded into chunks of
//! 64 KiB; when the limit is reached, the oldest chunk is dropped. An entry keeps no object alive, appending is a copy of
//! about 150 bytes under a lock that is held for nothing else, and readers decode entries on demand.
//!
//! The journal holds names, reasons and messages, never a request body. Messages about writes to Secrets are replaced
//! by their reason, because a server or webhook may quote what it refuses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{Key, Resource};
use keleustes_plan::{EventType, Item, Outcome, PlannedEvent, ReconcileError, Write};
use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::Clocks;

/// The default limit.
pub const BYTES_MAX_DEFAULT: usize = 4 << 20;

/// The journal is allocated and dropped in chunks of this size.
const CHUNK_BYTES: usize = 64 << 10;
/// Longer texts are cut; the messages of the API server are shorter.
const TEXT_BYTES_MAX: usize = 4096;

/// The journal of one process. Clones share it.
#[derive(Clone)]
pub struct Journal(Arc<Shared>);

struct Shared {
    clocks: Clocks,
    ring: Mutex<Ring>,
}

struct Ring {
    chunks: VecDeque<Vec<u8>>,
    chunks_max: usize,
    /// How many entries were ever added, and how many were dropped again.
    added: u64,
    dropped: u64,
    /// How many chunks were dropped: the number of the oldest one.
    chunks_dropped: u64,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// When it was added, in milliseconds since 1970.
    pub unix_milliseconds: i64,
    /// The controller.
    pub controller: String,
    /// The queue item whose reconcile this is about, as logs show it.
    pub item: String,
    /// The group and the plural of the object, as `kubectl` takes them; empty for a failed reconcile.
    pub resource: String,
    /// The namespace of the object, or of the item.
    pub namespace: String,
    /// The name of the object, or of the item.
    pub name: String,
    /// What was decided.
    pub decision: Decision,
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Decision {
    /// A write was decided.
    Write {
        /// The verb and the subresource, such as `update status`.
        verb: String,
        /// Why.
        because: String,
        /// What became of it.
        outcome: WriteOutcome,
        /// The error, if it failed.
        error: String,
    },
    /// An event was recorded.
    Event {
        /// Whether it is a warning.
        warning: bool,
        /// The reason.
        reason: String,
        /// The message.
        message: String,
    },
    /// A reconcile failed.
    Failure {
        /// The error.
        error: String,
        /// Which attempt this was, from 1.
        attempt: u32,
        /// Whether the item was dropped, because it has no retries left.
        dropped: bool,
    },
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteOutcome {
    /// It took effect.
    Done,
    /// The live object needed no write.
    Unneeded,
    /// It failed.
    Failed,
    /// It was not sent: an earlier write of the plan failed, or status writes of the key are coalesced.
    NotSent,
}

impl WriteOutcome {
    const ALL: [Self; 4] = [Self::Done, Self::Unneeded, Self::Failed, Self::NotSent];

    /// The word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unneeded => "unneeded",
            Self::Failed => "failed",
            Self::NotSent => "not sent",
        }
    }
}

impl Journal {
    /// An empty journal of at most this many bytes; of none, if the limit is below the size of a chunk.
    #[must_use]
    pub fn new(clocks: Clocks, bytes_max: usize) -> Self {
        let chunks_max = bytes_max / CHUNK_BYTES;
        let ring = Ring { chunks: VecDeque::new(), chunks_max, added: 0, dropped: 0, chunks_dropped: 0 };
        Self(Arc::new(Shared { clocks, ring: Mutex::new(ring) }))
    }

    /// Changes the limit and drops what is beyond it.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        let mut ring = self.0.ring.lock();
        ring.chunks_max = bytes_max / CHUNK_BYTES;
        ring.drop_surplus();
    }

    /// Adds a write with its outcome.
    pub fn record_write(&self, controller: &str, item: &Item, write: &Write, outcome: &Outcome) {
        let (code, error) = match outcome {
            Outcome::Done { .. } => (0, String::new()),
            Outcome::Unneeded => (1, String::new()),
            Outcome::Failed(failure) => (2, write.failure_text(failure)),
            Outcome::NotSent => (3, String::new()),
        };
        let generated = match outcome {
            Outcome::Done { name, .. } if write.target.key.name.is_empty() => Some(name.as_str()),
            _ => None,
        };
        let key = &write.target.key;
        self.append(controller, item, (&write.target.resource, key, generated), |out| {
            out.push(0);
            out.push(code);
            text(out, write.verb());
            text(out, write.subresource());
            text(out, &write.because);
            text(out, &error);
        });
    }

    /// Adds a recorded event.
    pub fn record_event(&self, controller: &str, item: &Item, event: &PlannedEvent) {
        let object = &event.involved_object;
        self.append_named(controller, item, (&object.kind, &object.namespace, &object.name), |out| {
            out.push(1);
            out.push(u8::from(event.event_type == EventType::Warning));
            text(out, &event.reason);
            text(out, &event.message);
        });
    }

    /// Adds a failed reconcile.
    pub fn record_failure(
        &self,
        controller: &str,
        item: &Item,
        failure: &ReconcileError,
        attempt: u32,
        is_dropped: bool,
    ) {
        // The message begins with the write that failed: verb, resource, key.
        let about_secret = failure.because.split(' ').nth(1).is_some_and(|word| word.starts_with("secrets"));
        let error = if about_secret { without_message(&failure.because) } else { &failure.because };
        self.append_named(controller, item, ("", &item.key().namespace, &item.key().name), |out| {
            out.push(2);
            out.push(u8::from(is_dropped));
            out.extend(attempt.to_le_bytes());
            text(out, error);
        });
    }

    fn append(
        &self,
        controller: &str,
        item: &Item,
        (resource, key, generated): (&Resource, &Key, Option<&str>),
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let name = generated.unwrap_or(&key.name);
        if resource.group.is_empty() {
            return self.append_named(controller, item, (&resource.plural, &key.namespace, name), body);
        }
        let resource = resource.to_string();
        self.append_named(controller, item, (&resource, &key.namespace, name), body);
    }

    fn append_named(
        &self,
        controller: &str,
        item: &Item,
        (resource, namespace, name): (&str, &str, &str),
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let milliseconds = self.0.clocks.wall_nanoseconds() / 1_000_000;
        let mut entry = Vec::with_capacity(256);
        entry.extend([0; 2]);
        entry.extend(milliseconds.to_le_bytes());
        text(&mut entry, controller);
        text(&mut entry, &item.to_string());
        text(&mut entry, resource);
        text(&mut entry, namespace);
        text(&mut entry, name);
        body(&mut entry);
        // Names are shorter than 256 bytes and there are two long texts at most, so this always fits.
        let Ok(length) = u16::try_from(entry.len()) else { return };
        entry[..2].copy_from_slice(&length.to_le_bytes());
        self.0.ring.lock().push(&entry);
    }

    /// The entries that `wanted` accepts, the newest first, at most `limit`.
    #[must_use]
    pub fn latest(&self, limit: usize, wanted: impl Fn(&JournalEntry) -> bool) -> Vec<JournalEntry> {
        // Copied chunk by chunk, so that no writer waits for a search through all of them. Chunks are counted from the
        // first ever, because the oldest may be dropped in between.
        let mut found = Vec::new();
        let mut next = self.0.ring.lock().chunks_end();
        while found.len() < limit {
            next = next.wrapping_sub(1);
            let Some(chunk) = self.0.ring.lock().chunk(next).cloned() else { break };
            let mut entries = decode_chunk(&chunk);
            entries.retain(|entry| wanted(entry));
            found.extend(entries.into_iter().rev());
        }
        found.truncate(limit);
        found
    }

    /// The errors of the latest failed reconciles of these items, by controller and item as logs show it. However many items there
    /// are, the entries are read once: a page that updates itself asks for them, on the thread that drives all connections.
    #[must_use]
    pub fn latest_failures(&self, items: &BTreeSet<(String, String)>) -> BTreeMap<(String, String), String> {
        let mut found = BTreeMap::new();
        let mut next = self.0.ring.lock().chunks_end();
        while found.len() < items.len() {
            next = next.wrapping_sub(1);
            let Some(chunk) = self.0.ring.lock().chunk(next).cloned() else { break };
            for entry in decode_chunk(&chunk).into_iter().rev() {
                let Decision::Failure { error, .. } = entry.decision else { continue };
                let named = (entry.controller, entry.item);
                if items.contains(&named) {
                    found.entry(named).or_insert(error);
                }
            }
        }
        found
    }

    /// How many bytes it occupies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.ring.lock().chunks.len() * CHUNK_BYTES
    }

    /// How many entries were added, and how many of them were dropped again.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let ring = self.0.ring.lock();
        (ring.added, ring.dropped)
    }
}

impl Ring {
    fn push(&mut self, entry: &[u8]) {
        if self.chunks_max == 0 {
            return;
        }
        self.added += 1;
        let fits = self.chunks.back().is_some_and(|chunk| chunk.len() + entry.len() <= CHUNK_BYTES);
        if !fits {
            // The oldest chunk is emptied and used again.
            let mut chunk = Vec::new();
            if self.chunks.len() >= self.chunks_max {
                chunk = self.drop_oldest();
            }
            chunk.clear();
            chunk.reserve_exact(CHUNK_BYTES);
            self.chunks.push_back(chunk);
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.extend_from_slice(entry);
        }
    }

    /// The number after that of the newest chunk.
    fn chunks_end(&self) -> u64 {
        self.chunks_dropped + self.chunks.len() as u64
    }

    /// The chunk with this number, if it was not dropped.
    fn chunk(&self, number: u64) -> Option<&Vec<u8>> {
        let at = number.checked_sub(self.chunks_dropped)?;
        self.chunks.get(usize::try_from(at).ok()?)
    }

    fn drop_oldest(&mut self) -> Vec<u8> {
        self.chunks_dropped += 1;
        let chunk = self.chunks.pop_front().unwrap_or_default();
        self.dropped += Entries(&chunk).count() as u64;
        chunk
    }

    fn drop_surplus(&mut self) {
        while self.chunks.len() > self.chunks_max {
            self.drop_oldest();
        }
    }
}

/// A failed write to a Secret without what the server answered.
fn without_message(because: &str) -> &str {
    because.split_once(": ").map_or(because, |(write, _)| write)
}

fn text(out: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    let bytes = &text.as_bytes()[..end];
    // `TEXT_BYTES_MAX` fits.
    out.extend(u16::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The encoded entries of a chunk.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(*self.0.first_chunk()?));
        let (entry, rest) = self.0.split_at_checked(length.max(2))?;
        self.0 = rest;
        Some(&entry[2..])
    }
}

fn decode_chunk(chunk: &[u8]) -> Vec<JournalEntry> {
    Entries(chunk).filter_map(|entry| Decoder(entry).entry()).collect()
}

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn entry(&mut self) -> Option<JournalEntry> {
        let unix_milliseconds = i64::from_le_bytes(self.array()?);
        let (controller, item, resource) = (self.text()?, self.text()?, self.text()?);
        let (namespace, name) = (self.text()?, self.text()?);
        let [kind, code] = self.array()?;
        let decision = match kind {
            0 => {
                let outcome = *WriteOutcome::ALL.get(usize::from(code))?;
                let (verb, subresource) = (self.text()?, self.text()?);
                let space = if subresource.is_empty() { "" } else { " " };
                let verb = format!("{verb}{space}{subresource}");
                Decision::Write { verb, because: self.text()?, outcome, error: self.text()? }
            }
            1 => Decision::Event { warning: code == 1, reason: self.text()?, message: self.text()? },
            _ => {
                let attempt = u32::from_le_bytes(self.array()?);
                Decision::Failure { attempt, dropped: code == 1, error: self.text()? }
            }
        };
        Some(JournalEntry { unix_milliseconds, controller, item, resource, namespace, name, decision })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(u16::from_le_bytes(self.array()?));
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl JournalEntry {
    /// One line for people, without time and controller.
    #[must_use]
    pub fn summary(&self) -> String {
        let object = match (self.namespace.as_str(), self.name.as_str()) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        match &self.decision {
            Decision::Write { verb, because, outcome, error } => {
                let resource = &self.resource;
                let outcome = match outcome {
                    WriteOutcome::Failed => format!("failed: {error}"),
                    outcome => outcome.as_str().to_owned(),
                };
                format!("{verb} {resource} {object} because {because}: {outcome}")
            }
            Decision::Event { reason, message, .. } => format!("event {reason} on {object}: {message}"),
            Decision::Failure { error, attempt, dropped } => {
                let dropped = if *dropped { ", dropped: retry limit reached" } else { "" };
                format!("attempt {attempt} failed{dropped}: {error}")
            }
        }
    }

    /// How long ago it was added.
    #[must_use]
    pub fn age(&self, clocks: &Clocks) -> Duration {
        let now = clocks.wall_nanoseconds() / 1_000_000;
        Duration::from_millis(u64::try_from(now - self.unix_milliseconds).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
