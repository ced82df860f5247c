//! How far one list and watch is, and which lists of it were requested.

use std::time::Duration;

use keleustes_objects::ResourceVersion;
use parking_lot::Mutex;

use crate::clock::Clocks;
use crate::ordered_watch::OrderedWatch;

/// The progress of one list and watch: of a cache, or of a monitor that keeps no objects.
pub struct ListProgress {
    clocks: Clocks,
    versions: Mutex<Versions>,
    /// How many deltas of any kind were delivered.
    deltas: OrderedWatch<u64>,
    /// The number of the last list that was requested; the first one is 1.
    requested_list: OrderedWatch<u64>,
    /// The number of the last list that was delivered.
    delivered_list: OrderedWatch<u64>,
    /// When the last list was requested, and its number.
    last_request: Mutex<(Duration, u64)>,
}

#[derive(Default)]
struct Versions {
    /// The resourceVersion that was reached, by a list, an event or a bookmark; `None` before the first list.
    reached: Option<ResourceVersion>,
    last_event: Option<ResourceVersion>,
    last_list: Option<ResourceVersion>,
}

/// What advanced a list and watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// A list of all objects.
    List,
    /// A watch event about an object.
    Event,
    /// A bookmark.
    Bookmark,
}

impl ListProgress {
    /// Nothing was delivered yet; the first list counts as requested now.
    #[must_use]
    pub fn new(clocks: Clocks) -> Self {
        Self {
            versions: Mutex::default(),
            deltas: OrderedWatch::new(0),
            requested_list: OrderedWatch::new(1),
            delivered_list: OrderedWatch::new(0),
            last_request: Mutex::new((clocks.monotonic(), 1)),
            clocks,
        }
    }

    /// A delta was delivered, up to this resourceVersion.
    pub fn advance(&self, advance: Advance, version: &ResourceVersion) {
        {
            let mut versions = self.versions.lock();
            versions.reached = Some(version.clone());
            match advance {
                Advance::List => versions.last_list = Some(version.clone()),
                Advance::Event => versions.last_event = Some(version.clone()),
                Advance::Bookmark => {}
            }
        }
        self.deltas.modify(|deltas| deltas + 1);
    }

    /// The resourceVersion of the last watch event about an object, if there was one. Every watch of the same
    /// objects receives it sooner or later, which does not hold for the resourceVersions of lists and bookmarks.
    #[must_use]
    pub fn last_event_version(&self) -> Option<ResourceVersion> {
        self.versions.lock().last_event.clone()
    }

    /// The resourceVersion of the last list, if there was one.
    #[must_use]
    pub fn last_list_version(&self) -> Option<ResourceVersion> {
        self.versions.lock().last_list.clone()
    }

    /// The resourceVersion that was reached, by a list, an event or a bookmark; `None` before the first list.
    #[must_use]
    pub fn reached_version(&self) -> Option<ResourceVersion> {
        self.versions.lock().reached.clone()
    }

    /// Whether this resourceVersion or a later one was reached.
    #[must_use]
    pub fn is_at_least(&self, version: &ResourceVersion) -> bool {
        self.versions.lock().reached.as_ref().is_some_and(|reached| !reached.is_older_than(version))
    }

    /// Returns as soon as this resourceVersion or a later one is reached.
    pub async fn wait_until_at_least(&self, version: &ResourceVersion) {
        self.deltas.wait_for(|_| self.is_at_least(version)).await;
    }

    /// Requests a list of the newest state. Returns its number.
    pub fn request_relist(&self) -> u64 {
        let mut last_request = self.last_request.lock();
        self.requested_list.modify(|number| number + 1);
        let number = self.requested_list.get();
        *last_request = (self.clocks.monotonic(), number);
        number
    }

    /// Returns the number of the last requested list as soon as it is greater than this one.
    pub async fn wait_for_request_after(&self, number: u64) -> u64 {
        self.requested_list.wait_for(|requested| requested > number).await;
        self.requested_list.get()
    }

    /// The requested list with this number, and so all before it, was delivered.
    pub fn list_delivered(&self, number: u64) {
        self.delivered_list.set(number);
    }

    /// Returns when a list was delivered that was requested at this monotonic time or later. A list that is
    /// running or done already counts.
    pub async fn wait_for_list_since(&self, moment: Duration) {
        let (requested_at, last) = *self.last_request.lock();
        let number = if requested_at >= moment { last } else { self.request_relist() };
        self.delivered_list.wait_for(|delivered| delivered >= number).await;
    }
}
