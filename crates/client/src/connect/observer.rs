//! What happens on the way to the server is told to somebody who counts it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// Hears of what happens on the way to the server, below the requests.
pub trait ConnectionObserver: Send + Sync {
    /// A credential plugin has ended, or could not be started.
    fn exec_plugin_called(&self, end: ExecPluginStatus) {
        let _ = end;
    }

    /// The plugin of this kubeconfig has handed out a certificate that ends then, or credentials without one.
    fn exec_plugin_certificate_expires(&self, origin: &str, at: Option<Timestamp>) {
        let _ = (origin, at);
    }

    /// A certificate of this age was replaced by the plugin that had handed it out.
    fn exec_plugin_certificate_rotated(&self, age: Duration) {
        let _ = age;
    }

    /// A transport was made, with connections of its own.
    fn transport_created(&self) {}

    /// A client was given a transport that was there already.
    fn transport_reused(&self) {}

    /// A transport is gone.
    fn transport_dropped(&self) {}
}

/// How a call of a credential plugin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPluginStatus {
    /// With success.
    NoError,
    /// With another exit code, which is -1 for a signal.
    ExecutionError(i32),
    /// It is not there, or may not be run.
    PluginNotFound,
    /// It was there and yet did not run to its end.
    ClientInternalError,
}

/// Whoever hears of it, if anybody does.
#[derive(Clone, Default)]
pub(super) struct Told(Option<Arc<dyn ConnectionObserver>>);

impl Told {
    pub(super) fn to(observer: Option<Arc<dyn ConnectionObserver>>) -> Self {
        Self(observer)
    }

    pub(super) fn tell(&self, what: impl FnOnce(&dyn ConnectionObserver)) {
        if let Some(observer) = &self.0 {
            what(observer.as_ref());
        }
    }
}
