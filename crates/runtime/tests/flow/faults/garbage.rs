//! Owners go, each in its way; what should follow them follows, and nothing else, whatever happens meanwhile.

use std::time::Duration;

use keleustes_controllers::garbage_collector::{GarbageCollectorOptions, controller};

use super::{Case, survive};
use crate::garbage::there;
use crate::garbage::trouble::{LEFT, delete_all, given};

/// Proves GC-39, GC-66, GC-91.
#[test]
fn garbage_is_collected_whatever_goes_wrong() {
    survive(&Case {
        controllers: || vec![controller(&GarbageCollectorOptions::default())],
        given,
        when: |server| Box::pin(delete_all(kube::Client::new(server, "default"))),
        then: |server| {
            let there = there(server);
            if there == LEFT { Ok(()) } else { Err(format!("there is {there:#?}")) }
        },
        within: Duration::from_secs(20),
        rest: Duration::from_secs(60),
    });
}
