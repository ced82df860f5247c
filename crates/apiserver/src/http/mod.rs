//! The server on a socket: HTTPS on loopback, limits for every client, graceful shutdown.
//!
//! | module | content |
//! | --- | --- |
//! | [`pki`] | the server's own certificate authority and client certificates |
//! | [`listener`] | connections: limits on number, duration and size; shutdown |
//! | `in_flight` | limits on requests and body bytes of all connections together |

mod in_flight;
pub mod listener;
pub mod pki;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use listener::{RunningServer, serve};
pub use pki::Pki;

/// Limits for clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Concurrent connections; further ones are closed without an answer.
    pub connections_max: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// Bytes of one request's headers.
    pub header_bytes_max: usize,
    /// Bytes of one request's body.
    pub body_bytes_max: usize,
    /// Timeout of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Timeout for receiving the headers of a request.
    pub headers_timeout: Duration,
    /// Timeout for receiving the body of a request.
    pub body_timeout: Duration,
    /// Timeout for a write: the client has to read something within this time.
    pub write_timeout: Duration,
    /// Concurrent requests on all connections, watches excluded; further ones get 429.
    pub requests_in_flight_max: usize,
    /// Bytes of request and response bodies held at once on all connections; further requests get 429.
    pub bytes_in_flight_max: usize,
    /// Time for responses in flight at shutdown.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 4096,
            streams_max: 20_000,
            header_bytes_max: 64 * 1024,
            body_bytes_max: 4 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(10),
            headers_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            requests_in_flight_max: 600,
            bytes_in_flight_max: 512 * 1024 * 1024,
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is in use or not permitted; choose another.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file of the certificate authority can be neither read nor written; choose another directory.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// Keys or certificates cannot be created or are invalid; delete the files to have them created again.
    #[error("certificates: {0}")]
    Certificates(String),
}
