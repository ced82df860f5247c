//! Servers behind HTTP and SOCKS proxies, and proxies that refuse the client.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::connect::ConnectionObserver;
use crate::connect::tests::{Files, Server, base64, kubeconfig};
use crate::{Call, ClientFactory, ClientOptions, Connection};

/// The targets that a proxy is requested to connect to, in order.
type Targets = Arc<Mutex<Vec<String>>>;

/// A proxy that records targets and credentials.
struct Proxy {
    address: SocketAddr,
    targets: Targets,
}

impl Proxy {
    async fn start<F>(serve: impl Fn(TcpStream, Targets) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let targets = Targets::default();
        let notes = Arc::clone(&targets);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, Arc::clone(&notes)));
            }
        });
        Self { address, targets }
    }
}

/// Serves one CONNECT; refuses the password `wrong`.
async fn tunnel(mut client: impl AsyncRead + AsyncWrite + Unpin, targets: Targets) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let authorization = lines
        .find_map(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization").then(|| value.to_owned()));
    let authorization = authorization.unwrap_or_default();
    targets.lock().push(format!("{target} {authorization}").trim().to_owned());
    if authorization == format!("Basic {}", base64("me:wrong")) {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
        return;
    }
    let mut server = TcpStream::connect(&target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// Serves one SOCKS 5 client, with or without a password.
async fn socks(mut client: TcpStream, targets: Targets) {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting).await.unwrap();
    let mut methods = vec![0; greeting[1].into()];
    client.read_exact(&mut methods).await.unwrap();
    let mut credentials = String::new();
    if methods.contains(&2) {
        client.write_all(&[5, 2]).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), 1);
        for _ in 0..2 {
            let mut word = vec![0; client.read_u8().await.unwrap().into()];
            client.read_exact(&mut word).await.unwrap();
            credentials.push_str(&format!(" {}", String::from_utf8(word).unwrap()));
        }
        client.write_all(&[1, 0]).await.unwrap();
    } else {
        client.write_all(&[5, 0]).await.unwrap();
    }
    let mut request = [0; 10];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request[..4], [5, 1, 0, 1], "an IPv4 address to connect to");
    let address: [u8; 4] = request[4..8].try_into().unwrap();
    let target = SocketAddr::from((address, u16::from_be_bytes([request[8], request[9]])));
    targets.lock().push(format!("{target}{credentials}"));
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// A connection to a server through this `proxy-url`.
fn through(server: &Server, proxy_url: &str) -> Connection {
    let ca = base64(&server.ca.pem());
    let cluster = [("server", &*server.url()), ("certificate-authority-data", &ca), ("proxy-url", proxy_url)];
    Files::new().open(&kubeconfig(&cluster, &[])).unwrap()
}

async fn get_version(connection: &Connection) -> Result<serde_json::Value, keleustes_objects::ApiError> {
    let client = ClientFactory::new(connection.clone(), ClientOptions::default()).root("a");
    Call::raw(Method::GET, "/version").send(&client).await
}

#[tokio::test]
async fn http_proxy_tunnels_http2_with_the_servers_tls() {
    let server = Server::start().await;
    let proxy = Proxy::start(tunnel).await;
    let target = server.url().replace("https://", "");
    let answer = get_version(&through(&server, &format!("http://{}", proxy.address))).await.unwrap();
    assert_eq!(answer["version"], "HTTP/2.0");
    get_version(&through(&server, &format!("http://me:my%20word@{}", proxy.address))).await.unwrap();
    let password = base64("me:my word");
    assert_eq!(*proxy.targets.lock(), [target.clone(), format!("{target} Basic {password}")]);
}

#[tokio::test]
async fn https_proxy_is_connected_with_tls() {
    let server = Server::start().await;
    let acceptor = server.acceptor.clone();
    let proxy = Proxy::start(move |socket, targets| {
        let acceptor = acceptor.clone();
        async move { tunnel(acceptor.accept(socket).await.unwrap(), targets).await }
    })
    .await;
    let answer = get_version(&through(&server, &format!("https://{}", proxy.address))).await.unwrap();
    assert_eq!((&answer["version"], proxy.targets.lock().len()), (&"HTTP/2.0".into(), 1));
}

#[tokio::test]
async fn socks5_proxy_works_with_and_without_a_password() {
    let server = Server::start().await;
    let proxy = Proxy::start(socks).await;
    let target = server.url().replace("https://", "");
    get_version(&through(&server, &format!("socks5://{}", proxy.address))).await.unwrap();
    get_version(&through(&server, &format!("socks5://me:word@{}", proxy.address))).await.unwrap();
    assert_eq!(*proxy.targets.lock(), [target.clone(), format!("{target} me word")]);
}

#[tokio::test]
async fn proxy_error_is_reported_without_the_password() {
    let server = Server::start().await;
    let proxy = Proxy::start(tunnel).await;
    let refused =
        get_version(&through(&server, &format!("http://me:wrong@{}", proxy.address))).await.unwrap_err();
    assert!(refused.message.contains("proxy authorization required"), "{refused}");
    let closed_port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let absent = get_version(&through(&server, &format!("http://me:wrong@{closed_port}"))).await.unwrap_err();
    for failure in [refused, absent] {
        let text = format!("{failure} {failure:?}");
        assert!(!text.contains("wrong") && !text.contains(&base64("me:wrong")), "{text}");
    }
}

#[tokio::test]
async fn observer_counts_transports() {
    #[derive(Default)]
    struct Count(Mutex<(i32, i32, i32)>);
    impl ConnectionObserver for Count {
        fn transport_created(&self) {
            self.0.lock().0 += 1;
        }
        fn transport_reused(&self) {
            self.0.lock().1 += 1;
        }
        fn transport_dropped(&self) {
            self.0.lock().2 += 1;
        }
    }
    let (server, files, count) = (Server::start().await, Files::new(), Arc::new(Count::default()));
    let ca = base64(&server.ca.pem());
    let text = kubeconfig(&[("server", &server.url()), ("certificate-authority-data", &ca)], &[]);
    let path = files.write("config", &text);
    let connection = Connection::open(Some(&path), None, Some(count.clone())).unwrap();
    assert_eq!(*count.0.lock(), (2, 0, 0), "one with credentials and one without");
    get_version(&connection).await.unwrap();
    get_version(&connection).await.unwrap();
    assert_eq!(*count.0.lock(), (2, 2, 0), "clients share them");
    drop(connection);
    // Background tasks of the clients end a little later.
    for _ in 0..500 {
        if *count.0.lock() == (2, 2, 2) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{:?}", *count.0.lock());
}

#[tokio::test]
async fn failed_connection_names_the_server() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let files = Files::new();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'https://{address}/prefix'}}}}]\n\
         users: [{{name: u, user: {{token: hunter2}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    let connection = Connection::open(Some(&files.write("kubeconfig", &text)), None, None).unwrap();
    let client = ClientFactory::new(connection, ClientOptions::default()).root("test");
    let failure = Call::raw(Method::GET, "/version").send(&client).await.unwrap_err();
    assert_eq!(failure.reason, keleustes_objects::ErrorReason::ConnectionRefused);
    let message = failure.to_string();
    assert!(message.contains(&format!("API server https://{address}: ")), "{message}");
    assert!(message.contains("refused") && !message.contains("hunter2"), "{message}");
}
