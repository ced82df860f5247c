//! Parses method, path and query into a typed call, or into kube-apiserver's error.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;

use super::accept::Representation;
use super::body;
use super::patch::check_media;
use super::resources::{Registry, Resource};
use super::status::{ApiResult, Status, StatusReason};
use super::table::metrics::EXTERNAL_METRICS;
use super::users::User;

/// Maximum body size, as in kube-apiserver.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// An HTTP request, reduced to the parts the kernel reads.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Query without the question mark.
    pub query: String,
    /// `Accept` header, or empty.
    pub accept: String,
    /// `Content-Type` header, or empty.
    pub content_type: String,
    /// `User-Agent` header, or empty.
    pub user_agent: String,
    /// `Authorization` header, or empty.
    pub authorization: String,
    /// The user, if the HTTP service knows it (from a client certificate or an in-process caller).
    pub user: Option<User>,
    /// The user to impersonate.
    pub impersonate: Option<User>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// A request with only method, path with query, and body, for tests of the kernel.
    pub fn new(method: Method, target: &str, body: impl Into<Bytes>) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            body: body.into(),
            ..Request::default()
        }
    }
}

/// The route of a request.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz` and their checks.
    Health,
    /// `/version`
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`
    GroupVersion(String, String),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/PATH`
    OpenApi(String),
    /// An object or collection.
    Resource(Target),
}

/// The object or collection of a request.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// The namespace, or empty for cluster scope.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// The name, or empty for a collection.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// The API verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb as discovery, authorization and the log name it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

/// A request to one target, parsed except for the body.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) target: Target,
    pub(crate) verb: Verb,
    pub(crate) query: Query,
    pub(crate) representation: Representation,
    pub(crate) user: User,
    pub(crate) request: &'a Request,
}

/// Query parameters; of several with the same name the first counts, unless all are asked for.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(text: &str) -> Query {
        let mut pairs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            pairs.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Query(pairs)
    }

    /// The value, or the empty string.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or_default()
    }

    /// All values of that name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.get(name).into_iter().flatten().map(String::as_str).collect()
    }

    /// The value as a flag: present and neither "0" nor "false".
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).map(|_| !matches!(self.text(name).to_lowercase().as_str(), "0" | "false"))
    }

    /// The value as an integer; empty counts as absent.
    pub(crate) fn integer(&self, name: &str) -> ApiResult<Option<i64>> {
        match self.text(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => {
                    let message = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
                    Err(Status::bad_request(message))
                }
            },
        }
    }
}

