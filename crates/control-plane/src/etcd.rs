//! Writes to etcd past the API server, through etcd's JSON gateway: the only way to store what the API server would
//! reject.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// etcd answers a write within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Stores a value under a key.
pub(crate) fn put(port: u16, key: &str, value: &[u8]) -> io::Result<()> {
    let body = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
    post(port, "/v3/kv/put", &body)
}

/// Deletes a key.
pub(crate) fn delete(port: u16, key: &str) -> io::Result<()> {
    post(port, "/v3/kv/deleterange", &json!({"key": STANDARD.encode(key)}))
}

fn post(port: u16, path: &str, body: &Value) -> io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut tcp = TcpStream::connect_timeout(&address, TIMEOUT)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    let body = body.to_string();
    let length = body.len();
    write!(
        tcp,
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer)?;
    let is_ok = answer.split(' ').nth(1) == Some("200");
    if is_ok { Ok(()) } else { Err(io::Error::other(answer)) }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    fn put_with_answer(answer: &'static str) -> (io::Result<()>, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut reader) = (String::new(), BufReader::new(stream.try_clone().unwrap()));
            while !request.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut request).unwrap() > 0, "{request}");
            }
            let mut body = [0; 29];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            request + std::str::from_utf8(&body).unwrap()
        });
        (put(port, "/a", b"b"), server.join().unwrap())
    }

    #[test]
    fn key_and_value_are_sent_encoded_and_an_error_is_returned() {
        let (result, request) = put_with_answer("HTTP/1.1 200 OK\r\n\r\n{}");
        assert!(result.is_ok());
        assert!(request.starts_with("POST /v3/kv/put HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with(r#"{"key":"L2E=","value":"Yg=="}"#), "{request}");
        let (result, _) = put_with_answer("HTTP/1.1 503 Service Unavailable\r\n\r\nno leader");
        assert!(result.unwrap_err().to_string().contains("no leader"));
    }
}
