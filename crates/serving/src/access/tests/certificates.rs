//! Client certificates, front proxies and the ConfigMap that configures them.

use rustls::pki_types::UnixTime;

use super::*;
use crate::RequestHeaderOptions;

async fn open_known(cluster: &Cluster, clients: &Ca, proxies: &Ca) -> Access {
    *cluster.0.config_map.lock() = Some(config_map(clients, proxies, "X-Remote-User"));
    open(cluster).await
}

async fn user(
    access: &Access,
    headers: &[(&str, &str)],
    certificates: &[CertificateDer<'static>],
) -> Option<User> {
    let mut headers_map = HeaderMap::new();
    for (name, value) in headers {
        headers_map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    access.0.authenticate(&headers_map, certificates).await.ok()
}

/// A client certificate of the first CA, followed by the certificates of all these CAs.
fn chain_of(issuers: &[&Ca]) -> Vec<CertificateDer<'static>> {
    let mut chain = issuers[0].client("jane", &[]);
    chain.extend(issuers.iter().map(|ca| ca.0.der().clone()));
    chain
}

/// Whether a client authenticates by this chain where the root is the client CA.
fn is_accepted(root: &Ca, issuers: &[&Ca]) -> bool {
    let authority = Authority::new(root.pem().as_bytes()).unwrap();
    authority.verify_at(&chain_of(issuers), UnixTime::now()).is_ok()
}

/// Proves SRV-62, SRV-67.
#[tokio::test]
async fn client_ca_certificates_authenticate_users() {
    let (clients, proxies, other_ca) = (Ca::new("clients"), Ca::new("proxies"), Ca::new("clients"));
    let access = open_known(&Cluster::default(), &clients, &proxies).await;
    let chain = clients.client("jane", &["rowers"]);
    let jane = user(&access, &[], &chain).await.unwrap();
    assert_eq!(
        (jane.name.as_str(), &jane.groups[..]),
        ("jane", &["rowers", "system:authenticated"].map(str::to_owned)[..])
    );
    let id = &jane.extra["authentication.kubernetes.io/credential-id"][0];
    assert_eq!((id.len(), &id[..11]), (11 + 64, "X509SHA256="));
    let authority = Authority::new(clients.pem().as_bytes()).unwrap();
    assert_eq!(authority.user_of(&clients.client("", &["rowers"])), Ok(None), "no common name");
    assert_eq!(user(&access, &[], &other_ca.client("jane", &[])).await, None, "issued by another CA");
    let server = clients.issue("jane", &[], ExtendedKeyUsagePurpose::ServerAuth);
    assert_eq!(user(&access, &[], &[server]).await, None, "not a client certificate");
    let masters = clients.client("root", &["system:masters"]);
    assert_eq!(get(&access, "/metrics", &[], &masters).await, (200, "root".to_owned()));
}

/// A CA bundle may contain any certificate; only a valid CA certificate verifies others.
#[tokio::test]
async fn certificates_of_expired_and_non_ca_issuers_authenticate_no_client() {
    use rcgen::{KeyUsagePurpose, date_time_ymd};
    let (good, proxies) = (Ca::new("good"), Ca::new("proxies"));
    let expired = Ca::with("expired", |params| params.not_after = date_time_ymd(2001, 1, 1));
    let future = Ca::with("future", |params| params.not_before = date_time_ymd(2900, 1, 1));
    let leaf = Ca::with("leaf", |params| params.is_ca = IsCa::ExplicitNoCa);
    let silent = Ca::with("silent", |params| params.is_ca = IsCa::NoCa);
    let encipher = Ca::with("encipher", |params| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
    let signs = Ca::with("signs", |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    let all = [&good, &expired, &future, &leaf, &silent, &encipher, &signs];
    let bundle: String = all.map(Ca::pem).concat();
    let authority = Authority::new(bundle.as_bytes()).unwrap();
    let accepted = all.map(|ca| authority.user_of(&ca.client("jane", &[])).is_ok());
    assert_eq!(accepted, [true, false, false, false, false, false, true]);

    // The same through the ConfigMap, for both CAs; the rest of the bundle keeps working.
    let cluster = Cluster::default();
    let mut map = config_map(&good, &proxies, "X-Remote-User");
    map["data"]["client-ca-file"] = json!(bundle);
    map["data"]["requestheader-client-ca-file"] = json!([expired.pem(), leaf.pem(), proxies.pem()].concat());
    *cluster.0.config_map.lock() = Some(map);
    let access = open(&cluster).await;
    assert_eq!(user(&access, &[], &good.client("jane", &[])).await.unwrap().name, "jane");
    assert_eq!(user(&access, &[], &expired.client("jane", &[])).await, None);
    let headers = [("x-remote-user", "jane")];
    for ca in [&expired, &leaf] {
        assert_eq!(user(&access, &headers, &ca.client("front-proxy-client", &[])).await, None);
    }
    let jane = user(&access, &headers, &proxies.client("front-proxy-client", &[])).await.unwrap();
    assert_eq!(jane.name, "jane");
}

/// Go checks the extended key usage of the root, too.
#[test]
fn root_for_other_purposes_authenticates_no_client() {
    use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    for (purposes, accepted) in [
        (vec![], true),
        (vec![ServerAuth], false),
        (vec![ServerAuth, ClientAuth], true),
        (vec![ServerAuth, Any], true),
    ] {
        let root = Ca::with("root", |params| params.extended_key_usages = purposes.clone());
        let intermediate = root.intermediate("intermediate", |_| {});
        assert_eq!(is_accepted(&root, &[&root]), accepted, "{purposes:?}");
        assert_eq!(is_accepted(&root, &[&intermediate]), accepted, "{purposes:?} with an intermediate");
    }
}

#[test]
fn path_length_of_a_root_limits_the_intermediates() {
    let root = |length: u8| {
        Ca::with("root", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(length)))
    };
    let (zero, one) = (root(0), root(1));
    let below_zero = zero.intermediate("below zero", |_| {});
    assert!(is_accepted(&zero, &[&zero]), "the root itself is no intermediate");
    assert!(!is_accepted(&zero, &[&below_zero]));
    let upper = one.intermediate("upper", |_| {});
    let lower = upper.intermediate("lower", |_| {});
    assert!(is_accepted(&one, &[&upper]));
    assert!(is_accepted(&one, &[&upper, &one]), "the root itself is no intermediate");
    assert!(!is_accepted(&one, &[&lower, &upper]));
    assert!(!is_accepted(&one, &[&lower, &upper, &one]));
}

#[test]
fn intermediate_that_may_not_sign_is_ignored() {
    use rcgen::KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
    let root = Ca::new("root");
    for (usages, accepted) in [
        (vec![], true),
        (vec![KeyCertSign, CrlSign], true),
        (vec![DigitalSignature], false),
        (vec![CrlSign], false),
    ] {
        let intermediate = root.intermediate("intermediate", |params| params.key_usages = usages.clone());
        assert_eq!(is_accepted(&root, &[&intermediate]), accepted, "{usages:?}");
        assert_eq!(is_accepted(&root, &[&intermediate, &root]), accepted, "{usages:?} with the root");
    }
}

/// webpki tries intermediates in every order, so a crafted chain would keep the thread of the port busy.
#[test]
fn chain_with_many_intermediates_is_refused_without_a_search() {
    let mut issuers = vec![Ca::new("root")];
    for depth in 1..=5 {
        let next = issuers[depth - 1].intermediate(&format!("ca {depth}"), |_| {});
        issuers.push(next);
    }
    let authority = Authority::new(issuers[0].pem().as_bytes()).unwrap();
    let verify = |issuers: &[&Ca]| authority.verify_at(&chain_of(issuers), UnixTime::now());
    let path = |length: usize| issuers[1..=length].iter().rev().collect::<Vec<_>>();
    for length in 1..=4 {
        assert_eq!(verify(&path(length)), Ok(()), "{length} intermediates");
    }
    let refusal = Err("more than 4 intermediate certificates".to_owned());
    assert_eq!(verify(&path(5)), refusal);

    // By their names, each of these could have issued each other one.
    let same: Vec<_> = (0..40).map(|_| Ca::new("same")).collect();
    assert_eq!(verify(&same.iter().collect::<Vec<_>>()), refusal);
    let few = verify(&same[..4].iter().collect::<Vec<_>>()).unwrap_err();
    assert!(few.contains("unknown authority"), "{few}");

    let mut chain = chain_of(&path(1));
    chain.push(CertificateDer::from(vec![0_u8; 32 << 10]));
    let large = Err("more than 32768 bytes of intermediate certificates".to_owned());
    assert_eq!(authority.verify_at(&chain, UnixTime::now()), large);
}

#[tokio::test]
async fn ca_is_refused_from_the_second_after_it_expires() {
    let ca = Ca::with("ca", |params| params.not_after = rcgen::date_time_ymd(2100, 1, 1));
    let authority = Authority::new(ca.pem().as_bytes()).unwrap();
    // rcgen's certificates are valid until the year 4096, so only the CA ends here.
    let chain = ca.client("jane", &[]);
    let at = |seconds: u64| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    assert_eq!(authority.verify_at(&chain, at(4_102_444_800)), Ok(()));
    assert!(authority.verify_at(&chain, at(4_102_444_801)).is_err());
}

#[tokio::test]
async fn expired_client_certificate_authenticates_no_client() {
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let access = open_known(&Cluster::default(), &clients, &proxies).await;
    let expired = |ca: &Ca, name: &str| {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        vec![params.signed_by(&KeyPair::generate().unwrap(), &ca.0).unwrap().der().clone()]
    };
    assert_eq!(user(&access, &[], &expired(&clients, "jane")).await, None);
    let headers = [("x-remote-user", "jane")];
    assert_eq!(user(&access, &headers, &expired(&proxies, "front-proxy-client")).await, None);
}

/// Proves SRV-60, SRV-68.
#[tokio::test]
async fn front_proxies_authenticate_users_by_headers() {
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let access = open_known(&Cluster::default(), &clients, &proxies).await;
    let front = proxies.client("front-proxy-client", &[]);
    let headers = [
        ("x-remote-user", "jane"),
        ("x-remote-group", "rowers"),
        ("x-remote-group", ""),
        ("x-remote-group", "singers"),
        ("x-remote-uid", "7"),
        ("x-remote-extra-Scopes%2FOf", "a"),
        ("x-remote-extra-scopes%2Fof", "b"),
    ];
    let jane = user(&access, &headers, &front).await.unwrap();
    assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "7"));
    assert_eq!(jane.groups, ["rowers", "singers", "system:authenticated"]);
    assert_eq!(jane.extra, BTreeMap::from([("scopes/of".to_owned(), vec!["a".to_owned(), "b".to_owned()])]));
    assert_eq!(user(&access, &headers, &proxies.client("impostor", &[])).await, None, "not an allowed name");
    let direct = user(&access, &headers, &clients.client("joe", &[])).await.unwrap();
    assert_eq!(direct.name, "joe", "headers are used only from proxies");
    assert_eq!(user(&access, &headers, &[]).await, Some(User::anonymous()));
    let token = [("authorization", "Bearer jane")];
    let by_token = user(&access, &token, &proxies.client("impostor", &[])).await.unwrap();
    assert_eq!(by_token.name, "jane", "the first successful authenticator wins");
    assert_eq!(user(&access, &token, &clients.client("joe", &[])).await.unwrap().name, "joe");
}

