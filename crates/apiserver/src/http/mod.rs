//! The server on a socket: HTTPS on loopback, with bounds on every client and an orderly end.
//!
//! | room | keeps |
//! | --- | --- |
//! | [`pki`] | an authority of the server's own, and who its certificates stand for |
//! | [`listener`] | connections are bounded in number, time and size, and end together |
//! | `load` | so is what requests hold on all of them |

mod in_flight;
pub mod listener;
pub mod pki;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use listener::{RunningServer, serve};
pub use pki::Pki;

/// What clients may take of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; more are closed unheard.
    pub connections_max: usize,
    /// Requests at once on one connection of HTTP/2.
    pub streams_max: u32,
    /// Bytes of one request's headers.
    pub header_bytes_max: usize,
    /// Bytes of one request's body.
    pub body_bytes_max: usize,
    /// Time for the TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for the headers of a request.
    pub headers_timeout: Duration,
    /// Time for the body of a request.
    pub body_timeout: Duration,
    /// Time for a client to read something of what is sent to it.
    pub write_timeout: Duration,
    /// Requests at once on all connections, watches aside; more are asked to come again.
    pub requests_in_flight_max: usize,
    /// Bytes of bodies that come in or wait to go out at once on all connections; more are asked to come again.
    pub bytes_in_flight_max: usize,
    /// Time for answers under way when the server stops.
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
