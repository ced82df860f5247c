//! Finds the API server and a way to it: kubeconfig, flags or the pod's own service account.
//!
//! There are two ways: one with the credentials that were found, and one without any, for clients that
//! bring a token of their own. A client certificate on the same connection would win over the token.

mod lanes;
mod observer;
mod plugin;
mod proxy;
mod renewing;
mod rules;
mod way;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response, Uri};
use kube::Config;
use kube::client::{Body, RustlsTlsError};
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};
use tower::{BoxError, Service};

use self::observer::Told;
pub use self::observer::{ConnectionObserver, ExecPluginStatus};
use self::plugin::Plugged;
use self::way::Route;
use crate::layers::{Transport, transport};

/// The version of Kubernetes whose manager this one stands in for.
pub const KUBERNETES_VERSION: &str = "v1.37.1";

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no such file.
    #[error("kubeconfig {} does not exist", path.display())]
    Missing {
        /// The file that was named.
        path: PathBuf,
    },
    /// The file cannot be read or is no kubeconfig.
    #[error("kubeconfig {} cannot be read: {problem}", path.display())]
    Unreadable {
        /// The file that was named.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The file does not say which of its contexts to use.
    #[error("kubeconfig {} has no current-context", path.display())]
    NoCurrentContext {
        /// The file that was named.
        path: PathBuf,
    },
    /// The context to use, or the cluster it names, is not in the file.
    #[error("kubeconfig {}: {problem}", path.display())]
    DanglingContext {
        /// The file that was named.
        path: PathBuf,
        /// What is not there.
        problem: String,
    },
    /// The address of the server is missing or is no address.
    #[error("{origin}: bad server address: {problem}")]
    BadServer {
        /// The file or flag that should name it.
        origin: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The certificates to check the server against cannot be used.
    #[error("{origin}: bad certificate-authority: {problem}")]
    BadCertificateAuthority {
        /// The file that should hold or name them.
        origin: String,
        /// What is wrong with them.
        problem: String,
    },
    /// The client's own certificate or key cannot be used.
    #[error("{origin}: bad client certificate: {problem}")]
    BadClientCertificate {
        /// The file that should hold or name them.
        origin: String,
        /// What is wrong with them.
        problem: String,
    },
    /// Token, password or plugin of the user cannot be used.
    #[error("{origin}: bad credentials: {problem}")]
    BadCredentials {
        /// The file that should hold or name them.
        origin: String,
        /// What is wrong with them.
        problem: String,
    },
    /// The proxy on the way to the server cannot be used.
    #[error("{origin}: bad proxy: {problem}")]
    BadProxy {
        /// What leads through it.
        origin: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No kubeconfig was named and there is no service account to use instead.
    #[error("no --kubeconfig and no --master given, and not running in a pod: {problem}")]
    NotInCluster {
        /// What a pod would have.
        problem: String,
    },
}

/// A way to an API server.
#[derive(Clone)]
pub struct Connection {
    with_credentials: Transport,
    anonymous: Transport,
    /// Whom to ask for credentials, if it is not the kubeconfig itself that holds them.
    plugin: Option<(String, Plugged)>,
    host: String,
    embedded_ca: Option<Vec<u8>>,
    told: Told,
}

impl Connection {
    /// The way that the two flags describe; without either, the one of the pod's own service account. What
    /// happens on it is told to the observer.
    ///
    /// # Errors
    /// Whatever is wrong with what they name. A plugin for credentials is not asked yet.
    pub fn open(
        kubeconfig: Option<&Path>,
        master: Option<&str>,
        observer: Option<Arc<dyn ConnectionObserver>>,
    ) -> Result<Self, ConnectError> {
        let told = Told::to(observer);
        match (kubeconfig, master) {
            (Some(path), master) => Self::from_kubeconfig(path, master, told),
            (None, Some(master)) => Self::from_master(master, told),
            (None, None) => Self::in_cluster(told),
        }
    }

    fn from_kubeconfig(path: &Path, master: Option<&str>, told: Told) -> Result<Self, ConnectError> {
        let origin = format!("kubeconfig {}", path.display());
        let mut kubeconfig = Kubeconfig::read_from(path).map_err(|error| kubeconfig_error(path, error))?;
        if let Some(problem) = rules::problem_of_file(&kubeconfig) {
            return Err(ConnectError::Unreadable { path: path.to_owned(), problem });
        }
        if let (Some(cluster), Some(master)) = (current_cluster(&mut kubeconfig), master) {
            cluster.server = Some(master.to_owned());
        }
        let cluster = current_cluster(&mut kubeconfig).cloned().unwrap_or_default();
        let mut config = Config::try_from(kubeconfig).map_err(|error| kubeconfig_error(path, error))?;
        if let Some(problem) = rules::problem_of_cluster(&cluster) {
            return Err(ConnectError::BadCertificateAuthority { origin, problem: problem.to_owned() });
        }
        if let Some(problem) = rules::problem_of_user(&config.auth_info) {
            return Err(ConnectError::BadCredentials { origin, problem });
        }
        rules::settle(&mut config.auth_info);
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            let problem = "it holds no certificate".to_owned();
            return Err(ConnectError::BadCertificateAuthority { origin, problem });
        }
        let ca_data = cluster.certificate_authority_data.filter(|data| !data.is_empty());
        if ca_data.is_none() {
            // A file may be replaced by a newer one while the manager runs.
            config.root_cert_file = cluster.certificate_authority.map(PathBuf::from);
        }
        let mut connection = Self::of_config(config, cluster.proxy_url.as_deref(), &origin, told)?;
        connection.embedded_ca = ca_data.and_then(|data| {
            // Loading it above has shown that it decodes.
            base64::engine::general_purpose::STANDARD.decode(data).ok()
        });
        Ok(connection)
    }

    fn in_cluster(told: Told) -> Result<Self, ConnectError> {
        let config =
            Config::incluster().map_err(|error| ConnectError::NotInCluster { problem: error.to_string() })?;
        Self::of_config(config, None, "service account of the pod", told)
    }

    fn from_master(master: &str, told: Told) -> Result<Self, ConnectError> {
        let address = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
        let server = address.parse::<Uri>().map_err(|error| ConnectError::BadServer {
            origin: "--master".to_owned(),
            problem: error.to_string(),
        })?;
        Self::of_config(Config::new(server), None, "--master", told)
    }

    /// A way that is a service itself, such as an API server in the same process. Who speaks is then only
    /// told by tokens.
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
            plugin: None,
            host: "in-process".to_owned(),
            embedded_ca: None,
            told: Told::default(),
        }
    }

    fn of_config(
        mut config: Config,
        proxy_url: Option<&str>,
        origin: &str,
        told: Told,
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
        let proxy = proxy::on_the_way_to(&config.cluster_url, proxy_url, |name| std::env::var(name).ok())
            .map_err(|problem| ConnectError::BadProxy { origin: origin.to_owned(), problem })?;
        let exec = config.auth_info.exec.take();
        let route = Route { config, proxy, told: told.clone() };
        let mut without_credentials = route.clone();
        without_credentials.config.auth_info = AuthInfo::default();
        without_credentials.config.headers = Vec::new();
        let plugin = exec.map(|exec| Plugged::new(&exec, route.clone(), origin));
        let with_credentials = match &plugin {
            Some(plugin) => Transport::new(plugin.clone()),
            None => renewing::following_files(&route).map_err(|error| client_error(origin, error))?,
        };
        let anonymous = without_credentials.open().map_err(|error| client_error(origin, error))?;
        let plugin = plugin.map(|plugin| (origin.to_owned(), plugin));
        Ok(Self { with_credentials, anonymous, plugin, host, embedded_ca: None, told })
    }

    /// Asks the plugin for credentials, if there is one, before the first request needs them.
    ///
    /// # Errors
    /// If it has none to give.
    pub async fn prefetch_credentials(&self) -> Result<(), ConnectError> {
        let Some((origin, plugin)) = &self.plugin else { return Ok(()) };
        let bad = |problem: String| ConnectError::BadCredentials { origin: origin.clone(), problem };
        plugin.prefetch_credentials().await.map_err(|error| bad(error.to_string()))
    }

    /// The `certificate-authority-data` of the kubeconfig, decoded. A file that the kubeconfig only names
    /// is not meant.
    #[must_use]
    pub fn embedded_ca(&self) -> Option<&[u8]> {
        self.embedded_ca.as_deref()
    }

    /// The server's name and port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The way with the credentials that were found.
    #[must_use]
    pub fn with_credentials(&self) -> Transport {
        self.told.tell(|observer| observer.transport_reused());
        self.with_credentials.clone()
    }

    /// The way without any credentials.
    #[must_use]
    pub fn anonymous(&self) -> Transport {
        self.told.tell(|observer| observer.transport_reused());
        self.anonymous.clone()
    }
}

/// How a client calls itself: program, version and platform like the original, then this program, then
/// the part of it that speaks.
#[must_use]
pub fn user_agent(component: &str) -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        "kube-controller-manager/{KUBERNETES_VERSION} ({}/{arch}) keleustes/{}/{component}",
        std::env::consts::OS,
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
        // The parser's own words show the lines around the error, and with them keys and tokens.
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
