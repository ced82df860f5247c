//! Probes a server over HTTP/1.1, plain or with TLS, for readiness.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A server that does not answer within this time is not ready.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The address and trust of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    port: u16,
    path: &'static str,
    tls: Option<Arc<ClientConfig>>,
}

impl Probe {
    /// A probe without TLS.
    pub(crate) fn http(port: u16, path: &'static str) -> Self {
        Self { port, path, tls: None }
    }

    /// An anonymous probe with TLS that trusts only `ca`.
    pub(crate) fn https(port: u16, path: &'static str, ca: CertificateDer<'static>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(ca).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { port, path, tls: Some(Arc::new(config)) })
    }

    /// `Ok` if the server answers 200, otherwise its response.
    pub(crate) fn ask(&self) -> Result<(), String> {
        let answer = self.exchange().map_err(|err| err.to_string())?;
        let status = answer.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) == Some("200") { Ok(()) } else { Err(status.trim().to_owned()) }
    }

    fn exchange(&self) -> io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let tcp = TcpStream::connect_timeout(&address, TIMEOUT)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        match &self.tls {
            None => self.converse(tcp),
            Some(config) => {
                let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
                let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                self.converse(StreamOwned::new(connection, tcp))
            }
        }
    }

    fn converse(&self, mut stream: impl Read + Write) -> io::Result<String> {
        let Self { port, path, .. } = self;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 256];
        // The status line comes with the first bytes; nothing after it is of interest.
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    fn asked(answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The request may come in pieces, and closing before its end would look like a broken connection.
            let (mut request, mut reader) = (String::new(), BufReader::new(&stream));
            while !request.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut request).unwrap() > 0, "{request}");
            }
            stream.write_all(answer.as_bytes()).unwrap();
            request
        });
        let verdict = Probe::http(port, "/readyz").ask();
        assert!(server.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
        verdict
    }

    #[test]
    fn only_200_means_ready() {
        assert_eq!(asked("HTTP/1.1 200 OK\r\n\r\nok"), Ok(()));
        let said = asked("HTTP/1.1 500 Internal Server Error\r\n\r\n");
        assert_eq!(said, Err("HTTP/1.1 500 Internal Server Error".into()));
        assert_eq!(asked(""), Err(String::new()));
    }
}
