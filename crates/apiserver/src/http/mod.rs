//! The server on a socket: HTTPS on loopback, with bounds on every client and an orderly end.
//!
//! | room | keeps |
//! | --- | --- |
//! | [`pki`] | an authority of the server's own, and who its certificates stand for |
//! | [`listener`] | connections are bounded in number, time and size, and end together |

pub mod listener;
pub mod pki;

use std::net::SocketAddr;
use std::path::PathBuf;

pub use listener::{Limits, Serving, serve};
pub use pki::Pki;

/// Why the server is not on its socket.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is taken or not allowed; choose another.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the machine says.
        source: std::io::Error,
    },
    /// A file of the server's authority can be neither read nor written; give another folder.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the machine says.
        source: std::io::Error,
    },
    /// Keys or certificates cannot be made or are of no use; remove the files to have them made anew.
    #[error("certificates: {0}")]
    Certificates(String),
}
