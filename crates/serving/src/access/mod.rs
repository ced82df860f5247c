//! Nobody sees a page they may not: who asks is found out first, then whether they may.
//!
//! Both are delegated to the API server, as in the original: it knows whose a token is (`TokenReview`) and
//! who may see what (`SubjectAccessReview`). Certificates are checked here, against CAs that flags or the
//! cluster name.

mod api;
mod authorize;
mod cache;
mod config_map;
#[cfg(test)]
mod tests;
mod tokens;
mod trust;
mod user;

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use parking_lot::Mutex;
use prometheus::Registry;
use rustls::DistinguishedName;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::api::{ApiServerClient, BoxError};
pub use self::user::User;

use self::authorize::{Authorizer, Decision};
use self::config_map::Content;
use self::tokens::Tokens;
use self::trust::{Authority, Headers, Proxies, Trust};
use crate::metrics::AccessMetrics;
use crate::{AuthenticationOptions, AuthorizationOptions, ServingError, tls};

const CLIENT_CA_FLAG: &str = "--client-ca-file";
const PROXY_CA_FLAG: &str = "--requestheader-client-ca-file";

/// Whom to ask.
#[derive(Clone, Default)]
pub struct DelegatingClients {
    /// By the credentials of `--authentication-kubeconfig`, or of the pod; without it tokens say nothing
    /// and nothing is looked up in the cluster.
    pub authentication: Option<ApiServerClient>,
    /// By the credentials of `--authorization-kubeconfig`, or of the pod; without it all but the
    /// always-allowed paths is forbidden to all but masters.
    pub authorization: Option<ApiServerClient>,
}

/// Finds out who asks and whether they may. Clones share caches.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    clients_from: Source<PathBuf>,
    proxies_from: Source<(PathBuf, Headers)>,
    trust: watch::Sender<Arc<Trust>>,
    cluster: Option<ApiServerClient>,
    tokens: Option<Arc<Tokens>>,
    authorizer: Authorizer,
    metrics: Arc<AccessMetrics>,
    /// The last complaint about a CA, so that it is told once.
    complaint: Mutex<Option<String>>,
}

/// Where a CA comes from.
enum Source<F> {
    File(F),
    Cluster,
    Nowhere,
}

/// What came of a request at the door.
#[derive(Debug)]
pub(crate) enum Admission {
    /// They may.
    Granted(User),
    /// They showed something that is not believed.
    Unknown,
    /// They may not.
    Forbidden {
        /// Who.
        user: User,
        /// What the API server said about it.
        reason: String,
    },
    /// It could not be found out whether they may.
    Failed {
        /// Who.
        user: User,
        /// Why.
        error: String,
    },
}

impl Access {
    /// Knows nobody: health is told to all, everything else to none.
    #[must_use]
    pub fn deny_all() -> Self {
        let metrics = Arc::new(AccessMetrics::new(&Registry::new()));
        let options = AuthorizationOptions::default();
        let rng = fastrand::Rng::with_seed(0);
        let authorizer = Authorizer::new(&options, None, Arc::clone(&metrics), rng);
        let Ok(authorizer) = authorizer else { unreachable!("the usual paths are good paths") };
        Self(Arc::new(Inner {
            clients_from: Source::Nowhere,
            proxies_from: Source::Nowhere,
            trust: watch::Sender::default(),
            cluster: None,
            tokens: None,
            authorizer,
            metrics,
            complaint: Mutex::default(),
        }))
    }

    /// Reads CAs from files, and from the cluster those that no flag names.
    ///
    /// # Errors
    /// If a flag or a file is at fault, or the cluster could not be asked and that is not tolerated.
    pub async fn open(
        authentication: &AuthenticationOptions,
        authorization: &AuthorizationOptions,
        delegates: DelegatingClients,
        registry: &Registry,
        mut chance: fastrand::Rng,
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
            Authorizer::new(authorization, delegates.authorization, Arc::clone(&metrics), chance.fork())?;
        let tokens = cluster.cloned().map(|api| {
            let lifetime = authentication.token_cache_ttl;
            Tokens::new(api, lifetime, Arc::clone(&metrics), chance.fork())
                .map_err(|fault| ServingError::Option { flag: "--authentication-kubeconfig", fault })
        });
        let access = Self(Arc::new(Inner {
            clients_from: Source::of(clients_file, skip, cluster.is_some(), "client certificate"),
            proxies_from: Source::of(proxies_file, skip, cluster.is_some(), "request-header"),
            trust: watch::Sender::default(),
            cluster: delegates.authentication,
            tokens: tokens.transpose()?,
            authorizer,
            metrics,
            complaint: Mutex::default(),
        }));
        access.0.read_files()?;
        access.0.read_cluster(authentication.tolerate_lookup_failure).await?;
        Ok(access)
    }

