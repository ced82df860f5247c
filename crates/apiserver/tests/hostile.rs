//! Malformed, oversized and slow requests: errors and limits, never a panic, and other clients are served as before.

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use keleustes_apiserver::ApiServer;
use keleustes_apiserver::http::Limits;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use support::{CONFIG_MAPS, answer_to, is_healthy, multiplexed, raw, read_all, seed, send_get, serving};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A POST of a ConfigMap with these headers and this body.
fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// A write with a JSON body.
fn json(method: &str, target: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/{kind}\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
}

/// Whether the server closed the connection without an answer, or answered with one of these codes.
fn refused(answer: &str, codes: &[u16]) -> bool {
    answer.is_empty() || codes.iter().any(|code| answer.starts_with(&format!("HTTP/1.1 {code}")))
}

#[tokio::test]
async fn non_http_input_is_rejected() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, Limits::default()).await;
    let many_headers = format!("{}\r\n", "a: b\r\n".repeat(2000));
    let inputs: [Vec<u8>; 16] = [
        b"nonsense\r\n\r\n".to_vec(),
        b"\0\0\0\0\r\n\r\n".to_vec(),
        vec![0xff; 5000],
        b"GET\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/9.9\r\n\r\n".to_vec(),
        b"GET http://[::1 HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\nhost x\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\nho\0st: x\r\n\r\n".to_vec(),
        format!("GET /healthz HTTP/1.1\r\n{many_headers}").into_bytes(),
        post("content-length: -1\r\n", b""),
        post("content-length: 99999999999999999999\r\n", b""),
        post("content-length: 5\r\ncontent-length: 6\r\n", b"{}"),
        post("transfer-encoding: chunked\r\n", b"zz\r\n{}\r\n"),
        post("transfer-encoding: chunked\r\n", b"ffffffffffffffffff\r\n"),
        post("transfer-encoding: gzip\r\n", b"x"),
        // The HTTP/2 preface, then garbage.
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff; 2000]].concat(),
    ];
    let answers = join_all(inputs.iter().map(|inputs| answer_to(&serving, inputs))).await;
    for (inputs, answer) in inputs.iter().zip(answers) {
        let sent = String::from_utf8_lossy(&inputs[..inputs.len().min(60)]).into_owned();
        let goaway = answer.contains("\u{0}\u{0}") && sent.starts_with("PRI");
        assert!(goaway || refused(&answer, &[400, 431, 505]), "{sent:?}: {answer:.300}");
    }
    // The server closes a connection that does not speak TLS.
    let mut plain = TcpStream::connect(serving.address()).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut buffer = Vec::new();
    let _ = plain.read_to_end(&mut buffer).await;
    assert!(is_healthy(&serving).await);
}

