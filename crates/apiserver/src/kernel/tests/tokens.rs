//! Token requests of service accounts.

use super::*;

#[test]
fn token_requests_are_answered_with_unique_opaque_tokens() {
    let mut server = TestServer::new();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.created(accounts, &json!({"metadata": {"name": "sa"}}));
    let path = format!("{accounts}/sa/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 600}});
    let first = server.created(&path, &request);
    assert_eq!(first["status"]["expirationTimestamp"], "2026-01-02T03:14:05Z");
    assert_eq!(first["spec"]["audiences"], json!(["a"]));
    let second = server.created(&path, &json!({"spec": {}}));
    assert_eq!(second["spec"]["expirationSeconds"], 3600);
    assert_ne!(first["status"]["token"], second["status"]["token"]);
    assert_eq!(reason(&server.post(&path, &json!({"spec": {"expirationSeconds": 5}}))), (422, "Invalid"));
    assert_eq!(reason(&server.post(&format!("{accounts}/none/token"), &request)), (404, "NotFound"));
    assert_eq!(server.post(&path, &json!([])).0, 400);
}

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A server whose tokens are signed with this key, and a service account.
fn signing_server(pem: &str) -> TestServer {
    let signer = Some(crate::service_account_key::signer(pem).unwrap());
    let mut server =
        TestServer::with(KernelOptions { rbac: true, bootstrap: true, signer, ..KernelOptions::default() });
    server.admin(Method::POST, ACCOUNTS, &json!({"metadata": {"name": "sa"}}));
    server
}

impl TestServer {
    fn admin(&mut self, method: Method, target: &str, body: &Value) -> Value {
        let (code, answer) = self.send_as(&User::admin(), method, target, body);
        assert!(code < 300, "{target}: {answer}");
        answer
    }

    fn signed_token(&mut self, spec: &Value) -> String {
        let answer = self.admin(Method::POST, &format!("{ACCOUNTS}/sa/token"), &json!({"spec": spec}));
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The code and the user of a request with this token.
    fn whoami(&mut self, token: &str) -> (u16, Value) {
        let target = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let mut request = Request::new(Method::POST, target, "{}".to_owned());
        request.authorization = format!("Bearer {token}");
        let (code, answer) = self.reply(&request);
        (code, answer["status"]["userInfo"].clone())
    }
}

fn new_key() -> String {
    rcgen::KeyPair::generate().unwrap().serialize_pem()
}

fn part(token: &str, at: usize) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(at).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn signed_tokens_name_the_account_and_are_verified() {
    let key = new_key();
    let mut server = signing_server(&key);
    let token = server.signed_token(&json!({"expirationSeconds": 600}));
    assert_eq!(part(&token, 0)["alg"], "ES256");
    let claims = part(&token, 1);
    assert_eq!(claims["sub"], "system:serviceaccount:default:sa");
    assert_eq!(claims["aud"], json!(["https://kubernetes.default.svc.cluster.local"]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 600);
    assert_eq!(claims["kubernetes.io"]["serviceaccount"]["name"], "sa");
    let (code, user) = server.whoami(&token);
    assert_eq!((code, &user["username"]), (201, &json!("system:serviceaccount:default:sa")));
    let credential = &user["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert_eq!(*credential, format!("JTI={}", claims["jti"].as_str().unwrap()));

    // Claims, signatures and algorithms of others are refused.
    let parts: Vec<&str> = token.split('.').collect();
    let flipped = if parts[2].starts_with('A') { "B" } else { "A" };
    let forged = format!("{}.{}.{flipped}{}", parts[0], parts[1], &parts[2][1..]);
    let foreign = signing_server(&new_key()).signed_token(&json!({}));
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", parts[1]);
    for token in [forged, foreign, unsigned, "a.b.c".to_owned(), "..".to_owned()] {
        assert_eq!(server.whoami(&token).0, 401, "{token}");
    }

    // A minute of leeway for clocks, then the token has expired.
    server.now = server.now.checked_add(jiff::SignedDuration::from_secs(650)).unwrap();
    assert_eq!(server.whoami(&token).0, 201);
    server.now = server.now.checked_add(jiff::SignedDuration::from_secs(20)).unwrap();
    assert_eq!(server.whoami(&token).0, 401);
}

#[test]
fn signed_tokens_end_with_their_account_and_the_bound_pod() {
    let mut server = signing_server(&new_key());
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = server.admin(Method::POST, pods, &pod);
    let bound =
        |uid: &Value| json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}});
    let token = server.signed_token(&bound(&pod["metadata"]["uid"]));
    let (_, user) = server.whoami(&token);
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    let request = json!({"spec": bound(&json!("other"))});
    let path = format!("{ACCOUNTS}/sa/token");
    let (code, status) = server.send_as(&User::admin(), Method::POST, &path, &request);
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    server.admin(Method::DELETE, &format!("{pods}/p?gracePeriodSeconds=0"), &Value::Null);
    assert_eq!(server.whoami(&token).0, 401, "the pod is gone");

    let token = server.signed_token(&json!({}));
    server.admin(Method::DELETE, &format!("{ACCOUNTS}/sa"), &Value::Null);
    assert_eq!(server.whoami(&token).0, 401, "the account is gone");
    server.admin(Method::POST, ACCOUNTS, &json!({"metadata": {"name": "sa"}}));
    assert_eq!(server.whoami(&token).0, 401, "another account of that name");
}

#[test]
fn tokens_are_valid_for_their_audiences_only() {
    let mut server = signing_server(&new_key());
    let token = server.signed_token(&json!({"audiences": ["vault", "other"]}));
    assert_eq!(server.whoami(&token).0, 401);
    let mut review = |audiences: Value| {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        server.admin(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review)["status"].clone()
    };
    let status = review(json!(["vault"]));
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["vault"])));
    assert_eq!(review(json!(["elsewhere"]))["authenticated"], Value::Null);
    assert_eq!(review(json!([]))["authenticated"], Value::Null);
}
