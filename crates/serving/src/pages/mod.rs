//! The pages of the endpoint: computes the response to a request, without IO.

mod debug;
mod metrics;
mod negotiate;
mod quote;
mod responses;
#[cfg(test)]
mod tests;
mod yaml;
mod zpages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use parking_lot::RwLock;
use prometheus::Registry;

pub use self::debug::SetVerbosity;
pub use self::metrics::FeatureGate;

use self::debug::Debug;
use self::metrics::MetricsPages;
use self::responses::{authorizer_error, forbidden, nosniff, not_found, of, plain, unauthorized};
use self::zpages::ZPages;
use crate::access::AuthResult;
use crate::health::HealthChecks;

const CONFIGURATION_NAME: &str = "kubecontrollermanager.config.k8s.io";
const CONTROLLERS: &str = "/debug/controllers/";

/// The debug handler of one controller. Its arguments are the path after the controller's name, without the
/// leading slash, and the query.
pub type DebugPageHandler = Arc<dyn Fn(&str, &str) -> Response<Bytes> + Send + Sync>;

/// A request for a page of a [`SubtreeHandler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtreeRequest {
    /// The decoded path after the prefix.
    pub path: String,
    /// The query.
    pub query: String,
}

/// Serves all paths below a prefix to authorized clients. Unlike the other pages it may wait.
pub type SubtreeHandler = Arc<dyn Fn(SubtreeRequest) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// The version information of this program.
#[derive(Clone, Debug)]
pub struct VersionInfo {
    /// The Kubernetes version, `1.37.1`.
    pub version: String,
    /// `--emulated-version`, `1.37`.
    pub emulation_version: String,
    /// The minimum compatibility version, `1.36`.
    pub min_compatibility_version: String,
    /// The Rust version; reported where the original reports its Go version.
    pub language: String,
    /// This program's own name, version and commit; empty if it does not report them.
    pub program: String,
    /// This program's own version, `0.1.0`.
    pub program_version: String,
    /// The git commit; may be empty.
    pub git_commit: String,
    /// The build date; may be empty.
    pub build_date: String,
}

impl Default for VersionInfo {
    fn default() -> Self {
        Self {
            version: "1.37.1".to_owned(),
            emulation_version: "1.37".to_owned(),
            min_compatibility_version: "1.36".to_owned(),
            language: concat!("rust", env!("CARGO_PKG_RUST_VERSION")).to_owned(),
            program: String::new(),
            program_version: String::new(),
            git_commit: String::new(),
            build_date: String::new(),
        }
    }
}

/// The content of the pages besides health and metrics, and which pages are enabled.
#[derive(Clone)]
pub struct PageOptions {
    /// The version information of this program.
    pub version_info: VersionInfo,
    /// `--profiling`: enables `/debug/pprof` and `/debug/flags`.
    pub profiling: bool,
    /// The value of every flag; `None` disables `/flagz` (feature gate `ComponentFlagz`). It must not hold
    /// secrets.
    pub flags: Option<BTreeMap<String, String>>,
    /// Enables `/statusz` (feature gate `ComponentStatusz`).
    pub statusz: bool,
    /// The KubeControllerManagerConfiguration as JSON, for `/configz`.
    pub configuration: Option<String>,
    /// Feature gates, for `kubernetes_feature_enabled`.
    pub features: Vec<FeatureGate>,
    /// `--disabled-metrics`: left out.
    pub disabled_metrics: BTreeSet<String>,
    /// Enabled controllers that are not implemented yet.
    pub missing_controllers: Vec<String>,
    /// The checks of `/readyz`, which the original does not serve; `None` disables the page.
    pub readiness: Option<HealthChecks>,
    /// Called by `PUT /debug/flags/v`.
    pub set_verbosity: Option<SetVerbosity>,
    /// Chooses the separator of the text pages.
    pub rng: fastrand::Rng,
}

impl Default for PageOptions {
    /// All pages, without flags and configuration.
    fn default() -> Self {
        Self {
            version_info: VersionInfo::default(),
            profiling: true,
            flags: Some(BTreeMap::new()),
            statusz: true,
            configuration: None,
            features: Vec::new(),
            disabled_metrics: BTreeSet::new(),
            missing_controllers: Vec::new(),
            readiness: None,
            set_verbosity: None,
            rng: fastrand::Rng::with_seed(0),
        }
    }
}

/// The pages of the endpoint. Clones share their state.
#[derive(Clone)]
pub struct Pages(Arc<Inner>);

struct Inner {
    health: HealthChecks,
    readiness: Option<HealthChecks>,
    metrics: MetricsPages,
    zpages: ZPages,
    debug: Debug,
    configuration: String,
    controllers: RwLock<BTreeMap<String, DebugPageHandler>>,
    subtrees: RwLock<BTreeMap<&'static str, SubtreeHandler>>,
}

/// One request.
pub(crate) struct PageRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    /// The path, decoded.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// `None` if it was too large or came too slowly.
    pub(crate) body: Option<&'a [u8]>,
}

impl PageRequest<'_> {
    fn header(&self, name: HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn query(&self, wanted: &str) -> BTreeSet<String> {
        form_urlencoded::parse(self.uri.query().unwrap_or_default().as_bytes())
            .filter(|(name, _)| name == wanted)
            .map(|(_, value)| value.into_owned())
            .collect()
    }

    /// Whether JSON is pretty-printed: by the `pretty` parameter, or else for curl, wget and browsers.
    fn wants_pretty_json(&self) -> bool {
        match self.query("pretty").into_iter().find(|value| !value.is_empty()) {
            Some(value) => matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => {
                let agent = self.header(USER_AGENT);
                ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
            }
        }
    }
}

