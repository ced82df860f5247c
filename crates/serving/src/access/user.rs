//! The user of a request, as SubjectAccessReviews need it.

use std::collections::BTreeMap;

pub(super) const ANONYMOUS: &str = "system:anonymous";
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(super) const AUTHENTICATED: &str = "system:authenticated";
/// The group that is always authorized, without a review.
pub(super) const MASTERS: &str = "system:masters";

/// An authenticated or anonymous user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// Distinguishes successive users with the same name; may be empty.
    pub uid: String,
    /// The groups, in the given order.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub(crate) fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Whether the user is anonymous or unauthenticated.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }

    /// Adds the group `system:authenticated`.
    pub(super) fn authenticated(mut self) -> Self {
        let known = self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        // Parity: staging/src/k8s.io/apiserver/pkg/authentication/group: an authenticator that returns the
        // anonymous user does not make it authenticated.
        if !known && self.name != ANONYMOUS {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The user's category in metrics, which never contain real names.
    pub(super) fn category(&self) -> &str {
        match self.name.as_str() {
            "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => {
                &self.name
            }
            name if name.contains('@') => "email_id",
            _ => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves SRV-61.
    #[test]
    fn authenticated_users_get_the_authenticated_group() {
        let anonymous = User::anonymous();
        assert_eq!(anonymous.name, "system:anonymous");
        assert_eq!(anonymous.groups, ["system:unauthenticated"]);
        assert_eq!(anonymous.clone().authenticated(), anonymous);
        let jane = User { name: "jane".to_owned(), groups: vec!["rowers".to_owned()], ..User::default() };
        assert!(!jane.is_anonymous() && anonymous.is_anonymous());
        let jane = jane.authenticated();
        assert_eq!(jane.groups, ["rowers", "system:authenticated"]);
        assert_eq!(jane.clone().authenticated(), jane, "the group is added once");
    }

    #[test]
    fn metrics_use_categories_and_not_names() {
        for (name, category) in [("admin", "admin"), ("a@b.io", "email_id"), ("jane", "other")] {
            assert_eq!(User { name: name.to_owned(), ..User::default() }.category(), category);
        }
    }
}
