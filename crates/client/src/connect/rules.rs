//! What a kubeconfig may not say at once, or may not leave unsaid: refused at start, because the user would
//! otherwise be somebody else than its author meant. Parity: `client-go/tools/clientcmd/validation.go`.

use std::path::Path;

use kube::config::{AuthInfo, Cluster, ExecConfig, Kubeconfig};

/// The versions of the protocol with credential plugins.
const EXEC_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// What is wrong with the file as a whole.
pub(super) fn problem_of_file(kubeconfig: &Kubeconfig) -> Option<String> {
    let kind = kubeconfig.kind.as_deref().filter(|kind| !matches!(*kind, "" | "Config"));
    kind.map(|kind| format!("it is of kind {kind:?}, not Config"))
}

/// What is wrong with how the server is known.
pub(super) fn problem_of_cluster(cluster: &Cluster) -> Option<&'static str> {
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let insecure = cluster.insecure_skip_tls_verify == Some(true);
    let certificates = given(&cluster.certificate_authority) || given(&cluster.certificate_authority_data);
    (insecure && certificates).then_some("it is given together with insecure-skip-tls-verify")
}

/// What is wrong with what the user shows.
pub(super) fn problem_of_user(user: &AuthInfo) -> Option<String> {
    let password = user.username.is_some() || user.password.is_some();
    if password && (user.token.is_some() || user.token_file.is_some()) {
        return Some("there is a token and a password; only one of them can be shown".to_owned());
    }
    if user.exec.is_some() && user.auth_provider.is_some() {
        return Some(
            "there is an exec plugin and an auth-provider; only one of them can be asked".to_owned(),
        );
    }
    if let Some(provider) = user.auth_provider.as_ref().filter(|provider| provider.name != "oidc") {
        let name = &provider.name;
        return Some(format!("there is no auth-provider {name:?}, only \"oidc\"; use an exec plugin"));
    }
    let acts_as_somebody = user.impersonate.as_ref().is_some_and(|name| !name.is_empty());
    let more = user.impersonate_uid.is_some()
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
    if more && !acts_as_somebody {
        return Some("as-uid, as-groups and as-user-extra say nothing without as".to_owned());
    }
    user.exec.as_ref().and_then(problem_of_plugin).or_else(|| problem_of_token_file(user))
}

/// Leaves whoever comes first of several that could say who we are: what the kubeconfig itself holds, and then
/// who must be asked for it. Parity: `client-go/plugin/pkg/client/auth/exec` and `rest/transport.go`.
pub(super) fn settle(user: &mut AuthInfo) {
    let header = user.token.is_some() || user.token_file.is_some() || user.username.is_some();
    let certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    if header {
        user.auth_provider = None;
    }
    if header || certificate {
        user.exec = None;
    }
}

fn problem_of_plugin(exec: &ExecConfig) -> Option<String> {
    if exec.command.as_ref().is_none_or(String::is_empty) {
        return Some("the exec plugin has no command".to_owned());
    }
    match exec.api_version.as_deref() {
        None | Some("") => return Some("the exec plugin has no apiVersion".to_owned()),
        Some(version) if !EXEC_VERSIONS.contains(&version) => {
            return Some(format!("the exec plugin has an unknown apiVersion {version:?}"));
        }
        Some(version) if version.ends_with("/v1") && exec.interactive_mode.is_none() => {
            return Some("the exec plugin has no interactiveMode".to_owned());
        }
        Some(_) => {}
    }
    None
}

/// A file that is not there is found when it is first used; an empty one would only make us nobody.
fn problem_of_token_file(user: &AuthInfo) -> Option<String> {
    let file = user.token_file.as_ref().filter(|_| user.token.is_none())?;
    let empty = std::fs::read_to_string(Path::new(file)).is_ok_and(|token| token.trim().is_empty());
    empty.then(|| format!("token file {file} is empty"))
}
