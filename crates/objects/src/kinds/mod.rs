//! The kinds, one file each: what the caches keep of them.

mod cluster_role;
mod namespace;
mod partial;
mod service_account;
mod token_secret;

pub use cluster_role::{ClusterRole, PolicyRule};
pub use namespace::Namespace;
pub use partial::Partial;
pub use service_account::ServiceAccount;
pub use token_secret::{SECRET_TYPE_SERVICE_ACCOUNT_TOKEN, TokenSecret};

/// Names of annotations that controllers read or write.
pub mod annotations {
    /// On a token Secret: the account it belongs to.
    pub const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
    /// On a token Secret: the life of the account it belongs to.
    pub const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
}
