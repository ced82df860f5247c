//! Checks every permission that the manager and the enabled controllers need, as the user that will need it.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use http::Method;
use keleustes_client::{Call, ClientFactory};
use keleustes_objects::{ApiError, ErrorReason, Key, Resource};
use keleustes_options::Options;
use keleustes_plan::Controller;
use kube::Client;
use serde_json::{Value, json};

use super::report::{Category, Check, Report};
use crate::controller_selection::ControllerSelection;

static SERVICE_ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");

const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";
/// Roles of a few controllers are bound in a namespace only, or allow only one object.
const NARROW_SCOPES: [(&str, &str); 3] = [
    ("kube-system", ""),
    ("kube-public", "cluster-info"),
    ("kube-system", "kube-apiserver-legacy-service-account-token-tracking"),
];
const REVIEWS_IN_FLIGHT: usize = 16;

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Access {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    /// Empty for all namespaces.
    namespace: String,
    name: String,
}

impl Access {
    fn new(verb: &str, group: &str, resource: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: String::new(),
            name: String::new(),
        }
    }

    fn within(self, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..self }
    }

    fn attributes(&self) -> Value {
        json!({
            "verb": self.verb, "group": self.group, "resource": self.resource,
            "subresource": self.subresource, "namespace": self.namespace, "name": self.name,
        })
    }
}

/// Whose permissions are reviewed, and who asks.
enum Subject<'a> {
    /// The user of this client.
    Itself(Client),
    /// A service account that does not exist yet; the manager asks.
    Account(Client, &'a str),
}

impl Subject<'_> {
    async fn is_allowed(&self, access: &Access) -> Result<bool, ApiError> {
        let (client, path, mut review) = match self {
            Self::Itself(client) => {
                (client, SELF_REVIEWS, json!({"kind": "SelfSubjectAccessReview", "spec": {}}))
            }
            Self::Account(client, account) => {
                let groups =
                    ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
                let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
                let spec = json!({"user": user, "groups": groups});
                (client, REVIEWS, json!({"kind": "SubjectAccessReview", "spec": spec}))
            }
        };
        review["apiVersion"] = "authorization.k8s.io/v1".into();
        review["spec"]["resourceAttributes"] = access.attributes();
        let review = Call::raw(Method::POST, path).with_body(&review).send(client).await?;
        Ok(review["status"]["allowed"].as_bool().unwrap_or(false))
    }

    /// Whether a permission is granted in all namespaces, or as narrowly as some roles are.
    async fn is_allowed_somewhere(&self, access: &Access) -> Result<bool, ApiError> {
        if self.is_allowed(access).await? {
            return Ok(true);
        }
        if access.namespace.is_empty() {
            for (namespace, name) in NARROW_SCOPES {
                if self.is_allowed(&access.clone().within(namespace, name)).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in {}", self.namespace) }
    }
}

pub(super) async fn check(
    factory: &ClientFactory,
    options: &Options,
    selection: &ControllerSelection,
    report: &mut Report,
) {
    let root = factory.root("check");
    let own = needs_of_the_manager(options, &selection.members);
    report.add(
        judged("this manager", &Subject::Itself(root.clone()), own, "system:kube-controller-manager").await,
    );
    for controller in &selection.members {
        let account = controller.service_account.filter(|_| options.cloud.use_service_account_credentials);
        let needs: Vec<_> = controller
            .grants
            .iter()
            .flat_map(|grant| grant.verbs.iter().map(|verb| Access::new(verb, grant.group, grant.resource)))
            .collect();
        let Some(account) = account else {
            let role = format!("system:controller:{}", controller.service_account.unwrap_or("…"));
            report.add(judged(controller.name, &Subject::Itself(root.clone()), needs, &role).await);
            continue;
        };
        let name = format!("{} ({NAMESPACE}/{account})", controller.name);
        // A token request would create a missing account, and this command writes nothing.
        let key = Key::namespaced(NAMESPACE, account);
        let role = format!("system:controller:{account}");
        match Call::get(&SERVICE_ACCOUNTS, &key).send(&root).await {
            Ok(_) => {
                let subject = Subject::Itself(factory.for_controller(account));
                report.add(judged(&name, &subject, needs, &role).await);
            }
            Err(error) if error.reason == ErrorReason::NotFound => {
                let (subject, name) =
                    (Subject::Account(root.clone(), account), format!("{name}, not created yet"));
                report.add(judged(&name, &subject, needs, &role).await);
            }
            Err(error) => {
                let check = Check::new(Category::Permissions, name).failed(error.to_string());
                report.add(check.advise("the manager must be allowed to get and create service accounts"));
            }
        }
    }
}

/// What the manager does with its own credentials: leader election, events, tokens of controllers, and all caches.
fn needs_of_the_manager(options: &Options, members: &[Controller]) -> Vec<Access> {
    let mut needs = BTreeSet::new();
    if options.leader_election.leader_elect {
        let flags = &options.leader_election;
        for verb in ["get", "update"] {
            let lease = Access::new(verb, "coordination.k8s.io", "leases");
            needs.insert(lease.within(&flags.resource_namespace, &flags.resource_name));
        }
        let create = Access::new("create", "coordination.k8s.io", "leases");
        needs.insert(create.within(&flags.resource_namespace, ""));
    }
    needs.insert(Access::new("create", "", "events").within(NAMESPACE, ""));
    if options.cloud.use_service_account_credentials {
        needs.insert(Access::new("create", "", "serviceaccounts").within(NAMESPACE, ""));
        needs.insert(Access::new("create", "", "serviceaccounts/token").within(NAMESPACE, ""));
    }
    for entry in members.iter().flat_map(|controller| &controller.loops).flat_map(|one| &one.reads) {
        let (resource, projection) = (entry.resource(), entry.projection());
        for verb in ["list", "watch"] {
            let cached = Access::new(verb, &resource.group, &resource.plural);
            needs.insert(cached.within(projection.namespace, ""));
        }
    }
    if options.serving.is_enabled() {
        needs.insert(Access::new("create", "authentication.k8s.io", "tokenreviews"));
        needs.insert(Access::new("create", "authorization.k8s.io", "subjectaccessreviews"));
    }
    needs.into_iter().collect()
}

/// Asks for all permissions of one user.
async fn judged(name: &str, subject: &Subject<'_>, needs: Vec<Access>, role: &str) -> Check {
    let check = Check::new(Category::Permissions, name);
    let count = needs.len();
    let answers: Vec<_> = futures::stream::iter(needs)
        .map(|access| async move {
            let is_allowed = subject.is_allowed_somewhere(&access).await;
            (access, is_allowed)
        })
        .buffered(REVIEWS_IN_FLIGHT)
        .collect()
        .await;
    if let Some(error) = answers.iter().find_map(|(_, answer)| answer.as_ref().err()) {
        return check
            .failed(format!("cannot be reviewed: {error}"))
            .advise("every authenticated user may create SelfSubjectAccessReviews (role system:basic-user)");
    }
    let denied: Vec<_> = answers
        .iter()
        .filter(|(_, answer)| matches!(answer, Ok(false)))
        .map(|(access, _)| access.to_string())
        .collect();
    match denied.len() {
        0 => check.ok(format!("{count} permissions")),
        missing => check
            .failed(format!("{missing} of {count} permissions are missing: {}", denied.join(", ")))
            .advise(format!("the API server bootstraps the role {role}; is it bound, and unchanged?")),
    }
}

#[cfg(test)]
mod tests;
