//! Why serving could not begin or had to end, in words an operator can act on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why serving could not begin or had to end. Each names the file or the flag to look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServingError {
    /// Another process has the port: choose another one.
    #[error(
        "cannot serve on {address}: the port is in use; give another with --secure-port, or 0 to serve nothing"
    )]
    PortInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address is not one of this machine, or may not be used by this process.
    #[error("cannot serve on {address} (--bind-address, --secure-port): {cause}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// A flag says what cannot be done.
    #[error("{flag}: {fault}")]
    Option {
        /// The flag.
        flag: &'static str,
        /// What is wrong with its value.
        fault: String,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({flag}): {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// What the system says.
        cause: io::Error,
    },
    /// A file is there and readable, but does not hold what it should.
    #[error("{} ({flag}) {fault}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// What is wrong with it.
        fault: String,
    },
    /// Certificate and key are each fine but cannot be used together.
    #[error("{} and {} cannot be used together: {fault}", certificate.display(), key.display())]
    Mismatched {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        fault: String,
    },
    /// Only one file of a pair is in the certificate directory; overwriting the other would lose it.
    #[error("{} (--cert-dir) is missing while {} is there; certificate and key come as a pair",
            missing.display(), present.display())]
    IncompleteKeyPair {
        /// The file that is not there.
        missing: PathBuf,
        /// The file that is.
        present: PathBuf,
    },
    /// No certificate could be made.
    #[error("cannot make a self-signed certificate: {0}")]
    Generate(String),
    /// The cluster did not tell whom to believe; a flag can make that bearable.
    #[error(
        "cannot look up configmap/extension-apiserver-authentication in kube-system: {0}; give \
         --requestheader-client-ca-file or --authentication-skip-lookup, or start without it with \
         --authentication-tolerate-lookup-failure"
    )]
    Lookup(String),
    /// The socket no longer accepts connections; health can no longer be told, so the process must end.
    #[error("the socket on {address} no longer accepts connections: {cause}")]
    Accept {
        /// The address served on.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
}
