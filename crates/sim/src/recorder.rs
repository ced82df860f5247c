//! Observes every write that takes effect, records it, and calls the checkers.

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

/// What a request is about, as upstream's RequestInfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The method.
    pub method: Method,
    /// The API group.
    pub group: String,
    /// The plural resource name.
    pub resource: String,
    /// Empty for cluster-scoped objects and for lists over all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// Whether it is a watch.
    pub watch: bool,
    /// The query of a list or a watch.
    pub query: String,
}

impl RequestInfo {
    /// Parses method and URI.
    #[must_use]
    pub fn parse(method: &Method, uri: &Uri) -> Self {
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
            query: uri.query().filter(|_| method.is_safe()).unwrap_or_default().to_owned(),
        }
    }

    /// Whether it may change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !self.method.is_safe()
    }

    /// The resource as [`ApiServer::object`] names it.
    #[must_use]
    pub fn full_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Whether it concerns the leader election lease, or creates it. Users create the identity Leases of API servers by
    /// server-side apply.
    #[must_use]
    pub fn is_leader_lease(&self) -> bool {
        let has_name = self.name.is_empty() || self.name == LEASE_NAME;
        self.resource == "leases" && self.namespace == LEASE_NAMESPACE && has_name
    }

    /// Whether it concerns objects that are written all the time and that no checker judges.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        matches!(self.resource.as_str(), "leases" | "events" | "subjectaccessreviews" | "tokenreviews")
            || self.subresource == "token"
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, resource, namespace, name, subresource, .. } = self;
        write!(f, "{method} {resource} {namespace}/{name}")?;
        if subresource.is_empty() { Ok(()) } else { write!(f, " {subresource}") }
    }
}

/// A request that has reached the server.
pub struct SentRequest<'a> {
    /// The sender.
    pub party: Arc<str>,
    /// The process instance of the sender.
    pub process_instance: u32,
    /// The component that sent it.
    pub component: String,
    /// What it is about.
    pub request: &'a RequestInfo,
    /// Its body.
    pub body: Bytes,
    /// Whether the sender never receives the response.
    pub response_lost: bool,
    /// Time and leader when it was sent.
    pub send_context: SendContext,
}

/// Time and leader when a write is sent.
#[derive(Clone, Debug, Default)]
pub struct SendContext {
    /// Since the start of the storm.
    pub at: Duration,
    /// The leader.
    pub leader: LeaseHolder,
    /// How often the holder of the lease had changed, deletions and manual changes included.
    pub lease_state: u64,
}

/// The namespace of the leader election lease.
pub const LEASE_NAMESPACE: &str = "kube-system";
/// The name of the leader election lease.
pub const LEASE_NAME: &str = "kube-controller-manager";

/// The holderIdentity of the leader election lease, empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseHolder(pub String);

impl LeaseHolder {
    /// The current holder.
    #[must_use]
    pub fn now(server: &ApiServer) -> Self {
        Self::of(server.object("leases.coordination.k8s.io", LEASE_NAMESPACE, LEASE_NAME).as_deref())
    }

    /// The holder of a lease.
    fn of(lease: Option<&Value>) -> Self {
        Self(lease.map_or_else(String::new, |lease| text(lease, "/spec/holderIdentity").to_owned()))
    }

    /// Whether another manager holds the lease. A holderIdentity is the host name, an underscore and a
    /// unique suffix. A released lease has no holder: writes sent before may still arrive.
    #[must_use]
    pub fn is_other_than(&self, party: &str) -> bool {
        !self.is(party) && !self.0.is_empty()
    }

    /// Whether this manager holds the lease.
    #[must_use]
    pub fn is(&self, party: &str) -> bool {
        self.0.strip_prefix(party).is_some_and(|rest| rest.starts_with('_'))
    }
}

/// A write with the object before and after it.
#[derive(Clone, Debug)]
pub struct ObservedWrite {
    /// Since the start of the storm.
    pub at: Duration,
    /// The sender: a manager by its name, `nodes`, or `user`.
    pub party: Arc<str>,
    /// The process instance of the sender: a restarted manager has another.
    pub process_instance: u32,
    /// The component: for a manager the service account of the controller, or the component name.
    pub component: String,
    /// What it was about.
    pub request: RequestInfo,
    /// The body.
    pub body: Value,
    /// Whether the sender never receives the response, or no longer leads when it arrives.
    pub response_lost: bool,
    /// Time and leader when it was sent.
    pub send_context: SendContext,
    /// The status code.
    pub code: u16,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object afterwards.
    pub after: Option<Arc<Value>>,
}

