//! The pages in the documentation are those that the lists give.

use std::path::Path;

use keleustes_options::{flags_page, gates_page};

/// Compares a page with its file, or writes the file when `UPDATE_PAGES` is set.
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&path, page).expect("docs can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/{name} is out of date; run: UPDATE_PAGES=1 cargo test -p keleustes-options --test pages"
    );
}

#[test]
fn the_page_about_flags_is_up_to_date() {
    check("flags.md", &flags_page());
}

#[test]
fn the_page_about_gates_is_up_to_date() {
    check("feature-gates.md", &gates_page());
}