impl<'a> Call<'a> {
    /// Finishes parsing a request to `target`.
    pub(crate) fn new(target: Target, request: &'a Request, user: User) -> ApiResult<Call<'a>> {
        if request.body.len() > BODY_BYTES_MAX {
            let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
            return Err(Status::new(StatusReason::RequestEntityTooLarge, message));
        }
        let query = Query::parse(&request.query);
        let verb = verb(&target, request, &query)?;
        let custom = target.resource.is_custom();
        let has_table =
            target.resource.group != "resource.k8s.io" || target.subresource.as_deref() != Some("status");
        let representation =
            match Representation::negotiate(&request.accept, query.text("includeObject"), custom)? {
                // In this group the status is not printed: the next media range, which is JSON, counts.
                Representation::Table(_) if !has_table => Representation::Full,
                negotiated => negotiated,
            };
        Ok(Call { target, verb, query, representation, user, request })
    }
}

fn verb(target: &Target, request: &Request, query: &Query) -> ApiResult<Verb> {
    let (resource, method) = (target.resource, &request.method);
    let refused = || {
        Err(match resource.is_custom() {
            true => Status::method_not_supported(resource, method),
            false => Status::method_not_allowed(),
        })
    };
    if let Some(name) = target.subresource.as_deref() {
        let allowed = match resource.subresource(name) {
            Some(subresource) => subresource.verbs,
            None => &["get", "update", "patch"],
        };
        let (verb, word) = match *method {
            Method::GET => (Verb::Get, "get"),
            Method::PUT => (Verb::Update, "update"),
            Method::PATCH => (Verb::Patch, "patch"),
            Method::POST => (Verb::Create, "create"),
            _ => return refused(),
        };
        return if allowed.contains(&word) { Ok(verb) } else { refused() };
    }
    let scoped = target.namespace.is_some() == resource.namespaced;
    if let Some(only) = resource.only_verbs
        && !(only.contains(&"create") && *method == Method::POST && target.name.is_none() && scoped)
        && !is_allowed_read(only, target, method, query)
    {
        return refused();
    }
    match (target.name.is_some(), method) {
        (true, &Method::GET) => Ok(Verb::Get),
        (true, &Method::PUT) => Ok(Verb::Update),
        (true, &Method::PATCH) => Ok(Verb::Patch),
        (true, &Method::DELETE) => Ok(Verb::Delete),
        (false, &Method::GET) if query.flag("watch") == Some(true) => Ok(Verb::Watch),
        (false, &Method::GET) => Ok(Verb::List),
        (false, &Method::POST) if scoped => Ok(Verb::Create),
        (false, &Method::DELETE) if scoped && resource.delete_collection => Ok(Verb::DeleteCollection),
        // The apiextensions server accepts POST with a name in the path.
        (true, &Method::POST) if resource.is_custom() && scoped => Ok(Verb::Create),
        (false, &Method::PUT | &Method::PATCH) if resource.is_custom() => {
            if *method == Method::PATCH {
                check_media(resource, body::media_type(&request.content_type))?;
            }
            Err(Status::bad_request("name must be provided"))
        }
        _ => refused(),
    }
}

/// Whether a read of a resource with few verbs is among them.
fn is_allowed_read(only: &[&str], target: &Target, method: &Method, query: &Query) -> bool {
    let verb = if target.name.is_some() { "get" } else { "list" };
    *method == Method::GET && only.contains(&verb) && query.flag("watch") != Some(true)
}

/// What a request is about as far as its path and method tell, whether or not it can be served. Parity:
/// RequestInfoFactory.NewRequestInfo.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl RequestInfo {
    /// `None` if it is not about a resource.
    pub(crate) fn parse(request: &Request) -> Option<Self> {
        let decoded = percent_decode(&request.path)?;
        let segments: Vec<&str> = decoded.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, tail @ ..] if !matches!(tail, [] | ["status" | "finalize", ..]) => {
                (*namespace, tail)
            }
            ["namespaces", namespace, ..] => (*namespace, rest),
            _ => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let (resource, mut name, subresource) = (rest.first()?, part(1), part(2));
        let query = Query::parse(&request.query);
        let verb = match (&request.method, name.is_empty()) {
            (&Method::GET | &Method::HEAD, false) => "get",
            (&Method::GET | &Method::HEAD, true) => {
                let selected = query.text("fieldSelector").strip_prefix("metadata.name=").unwrap_or_default();
                selected.clone_into(&mut name);
                if query.flag("watch") == Some(true) { "watch" } else { "list" }
            }
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, false) => "delete",
            (&Method::DELETE, true) => "deletecollection",
            _ => "",
        };
        let (group, resource, namespace) = (group.to_owned(), (*resource).to_owned(), namespace.to_owned());
        Some(Self { verb, group, resource, subresource, namespace, name })
    }
}

/// Finds the route; `Ok(None)` is the plain "404 page not found" for paths outside all served groups.
pub(crate) fn route(registry: &Registry, path: &str) -> ApiResult<Option<Route>> {
    // Go's server decodes the path before the routes split it, so an encoded slash separates segments, too.
    let decoded = percent_decode(path).ok_or_else(|| {
        Status::bad_request(format!("the path {path:?} is not properly percent-encoded UTF-8"))
    })?;
    let segments: Vec<&str> = decoded.split('/').filter(|segment| !segment.is_empty()).collect();
    Ok(match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Some(Route::Health),
        ["version"] => Some(Route::Version),
        ["api"] => Some(Route::CoreVersions),
        ["apis"] => Some(Route::Groups),
        ["api", "v1"] => Some(Route::GroupVersion(String::new(), "v1".to_owned())),
        ["openapi", "v2"] => Some(Route::OpenApiV2),
        ["openapi", "v3"] => Some(Route::OpenApiIndex),
        ["openapi", "v3", rest @ ..] => Some(Route::OpenApi(rest.join("/"))),
        ["api", version, rest @ ..] => Some(target(registry, "", version, rest)?),
        ["apis", group, ..] if !registry.all().any(|resource| resource.group == *group) => None,
        ["apis", group] => Some(Route::Group((*group).to_owned())),
        ["apis", group, version] => Some(Route::GroupVersion((*group).to_owned(), (*version).to_owned())),
        ["apis", group, version, rest @ ..] => Some(target(registry, group, version, rest)?),
        _ => None,
    })
}

