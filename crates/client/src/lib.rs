//! What kube does not give: list and watch, credentials, discovery, throttling.
//!
//! Everything here speaks through a [`kube::Client`], which is a handle on any tower service; whether
//! HTTPS or an API server in the same process answers is not visible from inside.
//!
//! Bodies of requests and answers never reach a log: they may hold Secrets. That is also why answers are
//! decoded here and not by `kube::Client::request`, which writes a body it cannot decode to the log.

pub mod connect;
pub mod credentials;
pub mod discovery;
pub mod failure;
pub mod layers;
mod reflector;
mod writes;

pub use connect::{ConnectError, Connection, ConnectionObserver, ExecPluginStatus};
pub use credentials::{ClientFactory, ClientOptions};
pub use discovery::{ApiResource, DiscoveredResources, RestMapper, Subresource, discover};
pub use layers::{ObservedRequest, RateLimit, RequestObserver};
pub use reflector::{Decode, Delta, ListWatch, Reflector, ReflectorObserver};
pub use writes::{Call, DeleteOptions, PatchType, PropagationPolicy, WriteResponse};
