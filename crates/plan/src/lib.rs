//! The vocabulary of deciding: views, plans, writes, wake-ups.
