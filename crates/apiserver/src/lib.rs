//! An embedded in-memory API server: a pure kernel and an HTTP face.
//!
//! | room | keeps |
//! | --- | --- |
//! | [`kernel`] | the server itself: requests and clock readings in, replies and watch frames out; no IO, no clock, no chance of its own |
//! | [`face`] | a tower service over the kernel that a `kube::Client` can speak to, and the handles tests hold |
//! | [`faults`] | a tower layer that lets chosen requests go wrong |
//! | [`http`] | the server on a loopback socket: HTTPS, certificates for users, kubeconfig files, bounds on every client |
//! | [`keep`] | state that outlives the process |
//! | [`clock`] | where the face reads the time |
//!
//! What the server does not do is answered with a clear 4xx or 501, never silently.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use keleustes_apiserver::ApiServer;
//! use kube::{Api, Client};
//!
//! let server = ApiServer::builder().seed(7).build();
//! server.seed(serde_json::json!({
//!     "apiVersion": "v1", "kind": "ConfigMap",
//!     "metadata": {"name": "settings", "namespace": "default"}, "data": {"colour": "blue"},
//! })).unwrap();
//! let client = Client::new(server.clone(), "default");
//! let settings = Api::<ConfigMap>::default_namespaced(client).get("settings").await.unwrap();
//! assert_eq!(settings.data.unwrap()["colour"], "blue");
//! # });
//! ```

pub mod clock;
pub mod faults;
pub mod http;
pub mod kernel;
pub mod service;
pub mod state_dir;

pub use faults::{FaultRule, Faults, InjectedFault};
pub use kernel::{ApiResult, Status, StatusCause, StatusReason, TokenVerifier, User};
pub use service::{ApiServer, Builder, LoggedRequest};
