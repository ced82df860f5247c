//! The judge: the embedded API server must answer as the real kube-apiserver does.
//!
//! | room | keeps |
//! | --- | --- |
//! | [`generate`] | sequences of requests, out of a seed |
//! | [`sequence`] | what a sequence is: requests that may refer to earlier answers |
//! | [`side`], [`world`] | the two servers and how they are asked |
//! | [`trial`] | one sequence put to both |
//! | [`normal`] | answers without what two servers can never agree on |
//! | [`compare`] | where two answers differ |
//! | [`accepted`] | the differences that are meant |
//! | [`run`] | many trials, and what came of them |

pub mod accepted;
pub mod compare;
pub mod generate;
pub mod normal;
pub mod run;
pub mod sequence;
pub mod side;
pub mod trial;
pub mod world;