impl Pages {
    /// Pages for these health checks and metrics, of a process that started at `started_at`.
    #[must_use]
    pub fn new(
        health: HealthChecks,
        registry: Registry,
        started_at: SystemTime,
        mut options: PageOptions,
    ) -> Self {
        let metrics = MetricsPages::new(registry, started_at, &options);
        let zpages = ZPages::new(
            options.flags,
            options.statusz,
            options.version_info,
            started_at,
            options.missing_controllers,
            &mut options.rng,
        );
        let configuration = options
            .configuration
            .map_or_else(|| "{}".to_owned(), |json| format!("{{\"{CONFIGURATION_NAME}\":{json}}}"));
        let debug = Debug { profiling: options.profiling, set_verbosity: options.set_verbosity };
        Self(Arc::new(Inner {
            health,
            readiness: options.readiness,
            metrics,
            zpages,
            debug,
            configuration,
            controllers: RwLock::default(),
            subtrees: RwLock::default(),
        }))
    }

    /// Adds the handler of `/debug/controllers/NAME` and of all paths below it.
    pub fn add_debug(
        &self,
        controller: impl Into<String>,
        page: impl Fn(&str, &str) -> Response<Bytes> + Send + Sync + 'static,
    ) {
        self.0.controllers.write().insert(controller.into(), Arc::new(page));
    }

    /// Adds the handler of all paths that begin with `prefix`, which ends with a slash.
    pub fn add_subtree(&self, prefix: &'static str, handler: SubtreeHandler) {
        self.0.subtrees.write().insert(prefix, handler);
    }

    /// The response of the handler of a subtree; `None` if the path is in none.
    pub(crate) async fn subtree_response(&self, request: &PageRequest<'_>) -> Option<Response<Bytes>> {
        let (path, handler) = {
            let subtrees = self.0.subtrees.read();
            let found = subtrees.iter().find_map(|(prefix, handler)| {
                let rest = request.path.strip_prefix(*prefix)?;
                Some((rest.to_owned(), handler.clone()))
            });
            found?
        };
        if !matches!(*request.method, Method::GET | Method::HEAD) {
            return Some(finished(plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n")));
        }
        let query = request.uri.query().unwrap_or_default().to_owned();
        Some(finished(handler(SubtreeRequest { path, query }).await))
    }

    /// The response to a request that is not authenticated or not authorized.
    pub(crate) fn refuse(&self, admission: &AuthResult, request: &PageRequest<'_>) -> Response<Bytes> {
        finished(match admission {
            AuthResult::Allowed(_) => self.page(request),
            AuthResult::Unauthenticated => unauthorized(request),
            AuthResult::Forbidden { user, reason } => forbidden(request, &user.name, reason),
            AuthResult::AuthorizerError { error, .. } => authorizer_error(request, error),
        })
    }

    /// Whether a page reads the body of such a request.
    pub(crate) fn takes_body(method: &Method, path: &str) -> bool {
        *method == Method::PUT && path == debug::VERBOSITY
    }

    /// The response to an authorized request.
    pub(crate) fn response(&self, request: &PageRequest<'_>) -> Response<Bytes> {
        finished(self.page(request))
    }

    /// The response after a panic.
    pub(crate) fn panicked() -> Response<Bytes> {
        let text = "This request caused apiserver to panic. Look in the logs for details.\n";
        finished(plain(StatusCode::INTERNAL_SERVER_ERROR, text))
    }

    fn page(&self, request: &PageRequest<'_>) -> Response<Bytes> {
        let inner = &self.0;
        // Paths match exactly: the original does not serve `/healthz/<check>` and `/livez` either.
        match request.path {
            "/healthz" => self.healthz(request),
            "/readyz" => self.readyz(request).unwrap_or_else(not_found),
            "/metrics" => inner.metrics.all(),
            "/metrics/slis" => inner.metrics.slis(request.method),
            "/configz" => nosniff(of(StatusCode::OK, responses::JSON, inner.configuration.clone())),
            "/flagz" => inner.zpages.flagz(request).unwrap_or_else(not_found),
            "/statusz" => inner.zpages.statusz(request, SystemTime::now()).unwrap_or_else(not_found),
            path => match path.strip_prefix(CONTROLLERS) {
                Some(rest) => self.controller(rest, request),
                None => inner.debug.response(request),
            },
        }
    }

    fn healthz(&self, request: &PageRequest<'_>) -> Response<Bytes> {
        let report = self.0.health.report(!request.query("verbose").is_empty(), &request.query("exclude"));
        self.0.metrics.checked(&report.outcomes);
        let status = if report.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        plain(status, report.text)
    }

    fn readyz(&self, request: &PageRequest<'_>) -> Option<Response<Bytes>> {
        let checks = self.0.readiness.as_ref()?;
        let report = checks.readiness(!request.query("verbose").is_empty(), &request.query("exclude"));
        let status = if report.passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Some(plain(status, report.text))
    }

    fn controller(&self, rest: &str, request: &PageRequest<'_>) -> Response<Bytes> {
        let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let page = self.0.controllers.read().get(name).cloned();
        page.map_or_else(not_found, |page| page(rest, request.uri.query().unwrap_or_default()))
    }
}

/// Pages must not be cached unless they set another `Cache-Control`.
fn finished(mut response: Response<Bytes>) -> Response<Bytes> {
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    response
}
