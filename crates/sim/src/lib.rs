//! Storms: whole managers, an API server, nodes and users in one thread under virtual time, from one seed.
//!
//! The same seed gives the same storm, byte for byte: time is the paused clock of one single-threaded async runtime, all
//! random numbers derive from the seed, and the parts of the cluster communicate only over the simulated [`network`].
//! The code under test is the code that ships: the crates of the manager, unchanged.
//!
//! | module | content |
//! | --- | --- |
//! | [`actions`] | what happens to a cluster, as data: a schedule can be printed, saved and shrunk |
//! | `actions_gated` | those about kinds behind feature gates |
//! | `actions_reports` | those about objects about which controllers only report something |
//! | [`generate`] | generates a schedule from a seed: the user actions |
//! | `generate_devices` | generates the actions about device claims that several pods share |
//! | `generate_gated` | generates the actions about kinds behind feature gates |
//! | `generate_reports` | generates the actions about objects about which controllers only report something |
//! | `generate_storage` | generates the actions about volumes of a CSI driver |
//! | `faults` | generates the faults of a schedule |
//! | [`bodies`] | bodies of the objects that users create |
//! | `fault_effects` | faults as the affected client sees them |
//! | [`network`] | the connection of each party to the API server, and the faults on it |
//! | [`process`] | one manager process: start, crash, restart |
//! | [`recorder`] | observes every write that takes effect, records it and calls the checkers |
//! | [`checks`] | the invariants |
//! | [`user`] | performs user actions |
//! | `user_interference` | user actions on objects that controllers create |
//! | `user_autoscalers` | user actions on autoscalers and their load |
//! | `user_devices` | user actions on pods with devices, their claims and taints |
//! | `user_gated` | user actions on kinds behind feature gates |
//! | `user_lease` | the original as a rival for the leader election lease |
//! | `user_quotas` | user actions on ResourceQuotas and a custom kind that they count |
//! | `user_reports` | user actions on objects about which controllers only report something |
//! | `user_service_ranges` | user actions on ServiceCIDRs and Services with addresses of them |
//! | `user_storage` | user actions on claims that a CSI driver provisions |
//! | `user_volumes` | user actions on claims, volumes and the pods that use them |
//! | [`storm`] | runs one schedule |
//! | `host_files` | the host of the managers, on which the binder removes directories of volumes |
//! | [`log_capture`] | adds the managers' log lines to the transcript |
//! | [`soak`] | runs many seeds on all cores |
//! | [`shrink`] | reduces a failing schedule to the actions it needs to fail |
//! | [`signer`] | a signer of certificates without randomness |
//! | [`mutants`] | removes one watch or one safeguard at a time; storms must notice it |
//! | `without_gate` | the requests and responses of a mutant without the gate |
//! | [`panics`] | every panic of a storm is in its report |

pub mod actions;
mod actions_gated;
mod actions_reports;
pub mod bodies;
pub mod checks;
mod fault_effects;
mod faults;
pub mod generate;
mod generate_devices;
mod generate_gated;
mod generate_reports;
mod generate_storage;
mod host_files;
pub mod log_capture;
pub mod mutants;
pub mod network;
pub mod panics;
pub mod process;
mod reconcile_check;
pub mod recorder;
pub mod shrink;
pub mod signer;
pub mod soak;
pub mod storm;
pub mod user;
mod user_autoscalers;
mod user_certificates;
mod user_credentials;
mod user_devices;
mod user_gated;
mod user_interference;
mod user_lease;
mod user_quotas;
mod user_reports;
mod user_service_ranges;
mod user_storage;
mod user_volumes;
mod without_gate;
mod wrapped_io;
