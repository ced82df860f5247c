//! Sees every write that takes effect, writes it down, and lets the checkers judge.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Uri};
use keleustes_apiserver::ApiServer;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::checks::Checker;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The API group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// Empty for what has none, and for lists over all.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// Whether it is a watch.
    pub watch: bool,
    /// The query of a list or a watch.
    pub asks: String,
}

impl Route {
    /// Reads it from a request.
    #[must_use]
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let mut parts = uri.path().trim_matches('/').split('/');
        let group = match parts.next() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => "",
        };
        let _version = parts.next();
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, resource, ..] if !matches!(*resource, "status" | "finalize") => {
                (*namespace, &rest[2..])
            }
            _ => ("", &rest[..]),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        Self {
            method: method.clone(),
            group: group.to_owned(),
            resource: part(0),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: part(2),
            watch: uri.query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1")),
            asks: uri.query().filter(|_| method.is_safe()).unwrap_or_default().to_owned(),
        }
    }

    /// Whether it may change something.
    #[must_use]
    pub fn writes(&self) -> bool {
        !self.method.is_safe()
    }

    /// The resource as the server's handles name it.
    #[must_use]
    pub fn full_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Whether it is about the lease of the managers.
    #[must_use]
    pub fn is_leader_lease(&self) -> bool {
        self.resource == "leases" && self.namespace == "kube-system"
    }

    /// Whether it is about something that is written all the time and says nothing about the cluster.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        matches!(self.resource.as_str(), "leases" | "events" | "subjectaccessreviews" | "tokenreviews")
            || self.subresource == "token"
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, resource, namespace, name, subresource, .. } = self;
        write!(f, "{method} {resource} {namespace}/{name}")?;
        if subresource.is_empty() { Ok(()) } else { write!(f, " {subresource}") }
    }
}

/// A request that has reached the server.
pub struct Sent<'a> {
    /// Whose it is.
    pub party: Arc<str>,
    /// Which life of the party.
    pub life: u32,
    /// The part of the party that wrote.
    pub author: String,
    /// What it is about.
    pub route: &'a Route,
    /// Its body.
    pub body: Bytes,
    /// Whether the sender will never learn what came of it.
    pub lost: bool,
    /// How things were when it left.
    pub departure: Departure,
}

/// How things are when a write leaves its sender.
#[derive(Clone, Debug, Default)]
pub struct Departure {
    /// Since the world began.
    pub at: Duration,
    /// Who leads.
    pub leader: Leader,
}

/// Who leads: the holder of the lease, empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader(pub String);

impl Leader {
    /// Who leads now.
    #[must_use]
    pub fn now(server: &ApiServer) -> Self {
        let lease = server.object("leases.coordination.k8s.io", "kube-system", "kube-controller-manager");
        Self(lease.map_or_else(String::new, |lease| text(&lease, "/spec/holderIdentity").to_owned()))
    }

    /// Whether a manager other than this one leads. An identity is the name of the host and something that no other
    /// process has. A lease that was given back is nobody's: what was sent before may still arrive.
    #[must_use]
    pub fn is_not(&self, party: &str) -> bool {
        !self.is(party) && !self.0.is_empty()
    }

    /// Whether this manager leads.
    #[must_use]
    pub fn is(&self, party: &str) -> bool {
        self.0.strip_prefix(party).is_some_and(|rest| rest.starts_with('_'))
    }
}

/// A write, seen from both sides.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Since the world began.
    pub at: Duration,
    /// Whose it is: a manager by its name, `nodes`, or `user`.
    pub party: Arc<str>,
    /// Which life of the party: a manager that is started again has another.
    pub life: u32,
    /// The part of the party that wrote; for a manager the controller's account or the component.
    pub author: String,
    /// What it was about.
    pub route: Route,
    /// What was sent.
    pub body: Value,
    /// Whether nobody who leads ever learns of the answer.
    pub lost: bool,
    /// How things were when it left its sender.
    pub departure: Departure,
    /// What the server answered.
    pub code: u16,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object afterwards.
    pub after: Option<Arc<Value>>,
}

impl Effect {
    /// Whether the server did it.
    #[must_use]
    pub fn done(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether a manager wrote it.
    #[must_use]
    pub fn by_manager(&self) -> bool {
        is_manager(&self.party)
    }
}

/// A fresh look of a manager at one object.
pub struct Look<'a> {
    /// Since the world began.
    pub at: Duration,
    /// Which life of the manager.
    pub life: u32,
    /// The part of it that asked.
    pub author: &'a str,
    /// What is there.
    pub found: &'a Value,
}

fn is_manager(party: &str) -> bool {
    party.starts_with("manager-")
}

/// What stands in an object, or nothing.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Sees and remembers.
pub struct Witness {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    keeps_lines: bool,
    checkers: Vec<Box<dyn Checker>>,
    /// What did not hold, first things first.
    broken: Vec<String>,
    /// Writes of managers that changed something and are no routine, once somebody has asked for them.
    writes: Vec<String>,
    keeps_writes: bool,
    requests: u64,
    request_digest: u64,
}