fn target(registry: &Registry, group: &str, version: &str, rest: &[&str]) -> ApiResult<Route> {
    if let ["watch", ..] = rest {
        return Err(Status::not_implemented("the deprecated watch paths; list with watch=true instead"));
    }
    // After a namespace's name comes a subresource of the namespace or a namespaced resource.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, tail @ ..]
            if !matches!(tail, [] | ["status" | "finalize"]) && !namespace.is_empty() =>
        {
            (Some((*namespace).to_owned()), tail)
        }
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        // The resource is the name of the metric.
        [metric] if group == EXTERNAL_METRICS => ("externalmetrics", Some(*metric), None),
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
        [plural, name, "proxy", ..] => (*plural, Some(*name), Some("proxy")),
        [plural, name, subresource, ..] => (*plural, Some(*name), Some(*subresource)),
        _ => return Err(Status::no_resource()),
    };
    let Some(resource) = registry.by_path(group, version, plural) else {
        return Err(Status::no_resource());
    };
    // The apiextensions server ignores path segments after the subresource.
    if rest.len() > 3 && !resource.is_custom() && subresource != Some("proxy") {
        return Err(Status::no_resource());
    }
    let misplaced =
        if resource.namespaced { namespace.is_none() && name.is_some() } else { namespace.is_some() };
    if misplaced {
        return Err(Status::no_resource());
    }
    if let Some(subresource) = subresource {
        if resource.unimplemented.contains(&subresource) {
            return Err(Status::not_implemented(&format!("{plural}/{subresource}")));
        }
        if !(subresource == "status" && resource.has_status()) && resource.subresource(subresource).is_none()
        {
            let name = name.filter(|_| resource.is_custom());
            return Err(name.map_or_else(Status::no_resource, |name| Status::not_found(resource, name)));
        }
    }
    Ok(Route::Resource(Target {
        resource,
        namespace,
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
    }))
}

fn percent_decode(path: &str) -> Option<String> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let hex = |b: u8| char::from(b).to_digit(16);
            let (high, low) = (hex(bytes.next()?)?, hex(bytes.next()?)?);
            plain.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            plain.push(byte);
        }
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(method: Method, target: &str) -> Result<(Verb, Target), u16> {
        let request = Request::new(method, target, "");
        match route(&Registry::default(), &request.path).map_err(|s| s.reason.code())? {
            Some(Route::Resource(target)) => match Call::new(target, &request, User::admin()) {
                Ok(call) => Ok((call.verb, call.target)),
                Err(status) => Err(status.reason.code()),
            },
            _ => Err(404),
        }
    }

    #[test]
    fn paths_and_methods_name_verbs() {
        let get = Method::GET;
        for (method, path, verb) in [
            (get.clone(), "/api/v1/namespaces", Verb::List),
            (get.clone(), "/api/v1/namespaces/a", Verb::Get),
            (get.clone(), "/api/v1/namespaces/a/status", Verb::Get),
            (Method::PUT, "/api/v1/namespaces/a/finalize", Verb::Update),
            (get.clone(), "/api/v1/namespaces/a/pods?watch=true", Verb::Watch),
            (get.clone(), "/api/v1/pods?watch=0", Verb::List),
            (Method::POST, "/api/v1/namespaces/a/serviceaccounts/b/token", Verb::Create),
            (Method::DELETE, "/apis/apps/v1/namespaces/a/deployments", Verb::DeleteCollection),
            (Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/b/status", Verb::Patch),
        ] {
            assert_eq!(parsed(method, path).unwrap().0, verb, "{path}");
        }
        let (_, target) =
            parsed(get, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode").unwrap();
        assert_eq!(target.name(), "system:node");
        // Decoded before it is split, as Go's server does; a plus sign is no space in a path.
        let (_, target) =
            parsed(Method::GET, "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%23b%3F%20%C3%BC+")
                .unwrap();
        assert_eq!(target.name(), "a#b? \u{fc}+");
        let (_, target) = parsed(Method::GET, "/api/v1/namespaces/a%2Fpods/b").unwrap();
        assert_eq!((target.resource.plural, target.name()), ("pods", "b"));
    }

    #[test]
    fn unserved_paths_are_rejected() {
        for (method, path, code) in [
            (Method::GET, "/api/v2/pods", 404),
            (Method::GET, "/api/v1/widgets", 404),
            (Method::GET, "/api/v1/pods/a", 404),
            (Method::GET, "/api/v1/namespaces/a/nodes", 404),
            (Method::GET, "/api/v1/namespaces/a/configmaps/b/status", 404),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log", 501),
            (Method::GET, "/api/v1/watch/pods", 501),
            (Method::GET, "/apis/authorization.k8s.io/v1/subjectaccessreviews", 405),
            (Method::POST, "/api/v1/pods", 405),
            (Method::PUT, "/api/v1/namespaces/a/pods", 405),
            (Method::DELETE, "/api/v1/namespaces", 405),
            (Method::GET, "/api/v1/namespaces/a/serviceaccounts/b/token", 405),
            (Method::GET, "/api/v1/nodes/%zz", 400),
            (Method::GET, "/api/v1/nodes/%ff", 400),
        ] {
            assert_eq!(parsed(method, path).unwrap_err(), code, "{path}");
        }
    }
}
