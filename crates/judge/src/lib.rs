//! The judge: the embedded API server must respond as the real kube-apiserver does.
//!
//! | module | content |
//! | --- | --- |
//! | [`generate`] | generates sequences of requests from a seed |
//! | [`sequence`] | a sequence as data: requests that may refer to earlier responses |
//! | [`issuance`] | certificates for PodCertificateRequests that begin now |
//! | [`server`], [`setup`] | the two servers and how to send requests to them |
//! | [`users`] | users with few permissions |
//! | [`trial`] | runs one sequence on both servers |
//! | [`normalize`] | responses without values that two servers cannot agree on |
//! | [`compare`] | where two responses differ |
//! | [`accepted`] | the accepted differences |
//! | [`run`] | runs many sequences and reports the results |
//! | [`original`] | asks Go programs that answer for the original |
//! | [`autoscaler`] | compares what autoscalers do with the original |
//! | [`certificates`] | signed certificates, compared with those of the original's authority |
//! | [`jws`] | bootstrap tokens and the signatures of cluster-info, compared with the original's and kubeadm's code |
//! | [`cel`] | compares the type checking of admission policies with the original |
//! | [`cron`] | cron schedules, compared with the library of the original |
//! | [`cron_jobs`] | lets CronJobs run through a month and compares every reconcile with the original |
//! | [`volumes`] | the choice of a volume for a claim, compared with the original's |
//! | [`templates`] | compares hashes, revision data and equality of pod templates with the original |

pub mod accepted;
pub mod autoscaler;
pub mod cel;
pub mod certificates;
pub mod compare;
pub mod cron;
pub mod cron_jobs;
pub mod generate;
pub mod issuance;
pub mod jws;
pub mod normalize;
pub mod original;
pub mod run;
pub mod sequence;
pub mod server;
pub mod setup;
pub mod templates;
pub mod trial;
pub mod users;
pub mod volumes;