#[tokio::test]
async fn oversized_requests_are_rejected() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, Limits::default()).await;
    let long_header = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20)).repeat(6);
    let mut requests = vec![
        (get(&format!("/{}", "x".repeat(70_000))), vec![414, 431]),
        (get(&format!("{CONFIG_MAPS}?labelSelector={}", "a,".repeat(40_000))), vec![414, 431]),
        (long_header.into_bytes(), vec![431]),
        (post("content-length: 5000000\r\n", "x".repeat(5_000_000).as_bytes()), vec![413]),
        (post("transfer-encoding: chunked\r\n", chunk.as_bytes()), vec![413]),
    ];
    // Requests of nearly the maximum size that are expensive to parse.
    let values = (0..4000).map(|at| format!("v{at}")).collect::<Vec<_>>().join(",");
    for selector in [
        format!("labelSelector=a%20in%20({values})"),
        format!("labelSelector={}", "a%3Db,".repeat(4000)),
        format!("labelSelector={}", "(".repeat(20_000)),
        format!("labelSelector={}", "%21".repeat(10_000)),
        format!("fieldSelector={}", "metadata.name%3Da,".repeat(2000)),
        format!("fieldSelector={}", "%5C".repeat(10_000)),
        format!("limit={}", "9".repeat(20_000)),
        format!("continue={}", "A".repeat(30_000)),
    ] {
        requests.push((get(&format!("{CONFIG_MAPS}?{selector}")), vec![200, 400]));
    }
    let began = Instant::now();
    for (request, codes) in &requests {
        let answer = answer_to(&serving, request).await;
        let sent = String::from_utf8_lossy(&request[..80]).into_owned();
        assert!(refused(&answer, codes), "{sent:?}: {answer:.300}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(is_healthy(&serving).await);
}

#[tokio::test]
async fn invalid_json_and_invalid_utf8_are_rejected() {
    let server = ApiServer::builder().build();
    seed(&server, "a", "v");
    let serving = serving(&server, Limits::default()).await;
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(200_000), close.repeat(200_000));
    let in_metadata = format!("{{\"metadata\":{}}}", deep("{\"a\":", "}"));
    let bodies: Vec<Vec<u8>> = vec![
        b"{\"metadata\":{\"name\":\"\xff\xfe\"}}".to_vec(),
        b"{\"metadata\":{\"name\":\"\xed\xa0\x80\"}}".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        vec![0xff; 100],
        b"{\"metadata\":{\"name\":\"\\ud800\"}}".to_vec(),
        b"{\"a\":1e999999}".to_vec(),
        b"{".to_vec(),
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
        in_metadata.into_bytes(),
        [b"k8s\0".as_slice(), &[0xff; 200]].concat(),
    ];
    let mut requests = Vec::new();
    for body in &bodies {
        requests.push(json("POST", CONFIG_MAPS, "json", body));
        requests.push(json("POST", CONFIG_MAPS, "vnd.kubernetes.protobuf", body));
        requests.push(json("PUT", &format!("{CONFIG_MAPS}/a"), "json", body));
        requests.push(json("DELETE", &format!("{CONFIG_MAPS}/a?dryRun=All"), "json", body));
        for kind in ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
        {
            let target = format!("{CONFIG_MAPS}/a?fieldManager=m&dryRun=All");
            requests.push(json("PATCH", &target, kind, body));
        }
    }
    for target in ["/%ff%fe", "/api/v1/namespaces/%ff/configmaps", "/api/v1/namespaces/%00/configmaps/%2e%2e"]
    {
        requests.push(get(target));
    }
    requests.push(get(&format!("{CONFIG_MAPS}?labelSelector=%ff%fe%3Dx")));
    requests.push(
        b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nuser-agent: \xff\xfe\r\n\r\n".to_vec(),
    );
    for requests in requests.chunks(16) {
        let answers = join_all(requests.iter().map(|request| answer_to(&serving, request))).await;
        for (request, answer) in requests.iter().zip(answers) {
            let code: u16 = answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
            let sent = String::from_utf8_lossy(&request[..request.len().min(160)]).into_owned();
            assert!(code == 200 || (400..500).contains(&code), "{sent:?}: {answer:.300}");
        }
    }
    assert!(is_healthy(&serving).await);
}

/// Short timeouts and low limits.
fn short_timeouts() -> Limits {
    let timeout = Duration::from_millis(300);
    Limits {
        handshake_timeout: timeout,
        headers_timeout: timeout,
        body_timeout: timeout,
        write_timeout: timeout,
        ..Limits::default()
    }
}

#[tokio::test]
async fn slow_and_excess_clients_are_disconnected() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, Limits { connections_max: 5, ..short_timeouts() }).await;
    let mut header = raw(&serving).await;
    header.write_all(b"GET /healthz HTTP/1.1\r\nho").await.unwrap();
    let mut body = raw(&serving).await;
    body.write_all(&post("content-length: 9\r\n", b"{")).await.unwrap();
    let mut preface = raw(&serving).await;
    preface.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let mut idle = raw(&serving).await;
    let _no_handshake = TcpStream::connect(serving.address()).await.unwrap();
    assert!(is_closed(serving.address()).await, "a sixth connection exceeds the limit");
    assert!(read_all(&mut body).await.starts_with("HTTP/1.1 408"));
    for stream in [&mut header, &mut preface, &mut idle] {
        read_all(stream).await;
        let ended = stream.read(&mut [0; 16]).await;
        assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    }
    assert!(is_healthy(&serving).await, "slots are free again, although no client has disconnected");
}

async fn is_closed(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let mut buffer = [0; 16];
    let read = tokio::time::timeout(Duration::from_millis(150), stream.read(&mut buffer)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn slowly_sent_body_times_out() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, short_timeouts()).await;
    let mut stream = raw(&serving).await;
    stream.write_all(&post("content-length: 1000\r\n", b"")).await.unwrap();
    let began = Instant::now();
    // One byte at a time does not extend the timeout.
    while began.elapsed() < Duration::from_secs(5) && stream.write_all(b" ").await.is_ok() {
        let mut answer = [0; 12];
        if let Ok(Ok(12)) = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut answer)).await {
            assert_eq!(&answer, b"HTTP/1.1 408");
            return;
        }
    }
    panic!("the server waited for {:?}", began.elapsed());
}

