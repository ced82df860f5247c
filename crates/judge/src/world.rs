//! The two servers of a run, set up alike.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::Method;
use keleustes_apiserver::kernel::{JournalEntry, ObjectIdentity};
use keleustes_apiserver::{ApiServer, User};
use keleustes_client::Connection;
use keleustes_control_plane::{ControlPlane, User as Account};
use serde_json::{Value, json};

use crate::generate::JSON;
use crate::sequence::Concrete;
use crate::side::Side;
use crate::trial::Servers;

/// Ours begins at a version with many digits, so that no other number in an answer is taken for one.
const FIRST_VERSION: u64 = 10_000_000;
/// The real one is brought to a version with four digits for the same reason.
const FIRST_REAL_VERSION: u64 = 1_000;
/// How long the real server may take to serve a new kind.
const DEFINITION_PATIENCE: Duration = Duration::from_secs(30);

/// The servers, and what has to live as long as they do.
pub struct World {
    /// To be asked.
    pub servers: Servers,
    _plane: Option<ControlPlane>,
}

impl World {
    /// Starts both servers; the real one only if there is none running that the kubeconfig leads to.
    ///
    /// # Errors
    /// If the real one does not start or cannot be reached.
    pub async fn start(kubeconfig: Option<&Path>) -> anyhow::Result<World> {
        let plane = match kubeconfig {
            Some(_) => None,
            None => Some(tokio::task::spawn_blocking(|| ControlPlane::builder().start()).await??),
        };
        let admin = plane.as_ref().map(|plane| plane.kubeconfig(Account::Admin));
        let path = admin.as_deref().or(kubeconfig).context("a kubeconfig or a control plane")?;
        let real = Side::new(Connection::open(Some(path), None, None)?.with_credentials());
        let servers = Servers { real, ours: embedded_side() };
        advance(&servers.real).await?;
        for definition in definitions() {
            define(&servers, &definition).await?;
        }
        Ok(World { servers, _plane: plane })
    }
}

fn embedded_side() -> Side {
    Side::new(Connection::from_service(embedded()).with_credentials())
}

fn embedded() -> ApiServer {
    let nothing = ObjectIdentity {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "default".to_owned(),
        name: "none".to_owned(),
    };
    let begin = JournalEntry::Removed { revision: FIRST_VERSION, object: nothing };
    let builder = ApiServer::builder().bootstrap(true).service_accounts(true).request_log_limit(0);
    let (server, _) = builder.restore([begin]);
    let mut admin = User::admin();
    let credential = vec!["X509SHA256=0".to_owned()];
    admin.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), credential);
    server.acting_as(admin)
}

fn definitions() -> [Value; 2] {
    [definition("Widget", "Namespaced", &widgets()), definition("Gadget", "Cluster", &gadgets())]
}

fn definition(kind: &str, scope: &str, version: &Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.judge.example.com")},
        "spec": {
            "group": "judge.example.com", "scope": scope,
            "names": {"plural": plural, "singular": singular, "kind": kind, "shortNames": [&singular[..2]]},
            "versions": [version],
        },
    })
}

/// A kind with rules.
fn widgets() -> Value {
    let text = json!({"type": "string"});
    let count = json!({"type": "integer", "minimum": 0});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 100},
            "colour": {"type": "string", "enum": ["blue", "red"], "default": "blue"},
            "note": {"type": "string", "maxLength": 20},
            "replicas": count,
            "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": text, "weight": count}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"replicas": count, "phase": text, "selector": text}},
    }});
    json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
        "selectableFields": [{"jsonPath": ".spec.colour"}],
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}],
    })
}

/// A kind that takes anything.
fn gadgets() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
}

fn request(method: Method, target: &str, body: Vec<u8>) -> Concrete {
    let content_type = if body.is_empty() { "" } else { JSON };
    Concrete { method, target: target.to_owned(), accept: JSON, content_type, body }
}

/// Writes until versions have enough digits.
async fn advance(side: &Side) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/default/configmaps";
    for number in 0_u64.. {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "judge"}, "data": {"n": number.to_string()}});
        let body = body.to_string().into_bytes();
        let answer = match number {
            0 => side.answer(&request(Method::POST, path, body)).await?,
            _ => side.answer(&request(Method::PUT, &format!("{path}/judge"), body)).await?,
        };
        ensure!(matches!(answer.code, 200 | 201 | 409), "a ConfigMap cannot be written: {}", answer.body);
        let version = answer.body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if version.and_then(|version| version.parse().ok()).is_some_and(|v: u64| v >= FIRST_REAL_VERSION) {
            break;
        }
    }
    Ok(())
}

/// Makes both servers serve a kind, and waits until they do.
async fn define(servers: &Servers, definition: &Value) -> anyhow::Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let create = request(Method::POST, path, definition.to_string().into_bytes());
    let plural = definition.pointer("/spec/names/plural").and_then(Value::as_str).unwrap_or_default();
    let list = request(Method::GET, &format!("/apis/judge.example.com/v1/{plural}"), Vec::new());
    for side in [&servers.real, &servers.ours] {
        let created = side.answer(&create).await?;
        ensure!(matches!(created.code, 201 | 409), "{plural} cannot be defined: {}", created.body);
        let served = async {
            while side.answer(&list).await?.code != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(DEFINITION_PATIENCE, served).await {
            Ok(result) => result?,
            Err(_) => bail!("{plural} is not served {DEFINITION_PATIENCE:?} after it was defined"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::accepted::Accepted;
    use crate::run::{Plan, run};

    /// What differs between two servers of one make is chance.
    #[tokio::test]
    async fn a_server_agrees_with_its_like() {
        let servers = Servers { real: embedded_side(), ours: embedded_side() };
        for definition in definitions() {
            define(&servers, &definition).await.unwrap();
        }
        let plan = Plan { seed: 1, numbers: 0..80, only: Vec::new(), at_once: 8, mark: "t".to_owned() };
        let report = run(&servers, &plan, &Mutex::new(Accepted::read().unwrap())).await.unwrap();
        report.print_failures(plan.seed, 3);
        assert_eq!((report.sequences, report.failures.len(), report.once.len()), (80, 0, 0));
    }
}
