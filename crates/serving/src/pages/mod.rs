//! A request in, an answer out: the pages of the endpoint, without any IO.

mod answers;
mod debug;
mod metrics;
mod negotiate;
mod quote;
#[cfg(test)]
mod tests;
mod yaml;
mod zpages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use parking_lot::RwLock;
use prometheus::Registry;

pub use self::debug::SetVerbosity;
pub use self::metrics::FeatureGate;

use self::answers::{forbidden, nosniff, not_found, of, plain, unauthorized, undecided};
use self::debug::Debug;
use self::metrics::MetricsPages;
use self::zpages::ZPages;
use crate::access::Admission;
use crate::health::HealthChecks;

const CONFIGURATION_NAME: &str = "kubecontrollermanager.config.k8s.io";
const CONTROLLERS: &str = "/debug/controllers/";

/// A page of one controller: what follows its name in the path, without the slash, and the query in; the
/// answer out.
pub type DebugPageHandler = Arc<dyn Fn(&str, &str) -> Response<Bytes> + Send + Sync>;

/// Which program this is.
#[derive(Clone, Debug)]
pub struct VersionInfo {
    /// The version of Kubernetes that it stands for, `1.37.1`.
    pub version: String,
    /// `--emulated-version`, `1.37`.
    pub emulation_version: String,
    /// The oldest version it gets along with, `1.36`.
    pub min_compatibility_version: String,
    /// What it is written in; told where the original tells its version of Go.
    pub language: String,
    /// The commit it was built from; may be empty.
    pub git_commit: String,
    /// When it was built; may be empty.
    pub build_date: String,
}

impl Default for VersionInfo {
    fn default() -> Self {
        Self {
            version: "1.37.1".to_owned(),
            emulation_version: "1.37".to_owned(),
            min_compatibility_version: "1.36".to_owned(),
            language: concat!("rust", env!("CARGO_PKG_RUST_VERSION")).to_owned(),
            git_commit: String::new(),
            build_date: String::new(),
        }
    }
}

/// What the pages tell beyond health and metrics, and which of them are there.
#[derive(Clone)]
pub struct PageOptions {
    /// Which program this is.
    pub version_info: VersionInfo,
    /// `--profiling`: the pages `/debug/pprof` and `/debug/flags` are there.
    pub profiling: bool,
    /// The value of every flag; `None` turns `/flagz` off (gate `ComponentFlagz`). Values that are secrets
    /// must not be among them.
    pub flags: Option<BTreeMap<String, String>>,
    /// `/statusz` is there (gate `ComponentStatusz`).
    pub statusz: bool,
    /// The KubeControllerManagerConfiguration as JSON, for `/configz`.
    pub configuration: Option<String>,
    /// Feature gates, for `kubernetes_feature_enabled`.
    pub features: Vec<FeatureGate>,
    /// `--disabled-metrics`: not told.
    pub disabled_metrics: BTreeSet<String>,
    /// Controllers that are wanted and not written yet.
    pub missing_controllers: Vec<String>,
    /// What `PUT /debug/flags/v` does.
    pub set_verbosity: Option<SetVerbosity>,
    /// Chooses how the text pages look.
    pub rng: fastrand::Rng,
}

impl Default for PageOptions {
    /// All pages, with nothing to say about flags and configuration.
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
            set_verbosity: None,
            rng: fastrand::Rng::with_seed(0),
        }
    }
}

/// What the endpoint has to tell. Clones tell the same.
#[derive(Clone)]
pub struct Pages(Arc<Inner>);

struct Inner {
    health: HealthChecks,
    metrics: MetricsPages,
    zpages: ZPages,
    debug: Debug,
    configuration: String,
    controllers: RwLock<BTreeMap<String, DebugPageHandler>>,
}

/// One request of somebody who may.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    /// The path, decoded.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// `None` if it was too large to be read.
    pub(crate) body: Option<&'a [u8]>,
}

impl Asked<'_> {
    fn header(&self, name: HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn query(&self, wanted: &str) -> BTreeSet<String> {
        form_urlencoded::parse(self.uri.query().unwrap_or_default().as_bytes())
            .filter(|(name, _)| name == wanted)
            .map(|(_, value)| value.into_owned())
            .collect()
    }

    /// Whether objects are to be spread out: asked for by the query, or else a person seems to look.
    fn is_human(&self) -> bool {
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
    /// Pages that tell these checks and these metrics of a process that started then.
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
            metrics,
            zpages,
            debug,
            configuration,
            controllers: RwLock::default(),
        }))
    }

    /// Adds the page `/debug/controllers/NAME` with all that is below it.
    pub fn add_debug(
        &self,
        controller: impl Into<String>,
        page: impl Fn(&str, &str) -> Response<Bytes> + Send + Sync + 'static,
    ) {
        self.0.controllers.write().insert(controller.into(), Arc::new(page));
    }

    /// What is told to somebody who may not come in.
    pub(crate) fn refuse(&self, admission: &Admission, asked: &Asked<'_>) -> Response<Bytes> {
        finished(match admission {
            Admission::Granted(_) => self.page(asked),
            Admission::Unknown => unauthorized(asked),
            Admission::Forbidden { user, reason } => forbidden(asked, &user.name, reason),
            Admission::Failed { error, .. } => undecided(asked, error),
        })
    }

    /// The answer to somebody who may come in.
    pub(crate) fn answer(&self, asked: &Asked<'_>) -> Response<Bytes> {
        finished(self.page(asked))
    }

    /// What is told when a page fails.
    pub(crate) fn panicked() -> Response<Bytes> {
        let text = "This request caused apiserver to panic. Look in the logs for details.\n";
        finished(plain(StatusCode::INTERNAL_SERVER_ERROR, text))
    }

    fn page(&self, asked: &Asked<'_>) -> Response<Bytes> {
        let inner = &self.0;
        // Paths match exactly: `/healthz/<check>` and `/livez` do not exist in the original either.
        match asked.path {
            "/healthz" => self.healthz(asked),
            "/metrics" => inner.metrics.all(),
            "/metrics/slis" => inner.metrics.slis(asked.method),
            "/configz" => nosniff(of(StatusCode::OK, answers::JSON, inner.configuration.clone())),
            "/flagz" => inner.zpages.flagz(asked).unwrap_or_else(not_found),
            "/statusz" => inner.zpages.statusz(asked, SystemTime::now()).unwrap_or_else(not_found),
            path => match path.strip_prefix(CONTROLLERS) {
                Some(rest) => self.controller(rest, asked),
                None => inner.debug.answer(asked),
            },
        }
    }

    fn healthz(&self, asked: &Asked<'_>) -> Response<Bytes> {
        let report = self.0.health.report(!asked.query("verbose").is_empty(), &asked.query("exclude"));
        self.0.metrics.checked(&report.outcomes);
        let status = if report.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        plain(status, report.text)
    }

    fn controller(&self, rest: &str, asked: &Asked<'_>) -> Response<Bytes> {
        let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let page = self.0.controllers.read().get(name).cloned();
        page.map_or_else(not_found, |page| page(rest, asked.uri.query().unwrap_or_default()))
    }
}

/// Pages are for one reader and one moment unless they say otherwise.
fn finished(mut answer: Response<Bytes>) -> Response<Bytes> {
    answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    answer
}