impl ObservedWrite {
    /// Whether the server executed it.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether a manager sent it.
    #[must_use]
    pub fn by_manager(&self) -> bool {
        is_manager(&self.party)
    }

    /// A successful write of this controller in the first manager, at the start of the storm, for tests of checkers.
    #[cfg(test)]
    pub(crate) fn of_manager(component: &str, method: &Method, path: &str) -> Self {
        let path: Uri = path.parse().expect("a path");
        Self {
            at: Duration::ZERO,
            party: "manager-0".into(),
            process_instance: 1,
            component: component.to_owned(),
            request: RequestInfo::parse(method, &path),
            body: Value::Null,
            response_lost: false,
            send_context: SendContext::default(),
            code: 200,
            before: None,
            after: None,
        }
    }

    /// Whether it changed the holder of the leader election lease, created the lease or deleted it.
    fn changes_lease_holder(&self) -> bool {
        self.request.is_leader_lease()
            && self.succeeded()
            && (self.before.is_some() != self.after.is_some()
                || self.request.method == Method::POST
                || LeaseHolder::of(self.before.as_deref()) != LeaseHolder::of(self.after.as_deref()))
    }
}

/// A live read of one object by a manager.
pub struct LiveRead<'a> {
    /// Since the start of the storm.
    pub at: Duration,
    /// The process instance of the manager.
    pub process_instance: u32,
    /// The component that sent it.
    pub component: &'a str,
    /// What it was about.
    pub request: &'a RequestInfo,
    /// The object, if there is one.
    pub found: Option<&'a Value>,
}

fn is_manager(party: &str) -> bool {
    party.starts_with("manager-")
}

/// The string at a JSON pointer; empty if there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Records writes and violations.
pub struct Recorder {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    records_lines: bool,
    checkers: Vec<Box<dyn Checker>>,
    /// Violations in the order of their time.
    violations: Vec<String>,
    /// Successful writes of managers, without routine ones, since they were first asked for.
    writes: Vec<String>,
    records_writes: bool,
    requests: u64,
    request_digest: u64,
    /// How often the holder of the leader election lease has changed.
    lease_state: u64,
}