/// Proves SRV-69, SRV-107.
#[tokio::test]
async fn flags_take_precedence_over_the_config_map() {
    let (clients, proxies, flagged) = (Ca::new("clients"), Ca::new("proxies"), Ca::new("flagged"));
    let cluster = Cluster::default();
    *cluster.0.config_map.lock() = Some(config_map(&clients, &proxies, "X-Cluster-User"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, flagged.pem()).unwrap();
    let authorization = AuthorizationOptions::default();
    let by_flag =
        AuthenticationOptions { client_ca_file: Some(file.clone()), ..AuthenticationOptions::default() };
    let access = open_with(&cluster, &by_flag, &authorization, &Registry::new()).await.unwrap();
    assert_eq!(user(&access, &[], &flagged.client("joe", &[])).await.unwrap().name, "joe");
    assert_eq!(user(&access, &[], &clients.client("joe", &[])).await, None, "the cluster's CA is not used");
    let front = proxies.client("front-proxy-client", &[]);
    let headers = [("x-cluster-user", "jane"), ("x-remote-user", "joe")];
    assert_eq!(
        user(&access, &headers, &front).await.unwrap().name,
        "jane",
        "the cluster's front-proxy CA is used"
    );

    let request_header =
        RequestHeaderOptions { client_ca_file: Some(file), ..RequestHeaderOptions::default() };
    let by_flag = AuthenticationOptions { request_header, ..AuthenticationOptions::default() };
    let access = open_with(&cluster, &by_flag, &authorization, &Registry::new()).await.unwrap();
    let any_name = flagged.client("any", &[]);
    assert_eq!(user(&access, &headers, &any_name).await.unwrap().name, "joe");
    assert_eq!(user(&access, &headers, &front).await, None);
}

/// Proves SRV-2, SRV-70.
#[tokio::test(start_paused = true)]
async fn config_map_is_watched() {
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let cluster = Cluster::default();
    let access = open(&cluster).await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    assert_eq!(cluster.count(path), 1, "read by name at startup, not found");
    let joe = clients.client("joe", &[]);
    assert_eq!(user(&access, &[], &joe).await, Some(User::anonymous()), "there is no client CA yet");
    let watching = access.clone();
    let watching = tokio::spawn(async move { watching.watch_config_map().await });
    *cluster.0.config_map.lock() = Some(config_map(&clients, &proxies, "X-Remote-User"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(user(&access, &[], &joe).await.unwrap().name, "joe");
    let front = proxies.client("front-proxy-client", &[]);
    let headers = [("x-remote-user", "jane"), ("x-other-user", "ann")];
    assert_eq!(user(&access, &headers, &front).await.unwrap().name, "jane");
    *cluster.0.config_map.lock() = Some(config_map(&clients, &proxies, "X-Other-User"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(user(&access, &headers, &front).await.unwrap().name, "ann");
    // A deleted or invalid ConfigMap keeps the old configuration.
    for nonsense in
        [None, Some(json!({"data": {"client-ca-file": "x", "requestheader-username-headers": "x"}}))]
    {
        *cluster.0.config_map.lock() = nonsense;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(user(&access, &[], &joe).await.unwrap().name, "joe");
        assert_eq!(user(&access, &headers, &front).await.unwrap().name, "ann");
    }
    let requests = cluster.0.requests.lock().clone();
    let list = "fieldSelector=metadata.name%3Dextension-apiserver-authentication";
    assert!(requests.iter().any(|(target, _)| target.contains(list) && !target.contains("watch")));
    assert!(requests.iter().any(|(target, _)| target.contains(list) && target.contains("watch=true")));
    watching.abort();
}

/// Proves SRV-70.
#[tokio::test]
async fn watch_event_reloads_the_client_ca() {
    let (old, new, proxies) = (Ca::new("old"), Ca::new("new"), Ca::new("proxies"));
    let (events, events_receiver) = tokio::sync::mpsc::unbounded_channel::<Result<Bytes, std::io::Error>>();
    let events_receiver = Arc::new(Mutex::new(Some(events_receiver)));
    let first = config_map(&old, &proxies, "X-Remote-User");
    let api = ApiServerClient::from_service(tower::service_fn(move |request: Request<Bytes>| {
        let events_receiver =
            request.uri().to_string().contains("watch=true").then(|| events_receiver.lock().take()).flatten();
        let document =
            if request.uri().query().is_some() { json!({"items": [first]}) } else { first.clone() };
        async move {
            use http_body_util::{BodyExt as _, StreamBody};
            let body = match events_receiver {
                Some(events_receiver) => {
                    let frames = futures::stream::unfold(events_receiver, |mut events_receiver| async move {
                        events_receiver
                            .recv()
                            .await
                            .map(|event| (event.map(http_body::Frame::data), events_receiver))
                    });
                    StreamBody::new(frames).boxed_unsync()
                }
                None => Full::new(Bytes::from(document.to_string()))
                    .map_err(|never| match never {})
                    .boxed_unsync(),
            };
            Ok::<_, std::io::Error>(Response::new(body))
        }
    }));
    let delegates = DelegatingClients { authentication: Some(api), authorization: None };
    let (authentication, authorization) = (AuthenticationOptions::default(), AuthorizationOptions::default());
    let rng = fastrand::Rng::with_seed(1);
    let access =
        Access::open(&authentication, &authorization, delegates, &Registry::new(), rng).await.unwrap();
    let watching = access.clone();
    let watching = tokio::spawn(async move { watching.watch_config_map().await });
    let event =
        json!({"type": "MODIFIED", "object": config_map(&new, &proxies, "X-Remote-User")}).to_string();
    let (one, two) = event.split_at(100);
    events.send(Ok(Bytes::from(one.to_owned()))).unwrap();
    events.send(Ok(Bytes::from(format!("{two}\n")))).unwrap();
    let joe = new.client("joe", &[]);
    let known = async {
        while user(&access, &[], &joe).await.is_none_or(|user| user.name != "joe") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), known).await.unwrap();
    watching.abort();
}

/// Proves SRV-70, OPT-118.
#[tokio::test]
async fn lookup_failure_is_an_error_unless_tolerated_or_skipped() {
    let cluster = Cluster::default();
    let authorization = AuthorizationOptions::default();
    cluster.fail(StatusCode::FORBIDDEN, 1);
    let strict = AuthenticationOptions::default();
    let error =
        open_with(&cluster, &strict, &authorization, &Registry::new()).await.err().unwrap().to_string();
    assert!(error.contains("extension-apiserver-authentication") && error.contains("not now"), "{error}");
    assert!(error.contains("--authentication-tolerate-lookup-failure"), "{error}");
    for lenient in [
        AuthenticationOptions { tolerate_lookup_failure: true, ..AuthenticationOptions::default() },
        AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() },
    ] {
        cluster.fail(StatusCode::FORBIDDEN, 1);
        open_with(&cluster, &lenient, &authorization, &Registry::new()).await.unwrap();
    }
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let cluster = Cluster::default();
    *cluster.0.config_map.lock() = Some(config_map(&clients, &proxies, "X-Remote-User"));
    let skipping = AuthenticationOptions { skip_lookup: true, ..AuthenticationOptions::default() };
    let access = open_with(&cluster, &skipping, &authorization, &Registry::new()).await.unwrap();
    assert_eq!(user(&access, &[], &clients.client("joe", &[])).await, Some(User::anonymous()));
    assert!(access.hints().is_none(), "client certificates are not requested");
}

/// Proves OPT-118.
#[tokio::test]
async fn tolerated_lookup_failure_turns_request_headers_off_for_ever_and_client_certificates_on_later() {
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let cluster = Cluster::default();
    *cluster.0.config_map.lock() = Some(config_map(&clients, &proxies, "X-Remote-User"));
    cluster.fail(StatusCode::FORBIDDEN, 1);
    let tolerant =
        AuthenticationOptions { tolerate_lookup_failure: true, ..AuthenticationOptions::default() };
    let authorization = AuthorizationOptions::default();
    let access = open_with(&cluster, &tolerant, &authorization, &Registry::new()).await.unwrap();
    let watching = tokio::spawn({
        let access = access.clone();
        async move { access.watch_config_map().await }
    });
    let joe = clients.client("joe", &[]);
    let known = async {
        while user(&access, &[], &joe).await.is_none_or(|user| user.name != "joe") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), known).await.unwrap();
    let headers = [("x-remote-user", "jane")];
    let proxied = user(&access, &headers, &proxies.client("front-proxy-client", &[])).await;
    assert!(proxied.is_none_or(|user| user.name != "jane"), "a front proxy is trusted");
    watching.abort();
}

/// Proves SRV-14.
#[tokio::test]
async fn ca_files_are_reloaded() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, old.pem()).unwrap();
    let options =
        AuthenticationOptions { client_ca_file: Some(file.clone()), ..AuthenticationOptions::default() };
    let cluster = Cluster::default();
    let authorization = AuthorizationOptions::default();
    let access = open_with(&cluster, &options, &authorization, &Registry::new()).await.unwrap();
    let joe = new.client("joe", &[]);
    assert_eq!(user(&access, &[], &joe).await, None);
    std::fs::write(&file, format!("{}{}", old.pem(), new.pem())).unwrap();
    access.reload();
    assert_eq!(user(&access, &[], &joe).await.unwrap().name, "joe");
    assert_eq!(access.hints().unwrap().len(), 2);
    std::fs::write(&file, "cut off").unwrap();
    access.reload();
    assert_eq!(user(&access, &[], &joe).await.unwrap().name, "joe", "an invalid file keeps the old CA");
    for (text, fault) in [("", "holds no certificate in PEM form"), ("-----BEGIN", "holds no certificate")] {
        std::fs::write(&file, text).unwrap();
        let error = open_with(&cluster, &options, &authorization, &Registry::new()).await.err().unwrap();
        let error = error.to_string();
        assert!(error.contains("ca.crt (--client-ca-file) ") && error.contains(fault), "{error}");
    }
}

/// Proves SRV-71.
#[tokio::test]
async fn credentials_are_removed_from_headers() {
    let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
    let cluster = Cluster::default();
    *cluster.0.config_map.lock() = Some(config_map(&clients, &proxies, "X-Other-User"));
    let access = open(&cluster).await;
    let headers = [
        ("authorization", "Bearer jane"),
        ("x-remote-user", "a"),
        ("x-remote-uid", "a"),
        ("x-remote-group", "a"),
        ("x-remote-extra-a", "a"),
        ("x-other-user", "a"),
        ("accept", "a"),
    ];
    let mut parts = head("GET", "/healthz", &headers);
    access.authenticate_and_authorize(&mut parts, "/healthz", &[]).await;
    assert_eq!(parts.headers.keys().collect::<Vec<_>>(), ["accept"]);
}
