//! Protobuf bodies, which `kubectl create` sends.

use super::*;

#[test]
fn protobuf_bodies_are_parsed_and_malformed_ones_rejected() {
    let mut server = TestServer::new();
    let binary = "application/vnd.kubernetes.protobuf".to_owned();
    // A ConfigMap named "a" with one entry, as kubectl encodes it.
    let mut body = b"k8s\0".to_vec();
    body.extend_from_slice(
        b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v",
    );
    let request =
        Request { content_type: binary.clone(), ..Request::new(Method::POST, CONFIG_MAPS, body.clone()) };
    let (code, object) = server.reply(&request);
    assert_eq!((code, &object["data"]), (201, &json!({"k": "v"})));
    for end in 0..body.len() {
        let cut = body[..end].to_vec();
        let request =
            Request { content_type: binary.clone(), ..Request::new(Method::POST, CONFIG_MAPS, cut) };
        let (code, answer) = server.reply(&request);
        assert!((400..500).contains(&code), "{end}: {answer}");
    }
}
