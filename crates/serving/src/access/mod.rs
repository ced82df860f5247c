//! Delegated authentication and authorization of every request.
//!
//! Both are delegated to the API server, as in the original: it authenticates tokens (`TokenReview`) and
//! authorizes requests (`SubjectAccessReview`). Client certificates are verified here, against CAs from flags
//! or from the cluster.

mod api;
mod authorize;
mod browser;
mod cache;
mod config_map;
#[cfg(test)]
mod tests;
mod tokens;
mod trust;
mod user;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use prometheus::Registry;
use rustls::DistinguishedName;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::api::{ApiServerClient, BoxError};
pub use self::browser::BrowserLogin;
pub use self::user::User;

use self::authorize::{Authorizer, Decision};
use self::config_map::Content;
use self::tokens::Tokens;
use self::trust::{Authority, Headers, Proxies, Trust};
use crate::metrics::AccessMetrics;
use crate::{AuthenticationOptions, AuthorizationOptions, ServingError, tls};

const CLIENT_CA_FLAG: &str = "--client-ca-file";
const PROXY_CA_FLAG: &str = "--requestheader-client-ca-file";

/// The API servers that reviews are delegated to.
#[derive(Clone, Default)]
pub struct DelegatingClients {
    /// With the credentials of `--authentication-kubeconfig`, or of the pod; without it tokens are ignored
    /// and nothing is looked up in the cluster.
    pub authentication: Option<ApiServerClient>,
    /// With the credentials of `--authorization-kubeconfig`, or of the pod; without it only `system:masters`
    /// may read more than the always-allowed paths.
    pub authorization: Option<ApiServerClient>,
}

/// Authenticates and authorizes requests. Clones share caches.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    client_ca_source: Source<PathBuf>,
    proxy_ca_source: Source<(PathBuf, Headers)>,
    /// Set by a tolerated lookup failure: like in the original, request-header authentication then stays off.
    proxies_off: AtomicBool,
    trust: watch::Sender<Arc<Trust>>,
    cluster: Option<ApiServerClient>,
    tokens: Option<Arc<Tokens>>,
    browser_login: Option<BrowserLogin>,
    authorizer: Authorizer,
    metrics: Arc<AccessMetrics>,
    /// The last error about a CA, so that it is logged once.
    last_error: Mutex<Option<String>>,
}

/// The source of a CA.
enum Source<F> {
    File(F),
    Cluster,
    Disabled,
}

/// The result of authentication and authorization.
#[derive(Debug)]
pub(crate) enum AuthResult {
    /// Authenticated and authorized.
    Allowed(User),
    /// The credentials are invalid.
    Unauthenticated,
    /// Not authorized.
    Forbidden {
        /// The authenticated user.
        user: User,
        /// The reason from the API server.
        reason: String,
    },
    /// Authorization failed with an error.
    AuthorizerError {
        /// The authenticated user.
        user: User,
        /// The error.
        error: String,
    },
}

impl Access {
    /// Treats every request as anonymous and allows only the default always-allowed paths.
    #[must_use]
    pub fn deny_all() -> Self {
        let metrics = Arc::new(AccessMetrics::new(&Registry::new()));
        let options = AuthorizationOptions::default();
        let rng = fastrand::Rng::with_seed(0);
        let authorizer = Authorizer::new(&options, None, Arc::clone(&metrics), rng);
        let Ok(authorizer) = authorizer else { unreachable!("the default paths are valid") };
        Self(Arc::new(Inner {
            client_ca_source: Source::Disabled,
            proxy_ca_source: Source::Disabled,
            proxies_off: AtomicBool::new(false),
            trust: watch::Sender::default(),
            cluster: None,
            tokens: None,
            browser_login: None,
            authorizer,
            metrics,
            last_error: Mutex::default(),
        }))
    }

    /// Reads the CAs from files, and from the cluster those that no flag sets.
    ///
    /// # Errors
    /// If a flag or file is invalid, or the lookup in the cluster failed and that is not tolerated.
    pub async fn open(
        authentication: &AuthenticationOptions,
        authorization: &AuthorizationOptions,
        delegates: DelegatingClients,
        registry: &Registry,
        mut rng: fastrand::Rng,
    ) -> Result<Self, ServingError> {
        let metrics = Arc::new(AccessMetrics::new(registry));
        let cluster = delegates.authentication.as_ref();
        let proxies = &authentication.request_header;
        let headers = Headers {
            allowed_names: proxies.allowed_names.clone(),
            username: proxies.username_headers.clone(),
            uid: proxies.uid_headers.clone(),
            group: proxies.group_headers.clone(),
            extra_prefixes: proxies.extra_header_prefixes.clone(),
        };
        let proxies_file = proxies.client_ca_file.clone().map(|file| (file, headers));
        let clients_file = authentication.client_ca_file.clone();
        let skip = authentication.skip_lookup;
        if delegates.authorization.is_none() {
            tracing::warn!("no --authorization-kubeconfig: SubjectAccessReview will not work");
        }
        let authorizer =
            Authorizer::new(authorization, delegates.authorization, Arc::clone(&metrics), rng.fork())?;
        let tokens = cluster.cloned().map(|api| {
            let lifetime = authentication.token_cache_ttl;
            Tokens::new(api, lifetime, Arc::clone(&metrics), rng.fork())
                .map_err(|fault| ServingError::Option { flag: "--authentication-kubeconfig", fault })
        });
        let access = Self(Arc::new(Inner {
            client_ca_source: Source::of(clients_file, skip, cluster.is_some(), "client certificate"),
            proxy_ca_source: Source::of(proxies_file, skip, cluster.is_some(), "request-header"),
            proxies_off: AtomicBool::new(false),
            trust: watch::Sender::default(),
            cluster: delegates.authentication,
            tokens: tokens.transpose()?,
            browser_login: authentication.browser_login.clone(),
            authorizer,
            metrics,
            last_error: Mutex::default(),
        }));
        access.0.read_files()?;
        access.0.read_cluster(authentication.tolerate_lookup_failure).await?;
        Ok(access)
    }

