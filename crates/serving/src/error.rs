//! Errors of secure serving, with messages that an operator can act on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the server could not start or had to stop. Each message names the file or flag to fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServingError {
    /// Another process uses the port.
    #[error(
        "cannot serve on {address}: the port is in use; give another with --secure-port, or 0 to serve nothing"
    )]
    PortInUse {
        /// The configured address.
        address: SocketAddr,
    },
    /// The address is not local, or this process may not bind it.
    #[error("cannot serve on {address} (--bind-address, --secure-port): {cause}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// A flag has an invalid value.
    #[error("{flag}: {fault}")]
    Option {
        /// The flag.
        flag: &'static str,
        /// The problem.
        fault: String,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({flag}): {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The flag that sets it.
        flag: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{} ({flag}) {fault}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The flag that sets it.
        flag: &'static str,
        /// The problem.
        fault: String,
    },
    /// Certificate and key cannot be used together.
    #[error("{} and {} cannot be used together: {fault}", certificate.display(), key.display())]
    Mismatched {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The problem.
        fault: String,
    },
    /// Only one file of the pair is in the certificate directory; generating a pair would overwrite it.
    #[error("{} (--cert-dir) is missing while {} is there; certificate and key come as a pair",
            missing.display(), present.display())]
    IncompleteKeyPair {
        /// The missing file.
        missing: PathBuf,
        /// The existing file.
        present: PathBuf,
    },
    /// Generating a certificate failed.
    #[error("cannot generate a self-signed certificate: {0}")]
    Generate(String),
    /// The ConfigMap with the client CAs could not be read, and no flag tolerates that.
    #[error(
        "cannot look up configmap/extension-apiserver-authentication in kube-system: {0}; give \
         --requestheader-client-ca-file or --authentication-skip-lookup, or start without it with \
         --authentication-tolerate-lookup-failure"
    )]
    Lookup(String),
    /// The serving thread could not start, or it panicked.
    #[error("cannot serve: {cause}")]
    Thread {
        /// The system's error.
        cause: io::Error,
    },
    /// The socket no longer accepts connections; health checks can no longer be served, so the process must
    /// end.
    #[error("the socket on {address} no longer accepts connections: {cause}")]
    Accept {
        /// The address of the socket.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
}
