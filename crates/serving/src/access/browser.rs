//! Logs a browser in: a one-time link is exchanged for a cookie, which may read the pages below one prefix.
//!
//! It is for a server on loopback whose user cannot be expected to import a client certificate into a browser. Tokens
//! and cookies come from the operating system's random source, are compared in constant time and end with the process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, LOCATION, REFERRER_POLICY, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use parking_lot::Mutex;

use super::user::User;

/// The page below the prefix that a link leads to.
const LOGIN: &str = "login";
/// How many browsers are logged in at once; a further one replaces the first.
const SESSIONS_MAX: usize = 16;
/// The number of random bytes of a token.
const TOKEN_BYTES: usize = 16;

const REFUSED: &str = "This login link was used already, or is not valid. The terminal shows a new one.\n";

/// Login links and sessions of browsers. Clones share them.
#[derive(Clone)]
pub struct BrowserLogin(Arc<Inner>);

struct Inner {
    /// What a session may read; ends with a slash.
    prefix: &'static str,
    cookie: String,
    state: Mutex<State>,
    on_login: Box<dyn Fn(&str) + Send + Sync>,
}

#[derive(Default)]
struct State {
    /// The token of the one link that is valid.
    link: Option<String>,
    /// The cookies of those who used a link.
    sessions: VecDeque<String>,
}

impl BrowserLogin {
    /// No link yet. A session may read the pages below `prefix`. Cookies of all ports of a host are sent to each of
    /// them, so `name` distinguishes servers. `on_login` gets a new link whenever one was used.
    #[must_use]
    pub fn new(prefix: &'static str, name: &str, on_login: impl Fn(&str) + Send + Sync + 'static) -> Self {
        // The prefix of the name makes browsers insist on HTTPS.
        let cookie = format!("__Secure-{name}");
        Self(Arc::new(Inner { prefix, cookie, state: Mutex::default(), on_login: Box::new(on_login) }))
    }

    /// The path and query of a new link; an earlier one that was not used is no longer valid.
    #[must_use]
    pub fn new_link(&self) -> String {
        let token = random_token();
        let link = format!("{}{LOGIN}?token={token}", self.0.prefix);
        self.0.state.lock().link = Some(token);
        link
    }

    /// The response to a request for the login page; `None` for other pages. The token is removed from the URI, so
    /// that no log shows it.
    pub(super) fn log_in(&self, method: &Method, path: &str, uri: &mut Uri) -> Option<Response<Bytes>> {
        if path.strip_prefix(self.0.prefix) != Some(LOGIN) {
            return None;
        }
        let query = uri.query().unwrap_or_default();
        let token = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "token");
        let token = token.map(|(_, token)| token.into_owned()).unwrap_or_default();
        *uri = Uri::try_from(path).unwrap_or_default();
        // A HEAD request, by which some programs preview links, uses none up.
        let cookie = if *method == Method::GET { self.exchange(&token) } else { None };
        let Some(cookie) = cookie else { return Some(refused()) };
        (self.0.on_login)(&self.new_link());
        Some(self.logged_in(&cookie))
    }

    /// Uses up the link with this token and returns a new session.
    fn exchange(&self, token: &str) -> Option<String> {
        let mut state = self.0.state.lock();
        if !state.link.as_deref().is_some_and(|link| is_equal(link, token)) {
            return None;
        }
        state.link = None;
        let session = random_token();
        state.sessions.push_back(session.clone());
        if state.sessions.len() > SESSIONS_MAX {
            state.sessions.pop_front();
        }
        Some(session)
    }

    fn logged_in(&self, session: &str) -> Response<Bytes> {
        let Inner { prefix, cookie, .. } = &*self.0;
        let cookie = format!("{cookie}={session}; Path={prefix}; Secure; HttpOnly; SameSite=Strict");
        let mut response = text(StatusCode::SEE_OTHER, "");
        // Both are made of our own constants, a port number and hexadecimal digits.
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response.headers_mut().insert(LOCATION, HeaderValue::from_static(prefix));
        response
    }

    /// The user of a request with a valid cookie, if it reads a page below the prefix.
    pub(super) fn user(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<User> {
        if !matches!(*method, Method::GET | Method::HEAD) || !path.starts_with(self.0.prefix) {
            return None;
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';')).filter_map(|one| one.split_once('='));
        let state = self.0.state.lock();
        let is_session = |given: &str| state.sessions.iter().any(|session| is_equal(session, given));
        cookies
            .any(|(name, value)| name.trim() == self.0.cookie && is_session(value.trim()))
            .then(|| User { name: "keleustes:browser".to_owned(), ..User::default() }.authenticated())
    }
}