#[tokio::test]
async fn client_that_never_reads_its_watch_is_disconnected() {
    let server = ApiServer::builder().frames_max(50).build();
    let serving = serving(&server, Limits { connections_max: 1, ..short_timeouts() }).await;
    let mut stream = raw(&serving).await;
    stream.write_all(&get(&format!("{CONFIG_MAPS}?watch=1"))).await.unwrap();
    let large = "x".repeat(200_000);
    let began = Instant::now();
    // First the socket buffers fill; then the server's write timeout expires.
    let mut changes = 0;
    while server.open_watches() > 0 || changes == 0 {
        seed(&server, "a", &large);
        changes += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{changes} changes");
    }
    // Its connection slot is free again, although the client still holds the socket.
    while !is_healthy(&serving).await {
        assert!(began.elapsed() < Duration::from_secs(20), "the connection is still open");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(stream);
}

#[tokio::test]
async fn client_that_reads_no_responses_gets_429() {
    let server = ApiServer::builder().build();
    seed(&server, "a", &"x".repeat(1_000_000));
    let limits = Limits { bytes_in_flight_max: 20_000_000, ..Limits::default() };
    let serving = serving(&server, limits).await;
    let mut unread_client = multiplexed(&serving).await;
    let (mut received, mut throttled) = (Vec::new(), 0);
    for _ in 0..100 {
        let answer = send_get(&mut unread_client, CONFIG_MAPS).await;
        match answer.status().as_u16() {
            200 => received.push(answer),
            429 => {
                assert_eq!(answer.headers()["retry-after"], "1");
                throttled += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!((10..=20).contains(&received.len()), "{} answers are held", received.len());
    assert_eq!(received.len() + throttled, 100);
    // Small requests still pass, and large ones again once the responses are dropped.
    assert!(is_healthy(&serving).await);
    drop((received, unread_client));
    let mut reading_client = multiplexed(&serving).await;
    let began = Instant::now();
    while send_get(&mut reading_client, CONFIG_MAPS).await.status() != 200 {
        assert!(began.elapsed() < Duration::from_secs(10), "no permit was returned");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn too_many_concurrent_requests_get_429() {
    let server = ApiServer::builder().build();
    let serving = serving(&server, Limits { requests_in_flight_max: 2, ..Limits::default() }).await;
    let mut incomplete = Vec::new();
    for _ in 0..2 {
        let mut stream = raw(&serving).await;
        stream.write_all(&post("content-length: 9\r\n", b"{")).await.unwrap();
        incomplete.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = answer_to(&serving, &get(CONFIG_MAPS)).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 1"), "{answer}");
    drop(incomplete);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(answer_to(&serving, &get(CONFIG_MAPS)).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn watches_are_limited_in_number_and_queue_length() {
    let server = ApiServer::builder().watches_max(1000).frames_max(5).build();
    let api = Api::<ConfigMap>::default_namespaced(Client::new(server.clone(), "default"));
    let mut open = Vec::new();
    for _ in 0..1000 {
        open.push(api.watch(&WatchParams::default(), "0").await.unwrap());
    }
    assert_eq!(server.open_watches(), 1000);
    let refused = api.watch(&WatchParams::default(), "0").await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 429));
    for at in 0..6 {
        seed(&server, &format!("c{at}"), "v");
    }
    // No client has read anything, so every watch has been ended.
    assert_eq!(server.open_watches(), 0);
    let mut first = Box::pin(open.swap_remove(0));
    assert!(matches!(first.try_next().await.unwrap(), Some(WatchEvent::Error(status)) if status.code == 410));
}

#[tokio::test]
async fn history_is_bounded_in_bytes() {
    let server = ApiServer::builder().history_bytes_max(1_000_000).build();
    let from = server.resource_version();
    for _ in 0..50 {
        seed(&server, "a", &"x".repeat(100_000));
    }
    let api = Api::<ConfigMap>::default_namespaced(Client::new(server.clone(), "default"));
    let mut events = Box::pin(api.watch(&WatchParams::default(), &from.to_string()).await.unwrap());
    assert!(
        matches!(events.try_next().await.unwrap(), Some(WatchEvent::Error(status)) if status.code == 410)
    );
    let recent = (server.resource_version() - 5).to_string();
    let mut events = Box::pin(api.watch(&WatchParams::default(), &recent).await.unwrap());
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Modified(_))));
}
