//! Which lock a controller runs under while controllers move from one program to another.

use keleustes_objects::Key;

use super::config::{InvalidElectionConfig, LeaderElectionConfig};
use super::locks::Lock;

/// The name of this program in a migration configuration.
const COMPONENT: &str = "kube-controller-manager";

/// The wildcard for any program in a migration configuration.
const ANY_COMPONENT: &str = "*";

/// The only controller that others need for their credentials, which therefore never moves.
const NEVER_MIGRATED: &str = "serviceaccount-token-controller";

/// A leader migration: these controllers run under their own lock, each in the program named for it.
///
/// With [`Locks`](super::Locks) the lock is acquired and held even if no controller of this program runs
/// under it: that keeps another program from running them meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The name of the lock, in the namespace of the main one.
    pub leader_name: String,
    /// The type of the lock; only `leases` is left.
    pub resource_lock: String,
    /// Controllers by canonical name, each with the program that runs it; of several entries for one
    /// controller the last counts.
    pub entries: Vec<(String, String)>,
}

impl Default for Migration {
    /// The default without a configuration file: the controllers that moved to the cloud controller managers.
    fn default() -> Self {
        let moved = ["route-controller", "service-controller", "cloud-node-lifecycle-controller"];
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            resource_lock: "leases".to_owned(),
            entries: moved.map(|name| (name.to_owned(), ANY_COMPONENT.to_owned())).to_vec(),
        }
    }
}

impl Migration {
    /// The lock that a controller runs under; `None` if another program runs it.
    #[must_use]
    pub fn lock_of(&self, controller: &str) -> Option<Lock> {
        let entry = self.entries.iter().rev().find(|(name, _)| name == controller);
        match entry {
            _ if controller == NEVER_MIGRATED => Some(Lock::Main),
            None => Some(Lock::Main),
            Some((_, component)) if component == COMPONENT || component == ANY_COMPONENT => {
                Some(Lock::Migration)
            }
            Some(_) => None,
        }
    }

    /// The configuration of the second lock: that of the first but for its name.
    ///
    /// It is never coordinated: the API server never chooses a holder for it, since a process publishes a
    /// LeaseCandidate for the main lock only. The original waits for that choice and so never runs migrated
    /// controllers in a coordinated election.
    ///
    /// # Errors
    /// If the configured lock type is not `leases`.
    pub fn settings(
        &self,
        main: &LeaderElectionConfig,
    ) -> Result<LeaderElectionConfig, InvalidElectionConfig> {
        match self.resource_lock.as_str() {
            "leases" => Ok(LeaderElectionConfig {
                lease: Key::namespaced(&*main.lease.namespace, self.leader_name.as_str()),
                coordinated: false,
                ..main.clone()
            }),
            "endpoints" => Err(InvalidElectionConfig::EndpointsLock),
            other => Err(InvalidElectionConfig::UnknownLock(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use keleustes_controllers::names::UPSTREAM_CONTROLLERS;

    use super::*;

    fn migration(entries: &[(&str, &str)]) -> Migration {
        let entries = entries.iter().map(|(name, component)| ((*name).to_owned(), (*component).to_owned()));
        Migration { entries: entries.collect(), ..Migration::default() }
    }

    /// Proves LE-51, LE-52: by default a lock is held under which nothing runs.
    #[test]
    fn cloud_provider_controllers_are_migrated_by_default() {
        let migration = Migration::default();
        assert_eq!(migration.leader_name, "cloud-provider-extraction-migration");
        assert_eq!(migration.resource_lock, "leases");
        for name in ["route-controller", "service-controller", "cloud-node-lifecycle-controller"] {
            assert_eq!(migration.lock_of(name), Some(Lock::Migration));
        }
        assert_eq!(migration.entries.len(), 3);
        for known in UPSTREAM_CONTROLLERS {
            assert_eq!(migration.lock_of(known.name), Some(Lock::Main), "{}", known.name);
        }
    }

    /// Proves LE-53.
    #[test]
    fn listed_controller_runs_in_the_named_program() {
        let migration = migration(&[
            ("job-controller", "kube-controller-manager"),
            ("cronjob-controller", "*"),
            ("node-ipam-controller", "cloud-controller-manager"),
            ("ttl-controller", "cloud-controller-manager"),
            ("ttl-controller", "kube-controller-manager"),
            ("deployment", "*"),
        ]);
        let rows = [
            ("job-controller", Some(Lock::Migration)),
            ("cronjob-controller", Some(Lock::Migration)),
            ("node-ipam-controller", None),
            ("ttl-controller", Some(Lock::Migration)),
            // Aliases are not recognized.
            ("deployment-controller", Some(Lock::Main)),
            ("namespace-controller", Some(Lock::Main)),
        ];
        for (controller, lock) in rows {
            assert_eq!(migration.lock_of(controller), lock, "{controller}");
        }
    }

    /// Proves LE-54.
    #[test]
    fn token_controller_is_never_migrated() {
        for component in ["*", "kube-controller-manager", "cloud-controller-manager"] {
            let migration = migration(&[("serviceaccount-token-controller", component)]);
            assert_eq!(migration.lock_of("serviceaccount-token-controller"), Some(Lock::Main), "{component}");
        }
    }

    /// Proves LE-4, LE-5.
    #[test]
    fn second_lock_differs_by_its_name_and_must_be_a_lease() {
        let mut main = LeaderElectionConfig::new("me".to_owned());
        main.lease = Key::namespaced("elsewhere", "main");
        main.lease_duration = std::time::Duration::from_secs(60);
        main.coordinated = true;
        let second = Migration::default().settings(&main).unwrap();
        assert_eq!(second.lease.to_string(), "elsewhere/cloud-provider-extraction-migration");
        assert_eq!((second.identity.as_str(), second.lease_duration.as_secs()), ("me", 60));
        assert!(!second.coordinated);

        for (lock, message) in [
            ("endpoints", "endpoints lock is removed, migrate to leases"),
            ("configmaps", "Invalid lock-type configmaps"),
        ] {
            let refused = Migration { resource_lock: lock.to_owned(), ..Migration::default() };
            assert_eq!(refused.settings(&main).unwrap_err().to_string(), message);
        }
    }
}
