//! Compact types of the API kinds the manager uses.