impl Witness {
    /// A witness that lets these judge, from now on.
    #[must_use]
    pub fn new(checkers: Vec<Box<dyn Checker>>, keeps_lines: bool) -> Arc<Self> {
        let state = State { checkers, keeps_lines, ..State::default() };
        Arc::new(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// When the world began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Writes something down.
    pub fn note(&self, line: impl fmt::Display) {
        let mut state = self.state.lock();
        if state.keeps_lines {
            let line = self.stamped(line);
            state.lines.push(line);
        }
    }

    /// Something does not hold.
    pub fn complain(&self, what: impl fmt::Display) {
        let line = self.stamped(format_args!("BROKEN {what}"));
        let mut state = self.state.lock();
        state.lines.push(line.clone());
        state.broken.push(line);
    }

    fn stamped(&self, line: impl fmt::Display) -> String {
        format!("{:>9.3}s  {line}", self.began.elapsed().as_secs_f64())
    }

    /// Whether something did not hold.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        !self.state.lock().broken.is_empty()
    }

    /// What did not hold so far.
    #[must_use]
    pub fn broken(&self) -> Vec<String> {
        self.state.lock().broken.clone()
    }

    /// All that was written down.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().lines)
    }

    /// The writes of managers since this was last asked, without routine; none if it was never asked before.
    #[must_use]
    pub fn take_writes(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.keeps_writes = true;
        std::mem::take(&mut state.writes)
    }

    /// Adds a request to the digest, at the moment it is sent.
    pub(crate) fn digest_request(&self, method: &Method, uri: &Uri, body: &[u8]) {
        let mut state = self.state.lock();
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        for part in [method.as_str().as_bytes(), target.as_bytes(), body] {
            state.request_digest = fnv1a(state.request_digest, part);
        }
    }

    /// A digest of the method, path, query and body of every request, in the order in which they were sent.
    #[must_use]
    pub fn request_digest(&self) -> u64 {
        self.state.lock().request_digest
    }

    /// How many requests have reached the server.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// What the checkers miss in a world that is left alone.
    #[must_use]
    pub fn missing(&self, server: &ApiServer) -> Vec<String> {
        let state = self.state.lock();
        let missing = state.checkers.iter().filter_map(|checker| {
            let why = checker.calm(server).err()?;
            Some(format!("{}: {why}", checker.name()))
        });
        missing.collect()
    }

    /// Notes how things are before a write; nothing for what changes nothing.
    pub(crate) fn before(&self, server: &ApiServer, sent: &Sent<'_>) -> Option<Effect> {
        self.state.lock().requests += 1;
        let route = sent.route;
        if !route.writes() {
            return None;
        }
        let author = sent.author.clone();
        let at = self.began.elapsed();
        let before = looked_up(server, route);
        let (route, body) = (route.clone(), serde_json::from_slice(&sent.body).unwrap_or_default());
        let (party, life, departure) = (sent.party.clone(), sent.life, sent.departure.clone());
        // Whoever is led by another by now has nobody to tell of it.
        let lost = sent.lost || (is_manager(&party) && Leader::now(server).is_not(&party));
        Some(Effect { at, party, life, author, route, body, lost, departure, code: 0, before, after: None })
    }

    /// Lets the checkers see what a manager finds that looks at one object.
    pub(crate) fn looked(&self, server: &ApiServer, sent: &Sent<'_>) {
        if sent.route.watch || !is_manager(&sent.party) {
            return;
        }
        let Some(found) = looked_up(server, sent.route) else { return };
        let at = self.began.elapsed();
        let look = Look { at, life: sent.life, author: &sent.author, found: &found };
        self.state.lock().checkers.iter_mut().for_each(|checker| checker.looked(&look));
    }

    /// What the checkers miss in a world where nothing is wrong but that these nodes are silent.
    #[must_use]
    pub fn missing_of_silence(&self, server: &ApiServer, nodes: &BTreeSet<String>) -> Vec<String> {
        let state = self.state.lock();
        let missing = state.checkers.iter().filter_map(|checker| {
            let why = checker.silent(server, nodes).err()?;
            Some(format!("{}: {why}", checker.name()))
        });
        missing.collect()
    }

    /// Looks at what became of it.
    pub(crate) fn after(&self, server: &ApiServer, mut effect: Effect, code: u16) {
        effect.code = code;
        effect.after = looked_up(server, &effect.route);
        let mut state = self.state.lock();
        let line = || format!("{}/{} {} {code}", effect.party, effect.author, effect.route);
        if state.keeps_lines && !(effect.route.is_routine() && effect.done()) {
            let line = self.stamped(line());
            state.lines.push(line);
        }
        if state.keeps_writes && effect.by_manager() && !effect.route.is_routine() && effect.done() {
            let line = self.stamped(line());
            state.writes.push(line);
        }
        let mut complaints = Vec::new();
        for checker in &mut state.checkers {
            if let Err(why) = checker.wrote(&effect, server) {
                complaints.push(format!("{}: {why} [{}]", checker.name(), line()));
            }
        }
        drop(state);
        complaints.iter().for_each(|complaint| self.complain(complaint));
    }
}

/// FNV-1a over the bytes and their number, so that two parts cannot pass for one.
fn fnv1a(digest: u64, bytes: &[u8]) -> u64 {
    let fold = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let length = (bytes.len() as u64).to_le_bytes();
    length.iter().chain(bytes).fold(digest, fold)
}

pub(crate) fn looked_up(server: &ApiServer, route: &Route) -> Option<Arc<Value>> {
    // Leases say who leads; other routine says nothing that anybody judges.
    let wanted = !route.name.is_empty() && (!route.is_routine() || route.resource == "leases");
    wanted.then(|| server.object(&route.full_resource(), &route.namespace, &route.name)).flatten()
}
