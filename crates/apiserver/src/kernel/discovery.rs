//! Discovery documents from the resource table, unaggregated and aggregated.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::accept::aggregated_discovery;
use super::request::{Request, Route};
use super::resources::Resource;
use super::status::{ApiResult, Status};
use super::{Document, Kernel, openapi};

impl Kernel {
    /// Handles every path that is not a resource; `None` means 404.
    pub(crate) fn discover(&self, route: &Route, request: &Request) -> ApiResult<Option<Document>> {
        let core = matches!(route, Route::CoreVersions);
        let document = match route {
            Route::Health => health(request),
            Route::OpenApiV2 => openapi::openapi_v2(&request.accept),
            Route::OpenApiIndex => self.openapi_index(),
            Route::OpenApi(path) => return Ok(self.openapi(path)),
            Route::Version => Document::json(200, &version()),
            Route::CoreVersions | Route::Groups => match aggregated_discovery(&request.accept) {
                Some(version) => self.aggregated(version, core),
                None if core => Document::json(200, &core_versions()),
                None => Document::json(200, &self.group_list()),
            },
            Route::Group(name) => match self.group(name) {
                Some(group) => Document::json(200, &group),
                None => return Ok(None),
            },
            Route::GroupVersion(group, version) => {
                self.refuse_failing(group, version)?;
                if !self.registry.group_versions().contains(&(group, version)) {
                    return Err(Status::no_resource());
                }
                Document::json(200, &self.resource_list(group, version))
            }
            Route::Resource(_) => return Ok(None),
        };
        Ok(Some(document))
    }

    /// Clients ask for this often and it rarely changes: the part for built-in kinds is built once.
    fn aggregated(&self, version: &'static str, core: bool) -> Document {
        static BUILT_IN: [OnceLock<Document>; 4] = [const { OnceLock::new() }; 4];
        if !self.failing.is_empty() || self.registry.has_more_than_usual() {
            return self.build_document(version, core);
        }
        let place = usize::from(core) + 2 * usize::from(version == "v2beta1");
        BUILT_IN[place].get_or_init(|| self.build_document(version, core)).clone()
    }

    fn build_document(&self, version: &'static str, core: bool) -> Document {
        let mut groups: Vec<(&str, Vec<Value>)> = Vec::new();
        for (group, version) in self.registry.group_versions() {
            if group.is_empty() != core {
                continue;
            }
            let stale = self.failing.contains(&(group.to_owned(), version.to_owned()));
            let mut entry = json!({"version": version, "freshness": if stale { "Stale" } else { "Current" }});
            if !stale {
                entry["resources"] = self.of(group, version).map(aggregated_resource).collect();
            }
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, versions)) => versions.push(entry),
                None => groups.push((group, vec![entry])),
            }
        }
        let items: Vec<Value> = groups
            .into_iter()
            .map(|(group, versions)| {
                let mut metadata = json!({"creationTimestamp": null});
                if !group.is_empty() {
                    metadata["name"] = json!(group);
                }
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        let content_type = match version {
            "v2beta1" => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
            _ => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        };
        Document { content_type, ..Document::json(200, &list) }
    }

    fn of<'a>(
        &self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'static Resource> + use<'a, '_> {
        self.registry.all().filter(move |r| r.group == group && r.version == version)
    }

    fn group_list(&self) -> Value {
        let mut names: Vec<&str> = Vec::new();
        for (group, _) in self.registry.group_versions() {
            if !group.is_empty() && !names.contains(&group) {
                names.push(group);
            }
        }
        let groups: Vec<Value> = names.into_iter().filter_map(|name| self.group_entry(name)).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    fn group(&self, name: &str) -> Option<Value> {
        let mut entry = self.group_entry(name)?;
        entry["kind"] = json!("APIGroup");
        entry["apiVersion"] = json!("v1");
        Some(entry)
    }

    fn group_entry(&self, name: &str) -> Option<Value> {
        if name.is_empty() {
            return None;
        }
        let versions: Vec<Value> = self
            .registry
            .group_versions()
            .into_iter()
            .filter(|(group, _)| *group == name)
            .map(|(group, version)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
            .collect();
        let preferred = versions.first()?.clone();
        Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
    }

    fn resource_list(&self, group: &str, version: &str) -> Value {
        let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resources: Vec<Value> = self.of(group, version).flat_map(plain_resources).collect();
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    }
}

/// The health page. There is one process, so there is little that could fail on its own.
fn health(request: &Request) -> Document {
    let is_verbose = form_urlencoded::parse(request.query.as_bytes()).any(|(name, _)| name == "verbose");
    let page = request.path.trim_start_matches('/');
    match (is_verbose, page) {
        (true, "healthz") => Document::text(200, "[+]ping ok\n[+]storage ok\nhealthz check passed\n"),
        (true, "livez") => Document::text(200, "[+]ping ok\n[+]storage ok\nlivez check passed\n"),
        (true, "readyz") => Document::text(200, "[+]ping ok\n[+]storage ok\nreadyz check passed\n"),
        _ => Document::text(200, "ok"),
    }
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": "v1.37.1+keleustes",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "embedded/any",
    })
}

fn core_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    })
}

fn plain_resources(resource: &'static Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let mut all = vec![main];
    for (name, (group, version, kind), verbs) in subresources(resource) {
        let mut entry = json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": verbs,
        });
        if kind != resource.kind {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        all.push(entry);
    }
    all
}

type Exchanged = (&'static str, &'static str, &'static str);

fn subresources(resource: &'static Resource) -> Vec<(&'static str, Exchanged, &'static [&'static str])> {
    let mut all: Vec<_> =
        resource.subresources.iter().map(|s| (s.name, s.group_version_kind, s.verbs)).collect();
    if resource.has_status() {
        let group_version_kind = (resource.group, resource.version, resource.kind);
        all.push(("status", group_version_kind, &["get", "patch", "update"]));
    }
    all
}

fn aggregated_resource(resource: &'static Resource) -> Value {
    let kind = |(group, version, kind): Exchanged| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind((resource.group, resource.version, resource.kind)),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let below: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|(name, group_version_kind, verbs)| json!({"subresource": name, "responseKind": kind(group_version_kind), "verbs": verbs}))
        .collect();
    if !below.is_empty() {
        entry["subresources"] = json!(below);
    }
    entry
}
