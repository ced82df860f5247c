//! At most one process writes: the holder of a Lease, as long as it renews in time.
//!
//! The protocol is the one of the original, so that both can stand by for each other on one Lease:
//! whoever finds it free, or unchanged for as long as it says it is good, puts its name on it. Only the
//! local clock counts, and only from the moment a record was first seen; the times inside the record
//! are never compared with anything, so clocks of different machines need not agree.
//!
//! Here a standby also *watches* the Lease. A lock that is given back is taken at once, and one that runs
//! out is taken at that moment, not at the next poll.
//!
//! **Never two writers.** A leader trusts its lease for `renew_deadline` after it *sent* the last renewal
//! that succeeded, which is always less than the others wait. [`Leadership::still_held`] compares that
//! moment with the clock at each call, so it turns false by itself while the process is stopped (SIGSTOP)
//! or starved: the first write after waking asks it before anything leaves. `CLOCK_MONOTONIC`, behind the
//! runtime's clock, goes on during a SIGSTOP but not while the machine is suspended; the clock that
//! does is `CLOCK_BOOTTIME`. The same is had from the wall clock, which a resuming system sets forward: a
//! lease is held only while *neither* clock has passed its end.
//!
//! What no client can rule out is a write that left in time and takes effect late: an API server that holds
//! a request for longer than `lease_duration - renew_deadline` lets it land in the next term. Resource
//! versions stop such a write if its target was changed meanwhile.
//!
//! A process may need two locks: with leader migration some controllers run under a lock that another
//! program shares ([`Locks`], [`Migration`]). And the choice of the holder may be the API server's: in a
//! coordinated election a process offers itself ([`Candidate`]) and takes what it is given.
//!
//! Rooms: [`record`] reads and writes what a Lease says, [`elector`] decides without IO or clock,
//! `election` carries its decisions out, `leadership` is the guard that writers ask, `locks` keeps a
//! process whole that lives by two locks, `named` is the way to one object on the API server,
//! `predecessor` what the leader before has left.

mod announcer;
mod candidate;
mod config;
mod election;
pub mod elector;
mod identity;
mod leadership;
mod locks;
mod migration;
mod predecessor;
pub mod record;
mod single_object;
#[cfg(test)]
mod tests;

pub use announcer::Announcer;
pub use candidate::{Candidacy, Candidate};
pub use config::{InvalidElectionConfig, LeaderElectionConfig};
pub use election::{ElectionObserver, LeaderElection, Leading, TermEnd};
pub use identity::{NoHostName, host_name, identity};
pub use leadership::Leadership;
pub use locks::{Lock, Locks, LocksOutcome, Term, TokenControllerReady};
pub use migration::Migration;
pub use predecessor::{Handover, Predecessor};

/// What the client of the election adds to its user agent.
pub const CLIENT_NAME: &str = "leader-election";
