//! How often something may happen: token buckets, exponential backoffs and growing intervals.
//!
//! No clock is read here. The caller passes the monotonic time since any fixed moment, so that the same types serve
//! decisions, work queues, requests and simulations.

mod backoff;
mod growing_interval;
mod token_bucket;

pub use backoff::{Backoff, exponential_delay};
pub use growing_interval::GrowingInterval;
pub use token_bucket::TokenBucket;
