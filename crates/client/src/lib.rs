//! Reflectors, per-controller credentials, discovery and client-side throttling on top of `kube`.
//!
//! All requests go through a [`kube::Client`], which wraps any tower service. The code here does not know
//! whether HTTPS or an API server in the same process answers.
//!
//! Request and response bodies are never logged, because they may hold Secrets. For the same reason responses
//! are decoded here and not by `kube::Client::request`, which logs a body it cannot decode.

pub mod api_error;
mod call;
pub mod connect;
pub mod credentials;
pub mod discovery;
pub mod layers;
mod reflector;

pub use call::{Call, DeleteOptions, PatchType, PropagationPolicy, WriteResponse};
pub use connect::{
    ConnectError, Connection, ConnectionObserver, ExecPluginStatus, KUBERNETES_VERSION, OtherServer,
    ServerTrust, platform, set_commit,
};
pub use credentials::{ClientFactory, ClientOptions};
pub use discovery::{ApiResource, DiscoveredResources, RestMapper, Subresource, discover};
pub use layers::{ObservedRequest, RateLimit, RequestObserver};
pub use reflector::{Delta, ListPage, ListWatch, Reflector, ReflectorObserver};
