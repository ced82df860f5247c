//! The leader migration configuration file.

use serde::Deserialize;

use crate::go_text::quote;

/// The controllers that migrate between components, and the migration Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigration {
    /// The name of the migration Lease.
    pub leader_name: String,
    /// The kind of the lock: `leases`, or `endpoints`, which is no longer supported.
    pub resource_lock: String,
    /// The migrating controllers.
    pub controller_leaders: Vec<ControllerLeader>,
    /// Whether the file has a list; `/configz` distinguishes a missing list from an empty one.
    pub(crate) has_list: bool,
}

/// The component that runs a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerLeader {
    /// The name of the controller.
    pub name: String,
    /// The component, or `*` for any.
    pub component: String,
}

const GROUP: &str = "controllermanager.config.k8s.io";
const KIND: &str = "LeaderMigrationConfiguration";

impl LeaderMigration {
    /// The default without a file: the controllers that moved to cloud-controller-managers.
    pub(crate) fn without_file() -> Self {
        let leader = |name: &str| ControllerLeader { name: name.to_owned(), component: "*".to_owned() };
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            resource_lock: "leases".to_owned(),
            controller_leaders: ["route-controller", "service-controller", "cloud-node-lifecycle-controller"]
                .map(leader)
                .to_vec(),
            has_list: true,
        }
    }

    /// Parses the file, YAML or JSON.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut fields = read_fields(text)?;
        let version = take_kind(&mut fields, text)?;
        let lock_is_fixed = version == "v1";
        if lock_is_fixed && fields.contains_key("resourceLock") {
            return Err("strict decoding error: unknown field \"resourceLock\"".to_owned());
        }
        let file: File = serde_json::from_value(fields.into()).map_err(|error| decode_error(&error))?;
        let lock = if lock_is_fixed { "leases".to_owned() } else { file.resource_lock };
        let read = Self {
            leader_name: file.leader_name,
            resource_lock: lock,
            has_list: file.controller_leaders.is_some(),
            controller_leaders: file.controller_leaders.unwrap_or_default(),
        };
        let problems = read.problems();
        if problems.is_empty() {
            return Ok(read);
        }
        Err(format!("failed to parse leader migration configuration: [{}]", problems.join(" ")))
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.leader_name.is_empty() {
            problems.push(format!("leaderName: Required value: leaderName must be set for {KIND}"));
        }
        if !["leases", "endpoints"].contains(&self.resource_lock.as_str()) {
            let lock = quote(&self.resource_lock);
            problems.push(format!(
                "resourceLock: Invalid value: {lock}: resource Lock must be one of 'leases' or 'endpoints'"
            ));
        }
        for (place, leader) in self.controller_leaders.iter().enumerate() {
            for (field, value) in [("component", &leader.component), ("name", &leader.name)] {
                if value.is_empty() {
                    problems.push(format!("controllerLeaders[{place}].{field}: Required value"));
                }
            }
        }
        problems
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    leader_name: String,
    resource_lock: String,
    controller_leaders: Option<Vec<ControllerLeader>>,
}

type Fields = serde_json::Map<String, serde_json::Value>;

fn read_fields(text: &str) -> Result<Fields, String> {
    let value: serde_json::Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?
    } else if text.trim().is_empty() {
        serde_json::Value::Null
    } else {
        let unreadable = |error| format!("couldn't get version/kind; yaml parse error: {}", one_line(&error));
        serde_saphyr::from_str(text).map_err(unreadable)?
    };
    match value {
        serde_json::Value::Object(fields) => Ok(fields),
        _ => Err(missing_kind(text)),
    }
}

/// Removes `apiVersion` and `kind` from the fields and returns the version.
fn take_kind(fields: &mut Fields, text: &str) -> Result<String, String> {
    let mut take = |name: &str| match fields.remove(name) {
        Some(serde_json::Value::String(value)) if !value.is_empty() => Some(value),
        _ => None,
    };
    let (version, kind) = (take("apiVersion"), take("kind"));
    let kind = kind.ok_or_else(|| missing_kind(text))?;
    let version = version.unwrap_or_default();
    match version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')) {
        Some(found @ ("v1alpha1" | "v1beta1" | "v1")) if kind == KIND => Ok(found.to_owned()),
        _ => Err(format!("no kind {} is registered for version {} in scheme", quote(&kind), quote(&version))),
    }
}

fn missing_kind(text: &str) -> String {
    format!("Object 'Kind' is missing in '{}'", text.trim().escape_debug())
}

fn decode_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((field, _)) => format!("strict decoding error: unknown field {}", quote(field)),
        None => one_line(error),
    }
}

/// An error without line breaks, for one log line.
pub(crate) fn one_line(error: &impl ToString) -> String {
    let text = error.to_string();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
