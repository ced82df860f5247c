//! Secure serving: health, metrics.
