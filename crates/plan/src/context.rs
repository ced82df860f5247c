//! What a script of several decisions works with: a view, hands that apply plans, and their answers.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use keleustes_objects::{Failure, Key, Kind, Resource, Text, Uid, Version};

use crate::{Measurement, Plan, View};

/// A future that any executor may drive.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the world offers to a script. The runtime has one made of caches and connections, a
/// rehearsal one made of tables.
pub trait Hands: Send {
    /// Shows the caches as they are at this moment.
    fn look(&self, eye: &mut dyn FnMut(&View<'_>));
    /// Carries out a plan.
    fn apply(&mut self, plan: Plan) -> BoxFuture<'_, Applied>;
    /// Notes a measurement.
    fn measure(&mut self, measurement: Measurement);
    /// Reads one object afresh, as JSON; `None` if it is not there.
    fn fetch<'a>(
        &'a mut self,
        resource: &'a Resource,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<String>, Failure>>;
}

/// What a script of several decisions works with.
pub struct Context<'a> {
    hands: &'a mut dyn Hands,
}

impl<'a> Context<'a> {
    /// A context over some hands.
    pub fn new(hands: &'a mut dyn Hands) -> Self {
        Self { hands }
    }

    /// Gathers facts from the caches as they are at this moment.
    pub fn gather<R>(&self, gather: impl FnOnce(&View<'_>) -> R) -> R {
        let (mut gather, mut facts) = (Some(gather), None);
        self.hands.look(&mut |view| {
            if let Some(gather) = gather.take() {
                facts = Some(gather(view));
            }
        });
        facts.unwrap_or_else(|| unreachable!("look shows the view before it returns"))
    }

    /// Carries out a plan and tells what became of it.
    pub async fn apply(&mut self, plan: Plan) -> Applied {
        self.hands.apply(plan).await
    }

    /// Notes a measurement.
    pub fn measure(&mut self, measurement: Measurement) {
        self.hands.measure(measurement);
    }

    /// Reads one object afresh.
    ///
    /// # Errors
    /// If the server could not be asked, or its answer could not be read. An object that is not
    /// there is no error.
    pub async fn fetch<T: Kind>(&mut self, key: &Key) -> Result<Option<T>, Retry> {
        let answer = self.hands.fetch(&T::RESOURCE, key).await;
        let Some(json) = answer.map_err(|failure| Retry::because(format!("reading {key}: {failure}")))?
        else {
            return Ok(None);
        };
        // The error of the decoder may quote the object, so it is not repeated.
        serde_json::from_str(&json)
            .map(Some)
            .map_err(|_| Retry::because(format!("{} {key} cannot be read", T::RESOURCE)))
    }
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, or was refused in a way that is as good.
    Done {
        /// The state it led to; empty if the server did not say.
        version: Version,
        /// The life it led to; empty if the server did not say.
        uid: Uid,
        /// The name, which the server may have chosen; empty if it did not say.
        name: Text,
    },
    /// There was nothing to write when it came to it.
    Unneeded,
    /// It was refused or got lost.
    Failed(Failure),
    /// A failure before it stopped the plan.
    NotTried,
}

impl Outcome {
    /// Success of which nothing is known but that it is one.
    #[must_use]
    pub fn done() -> Self {
        Self::Done { version: Version::default(), uid: Uid::default(), name: Text::default() }
    }
}

/// What became of a plan: one outcome per write, in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// One per write.
    pub outcomes: Vec<Outcome>,
    /// Why the item is to be tried again, if it is.
    pub retry: Option<Retry>,
}

impl Applied {
    /// Goes on only if nothing asks for another try.
    ///
    /// # Errors
    /// The reason for another try.
    pub fn all_done(self) -> Result<(), Retry> {
        self.retry.map_or(Ok(()), Err)
    }
}

/// What follows a finished item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Done,
    /// Another look after a while.
    Revisit(Duration),
}

/// The item is to be tried again later, ever more slowly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// For the log.
    pub because: String,
    /// The server's wish, if it expressed one.
    pub after: Option<Duration>,
}

impl Retry {
    /// Tries again later for this reason.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self { because: reason.into(), after: None }
    }
}
