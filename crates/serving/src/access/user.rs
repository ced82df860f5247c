//! Who asks, as far as the API server needs to know to say what they may.

use std::collections::BTreeMap;

pub(super) const ANONYMOUS: &str = "system:anonymous";
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(super) const AUTHENTICATED: &str = "system:authenticated";
/// The group that may do anything, without anybody being asked.
pub(super) const MASTERS: &str = "system:masters";

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, unique in the cluster.
    pub name: String,
    /// Tells apart users that had one name one after the other; may be empty.
    pub uid: String,
    /// The groups, in the order they were told.
    pub groups: Vec<String>,
    /// What else was said about them.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who shows nothing.
    pub(crate) fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Whether it is nobody in particular.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }

    /// With the group of all who showed who they are.
    pub(super) fn authenticated(mut self) -> Self {
        let known = self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        // Parity: staging/src/k8s.io/apiserver/pkg/authentication/group: one that claims to be nobody
        // does not become somebody.
        if !known && self.name != ANONYMOUS {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// What the metrics call them: no real name leaves this process by that way.
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
    fn those_who_show_who_they_are_get_a_group() {
        let anonymous = User::anonymous();
        assert_eq!(anonymous.name, "system:anonymous");
        assert_eq!(anonymous.groups, ["system:unauthenticated"]);
        assert_eq!(anonymous.clone().authenticated(), anonymous);
        let jane = User { name: "jane".to_owned(), groups: vec!["rowers".to_owned()], ..User::default() };
        assert!(!jane.is_anonymous() && anonymous.is_anonymous());
        let jane = jane.authenticated();
        assert_eq!(jane.groups, ["rowers", "system:authenticated"]);
        assert_eq!(jane.clone().authenticated(), jane, "once is enough");
    }

    #[test]
    fn metrics_know_categories_not_names() {
        for (name, category) in [("admin", "admin"), ("a@b.io", "email_id"), ("jane", "other")] {
            assert_eq!(User { name: name.to_owned(), ..User::default() }.category(), category);
        }
    }
}
