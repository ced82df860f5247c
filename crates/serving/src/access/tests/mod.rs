//! Authentication and authorization, with an API server that is a function and generated certificates.

mod certificates;
mod reviews;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};

use super::*;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An API server that records its requests.
#[derive(Clone, Default)]
struct Cluster(Arc<ClusterInner>);

#[derive(Default)]
struct ClusterInner {
    requests: Mutex<Vec<(String, Value)>>,
    /// Whether `jane` is authorized for `/metrics`.
    allows_jane: Mutex<bool>,
    /// An error to respond with, and how many times.
    failure: Mutex<Option<(StatusCode, usize)>>,
    config_map: Mutex<Option<Value>>,
    lists: AtomicUsize,
    delay: Mutex<Duration>,
}

impl Cluster {
    fn api(&self) -> ApiServerClient {
        let cluster = self.clone();
        ApiServerClient::from_service(tower::service_fn(move |request: Request<Bytes>| {
            let cluster = cluster.clone();
            async move {
                let delay = *cluster.0.delay.lock();
                tokio::time::sleep(delay).await;
                Ok::<_, std::io::Error>(cluster.response(&request))
            }
        }))
    }

    fn response(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let target = request.uri().to_string();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        self.0.requests.lock().push((format!("{} {target}", request.method()), body.clone()));
        if let Some((code, times)) = self.0.failure.lock().as_mut().filter(|(_, times)| *times > 0) {
            *times -= 1;
            return response(*code, &json!({"kind": "Status", "message": "not now"}));
        }
        match target.as_str() {
            TOKEN_REVIEWS => response(StatusCode::CREATED, &self.token_review(&body)),
            ACCESS_REVIEWS => response(StatusCode::CREATED, &self.access_review(&body)),
            _ if target.contains("/configmaps/") => match &*self.0.config_map.lock() {
                Some(map) => response(StatusCode::OK, map),
                None => response(StatusCode::NOT_FOUND, &json!({"message": "not found"})),
            },
            _ if target.contains("watch=true") => response(StatusCode::GONE, &json!({"message": "too old"})),
            _ => {
                self.0.lists.fetch_add(1, Ordering::SeqCst);
                let items: Vec<_> = self.0.config_map.lock().clone().into_iter().collect();
                response(StatusCode::OK, &json!({"metadata": {"resourceVersion": "7"}, "items": items}))
            }
        }
    }

    fn token_review(&self, review: &Value) -> Value {
        let status = match review["spec"]["token"].as_str().unwrap() {
            "jane" => json!({"authenticated": true, "user": {"username": "jane", "uid": "7",
                "groups": ["rowers"], "extra": {"k": ["v"]}}}),
            "master" => {
                json!({"authenticated": true, "user": {"username": "m", "groups": ["system:masters"]}})
            }
            "invalid" => json!({}),
            _ => json!({"error": "[invalid bearer token]"}),
        };
        json!({"status": status})
    }

    fn access_review(&self, review: &Value) -> Value {
        let spec = &review["spec"];
        let allowed = spec["user"] == "jane" && *self.0.allows_jane.lock();
        let path = spec["nonResourceAttributes"]["path"].as_str().unwrap();
        match path {
            "/denied" => json!({"status": {"allowed": false, "denied": true, "reason": "never"}}),
            "/both" => json!({"status": {"allowed": true, "denied": true}}),
            _ => json!({"status": {"allowed": allowed}}),
        }
    }

    fn requests(&self, path: &str) -> Vec<Value> {
        let requests = self.0.requests.lock();
        requests.iter().filter(|(target, _)| target.ends_with(path)).map(|(_, body)| body.clone()).collect()
    }

    fn count(&self, path: &str) -> usize {
        self.requests(path).len()
    }

    fn fail(&self, code: StatusCode, times: usize) {
        *self.0.failure.lock() = Some((code, times));
    }
}

fn response(code: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    Response::builder().status(code).body(Bytes::from(body.to_string()).into()).unwrap()
}

async fn open_with(
    cluster: &Cluster,
    authentication: &AuthenticationOptions,
    authorization: &AuthorizationOptions,
    registry: &Registry,
) -> Result<Access, ServingError> {
    let delegates =
        DelegatingClients { authentication: Some(cluster.api()), authorization: Some(cluster.api()) };
    Access::open(authentication, authorization, delegates, registry, fastrand::Rng::with_seed(7)).await
}

async fn open(cluster: &Cluster) -> Access {
    let (authentication, authorization) = (AuthenticationOptions::default(), AuthorizationOptions::default());
    open_with(cluster, &authentication, &authorization, &Registry::new()).await.unwrap()
}

fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
    let request =
        headers.iter().fold(Request::builder().method(method).uri(path), |request, (name, value)| {
            request.header(*name, *value)
        });
    request.body(()).unwrap().into_parts().0
}

/// Requests `/metrics` with a token; returns the status code and the user or error.
async fn get_metrics(access: &Access, token: &str) -> (u16, String) {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    get(access, "/metrics", if token.is_empty() { &[] } else { &headers }, &[]).await
}

async fn get(
    access: &Access,
    path: &str,
    headers: &[(&str, &str)],
    certificates: &[CertificateDer<'static>],
) -> (u16, String) {
    match access.authenticate_and_authorize(&mut head("GET", path, headers), path, certificates).await {
        AuthResult::Allowed(user) => (200, user.name),
        AuthResult::Unauthenticated => (401, String::new()),
        AuthResult::Forbidden { user, reason } => (403, format!("{}{reason}", user.name)),
        AuthResult::AuthorizerError { error, .. } => (500, error),
    }
}

/// A CA that issues certificates.
struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = Self::params(name);
        change(&mut params);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// An intermediate CA, issued by this one.
    fn intermediate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = Self::params(name);
        change(&mut params);
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(
        &self,
        common_name: &str,
        groups: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![usage];
        params.distinguished_name = rcgen::DistinguishedName::new();
        // rcgen keeps only one attribute of a type, which is enough here.
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap().der().clone()
    }

    fn client(&self, common_name: &str, groups: &[&str]) -> Vec<CertificateDer<'static>> {
        vec![self.issue(common_name, groups, ExtendedKeyUsagePurpose::ClientAuth)]
    }
}

/// The ConfigMap of a cluster with these CAs.
fn config_map(clients: &Ca, proxies: &Ca, username_header: &str) -> Value {
    json!({"metadata": {"resourceVersion": "5"}, "data": {
        "client-ca-file": clients.pem(),
        "requestheader-client-ca-file": proxies.pem(),
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-username-headers": json!([username_header]).to_string(),
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
    }})
}
