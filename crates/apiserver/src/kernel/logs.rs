//! `pods/log`, with a text that the embedder supplies: no container runs here.

use serde_json::Value;

use super::request::{Call, Target};
use super::status::{ApiResult, Status};
use super::{Document, Kernel};

impl Kernel {
    /// The pod of a path that ends with `/log`.
    pub(super) fn log_target(&self, path: &str) -> Option<Target> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let ["api", "v1", "namespaces", namespace, "pods", name, "log"] = parts[..] else { return None };
        Some(Target {
            resource: self.registry.by_name("pods")?,
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            subresource: Some("log".to_owned()),
        })
    }

    /// The log of the container that the query names, or of the only one.
    pub(super) fn log(&self, call: &Call<'_>, log: fn(&Value, &str) -> String) -> ApiResult<Document> {
        let target = &call.target;
        let pod = self.store.get(target.resource, target.namespace(), target.name());
        let pod = pod.ok_or_else(|| Status::not_found(target.resource, target.name()))?;
        let query = form_urlencoded::parse(call.request.query.as_bytes());
        let wanted =
            query.filter(|(name, _)| name == "container").last().map(|(_, value)| value.into_owned());
        let names: Vec<&str> = ["initContainers", "containers"]
            .iter()
            .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
            .filter_map(|container| container["name"].as_str())
            .collect();
        let only = pod["spec"]["containers"].as_array().filter(|all| all.len() == 1);
        let container = match wanted.filter(|wanted| !wanted.is_empty()) {
            Some(wanted) if names.contains(&wanted.as_str()) => wanted,
            Some(wanted) => {
                let message = format!("container {wanted} is not valid for pod {}", target.name());
                return Err(Status::bad_request(message));
            }
            None => match only.and_then(|all| all[0]["name"].as_str()) {
                Some(name) => name.to_owned(),
                None => {
                    let (pod, names) = (target.name(), names.join(" "));
                    let message =
                        format!("a container name must be specified for pod {pod}, choose one of: [{names}]");
                    return Err(Status::bad_request(message));
                }
            },
        };
        Ok(Document::new(200, "text/plain", log(&pod, &container).into()))
    }
}
