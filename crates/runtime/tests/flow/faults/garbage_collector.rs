//! Owners are deleted with each propagation policy; their dependents are collected, and nothing else, with
//! every fault.

use std::time::Duration;

use keleustes_controllers::garbage_collector::{GarbageCollectorOptions, controller};

use super::{Case, converges_with_every_fault};
use crate::garbage_collector::failover::{LEFT, delete_all, given};
use crate::garbage_collector::remaining;

/// Proves GC-39, GC-66, GC-91.
#[test]
fn garbage_is_collected_with_every_fault() {
    converges_with_every_fault(&Case {
        controllers: || vec![controller(&GarbageCollectorOptions::default())],
        given,
        when: |server| Box::pin(delete_all(kube::Client::new(server, "default"))),
        then: |server| {
            let objects = remaining(server);
            if objects == LEFT { Ok(()) } else { Err(format!("there is {objects:#?}")) }
        },
        within: Duration::from_secs(20),
        quiet_for: Duration::from_secs(60),
    });
}
