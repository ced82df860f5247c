//! Permissions under the roles that the API server bootstraps, and when one of them is changed.

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use keleustes_apiserver::{ApiServer, User};
use keleustes_client::Connection;
use keleustes_controllers::ControllersOptions;
use kube::client::Body;
use tower::ServiceExt as _;

use super::super::report::OutputFormat;
use super::*;
use crate::{command, process_context};

/// An API server with bootstrapped roles, on which these service accounts exist.
fn server(accounts: &[&str]) -> ApiServer {
    let manager = User::new("system:kube-controller-manager", &["system:authenticated"]);
    let server = ApiServer::builder().rbac(true).token("manager", manager).build();
    for account in accounts {
        let metadata = json!({"name": account, "namespace": NAMESPACE});
        server.seed(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).unwrap();
    }
    server
}

/// The result of the check with these flags.
async fn checked(server: &ApiServer, flags: &[&str]) -> Report {
    let options = command::read(flags.iter().map(Into::into)).unwrap();
    let server = server.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        // Requests of controllers carry the token of their service account.
        let own = HeaderValue::from_static("Bearer manager");
        request.headers_mut().entry(AUTHORIZATION).or_insert(own);
        server.clone().oneshot(request)
    });
    let factory =
        ClientFactory::new(Connection::from_service(service), process_context::client_options(&options));
    let selection = ControllerSelection::choose(&options, &ControllersOptions::default()).unwrap();
    let mut report = Report::default();
    check(&factory, &options, &selection, &mut report).await;
    report
}

#[tokio::test]
async fn bootstrapped_roles_suffice_for_every_controller() {
    let options =
        command::read(["--controllers=*,bootstrapsigner,tokencleaner"].iter().map(Into::into)).unwrap();
    let selection = ControllerSelection::choose(&options, &ControllersOptions::default()).unwrap();
    let accounts: Vec<_> =
        selection.members.iter().filter_map(|controller| controller.service_account).collect();
    let server = server(&accounts);
    let flags = ["--use-service-account-credentials", "--controllers=*,bootstrapsigner,tokencleaner"];
    let report = checked(&server, &flags).await;
    assert!(!report.has_failed(), "{}", report.text(OutputFormat::Text));
    let asked_as = |account: &str| {
        let text = report.text(OutputFormat::Text);
        text.lines()
            .any(|line| line.contains(&format!("({NAMESPACE}/{account}): ")) && line.contains("permissions"))
    };
    assert!(asked_as("deployment-controller") && asked_as("job-controller"));
}

#[tokio::test]
async fn missing_permission_is_named_with_the_role_that_should_grant_it() {
    let server = server(&["deployment-controller", "job-controller"]);
    let name = "system:controller:deployment-controller";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": []});
    server.seed(role).unwrap();
    let flags = ["--use-service-account-credentials", "--controllers=deployment,job"];
    let report = checked(&server, &flags).await;
    let text = report.text(OutputFormat::Text);
    let line = text.lines().find(|line| line.contains("FAILED")).unwrap();
    assert!(line.contains("deployment-controller (kube-system/deployment-controller)"), "{text}");
    assert!(line.contains("update deployments.apps/status"), "{text}");
    assert!(text.contains(name), "{text}");
    assert_eq!(text.matches("FAILED").count(), 1, "{text}");
}

#[tokio::test]
async fn missing_service_account_is_not_created() {
    let server = server(&[]);
    let flags = ["--use-service-account-credentials", "--controllers=deployment"];
    let report = checked(&server, &flags).await;
    assert!(!report.has_failed(), "{}", report.text(OutputFormat::Text));
    assert!(report.text(OutputFormat::Text).contains("not created yet: "));
    assert!(server.object("serviceaccounts", NAMESPACE, "deployment-controller").is_none());
}
