//! Servers behind proxies, and proxies that do not let us through.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::connect::ConnectionObserver;
use crate::connect::tests::{Files, Server, base64, kubeconfig};
use crate::{Call, ClientFactory, ClientOptions, Connection};

/// What a proxy is asked for, in order.
type Asked = Arc<Mutex<Vec<String>>>;

/// A proxy that notes whom it is asked for, and by whom.
struct Proxy {
    address: SocketAddr,
    asked: Asked,
}

impl Proxy {
    async fn start<F>(serve: impl Fn(TcpStream, Asked) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Asked::default();
        let notes = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, Arc::clone(&notes)));
            }
        });
        Self { address, asked }
    }
}

/// Serves one CONNECT; whoever shows a wrong password is refused.
async fn tunnel(mut client: impl AsyncRead + AsyncWrite + Unpin, asked: Asked) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let shown = lines
        .find_map(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization").then(|| value.to_owned()));
    let shown = shown.unwrap_or_default();
    asked.lock().push(format!("{target} {shown}").trim().to_owned());
    if shown == format!("Basic {}", base64("me:wrong")) {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
        return;
    }
    let mut server = TcpStream::connect(&target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// Serves one client that speaks SOCKS 5, with a password if it has one.
async fn socks(mut client: TcpStream, asked: Asked) {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting).await.unwrap();
    let mut methods = vec![0; greeting[1].into()];
    client.read_exact(&mut methods).await.unwrap();
    let mut who = String::new();
    if methods.contains(&2) {
        client.write_all(&[5, 2]).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), 1);
        for _ in 0..2 {
            let mut word = vec![0; client.read_u8().await.unwrap().into()];
            client.read_exact(&mut word).await.unwrap();
            who.push_str(&format!(" {}", String::from_utf8(word).unwrap()));
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
    asked.lock().push(format!("{target}{who}"));
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// A connection to a server through what `proxy-url` says.
fn through(server: &Server, proxy_url: &str) -> Connection {
    let ca = base64(&server.ca.pem());
    let cluster = [("server", &*server.url()), ("certificate-authority-data", &ca), ("proxy-url", proxy_url)];
    Files::new().open(&kubeconfig(&cluster, &[])).unwrap()
}

async fn ask(connection: &Connection) -> Result<serde_json::Value, keleustes_objects::ApiError> {
    let client = ClientFactory::new(connection.clone(), ClientOptions::default()).root("a");
    Call::raw(Method::GET, "/version").send(&client).await
}

#[tokio::test]
async fn a_tunnel_through_a_proxy_carries_http_2_with_the_server_s_own_tls() {
    let server = Server::start().await;
    let proxy = Proxy::start(tunnel).await;
    let target = server.url().replace("https://", "");
    let answer = ask(&through(&server, &format!("http://{}", proxy.address))).await.unwrap();
    assert_eq!(answer["version"], "HTTP/2.0");
    ask(&through(&server, &format!("http://me:my%20word@{}", proxy.address))).await.unwrap();
    let password = base64("me:my word");
    assert_eq!(*proxy.asked.lock(), [target.clone(), format!("{target} Basic {password}")]);
}

#[tokio::test]
async fn a_proxy_may_itself_want_tls() {
    let server = Server::start().await;
    let acceptor = server.acceptor.clone();
    let proxy = Proxy::start(move |socket, asked| {
        let acceptor = acceptor.clone();
        async move { tunnel(acceptor.accept(socket).await.unwrap(), asked).await }
    })
    .await;
    let answer = ask(&through(&server, &format!("https://{}", proxy.address))).await.unwrap();
    assert_eq!((&answer["version"], proxy.asked.lock().len()), (&"HTTP/2.0".into(), 1));
}

#[tokio::test]
async fn socks_is_spoken_with_and_without_a_password() {
    let server = Server::start().await;
    let proxy = Proxy::start(socks).await;
    let target = server.url().replace("https://", "");
    ask(&through(&server, &format!("socks5://{}", proxy.address))).await.unwrap();
    ask(&through(&server, &format!("socks5://me:word@{}", proxy.address))).await.unwrap();
    assert_eq!(*proxy.asked.lock(), [target.clone(), format!("{target} me word")]);
}

#[tokio::test]
async fn a_proxy_that_lets_nobody_through_is_told_without_its_password() {
    let server = Server::start().await;
    let proxy = Proxy::start(tunnel).await;
    let refused = ask(&through(&server, &format!("http://me:wrong@{}", proxy.address))).await.unwrap_err();
    assert!(refused.message.contains("proxy authorization required"), "{refused}");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let absent = ask(&through(&server, &format!("http://me:wrong@{nobody}"))).await.unwrap_err();
    for failure in [refused, absent] {
        let said = format!("{failure} {failure:?}");
        assert!(!said.contains("wrong") && !said.contains(&base64("me:wrong")), "{said}");
    }
}

#[tokio::test]
async fn transports_are_counted_while_they_are_held() {
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
    ask(&connection).await.unwrap();
    ask(&connection).await.unwrap();
    assert_eq!(*count.0.lock(), (2, 2, 0), "clients share them");
    drop(connection);
    // Clients are served by tasks, which end in their own time.
    for _ in 0..500 {
        if *count.0.lock() == (2, 2, 2) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{:?}", *count.0.lock());
}
