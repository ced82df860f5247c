//! Authentication: users come with the request, from a token this server issued, or from an external verifier.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Kernel;
use super::metadata::{is_terminating, meta, meta_str};
use super::request::Request;
use super::resources;
use super::status::{ApiResult, Status, StatusReason};
use super::stored_object::StoredObject;
use super::token::AUDIENCE_DEFAULT;

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of all unauthenticated users.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group that is allowed everything.
pub const MASTERS: &str = "system:masters";

/// An authenticated or anonymous user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// UID, or empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user in these groups and in system:authenticated.
    pub fn new(name: &str, groups: &[&str]) -> User {
        let mut groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        groups.push(AUTHENTICATED.to_owned());
        User { name: name.to_owned(), groups, ..User::default() }
    }

    /// The administrator, in system:masters.
    pub fn admin() -> User {
        User::new("kubernetes-admin", &[MASTERS])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> User {
        let group = format!("system:serviceaccounts:{namespace}");
        User::new(&format!("system:serviceaccount:{namespace}:{name}"), &["system:serviceaccounts", &group])
    }

    /// The anonymous user.
    pub fn anonymous() -> User {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        User { name: "system:anonymous".to_owned(), groups, ..User::default() }
    }

    /// The user as a UserInfo object.
    pub(crate) fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// Authenticates tokens that this server did not issue.
#[derive(Clone)]
pub struct TokenVerifier(Arc<Verify>);

type Verify = dyn Fn(&str, Timestamp) -> Option<User> + Send + Sync;

impl TokenVerifier {
    /// A verifier that calls `verify` with the token and the current time.
    pub fn new(verify: impl Fn(&str, Timestamp) -> Option<User> + Send + Sync + 'static) -> TokenVerifier {
        TokenVerifier(Arc::new(verify))
    }
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenVerifier")
    }
}

/// The user of a token, and for which of the wanted audiences it is valid.
#[derive(Debug, Clone)]
pub(crate) struct Authenticated {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
}

/// A token this server issued.
#[derive(Debug, Clone)]
pub(crate) struct IssuedToken {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) uid: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
}

impl Kernel {
    /// The user of a request. Without RBAC, unauthenticated users are the administrator.
    pub(crate) fn authenticate(&self, request: &Request, now: Timestamp) -> ApiResult<User> {
        if let Some(user) = &request.user {
            return self.impersonate(user.clone(), request);
        }
        let token = request.authorization.strip_prefix("Bearer ").unwrap_or_default().trim();
        if token.is_empty() {
            let user = if self.options.rbac { User::anonymous() } else { User::admin() };
            return self.impersonate(user, request);
        }
        match self.user_of_token(token, &[AUDIENCE_DEFAULT.to_owned()], now) {
            Some(authenticated) => self.impersonate(authenticated.user, request),
            None if self.options.rbac => Err(Status::new(StatusReason::Unauthorized, "Unauthorized")),
            None => Ok(User::admin()),
        }
    }

    /// The user of a token, if it is valid for one of these audiences.
    pub(crate) fn user_of_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Option<Authenticated> {
        if let Some(issued) = self.tokens.get(token).filter(|issued| issued.expires > now) {
            let own = issued.audiences.iter().filter(|own| audiences.contains(own));
            let fitting: Vec<String> = own.cloned().collect();
            let user = self.existing_account(&issued.namespace, &issued.account, &issued.uid);
            return user
                .filter(|_| !fitting.is_empty())
                .map(|user| Authenticated { user, audiences: fitting });
        }
        if let Some(authenticated) = self.user_of_signed_token(token, audiences, now) {
            return Some(authenticated);
        }
        // Tokens without audiences are for this server.
        let user = self.user_of_other_token(token, now)?;
        let own = AUDIENCE_DEFAULT.to_owned();
        audiences.contains(&own).then(|| Authenticated { user, audiences: vec![own] })
    }

    fn user_of_other_token(&self, token: &str, now: Timestamp) -> Option<User> {
        if let Some((_, user)) = self.options.tokens.iter().find(|(known, _)| known == token) {
            return Some(user.clone());
        }
        let external = || self.options.verifier.as_ref().and_then(|verifier| (verifier.0)(token, now));
        self.user_of_secret(token).or_else(external)
    }

    fn existing_account(&self, namespace: &str, name: &str, uid: &str) -> Option<User> {
        let accounts = resources::by_path("", "v1", "serviceaccounts")?;
        let account = self.store.get(accounts, namespace, name)?;
        if meta_str(&account, "uid") != uid || is_terminating(&account) {
            return None;
        }
        Some(User { uid: uid.to_owned(), ..User::service_account(namespace, name) })
    }

    /// A token of a service account token Secret is valid while the service account exists.
    fn user_of_secret(&self, token: &str) -> Option<User> {
        let secrets = resources::by_path("", "v1", "secrets")?;
        let encoded = STANDARD.encode(token);
        let holds = |secret: &StoredObject| {
            secret.field(secrets, "type") == Some("kubernetes.io/service-account-token")
                && secret.text().contains(&encoded)
                && secret.value()["data"]["token"] == encoded.as_str()
        };
        let found = self.store.list(secrets, None).into_iter().find(|(_, secret)| holds(secret))?.1.value();
        let annotation = |name: &str| meta(&found, "annotations")?.get(name)?.as_str();
        let account = annotation("kubernetes.io/service-account.name")?;
        let uid = annotation("kubernetes.io/service-account.uid")?;
        self.existing_account(meta_str(&found, "namespace"), account, uid)
    }

    /// The user to impersonate, if `user` is allowed to.
    fn impersonate(&self, user: User, request: &Request) -> ApiResult<User> {
        let Some(wanted) = &request.impersonate else {
            return Ok(user);
        };
        let users = [("users", std::slice::from_ref(&wanted.name)), ("groups", wanted.groups.as_slice())];
        for (resource, names) in users {
            for name in names {
                if self.options.rbac && !self.may_impersonate(&user, resource, name) {
                    let message = format!(
                        "{resource} {name:?} is forbidden: User {:?} cannot impersonate resource {resource:?} in API \
                         group \"\" at the cluster scope",
                        user.name
                    );
                    return Err(Status::new(StatusReason::Forbidden, message));
                }
            }
        }
        let mut groups = wanted.groups.clone();
        if let Some((namespace, _)) =
            wanted.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
            && groups.is_empty()
        {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Ok(User { groups, ..wanted.clone() })
    }
}

/// Sets the requester's fields in the spec of a CertificateSigningRequest; clients cannot set them.
pub(crate) fn set_requester(spec: &mut Map<String, Value>, user: &User) {
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), json!(user.name));
    spec.insert("groups".to_owned(), json!(user.groups));
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}
