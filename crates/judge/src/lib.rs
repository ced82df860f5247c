//! The judge: the embedded API server must respond as the real kube-apiserver does.
//!
//! | module | content |
//! | --- | --- |
//! | [`generate`] | generates sequences of requests from a seed |
//! | [`sequence`] | a sequence as data: requests that may refer to earlier responses |
//! | [`server`], [`setup`] | the two servers and how to send requests to them |
//! | [`trial`] | runs one sequence on both servers |
//! | [`normalize`] | responses without values that two servers cannot agree on |
//! | [`compare`] | where two responses differ |
//! | [`accepted`] | the accepted differences |
//! | [`run`] | runs many sequences and reports the results |

pub mod accepted;
pub mod compare;
pub mod generate;
pub mod normalize;
pub mod run;
pub mod sequence;
pub mod server;
pub mod setup;
pub mod trial;
