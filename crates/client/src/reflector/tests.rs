//! Reflectors against an API server, with faults between.