impl fmt::Debug for BrowserLogin {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserLogin").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}

fn is_equal(one: &str, other: &str) -> bool {
    verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

fn random_token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    // Without random bytes, anybody on the machine could compute the link. Go's crypto/rand ends the process too.
    assert!(aws_lc_rs::rand::fill(&mut bytes).is_ok(), "the operating system provides no random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused() -> Response<Bytes> {
    text(StatusCode::FORBIDDEN, REFUSED)
}

fn text(status: StatusCode, body: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(body.as_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/debug/x/";

    fn login() -> (BrowserLogin, Arc<Mutex<Vec<String>>>) {
        let links = Arc::new(Mutex::new(Vec::new()));
        let seen = links.clone();
        (BrowserLogin::new(PREFIX, "x-10257", move |link| seen.lock().push(link.to_owned())), links)
    }

    /// Follows a link; returns the response and the URI that a log would show.
    fn follow(login: &BrowserLogin, method: &Method, link: &str) -> (Response<Bytes>, String) {
        let mut uri: Uri = link.parse().unwrap();
        let path = uri.path().to_owned();
        let response = login.log_in(method, &path, &mut uri).unwrap();
        (response, uri.to_string())
    }

    /// The headers that a browser sends after this response.
    fn cookies(response: &Response<Bytes>) -> HeaderMap {
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&format!("other=1; {cookie}")).unwrap())])
    }

    #[test]
    fn login_link_is_exchanged_once_for_a_cookie() {
        let (login, links) = login();
        let link = login.new_link();
        let (response, logged) = follow(&login, &Method::GET, &link);
        assert_eq!((response.status(), logged.as_str()), (StatusCode::SEE_OTHER, "/debug/x/login"));
        assert_eq!(response.headers()[LOCATION], PREFIX);
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.starts_with("__Secure-x-10257="), "{cookie}");
        assert!(cookie.ends_with("; Path=/debug/x/; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(login.user(&Method::GET, "/debug/x/overview", &cookies(&response)).is_some());
        let (again, _) = follow(&login, &Method::GET, &link);
        assert_eq!((again.status(), again.headers().get(SET_COOKIE)), (StatusCode::FORBIDDEN, None));
        // The next link is another one, and valid.
        let next = links.lock().clone();
        assert!(next.len() == 1 && next[0] != link, "{next:?}");
        assert_eq!(follow(&login, &Method::GET, &next[0]).0.status(), StatusCode::SEE_OTHER);
    }

    #[test]
    fn wrong_token_or_method_uses_no_link_up() {
        let (login, links) = login();
        let unused = login.new_link();
        let link = login.new_link();
        let wrong = [
            (Method::GET, "/debug/x/login".to_owned()),
            (Method::GET, "/debug/x/login?token=".to_owned()),
            (Method::GET, format!("{link}0")),
            (Method::GET, link[..link.len() - 1].to_owned()),
            (Method::GET, unused),
            (Method::HEAD, link.clone()),
            (Method::POST, link.clone()),
        ];
        for (method, wrong) in wrong {
            assert_eq!(follow(&login, &method, &wrong).0.status(), StatusCode::FORBIDDEN, "{method} {wrong}");
        }
        assert!(links.lock().is_empty());
        assert_eq!(follow(&login, &Method::GET, &link).0.status(), StatusCode::SEE_OTHER);
        assert!(login.log_in(&Method::GET, "/debug/x/other", &mut Uri::from_static("/")).is_none());
    }

    #[test]
    fn without_a_link_no_token_is_accepted() {
        let (login, _) = login();
        for link in ["/debug/x/login?token=", "/debug/x/login", "/debug/x/login?token=0"] {
            assert_eq!(follow(&login, &Method::GET, link).0.status(), StatusCode::FORBIDDEN, "{link}");
        }
    }

    #[test]
    fn cookie_reads_pages_below_the_prefix_and_nothing_else() {
        let (login, _) = login();
        let (response, _) = follow(&login, &Method::GET, &login.new_link());
        let cookies = cookies(&response);
        for (method, path) in [
            (Method::PUT, "/debug/x/overview"),
            (Method::GET, "/metrics"),
            (Method::PUT, "/debug/flags/v"),
            (Method::GET, "/debug/x"),
        ] {
            assert!(login.user(&method, path, &cookies).is_none(), "{method} {path}");
        }
        assert!(login.user(&Method::HEAD, "/debug/x/", &cookies).is_some());
        let forged = HeaderMap::from_iter([(COOKIE, HeaderValue::from_static("__Secure-x-10257="))]);
        assert!(login.user(&Method::GET, "/debug/x/", &forged).is_none());
        assert!(login.user(&Method::GET, "/debug/x/", &HeaderMap::new()).is_none());
    }

    #[test]
    fn sessions_are_bounded_and_secrets_are_not_printed() {
        let (login, _) = login();
        let first = follow(&login, &Method::GET, &login.new_link()).0;
        for _ in 0..SESSIONS_MAX {
            follow(&login, &Method::GET, &login.new_link());
        }
        assert!(login.user(&Method::GET, PREFIX, &cookies(&first)).is_none());
        assert_eq!(login.0.state.lock().sessions.len(), SESSIONS_MAX);
        assert_eq!(format!("{login:?}"), "BrowserLogin { prefix: \"/debug/x/\", .. }");
    }
}
