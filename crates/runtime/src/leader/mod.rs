//! At most one process writes: the holder of a Lease, as long as it renews in time.
//!
//! The protocol is that of the original, so that both can stand by for each other on one Lease: a process
//! that finds the Lease without a holder, or unchanged for its lease duration, becomes the holder. Only the
//! local clock counts, and only from the moment a record was first observed; the times inside the record are
//! never compared with a clock, so clocks of different machines need not agree.
//!
//! Here a standby also *watches* the Lease. A released Lease is taken immediately, and an expired one at the
//! moment of expiry, not at the next poll. A Lease that was deleted, or whose holder was cleared by hand, is no
//! released Lease: its holder may still write, so a standby waits for the lease duration. The leader watches its
//! Lease, too. It takes back a Lease that does not name it any more, writes nothing until it has it, and ends as
//! soon as another process holds it.
//!
//! **Never two writers.** A leader trusts its lease for `renew_deadline` after it *sent* the last successful
//! renewal, which is always less than other processes wait. [`Leadership::still_held`] compares that time
//! with the clock at each call, so it becomes false by itself while the process is stopped (SIGSTOP) or
//! starved: the first write after the process resumes checks it before anything is sent. `CLOCK_MONOTONIC`,
//! behind tokio's clock, continues during a SIGSTOP but not while the machine is suspended; the clock that
//! does is `CLOCK_BOOTTIME`. The wall clock has the same effect, because a resuming system sets it forward: a
//! lease is held only while *neither* clock has passed its end.
//!
//! No client can rule out a write that is sent in time and takes effect late: an API server that delays a
//! request for longer than `lease_duration - renew_deadline` applies it in the next term. Resource versions
//! stop such a write if its target has changed meanwhile.
//!
//! A process may need two locks: with leader migration some controllers run under a lock that another program
//! shares ([`Locks`], [`Migration`]). In a coordinated election the API server chooses the holder: a process
//! publishes a LeaseCandidate ([`Candidate`]) and leads while the Lease names it.
//!
//! After a crash the next process on the same machine need not wait for its predecessor's Lease to expire, if a
//! [`ProcessLock`] proves that the predecessor has ended.
//!
//! Modules: [`record`] reads and writes the spec of a Lease, [`elector`] decides without IO or clock,
//! `election` executes its decisions, `leadership` is the check before each write, `locks` runs a process
//! with two locks, `single_object` reads, writes and watches one object, `predecessor` is what the previous
//! leader left, `process_lock` the proof that a process has ended.

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
mod process_lock;
pub mod record;
mod single_object;
#[cfg(test)]
mod tests;

pub use announcer::Announcer;
pub use candidate::{Candidacy, Candidate};
pub use config::{InvalidElectionConfig, LeaderElectionConfig};
pub use election::{ElectionObserver, LEADER_ANNOTATION, LeaderElection, Leading, TermEnd};
pub use identity::{NoHostName, host_name, identity};
pub use leadership::Leadership;
pub use locks::{Lock, Locks, LocksOutcome, Term, TokenControllerReady};
pub use migration::Migration;
pub use predecessor::{Handover, Predecessor};
pub use process_lock::ProcessLock;

/// What the client of the election adds to its user agent.
pub const CLIENT_NAME: &str = "leader-election";