    /// Who asks, and whether they may. A request that is let in says no more who asks.
    pub(crate) async fn admit(
        &self,
        head: &mut Parts,
        path: &str,
        certificates: &[CertificateDer<'static>],
    ) -> Admission {
        let began = Instant::now();
        let found = self.0.authenticate(&head.headers, certificates).await;
        self.0.metrics.authenticated(found.as_ref().ok().map(User::category), began);
        let user = match found {
            Ok(user) => user,
            Err(error) => {
                tracing::warn!(%error, "a request could not be authenticated");
                return Admission::Unknown;
            }
        };
        self.0.strip(&mut head.headers);
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
            Ok(Decision::Allow) => Admission::Granted(user),
            Ok(Decision::NoOpinion { reason } | Decision::Deny { reason }) => {
                Admission::Forbidden { user, reason }
            }
            Err(error) => Admission::Failed { user, error },
        }
    }

    /// The issuers that clients are told of; `None` if certificates say nothing here.
    pub(crate) fn hints(&self) -> Option<Vec<DistinguishedName>> {
        let nowhere =
            matches!(self.0.clients_from, Source::Nowhere) && matches!(self.0.proxies_from, Source::Nowhere);
        (!nowhere).then(|| self.0.trust.borrow().hints())
    }

    /// Stands for the hints: as long as it is the same, so are they.
    pub(crate) fn trust_version(&self) -> u64 {
        self.0.trust.borrow().version
    }

    /// Reads CA files again; what cannot be read leaves things as they are.
    pub(crate) fn reload(&self) {
        let complaint = self.0.read_files().err().map(|error| error.to_string());
        self.0.complain(complaint);
    }

    /// Follows what the cluster says; never ends.
    pub(crate) async fn follow(&self) {
        match &self.0.cluster {
            Some(api) if self.0.asks_cluster() => {
                config_map::follow(api, |content| {
                    let clients = self.0.learn_clients(&content).err();
                    self.0.complain(clients.or(self.0.learn_proxies(&content).err()));
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
            None if skip_lookup => Self::Nowhere,
            None if can_look_up => Self::Cluster,
            None => {
                tracing::warn!(
                    "no --authentication-kubeconfig to look up configmap/extension-apiserver-authentication in \
                     kube-system with: {what} authentication will not work"
                );
                Self::Nowhere
            }
        }
    }
}

impl Inner {
    /// The first that says who it is wins, even if an earlier one was not believed.
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
        // Whoever shows something bad is not taken for somebody who shows nothing.
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

    fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        Headers::usual().strip(headers);
        if let Some(proxies) = &self.trust.borrow().proxies {
            proxies.headers.strip(headers);
        }
    }

    fn asks_cluster(&self) -> bool {
        matches!(self.clients_from, Source::Cluster) || matches!(self.proxies_from, Source::Cluster)
    }

    fn read_files(&self) -> Result<(), ServingError> {
        let authority = |file: &PathBuf, flag| {
            Authority::new(&tls::read(file, flag)?).map_err(|fault| ServingError::Malformed {
                file: file.clone(),
                flag,
                fault,
            })
        };
        if let Source::File(file) = &self.clients_from {
            self.trust_clients(authority(file, CLIENT_CA_FLAG)?);
        }
        if let Source::File((file, headers)) = &self.proxies_from {
            let authority = authority(file, PROXY_CA_FLAG)?;
            self.trust_proxies(Proxies { authority, headers: headers.clone() });
        }
        Ok(())
    }

    async fn read_cluster(&self, tolerate_failure: bool) -> Result<(), ServingError> {
        let Some(api) = self.cluster.as_ref().filter(|_| self.asks_cluster()) else {
            return Ok(());
        };
        let (clients, proxies) = match config_map::read(api).await {
            Ok(None) => (Ok(()), Ok(())),
            Ok(Some(content)) => (self.learn_clients(&content), self.learn_proxies(&content)),
            Err(error) if matches!(self.proxies_from, Source::Cluster) => (Ok(()), Err(error)),
            Err(error) => (Err(error), Ok(())),
        };
        if let Err(error) = clients {
            tracing::warn!(%error, "the cluster's client CA is not known yet");
        }
        match proxies {
            Err(error) if tolerate_failure => {
                tracing::warn!(%error, "looking up whom to believe failed; going on without, as told");
                Ok(())
            }
            Err(error) => Err(ServingError::Lookup(error)),
            Ok(()) => Ok(()),
        }
    }

    fn learn_clients(&self, content: &Content) -> Result<(), String> {
        if matches!(self.clients_from, Source::Cluster) {
            content.clients()?.into_iter().for_each(|clients| self.trust_clients(clients));
        }
        Ok(())
    }

    fn learn_proxies(&self, content: &Content) -> Result<(), String> {
        if matches!(self.proxies_from, Source::Cluster) {
            content.proxies()?.into_iter().for_each(|proxies| self.trust_proxies(proxies));
        }
        Ok(())
    }

    fn trust_clients(&self, clients: Authority) {
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

    fn trust_proxies(&self, proxies: Proxies) {
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

    /// Says once what is wrong with a CA; those believed so far still are.
    fn complain(&self, complaint: Option<String>) {
        let mut last = self.complaint.lock();
        if let Some(complaint) = complaint.as_ref().filter(|new| last.as_ref() != Some(*new)) {
            tracing::warn!("{complaint}; the CA known so far stays in use");
        }
        *last = complaint;
    }
}