    /// The response to a browser that follows a login link; `None` for other requests.
    pub(crate) fn log_in(&self, head: &mut Parts, path: &str) -> Option<Response<Bytes>> {
        self.0.browser_login.as_ref()?.log_in(&head.method, path, &mut head.uri)
    }

    /// Authenticates and authorizes a request, and removes the credentials from its headers.
    pub(crate) async fn authenticate_and_authorize(
        &self,
        head: &mut Parts,
        path: &str,
        certificates: &[CertificateDer<'static>],
    ) -> AuthResult {
        let login = self.0.browser_login.as_ref();
        if let Some(user) = login.and_then(|login| login.user(&head.method, path, &head.headers)) {
            self.0.remove_credentials(&mut head.headers);
            return AuthResult::Allowed(user);
        }
        let began = Instant::now();
        let found = self.0.authenticate(&head.headers, certificates).await;
        self.0.metrics.authenticated(found.as_ref().ok().map(User::category), began);
        let user = match found {
            Ok(user) => user,
            Err(error) => {
                tracing::warn!(%error, "unable to authenticate the request");
                return AuthResult::Unauthenticated;
            }
        };
        self.0.remove_credentials(&mut head.headers);
        let began = Instant::now();
        let verb = head.method.as_str().to_ascii_lowercase();
        let decision = self.0.authorizer.decide(&user, &verb, path).await;
        let result = match &decision {
            Ok(Decision::Allow) => "allowed",
            Ok(Decision::NoOpinion { .. }) => "no-opinion",
            Ok(Decision::Deny { .. }) => "denied",
            Err(_) => "error",
        };
        self.0.metrics.authorized(result, began);
        match decision {
            Ok(Decision::Allow) => AuthResult::Allowed(user),
            Ok(Decision::NoOpinion { reason } | Decision::Deny { reason }) => {
                AuthResult::Forbidden { user, reason }
            }
            Err(error) => AuthResult::AuthorizerError { user, error },
        }
    }

    /// The acceptable issuers of client certificates; `None` if client certificates are not requested.
    pub(crate) fn hints(&self) -> Option<Vec<DistinguishedName>> {
        let nowhere = matches!(self.0.client_ca_source, Source::Disabled)
            && matches!(self.0.proxy_ca_source, Source::Disabled);
        (!nowhere).then(|| self.0.trust.borrow().hints())
    }

    /// Changes whenever the hints change.
    pub(crate) fn trust_version(&self) -> u64 {
        self.0.trust.borrow().version
    }

    /// Reads the CA files again; an invalid file keeps the old CA.
    pub(crate) fn reload(&self) {
        let error = self.0.read_files().err().map(|error| error.to_string());
        self.0.log_error_once(error);
    }

    /// Watches the ConfigMap in the cluster; never ends.
    pub(crate) async fn watch_config_map(&self) {
        match &self.0.cluster {
            Some(api) if self.0.uses_cluster_config() => {
                config_map::watch(api, |content| {
                    let clients = self.0.apply_client_ca(&content).err();
                    self.0.log_error_once(clients.or(self.0.apply_proxy_ca(&content).err()));
                })
                .await;
            }
            _ => std::future::pending().await,
        }
    }
}

impl<F> Source<F> {
    fn of(file: Option<F>, skip_lookup: bool, can_look_up: bool, what: &str) -> Self {
        match file {
            Some(file) => Self::File(file),
            None if skip_lookup => Self::Disabled,
            None if can_look_up => Self::Cluster,
            None => {
                tracing::warn!(
                    "no --authentication-kubeconfig to look up configmap/extension-apiserver-authentication in \
                     kube-system with: {what} authentication will not work"
                );
                Self::Disabled
            }
        }
    }
}

impl Inner {
    /// The first authenticator that succeeds wins, even if an earlier one failed.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<User, String> {
        let mut failures = Vec::new();
        match self.by_certificate(headers, certificates, &mut failures) {
            Some(user) => return Ok(user.authenticated()),
            None => {
                if let Some(tokens) = &self.tokens {
                    match tokens.authenticate(headers).await {
                        Ok(Some(user)) => return Ok(user.authenticated()),
                        Ok(None) => {}
                        Err(error) => failures.push(error),
                    }
                }
            }
        }
        // A request with invalid credentials is not treated as anonymous.
        if failures.is_empty() { Ok(User::anonymous()) } else { Err(failures.join(", ")) }
    }

