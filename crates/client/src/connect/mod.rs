//! Builds the transports to the API server from a kubeconfig, from flags or from the pod's service account.
//!
//! There are two transports: one with the configured credentials and one without credentials, for clients
//! that send a bearer token of their own. A client certificate on the same connection would take precedence
//! over the token.

mod certificate_reload;
mod connection_pool;
mod exec_plugin;
mod http_transport;
mod inline_data;
mod observer;
mod proxy;
mod token_file;
mod validation;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response, Uri};
use kube::Config;
use kube::client::{Body, RustlsTlsError};
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};
use tower::{BoxError, Service};

use self::exec_plugin::ExecTransport;
use self::http_transport::TransportConfig;
use self::observer::ObserverHandle;
pub use self::observer::{ConnectionObserver, ExecPluginStatus};
use crate::layers::{Transport, transport};

/// The Kubernetes version whose kube-controller-manager this program replaces.
pub const KUBERNETES_VERSION: &str = "v1.37.1";

/// Why the client configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file does not exist.
    #[error("kubeconfig {} does not exist", path.display())]
    Missing {
        /// The kubeconfig file.
        path: PathBuf,
    },
    /// The file cannot be read or is not a kubeconfig.
    #[error("kubeconfig {} cannot be read: {problem}", path.display())]
    Unreadable {
        /// The kubeconfig file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The file has no `current-context`.
    #[error("kubeconfig {} has no current-context", path.display())]
    NoCurrentContext {
        /// The kubeconfig file.
        path: PathBuf,
    },
    /// The current context, or the cluster it refers to, is not in the file.
    #[error("kubeconfig {}: {problem}", path.display())]
    DanglingContext {
        /// The kubeconfig file.
        path: PathBuf,
        /// The missing context or cluster.
        problem: String,
    },
    /// The server URL is missing or invalid.
    #[error("{origin}: bad server address: {problem}")]
    BadServer {
        /// The kubeconfig or flag that sets it.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// The certificate authority cannot be used.
    #[error("{origin}: bad certificate-authority: {problem}")]
    BadCertificateAuthority {
        /// The kubeconfig or flag that sets them.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// The client certificate or its key cannot be used.
    #[error("{origin}: bad client certificate: {problem}")]
    BadClientCertificate {
        /// The kubeconfig or flag that sets them.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// The user's token, password or exec plugin cannot be used.
    #[error("{origin}: bad credentials: {problem}")]
    BadCredentials {
        /// The kubeconfig or flag that sets them.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// The HTTP or SOCKS proxy cannot be used.
    #[error("{origin}: bad proxy: {problem}")]
    BadProxy {
        /// The kubeconfig or flag whose server is behind the proxy.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// Neither `--kubeconfig` nor `--master` is set and there is no in-cluster configuration.
    #[error("no --kubeconfig and no --master given, and not running in a pod: {problem}")]
    NotInCluster {
        /// The missing part of the in-cluster configuration.
        problem: String,
    },
}

/// A server that is not the API server of a kubeconfig, such as the secure port of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherServer {
    /// Its URL.
    pub url: String,
    /// Who may vouch for its certificate.
    pub trust: ServerTrust,
}

/// Who may vouch for the certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// The CA of the kubeconfig.
    Kubeconfig,
    /// The CA in this file.
    CertificateAuthority(PathBuf),
    /// The certificate is not verified.
    Anyone,
}

/// The transports to one API server.
#[derive(Clone)]
pub struct Connection {
    with_credentials: Transport,
    anonymous: Transport,
    /// The exec plugin and the kubeconfig that configures it, if the kubeconfig has no static credentials.
    exec_plugin: Option<(String, ExecTransport)>,
    host: String,
    embedded_ca: Option<Vec<u8>>,
    observer: ObserverHandle,
}

impl Connection {
    /// Builds the transports from `--kubeconfig` and `--master`, or from the in-cluster configuration if
    /// neither is set. The observer is notified of transports and exec plugin calls.
    ///
    /// # Errors
    /// If the configuration cannot be used. An exec plugin is not called yet.
    pub fn open(
        kubeconfig: Option<&Path>,
        master: Option<&str>,
        observer: Option<Arc<dyn ConnectionObserver>>,
    ) -> Result<Self, ConnectError> {
        let observer = ObserverHandle::new(observer);
        match (kubeconfig, master) {
            (Some(path), master) => Self::from_kubeconfig(path, master, observer),
            (None, Some(master)) => Self::from_master(master, observer),
            (None, None) => Self::in_cluster(observer),
        }
    }

    /// Builds the transports to a server that is not the kubeconfig's API server, with the credentials of the kubeconfig.
    ///
    /// # Errors
    /// If the configuration cannot be used. An exec plugin is not called yet.
    pub fn open_other_server(kubeconfig: &Path, server: &OtherServer) -> Result<Self, ConnectError> {
        let change = |cluster: &mut Cluster| {
            cluster.server = Some(server.url.clone());
            (cluster.proxy_url, cluster.tls_server_name) = (None, None);
            match &server.trust {
                ServerTrust::Kubeconfig => {}
                ServerTrust::CertificateAuthority(file) => {
                    cluster.certificate_authority_data = None;
                    cluster.certificate_authority = Some(file.display().to_string());
                    cluster.insecure_skip_tls_verify = None;
                }
                ServerTrust::Anyone => {
                    (cluster.certificate_authority_data, cluster.certificate_authority) = (None, None);
                    cluster.insecure_skip_tls_verify = Some(true);
                }
            }
        };
        Self::from_changed_kubeconfig(kubeconfig, change, ObserverHandle::new(None))
    }

    fn from_kubeconfig(
        path: &Path,
        master: Option<&str>,
        observer: ObserverHandle,
    ) -> Result<Self, ConnectError> {
        let change = |cluster: &mut Cluster| {
            if let Some(master) = master {
                cluster.server = Some(master.to_owned());
            }
        };
        Self::from_changed_kubeconfig(path, change, observer)
    }

    fn from_changed_kubeconfig(
        path: &Path,
        change: impl FnOnce(&mut Cluster),
        observer: ObserverHandle,
    ) -> Result<Self, ConnectError> {
        let origin = format!("kubeconfig {}", path.display());
        let mut kubeconfig = Kubeconfig::read_from(path).map_err(|error| kubeconfig_error(path, error))?;
        if let Some(problem) = validation::validate_file(&kubeconfig) {
            return Err(ConnectError::Unreadable { path: path.to_owned(), problem });
        }
        inline_data::join_lines(&mut kubeconfig);
        if let Some(cluster) = current_cluster(&mut kubeconfig) {
            change(cluster);
        }
        let cluster = current_cluster(&mut kubeconfig).cloned().unwrap_or_default();
        let mut config = Config::try_from(kubeconfig).map_err(|error| kubeconfig_error(path, error))?;
        if let Some(problem) = validation::validate_cluster(&cluster) {
            return Err(ConnectError::BadCertificateAuthority { origin, problem: problem.to_owned() });
        }
        if let Some(problem) = validation::validate_user(&config.auth_info) {
            return Err(ConnectError::BadCredentials { origin, problem });
        }
        validation::apply_credential_precedence(&mut config.auth_info);
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            let problem = "it holds no certificate".to_owned();
            return Err(ConnectError::BadCertificateAuthority { origin, problem });
        }
        let ca_data = cluster.certificate_authority_data.filter(|data| !data.is_empty());
        if ca_data.is_none() {
            // The file may be rotated while the manager runs.
            config.root_cert_file = cluster.certificate_authority.map(PathBuf::from);
        }
        let mut connection = Self::of_config(config, cluster.proxy_url.as_deref(), &origin, observer)?;
        connection.embedded_ca = ca_data.and_then(|data| {
            // `Config::try_from` above has already decoded it.
            base64::engine::general_purpose::STANDARD.decode(data).ok()
        });
        Ok(connection)
    }

    fn in_cluster(observer: ObserverHandle) -> Result<Self, ConnectError> {
        let config =
            Config::incluster().map_err(|error| ConnectError::NotInCluster { problem: error.to_string() })?;
        Self::of_config(config, None, "service account of the pod", observer)
    }

    fn from_master(master: &str, observer: ObserverHandle) -> Result<Self, ConnectError> {
        let address = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
        let server = address.parse::<Uri>().map_err(|error| ConnectError::BadServer {
            origin: "--master".to_owned(),
            problem: error.to_string(),
        })?;
        Self::of_config(Config::new(server), None, "--master", observer)
    }

    /// A connection through a tower service, such as an API server in the same process. Only bearer tokens
    /// identify the client.
    pub fn from_service<S, B>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let transport = transport(service);
        Self {
            with_credentials: transport.clone(),
            anonymous: transport,
            exec_plugin: None,
            host: "in-process".to_owned(),
            embedded_ca: None,
            observer: ObserverHandle::default(),
        }
    }

    fn of_config(
        mut config: Config,
        proxy_url: Option<&str>,
        origin: &str,
        observer: ObserverHandle,
    ) -> Result<Self, ConnectError> {
        let bad_server = |problem: &str| ConnectError::BadServer {
            origin: origin.to_owned(),
            problem: problem.to_owned(),
        };
        let host = config.cluster_url.authority().map(ToString::to_string);
        let host = host.ok_or_else(|| bad_server("it names no host"))?;
        if !matches!(config.cluster_url.scheme_str(), Some("http" | "https")) {
            return Err(bad_server("it is neither http:// nor https://"));
        }
        let proxy = proxy::for_server(&config.cluster_url, proxy_url, |name| std::env::var(name).ok())
            .map_err(|problem| ConnectError::BadProxy { origin: origin.to_owned(), problem })?;
        let exec = config.auth_info.exec.take();
        let transport_config = TransportConfig { config, proxy, observer: observer.clone() };
        let mut anonymous_config = transport_config.clone();
        anonymous_config.config.auth_info = AuthInfo::default();
        anonymous_config.config.headers = Vec::new();
        let exec_plugin = exec.map(|exec| ExecTransport::new(&exec, transport_config.clone(), origin));
        let with_credentials = match &exec_plugin {
            Some(exec_plugin) => Transport::new(exec_plugin.clone()),
            None => certificate_reload::with_certificate_reload(&transport_config)
                .map_err(|error| client_error(origin, error))?,
        };
        let anonymous = anonymous_config.open().map_err(|error| client_error(origin, error))?;
        let exec_plugin = exec_plugin.map(|exec_plugin| (origin.to_owned(), exec_plugin));
        Ok(Self { with_credentials, anonymous, exec_plugin, host, embedded_ca: None, observer })
    }

    /// Calls the exec plugin, if one is configured, before the first request needs its credentials.
    ///
    /// # Errors
    /// If the plugin returns no usable credentials.
    pub async fn prefetch_credentials(&self) -> Result<(), ConnectError> {
        let Some((origin, exec_plugin)) = &self.exec_plugin else { return Ok(()) };
        let bad = |problem: String| ConnectError::BadCredentials { origin: origin.clone(), problem };
        exec_plugin.prefetch_credentials().await.map_err(|error| bad(error.to_string()))
    }

    /// The decoded `certificate-authority-data` of the kubeconfig; `None` if it has only a
    /// `certificate-authority` file.
    #[must_use]
    pub fn embedded_ca(&self) -> Option<&[u8]> {
        self.embedded_ca.as_deref()
    }

    /// Host and port of the API server.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The transport with the configured credentials.
    #[must_use]
    pub fn with_credentials(&self) -> Transport {
        self.observer.notify(|observer| observer.transport_reused());
        self.with_credentials.clone()
    }

    /// The transport without credentials.
    #[must_use]
    pub fn anonymous(&self) -> Transport {
        self.observer.notify(|observer| observer.transport_reused());
        self.anonymous.clone()
    }
}

/// The commit that the program was built from, for [`user_agent`].
static COMMIT: OnceLock<String> = OnceLock::new();

/// Sets the commit that user agents name, before the first client is built. Only the first call has an effect.
pub fn set_commit(commit: &str) {
    // client-go shortens it to seven digits, too.
    let _ = COMMIT.set(commit.chars().take(7).collect());
}

/// The operating system and the architecture that this program was built for, as Go names them: `linux/amd64`.
#[must_use]
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

/// The `User-Agent` of a component: program, version and platform like the original, then this program's name
/// and version, with the commit if it is known, and the component.
#[must_use]
pub fn user_agent(component: &str) -> String {
    let commit = COMMIT.get().map_or("", String::as_str);
    let plus = if commit.is_empty() { "" } else { "+" };
    format!(
        "kube-controller-manager/{KUBERNETES_VERSION} ({}) keleustes/{}{plus}{commit}/{component}",
        platform(),
        env!("CARGO_PKG_VERSION"),
    )
}

fn current_cluster(kubeconfig: &mut Kubeconfig) -> Option<&mut Cluster> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| &named.name == current)?;
    let cluster = &context.context.as_ref()?.cluster;
    let named = kubeconfig.clusters.iter_mut().find(|named| &named.name == cluster)?;
    named.cluster.as_mut()
}

