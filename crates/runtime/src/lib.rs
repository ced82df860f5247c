//! Shared caches, wake-ups, queues, the executor of plans, leader election.
