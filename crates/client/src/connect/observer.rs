//! Notifications about transports and exec plugin calls, for metrics.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// Receives notifications about transports and exec plugin calls.
pub trait ConnectionObserver: Send + Sync {
    /// An exec plugin call ended, or the plugin could not be started.
    fn exec_plugin_called(&self, end: ExecPluginStatus) {
        let _ = end;
    }

    /// The exec plugin of this kubeconfig returned a certificate with this expiry, or credentials without a
    /// certificate.
    fn exec_plugin_certificate_expires(&self, origin: &str, at: Option<Timestamp>) {
        let _ = (origin, at);
    }

    /// The exec plugin replaced a client certificate of this age.
    fn exec_plugin_certificate_rotated(&self, age: Duration) {
        let _ = age;
    }

    /// A transport with its own connections was created.
    fn transport_created(&self) {}

    /// A client uses an existing transport.
    fn transport_reused(&self) {}

    /// A transport was dropped.
    fn transport_dropped(&self) {}
}

/// The result of an exec plugin call. The variants are upstream's `call_status` values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPluginStatus {
    /// The plugin exited with code 0.
    NoError,
    /// The plugin exited with another code; -1 if a signal ended it.
    ExecutionError(i32),
    /// The executable does not exist or is not executable.
    PluginNotFound,
    /// The plugin could not be run for another reason, or timed out.
    ClientInternalError,
}

/// The observer, if there is one.
#[derive(Clone, Default)]
pub(super) struct ObserverHandle(Option<Arc<dyn ConnectionObserver>>);

impl ObserverHandle {
    pub(super) fn new(observer: Option<Arc<dyn ConnectionObserver>>) -> Self {
        Self(observer)
    }

    pub(super) fn notify(&self, event: impl FnOnce(&dyn ConnectionObserver)) {
        if let Some(observer) = &self.0 {
            event(observer.as_ref());
        }
    }
}
