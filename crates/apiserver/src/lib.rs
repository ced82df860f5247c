//! An embedded in-memory API server: a pure kernel and an HTTP service.
//!
//! | module | content |
//! | --- | --- |
//! | [`kernel`] | the server itself: requests and times in, replies and watch frames out; no IO, clock or randomness of its own |
//! | [`service`] | a tower service over the kernel for a `kube::Client`, and direct access for tests |
//! | [`faults`] | a tower layer that injects faults into chosen requests |
//! | [`http`] | the server on a loopback socket: HTTPS, client certificates, kubeconfig files, limits for every client |
//! | [`state_dir`] | persistence |
//! | [`private_files`] | files that only their owner can read |
//! | [`clock`], [`entropy`] | clocks and randomness for the service |
//!
//! Features the server does not implement get a 4xx or 501, never a silent success.
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
pub mod entropy;
pub mod faults;
pub mod http;
pub mod kernel;
pub mod private_files;
pub mod service;
pub mod service_account_key;
pub mod state_dir;

pub use faults::{FaultRule, Faults, InjectedFault};
pub use kernel::{
    ApiResult, EntropySource, MetricsSource, Status, StatusCause, StatusReason, TokenSigner, TokenVerifier,
    User,
};
pub use service::{ApiServer, Builder, LoggedRequest};
