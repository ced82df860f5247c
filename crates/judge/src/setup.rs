//! Sets up the two servers of a run in the same way.

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
use crate::sequence::ConcreteRequest;
use crate::server::Server;
use crate::trial::Servers;
use crate::users;

/// Ours starts at a resourceVersion with many digits, so that no other number in a response is taken for
/// one.
const FIRST_RESOURCE_VERSION: u64 = 10_000_000;
/// The real one is advanced to four digits for the same reason.
const FIRST_REAL_RESOURCE_VERSION: u64 = 1_000;
/// How long the real server may take to serve a new kind.
const DEFINITION_TIMEOUT: Duration = Duration::from_secs(30);

/// The servers, and the control plane that must outlive them.
pub struct TestServers {
    /// The servers.
    pub servers: Servers,
    _plane: Option<ControlPlane>,
}

impl TestServers {
    /// Starts both servers; the real one only if no kubeconfig is given.
    ///
    /// # Errors
    /// If the real one does not start or cannot be reached.
    pub async fn start(kubeconfig: Option<&Path>) -> anyhow::Result<TestServers> {
        let plane = match kubeconfig {
            Some(_) => None,
            None => Some(tokio::task::spawn_blocking(|| ControlPlane::builder().start()).await??),
        };
        let admin = plane.as_ref().map(|plane| plane.kubeconfig(Account::Admin));
        let path = admin.as_deref().or(kubeconfig).context("a kubeconfig or a control plane")?;
        let real = Server::new(Connection::open(Some(path), None, None)?.with_credentials());
        let servers = Servers { real, ours: embedded_side() };
        advance_resource_version(&servers.real).await?;
        for definition in definitions() {
            define(&servers, &definition).await?;
        }
        grant(&servers).await?;
        create_device_class(&servers).await?;
        Ok(TestServers { servers, _plane: plane })
    }
}

fn embedded_side() -> Server {
    Server::new(Connection::from_service(embedded()).with_credentials())
}

fn embedded() -> ApiServer {
    let placeholder = ObjectIdentity {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "default".to_owned(),
        name: "none".to_owned(),
    };
    let begin = JournalEntry::Removed { revision: FIRST_RESOURCE_VERSION, object: placeholder };
    let builder = ApiServer::builder().bootstrap(true).rbac(true).service_accounts(true).request_log_limit(0);
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

/// A kind with a strict schema.
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

/// A kind that accepts any fields.
fn gadgets() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
}

fn request(method: Method, target: &str, body: Vec<u8>) -> ConcreteRequest {
    let content_type = if body.is_empty() { "" } else { JSON };
    ConcreteRequest { method, target: target.to_owned(), accept: JSON, content_type, body, user: "" }
}

/// Writes until resourceVersions have enough digits.
async fn advance_resource_version(side: &Server) -> anyhow::Result<()> {
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
        if version
            .and_then(|version| version.parse().ok())
            .is_some_and(|v: u64| v >= FIRST_REAL_RESOURCE_VERSION)
        {
            break;
        }
    }
    Ok(())
}

/// Defines a kind on both servers, and waits until they serve it.
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
        match tokio::time::timeout(DEFINITION_TIMEOUT, served).await {
            Ok(result) => result?,
            Err(_) => bail!("{plural} is not served {DEFINITION_TIMEOUT:?} after it was defined"),
        }
    }
    Ok(())
}

/// Creates the DeviceClass that quotas name.
async fn create_device_class(servers: &Servers) -> anyhow::Result<()> {
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "judge-fast"},
        "spec": {"extendedResourceName": "judge.example.com/device"}});
    let path = "/apis/resource.k8s.io/v1/deviceclasses";
    let create = request(Method::POST, path, class.to_string().into_bytes());
    for side in [&servers.real, &servers.ours] {
        let created = side.answer(&create).await?;
        ensure!(matches!(created.code, 201 | 409), "a DeviceClass cannot be created: {}", created.body);
    }
    Ok(())
}

/// Gives the users their permissions on both servers, and waits until these count.
async fn grant(servers: &Servers) -> anyhow::Result<()> {
    let path = "/apis/rbac.authorization.k8s.io/v1";
    let list = request(Method::GET, "/apis/certificates.k8s.io/v1/certificatesigningrequests", Vec::new());
    for side in [&servers.real, &servers.ours] {
        for (role, binding) in users::roles_and_bindings() {
            for (plural, object) in [("clusterroles", &role), ("clusterrolebindings", &binding)] {
                let create =
                    request(Method::POST, &format!("{path}/{plural}"), object.to_string().into_bytes());
                let created = side.answer(&create).await?;
                ensure!(matches!(created.code, 201 | 409), "{plural}: {}", created.body);
            }
        }
        for user in users::NAMES.into_iter().filter(|user| *user != "judge:stranger") {
            let list = ConcreteRequest { user, ..list.clone() };
            let allowed = async {
                while side.answer(&list).await?.code != 200 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                anyhow::Ok(())
            };
            let counts = tokio::time::timeout(DEFINITION_TIMEOUT, allowed).await;
            counts.with_context(|| format!("{user} has no permissions"))??;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::accepted::Accepted;
    use crate::generate::Generator;
    use crate::run::{RunOptions, run};
    use crate::sequence::{Answers, TrialContext};

    /// Differences between two instances of our server are random.
    #[tokio::test]
    async fn server_agrees_with_itself() {
        let servers = Servers { real: embedded_side(), ours: embedded_side() };
        for definition in definitions() {
            define(&servers, &definition).await.unwrap();
        }
        grant(&servers).await.unwrap();
        create_device_class(&servers).await.unwrap();
        let options =
            RunOptions { seed: 1, numbers: 0..80, only: Vec::new(), parallel: 8, run_id: "t".to_owned() };
        let report = run(&servers, &options, &Mutex::new(Accepted::read().unwrap())).await.unwrap();
        report.print_failures(options.seed, 3);
        assert_eq!((report.sequences, report.failures.len(), report.differed_once.len()), (80, 0, 0));
    }

    /// The sequences contain what they are to compare: refusals of users with few permissions, also beyond RBAC, and issued
    /// PodCertificateRequests.
    #[tokio::test]
    async fn users_are_refused_and_pod_certificates_are_issued() {
        let side = embedded_side();
        let servers = Servers { real: side.clone(), ours: embedded_side() };
        grant(&servers).await.unwrap();
        let generator = Generator::new(1, &["certificates.k8s.io".to_owned()]);
        let (mut issued, mut forbidden, mut by_signer) = (0, 0, 0);
        for number in 0..150 {
            let context = TrialContext::new(format!("n{number}"), 1);
            let mut answers = Answers::new();
            for step in generator.sequence(number).steps.iter().filter(|step| step.verb != "watch") {
                let answer = side.answer(&step.ask.concrete(&context, &answers)).await.unwrap();
                let message = answer.body["message"].as_str().unwrap_or_default();
                forbidden += usize::from(answer.code == 403);
                by_signer += usize::from(answer.code == 403 && message.contains("signer"));
                let conditions = answer.body.pointer("/status/conditions/0/type");
                issued += usize::from(
                    step.resource.ends_with("/status") && conditions.is_some_and(|kind| kind == "Issued"),
                );
                answers.insert(step.id, answer.body);
            }
        }
        assert!(issued > 0 && forbidden > 100 && by_signer > 0, "{issued}, {forbidden}, {by_signer}");
    }
}
