//! Secure serving: one HTTPS endpoint that tells whether the manager is well and what it counts.
//!
//! **Who is answered.** Delegated authentication and authorization (TokenReview, client certificates,
//! SubjectAccessReview) are *not* here yet. Until they are, the rule of [`access`] stands in for them:
//! `/healthz`, `/livez` and `/readyz` are open to everybody, as they are by default in the original, and
//! **every other page is answered to peers on a loopback address only**; all others get a 403. Whoever
//! can open a connection from the same network namespace (on a control-plane node: any local user) can
//! therefore read `/metrics`.
//!
//! Rooms: [`health`] keeps the named checks, `certificate` finds or makes the certificate, `pages` turns a
//! request into an answer without any IO, `connection` bounds what one client can hold on to, and
//! [`Server`] binds them to a socket.

pub mod access;
mod certificate;
mod connection;
mod error;
pub mod health;
mod pages;
mod server;

pub use certificate::CertificateSource;
pub use error::ServingError;
pub use health::HealthChecks;
pub use pages::Pages;
pub use server::{Limits, Server, ServingOptions};