impl Recorder {
    /// A recorder that calls these checkers.
    #[must_use]
    pub fn new(checkers: Vec<Box<dyn Checker>>, records_lines: bool) -> Arc<Self> {
        let state = State { checkers, records_lines, ..State::default() };
        Arc::new(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// The start of the storm.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Adds a line to the transcript.
    pub fn record(&self, line: impl fmt::Display) {
        let mut state = self.state.lock();
        if state.records_lines {
            let line = self.stamped(line);
            state.lines.push(line);
        }
    }

    /// Records a violation.
    pub fn report_violation(&self, what: impl fmt::Display) {
        let line = self.stamped(format_args!("VIOLATION {what}"));
        let mut state = self.state.lock();
        state.lines.push(line.clone());
        state.violations.push(line);
    }

    fn stamped(&self, line: impl fmt::Display) -> String {
        format!("{:>9.3}s  {line}", self.began.elapsed().as_secs_f64())
    }

    /// Whether there are violations.
    #[must_use]
    pub fn has_violations(&self) -> bool {
        !self.state.lock().violations.is_empty()
    }

    /// The violations so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }

    /// Takes the transcript.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().lines)
    }

    /// Takes the successful writes of managers since the last call, without routine ones; empty on the
    /// first call.
    #[must_use]
    pub fn take_writes(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.records_writes = true;
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

    /// How often the holder of the leader election lease has changed.
    #[must_use]
    pub fn lease_state(&self) -> u64 {
        self.state.lock().lease_state
    }

    /// What has not converged, by checker.
    #[must_use]
    pub fn not_converged(&self, server: &ApiServer) -> Vec<String> {
        self.not_converged_among(server, |_| true)
    }

    /// What has not converged, by checker, among the checkers with these names.
    #[must_use]
    pub fn not_converged_among(&self, server: &ApiServer, is_judged: impl Fn(&str) -> bool) -> Vec<String> {
        let state = self.state.lock();
        let judged = state.checkers.iter().filter(|checker| is_judged(checker.name()));
        let not_converged = judged.filter_map(|checker| {
            let why = checker.check_converged(server).err()?;
            Some(format!("{}: {why}", checker.name()))
        });
        not_converged.collect()
    }

    /// Records the object before a write; `None` for reads.
    pub(crate) fn before(&self, server: &ApiServer, sent: &SentRequest<'_>) -> Option<ObservedWrite> {
        self.state.lock().requests += 1;
        let request = sent.request;
        if !request.is_write() {
            return None;
        }
        let component = sent.component.clone();
        let at = self.began.elapsed();
        let before = stored_object(server, request);
        let (request, body) = (request.clone(), serde_json::from_slice(&sent.body).unwrap_or_default());
        let (party, process_instance, send_context) =
            (sent.party.clone(), sent.process_instance, sent.send_context.clone());
        // A response to a manager that no longer leads changes nothing there.
        let response_lost =
            sent.response_lost || (is_manager(&party) && LeaseHolder::now(server).is_other_than(&party));
        Some(ObservedWrite {
            at,
            party,
            process_instance,
            component,
            request,
            body,
            response_lost,
            send_context,
            code: 0,
            before,
            after: None,
        })
    }

    /// Reports a live read by a manager to the checkers.
    pub(crate) fn on_live_read(&self, server: &ApiServer, sent: &SentRequest<'_>) {
        if sent.request.watch || sent.request.name.is_empty() || !is_manager(&sent.party) {
            return;
        }
        let found = stored_object(server, sent.request);
        let at = self.began.elapsed();
        let read = LiveRead {
            at,
            process_instance: sent.process_instance,
            component: &sent.component,
            request: sent.request,
            found: found.as_deref(),
        };
        self.state.lock().checkers.iter_mut().for_each(|checker| checker.on_live_read(&read));
    }

    /// Reports a directory that the binder removes from the host of a manager.
    pub(crate) fn on_removed_directory(&self, server: &ApiServer, path: &str) {
        self.record(format_args!("a manager removes {path}"));
        let mut state = self.state.lock();
        let checkers = state.checkers.iter_mut();
        let found = checkers.filter_map(|checker| {
            let why = checker.on_removed_directory(path, server).err()?;
            Some(format!("{}: {why}", checker.name()))
        });
        let found: Vec<_> = found.collect();
        drop(state);
        found.iter().for_each(|violation| self.report_violation(violation));
    }

    /// Reports a jump of a manager's wall clock to the checkers.
    pub(crate) fn on_clock_jump(&self) {
        self.state.lock().checkers.iter_mut().for_each(|checker| checker.on_clock_jump());
    }

    /// Reports a jump of the API server's wall clock to the checkers.
    pub(crate) fn on_server_clock_jump(&self) {
        self.state.lock().checkers.iter_mut().for_each(|checker| checker.on_server_clock_jump());
    }

    /// Reports to the checkers that a storm is not calm.
    pub(crate) fn on_fault(&self) {
        let at = self.began.elapsed();
        self.state.lock().checkers.iter_mut().for_each(|checker| checker.on_fault(at));
    }

    /// What has not converged while these nodes send no heartbeats, by checker.
    #[must_use]
    pub fn not_converged_with_silent_nodes(
        &self,
        server: &ApiServer,
        nodes: &BTreeSet<String>,
    ) -> Vec<String> {
        let state = self.state.lock();
        let not_converged = state.checkers.iter().filter_map(|checker| {
            let why = checker.check_silent_nodes(server, nodes).err()?;
            Some(format!("{}: {why}", checker.name()))
        });
        not_converged.collect()
    }

    /// Records the object after a write and calls the checkers.
    pub(crate) fn after(&self, server: &ApiServer, mut write: ObservedWrite, code: u16) {
        write.code = code;
        write.after = stored_object(server, &write.request);
        let mut state = self.state.lock();
        if write.changes_lease_holder() {
            state.lease_state += 1;
        }
        let line = || format!("{}/{} {} {code}", write.party, write.component, write.request);
        if state.records_lines && !(write.request.is_routine() && write.succeeded()) {
            let line = self.stamped(line());
            state.lines.push(line);
        }
        if state.records_writes && write.by_manager() && !write.request.is_routine() && write.succeeded() {
            let line = self.stamped(line());
            state.writes.push(line);
        }
        let mut found = Vec::new();
        for checker in &mut state.checkers {
            if let Err(why) = checker.on_write(&write, server) {
                found.push(format!("{}: {why} [{}]", checker.name(), line()));
            }
        }
        drop(state);
        found.iter().for_each(|violation| self.report_violation(violation));
    }
}

/// FNV-1a over the bytes and their length, so that two parts differ from their concatenation.
fn fnv1a(digest: u64, bytes: &[u8]) -> u64 {
    let fold = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let length = (bytes.len() as u64).to_le_bytes();
    length.iter().chain(bytes).fold(digest, fold)
}

pub(crate) fn stored_object(server: &ApiServer, request: &RequestInfo) -> Option<Arc<Value>> {
    // Leases name the leader; other routine objects are not judged.
    let wanted = !request.name.is_empty() && (!request.is_routine() || request.resource == "leases");
    wanted.then(|| server.object(&request.full_resource(), &request.namespace, &request.name)).flatten()
}