fn kubeconfig_error(path: &Path, error: KubeconfigError) -> ConnectError {
    let origin = format!("kubeconfig {}", path.display());
    let path = path.to_owned();
    match error {
        KubeconfigError::ReadConfig(cause, _) if cause.kind() == std::io::ErrorKind::NotFound => {
            ConnectError::Missing { path }
        }
        KubeconfigError::ReadConfig(cause, _) => {
            ConnectError::Unreadable { path, problem: cause.to_string() }
        }
        // The parser's message quotes the lines around the error, which may hold keys and tokens.
        KubeconfigError::Parse(cause) => ConnectError::Unreadable {
            path,
            problem: match cause.location() {
                Some(at) => format!("it is no kubeconfig, see line {} column {}", at.line(), at.column()),
                None => "it is no kubeconfig".to_owned(),
            },
        },
        KubeconfigError::CurrentContextNotSet => ConnectError::NoCurrentContext { path },
        KubeconfigError::LoadContext(name) => {
            ConnectError::DanglingContext { path, problem: format!("there is no context {name:?}") }
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            ConnectError::DanglingContext { path, problem: format!("there is no cluster {name:?}") }
        }
        KubeconfigError::MissingClusterUrl => {
            ConnectError::BadServer { origin, problem: "it is missing".to_owned() }
        }
        KubeconfigError::ParseClusterUrl(cause) => {
            ConnectError::BadServer { origin, problem: cause.to_string() }
        }
        KubeconfigError::LoadCertificateAuthority(cause) => {
            ConnectError::BadCertificateAuthority { origin, problem: cause.to_string() }
        }
        KubeconfigError::ParseCertificates(cause) => {
            ConnectError::BadCertificateAuthority { origin, problem: cause.to_string() }
        }
        KubeconfigError::LoadClientCertificate(cause) => {
            ConnectError::BadClientCertificate { origin, problem: cause.to_string() }
        }
        KubeconfigError::LoadClientKey(cause) => {
            ConnectError::BadClientCertificate { origin, problem: format!("its key: {cause}") }
        }
        KubeconfigError::ParseProxyUrl(_) => {
            ConnectError::BadProxy { origin, problem: "it is no address".to_owned() }
        }
        other => ConnectError::Unreadable { path, problem: other.to_string() },
    }
}

fn client_error(origin: &str, error: kube::Error) -> ConnectError {
    let origin = origin.to_owned();
    match error {
        kube::Error::RustlsTls(cause @ RustlsTlsError::AddRootCertificate(_)) => {
            ConnectError::BadCertificateAuthority { origin, problem: cause.to_string() }
        }
        kube::Error::RustlsTls(cause @ RustlsTlsError::InvalidServerName(_)) => {
            ConnectError::BadServer { origin, problem: cause.to_string() }
        }
        kube::Error::RustlsTls(cause) => {
            ConnectError::BadClientCertificate { origin, problem: cause.to_string() }
        }
        kube::Error::InferKubeconfig(cause) => {
            ConnectError::BadClientCertificate { origin, problem: cause.to_string() }
        }
        other => ConnectError::BadCredentials { origin, problem: other.to_string() },
    }
}

#[cfg(test)]
mod tests;
