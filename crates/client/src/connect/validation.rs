//! Validates a kubeconfig: conflicting or incomplete settings are refused at startup, because the client
//! would otherwise authenticate as another user than intended. Parity:
//! `client-go/tools/clientcmd/validation.go`.

use std::path::Path;

use kube::config::{AuthInfo, Cluster, ExecConfig, Kubeconfig};

/// The supported API versions of exec plugins.
const EXEC_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// The problem of the file as a whole.
pub(super) fn validate_file(kubeconfig: &Kubeconfig) -> Option<String> {
    let kind = kubeconfig.kind.as_deref().filter(|kind| !matches!(*kind, "" | "Config"));
    kind.map(|kind| format!("it is of kind {kind:?}, not Config"))
}

/// The problem of the cluster's TLS settings.
pub(super) fn validate_cluster(cluster: &Cluster) -> Option<&'static str> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let insecure = cluster.insecure_skip_tls_verify == Some(true);
    let certificates = is_set(&cluster.certificate_authority) || is_set(&cluster.certificate_authority_data);
    (insecure && certificates).then_some("it is given together with insecure-skip-tls-verify")
}

/// The problem of the user's credentials.
pub(super) fn validate_user(user: &AuthInfo) -> Option<String> {
    let password = user.username.is_some() || user.password.is_some();
    if password && (user.token.is_some() || user.token_file.is_some()) {
        return Some("there is a token and a password; only one of them can be used".to_owned());
    }
    if user.exec.is_some() && user.auth_provider.is_some() {
        return Some("there is an exec plugin and an auth-provider; only one of them can be used".to_owned());
    }
    if let Some(provider) = user.auth_provider.as_ref().filter(|provider| provider.name != "oidc") {
        let name = &provider.name;
        return Some(format!("there is no auth-provider {name:?}, only \"oidc\"; use an exec plugin"));
    }
    let impersonates = user.impersonate.as_ref().is_some_and(|name| !name.is_empty());
    let has_impersonation_details = user.impersonate_uid.is_some()
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
    if has_impersonation_details && !impersonates {
        return Some("as-uid, as-groups and as-user-extra say nothing without as".to_owned());
    }
    user.exec.as_ref().and_then(validate_exec).or_else(|| validate_token_file(user))
}

/// Applies the precedence of credentials: static ones (token, password, client certificate) before an auth
/// provider or exec plugin. Parity: `client-go/plugin/pkg/client/auth/exec` and `rest/transport.go`.
pub(super) fn apply_credential_precedence(user: &mut AuthInfo) {
    let header = user.token.is_some() || user.token_file.is_some() || user.username.is_some();
    let certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    if header {
        user.auth_provider = None;
    }
    if header || certificate {
        user.exec = None;
    }
}

fn validate_exec(exec: &ExecConfig) -> Option<String> {
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

/// A missing file is reported at its first use; an empty one would make every request anonymous.
fn validate_token_file(user: &AuthInfo) -> Option<String> {
    let file = user.token_file.as_ref().filter(|_| user.token.is_none())?;
    let empty = std::fs::read_to_string(Path::new(file)).is_ok_and(|token| token.trim().is_empty());
    empty.then(|| format!("token file {file} is empty"))
}