    fn by_certificate(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
        failures: &mut Vec<String>,
    ) -> Option<User> {
        let leaf = certificates.first()?;
        let trust = Arc::clone(&self.trust.borrow());
        if let Some(proxies) = &trust.proxies {
            match proxies.user_of(certificates, headers) {
                Ok(Some(user)) => return Some(user),
                Ok(None) => {}
                Err(error) => failures.push(error),
            }
        }
        let clients = trust.clients.as_ref()?;
        if let Some(seconds) = trust::seconds_left(leaf) {
            self.metrics.certificate_expires_in(seconds);
        }
        clients.user_of(certificates).unwrap_or_else(|error| {
            failures.push(error);
            None
        })
    }

    fn remove_credentials(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        headers.remove(COOKIE);
        Headers::defaults().remove_from(headers);
        if let Some(proxies) = &self.trust.borrow().proxies {
            proxies.headers.remove_from(headers);
        }
    }

    fn uses_cluster_config(&self) -> bool {
        matches!(self.client_ca_source, Source::Cluster) || matches!(self.proxy_ca_source, Source::Cluster)
    }

    fn read_files(&self) -> Result<(), ServingError> {
        let authority = |file: &PathBuf, flag| {
            Authority::new(&tls::read(file, flag)?).map_err(|fault| ServingError::Malformed {
                file: file.clone(),
                flag,
                fault,
            })
        };
        if let Source::File(file) = &self.client_ca_source {
            self.set_client_ca(authority(file, CLIENT_CA_FLAG)?);
        }
        if let Source::File((file, headers)) = &self.proxy_ca_source {
            let authority = authority(file, PROXY_CA_FLAG)?;
            self.set_proxy_ca(Proxies { authority, headers: headers.clone() });
        }
        Ok(())
    }

    async fn read_cluster(&self, tolerate_failure: bool) -> Result<(), ServingError> {
        let Some(api) = self.cluster.as_ref().filter(|_| self.uses_cluster_config()) else {
            return Ok(());
        };
        let (clients, proxies) = match config_map::read(api).await {
            Ok(None) => (Ok(()), Ok(())),
            Ok(Some(content)) => (self.apply_client_ca(&content), self.apply_proxy_ca(&content)),
            Err(error) if matches!(self.proxy_ca_source, Source::Cluster) => (Ok(()), Err(error)),
            Err(error) => (Err(error), Ok(())),
        };
        if let Err(error) = clients {
            tracing::warn!(%error, "cannot read the client CA from the cluster yet");
        }
        match proxies {
            Err(error) if tolerate_failure => {
                tracing::warn!(%error, "lookup of extension-apiserver-authentication failed, request-header authentication will not work");
                self.proxies_off.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => Err(ServingError::Lookup(error)),
            Ok(()) => Ok(()),
        }
    }

    fn apply_client_ca(&self, content: &Content) -> Result<(), String> {
        if matches!(self.client_ca_source, Source::Cluster) {
            content.clients()?.into_iter().for_each(|clients| self.set_client_ca(clients));
        }
        Ok(())
    }

    fn apply_proxy_ca(&self, content: &Content) -> Result<(), String> {
        let off = self.proxies_off.load(Ordering::Acquire);
        if matches!(self.proxy_ca_source, Source::Cluster) && !off {
            content.proxies()?.into_iter().for_each(|proxies| self.set_proxy_ca(proxies));
        }
        Ok(())
    }

    fn set_client_ca(&self, clients: Authority) {
        self.trust.send_if_modified(|trust| {
            let new = trust.clients.as_ref() != Some(&clients);
            if new {
                let trust = Arc::make_mut(trust);
                trust.clients = Some(clients);
                trust.version += 1;
            }
            new
        });
    }

    fn set_proxy_ca(&self, proxies: Proxies) {
        self.trust.send_if_modified(|trust| {
            let new = trust.proxies.as_ref() != Some(&proxies);
            if new {
                let trust = Arc::make_mut(trust);
                trust.proxies = Some(proxies);
                trust.version += 1;
            }
            new
        });
    }

    /// Logs an error about a CA once; the old CA stays in use.
    fn log_error_once(&self, error: Option<String>) {
        let mut last = self.last_error.lock();
        if let Some(error) = error.as_ref().filter(|new| last.as_ref() != Some(*new)) {
            tracing::warn!("cannot reload client CA, keeping the old one: {error}");
        }
        *last = error;
    }
}
