//! Secure serving: one HTTPS endpoint that tells those who may know how the manager is and what it does.
//!
//! A request passes three rooms. [`access`] finds out who asks and whether they may, with the help of the
//! API server; `pages` turns it into an answer without any IO; `connection` bounds what its client can hold
//! on to. [`Server`] binds them to a socket whose certificates `tls` finds or makes, and follows.
//!
//! Nothing here knows Kubernetes' clients: the API server is any service that carries HTTP
//! ([`ApiServer::over`]), handed in by whoever starts the server.

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

pub use access::{Access, ApiServerClient, DelegatingClients};
pub use error::ServingError;
pub use health::HealthChecks;
pub use options::{
    AuthenticationOptions, AuthorizationOptions, CertificateSource, ConnectionLimits, NamedCertificate,
    RequestHeaderOptions, ServingOptions,
};
pub use pages::{DebugPageHandler, FeatureGate, PageOptions, Pages, SetVerbosity, VersionInfo};
pub use server::Server;
pub use tls::TlsOptions;
