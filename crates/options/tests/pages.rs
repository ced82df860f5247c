//! The generated pages in docs/ are up to date.

use std::path::Path;

use keleustes_options::{flags_page, gates_page};

/// Compares a page with its file, or writes the file if `UPDATE_PAGES` is set.
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&path, page).expect("docs can be written");
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == page,
        "docs/{name} is out of date; run: UPDATE_PAGES=1 cargo test -p keleustes-options --test pages"
    );
}

#[test]
fn the_page_of_flags_is_up_to_date() {
    check("flags.md", &flags_page());
}

#[test]
fn the_page_of_feature_gates_is_up_to_date() {
    check("feature-gates.md", &gates_page());
}
