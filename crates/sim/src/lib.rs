//! Storms: whole managers, an API server, nodes and users in one thread under virtual time, from one seed.
//!
//! The same seed gives the same storm, byte for byte: time is the paused clock of one single-threaded async runtime,
//! chance descends from the seed, and all that the parts of the cluster have to do with each other goes over
//! simulated [`wire`]s. What runs on top of them is what ships: the crates of the manager, unchanged.
//!
//! | room | keeps |
//! | --- | --- |
//! | [`deeds`] | what happens to a cluster, as data: a schedule can be printed, kept and cut down |
//! | [`script`] | draws a schedule from a seed: what users do |
//! | `misfortunes` | and what goes wrong meanwhile |
//! | [`bodies`] | the objects that users make |
//! | `verdicts` | what goes wrong, in the form in which whoever asked meets it |
//! | [`wire`] | the way of one party to the API server, and what goes wrong on it |
//! | [`process`] | one manager: start, crash, restart |
//! | [`witness`] | sees every write that takes effect, writes it down and lets the checkers judge |
//! | [`checks`] | what must hold: always, and once the world is calm |
//! | [`user`] | does what users do |
//! | `meddling` | what they do to objects that controllers make |
//! | [`storm`] | plays one schedule |
//! | [`reasons`] | why managers write what they write, beside the writes |
//! | [`soak`] | plays many seeds on all cores |
//! | [`shrink`] | cuts a schedule that fails down to what it needs to fail |
//! | [`mutants`] | takes one watch or one kind of caution away at a time |
//! | [`careless`] | a controller that forgets one kind of caution |
//! | `open_gate` | what a mutant without a gate sends and hears |
//! | [`panics`] | no panic of a storm goes unnoticed |

pub mod bodies;
pub mod careless;
pub mod checks;
pub mod deeds;
mod meddling;
mod misfortunes;
pub mod mutants;
mod open_gate;
pub mod panics;
pub mod process;
pub mod reasons;
pub mod script;
pub mod shrink;
pub mod soak;
pub mod storm;
pub mod user;
mod verdicts;
pub mod wire;
pub mod witness;
