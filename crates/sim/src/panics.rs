//! No panic of a storm goes unnoticed: what a storm's thread panics over is kept for its report.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// What this thread has panicked over, while a storm runs on it.
    static NOTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Keeps the panics of this thread from now on, instead of printing them.
pub fn note() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let kept = NOTED
                .with_borrow_mut(|noted| noted.as_mut().map(|noted| noted.push(panic.to_string())).is_some());
            if !kept {
                usual(panic);
            }
        }));
    });
    NOTED.set(Some(Vec::new()));
}

/// What was kept so far, and no longer is.
#[must_use]
pub fn taken() -> Vec<String> {
    NOTED.with_borrow_mut(|noted| noted.as_mut().map(std::mem::take).unwrap_or_default())
}

/// Lets panics be printed again.
pub fn let_go() {
    NOTED.set(None);
}
