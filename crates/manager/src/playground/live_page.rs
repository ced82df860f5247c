//! Prints where the live page is, as a link that logs a browser of this machine in.

use keleustes_serving::BrowserLogin;

use super::say_line;
use crate::inspect::PREFIX;

/// Prints a login link for the pages of the manager at a port of loopback, and a new one whenever one was used.
pub(super) fn print_link(port: u16) -> BrowserLogin {
    let print = move |what: &str, link: &str| say_line!("{what} https://127.0.0.1:{port}{link}");
    let again = move |link: &str| print("live page    opened; another browser logs in with", link);
    let login = BrowserLogin::new(PREFIX, &format!("keleustes-{port}"), again);
    print("live page   ", &login.new_link());
    say_line!("             (a login link, valid once; the browser warns of the manager's own certificate)");
    login
}
