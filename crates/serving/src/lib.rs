//! Secure serving: one HTTPS endpoint with health checks, metrics and debug pages, behind delegated
//! authentication and authorization.
//!
//! A request passes three modules. [`access`] authenticates and authorizes it with the API server's help;
//! `pages` computes the response without IO; `connection` limits what a client can occupy. [`Server`] binds
//! them to a socket, with the certificates that `tls` loads or generates, and reloads.
//!
//! This crate does not depend on a Kubernetes client: the caller passes the API server in as any HTTP service
//! ([`ApiServerClient::from_service`]).

pub mod access;
mod connection;
mod error;
pub mod health;
mod metrics;
mod options;
mod pages;
mod process;
mod server;
mod tls;

pub use access::{Access, ApiServerClient, BrowserLogin, DelegatingClients};
pub use error::ServingError;
pub use health::HealthChecks;
pub use options::{
    AuthenticationOptions, AuthorizationOptions, CertificateSource, ConnectionLimits, NamedCertificate,
    RequestHeaderOptions, ServingOptions,
};
pub use pages::{
    DebugPageHandler, FeatureGate, PageOptions, Pages, SetVerbosity, SubtreeHandler, SubtreeRequest,
    VersionInfo,
};
pub use server::Server;
pub use tls::TlsOptions;
