//! Captures the panics of a storm's thread for its report.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The panics of this thread, while a storm runs on it.
    static CAPTURED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Captures the panics of this thread from now on instead of printing them.
pub fn capture() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let kept = CAPTURED.with_borrow_mut(|captured| {
                captured.as_mut().map(|captured| captured.push(panic.to_string())).is_some()
            });
            if !kept {
                default_hook(panic);
            }
        }));
    });
    CAPTURED.set(Some(Vec::new()));
}

/// Takes the panics captured so far.
#[must_use]
pub fn take() -> Vec<String> {
    CAPTURED.with_borrow_mut(|captured| captured.as_mut().map(std::mem::take).unwrap_or_default())
}

/// Panics of this thread are printed again.
pub fn stop_capturing() {
    CAPTURED.set(None);
}
