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
//! | [`autoscaler`] | compares what autoscalers do with the original |
//! | [`cel`] | compares the type checking of admission policies with the original |
//! | [`cron`] | cron schedules, compared with the library of the original |
//! | [`volumes`] | the choice of a volume for a claim, compared with the original's |
//! | [`templates`] | compares hashes, revision data and equality of pod templates with the original |

pub mod accepted;
pub mod autoscaler;
pub mod cel;
pub mod certificates;
pub mod compare;
pub mod cron;
pub mod generate;
pub mod normalize;
pub mod run;
pub mod sequence;
pub mod server;
pub mod setup;
pub mod templates;
pub mod trial;
pub mod volumes;
