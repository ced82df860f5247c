//! What happens to a cluster, as data: who does what, when.

use keleustes_client::PropagationPolicy;
use keleustes_objects::{self as objects, Key, Kind as _, Resource};
use serde::{Deserialize, Serialize};

/// Everything that is done to a cluster before it is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// What everything random descends from.
    pub seed: u64,
    /// How many managers compete for the lease.
    pub managers: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// Whether roles decide what managers may do. Not always: the server works hard for it.
    pub roles: bool,
    /// In the order of their times.
    pub deeds: Vec<Timed>,
}

/// A deed and when it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// Milliseconds since the world began.
    pub at: u64,
    /// What is done.
    pub deed: Deed,
}

/// Something that is done to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// Somebody changes objects.
    User(UserAction),
    /// The way of one party to the API server is disturbed.
    Trouble(Trouble),
    /// The API server forgets its history.
    Compact,
    /// All watches end with "too old".
    ExpireWatches,
    /// All watches end.
    CutWatches,
    /// The API server is away for so many milliseconds.
    Restart(u64),
    /// A manager dies at once; what it had sent may still take effect.
    Crash(usize),
    /// A manager is told to end.
    Stop(usize),
    /// The wall clock of a manager jumps by so many seconds.
    Skew(usize, i64),
    /// The wall clock of the API server jumps by so many seconds.
    Jump(i64),
    /// A manager sleeps for so many milliseconds: nothing reaches it, and what it was about to send leaves afterwards.
    Pause(usize, u64),
    /// Everybody sleeps for so many milliseconds, as the guests of a machine that is suspended: all that was to happen
    /// meanwhile is overdue at once.
    Freeze(u64),
    /// The connections of a manager end, and for so many milliseconds the sides do not trust each other.
    Certificates(usize, u64),
    /// A node falls silent.
    FailNode(usize),
    /// A node speaks again.
    RecoverNode(usize),
}

/// What a user does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserAction {
    /// Makes an object.
    Create(Thing, Wish),
    /// Asks for another number of replicas.
    Scale(Thing, u32),
    /// Asks for another template.
    Roll(Thing, u32),
    /// Holds a Deployment or a Job, or lets it go on.
    Hold(Thing, bool),
    /// Deletes an object.
    Delete(Thing, DeletePropagation),
    /// Deletes one of the pods of a namespace, whichever that number falls on.
    DeletePod(String, usize),
    /// Takes a pod out of its selector, or puts it back.
    Relabel(String, usize),
    /// Makes a pod that nobody asked for and whose labels fit a selector.
    Stray(String, String),
    /// Makes an object that depends on somebody who does not exist.
    Orphan(String, String),
    /// Makes two objects that own each other.
    Circle(String, String),
    /// Makes an object that somebody else keeps from going.
    Held(String, String),
    /// Removes a node.
    RemoveNode(usize),
    /// Lets nothing more be placed on a node, or lets it again.
    Cordon(usize, bool),
    /// Deletes what every namespace is given.
    Spoil(String),
    /// Puts something else in the place of the CA that every namespace is given.
    Forge(String),
    /// Deletes an object and makes another under its name at once.
    Recreate(Thing, DeletePropagation, Wish),
    /// Takes the owner off an object, whichever of its kind that number falls on.
    Disown(Child, String, usize),
    /// Makes an account, and a Secret that asks for a token of it; the Secret comes first if that is said.
    AskToken(String, String, bool),
    /// Does something to the Secret of an account's token.
    SpoilToken(String, String, TokenTampering),
    /// Deletes an account, and makes another under its name at once if that is said.
    DropAccount(String, String, bool),
    /// Does something to one of the slices of a namespace, whichever that number falls on.
    SpoilSlice(String, usize, SliceTampering),
    /// Lets a Service select the pods of this name, on this port.
    Reselect(Thing, String, u16),
    /// Puts a node into a zone.
    Move(usize, u8),
    /// Drives everything off a node that does not tolerate it, or lets it come back.
    Taint(usize, bool),
    /// Deletes one of the revisions of a namespace, whichever that number falls on.
    DeleteRevision(String, usize),
    /// Makes the role that is the sum of others, or undoes what was made of it.
    Role,
    /// Lets a role that is part of another allow this, or deletes it if it is to allow nothing.
    RolePart(String, Option<u8>),
}

/// A kind whose objects are made by controllers and owned by what users make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the kinds of the API under their own names")]
pub enum Child {
    Pod,
    ReplicaSet,
    ControllerRevision,
}

/// What is done to the Secret of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenTampering {
    /// The token is taken out.
    Empty,
    /// Another CA is put in.
    Forge,
    /// It is deleted.
    Delete,
    /// It is deleted, and another made in its place.
    Recreate,
}

/// What is done to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceTampering {
    /// Its endpoints are taken out.
    Empty,
    /// Somebody else is put in.
    Forge,
    /// It is deleted.
    Delete,
    /// It is said to be nobody's.
    Disclaim,
}

/// An object that users make.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Thing {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for a namespace itself.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Thing {
    /// Where it is.
    #[must_use]
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() }
    }
}

/// The kinds that users make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the kinds of the API under their own names")]
pub enum Kind {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    Job,
    Service,
    Namespace,
}

impl Kind {
    /// The resource behind it.
    #[must_use]
    pub const fn resource(self) -> Resource {
        match self {
            Self::Deployment => objects::Deployment::RESOURCE,
            Self::ReplicaSet => objects::ReplicaSet::RESOURCE,
            Self::StatefulSet => objects::StatefulSet::RESOURCE,
            Self::DaemonSet => objects::DaemonSet::RESOURCE,
            Self::Job => objects::Job::RESOURCE,
            Self::ReplicationController => objects::ReplicationController::RESOURCE,
            Self::Service => objects::Service::RESOURCE,
            Self::Namespace => objects::Namespace::RESOURCE,
        }
    }
}

/// What a new object asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// How many replicas, or completions.
    pub replicas: u32,
    /// Which template.
    pub flavour: u32,
    /// How its pods behave.
    pub pods: Pods,
    /// Whether its updates follow the other strategy of its kind.
    pub otherwise: bool,
}

/// How pods behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pods {
    /// They start and run.
    Well,
    /// They take their time.
    Slow,
    /// They crash a few times first.
    Shaky,
    /// They fail.
    Failing,
}

/// What is to become of what an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeletePropagation {
    /// It goes afterwards.
    Background,
    /// It goes first.
    Foreground,
    /// It stays.
    Orphan,
}

impl From<DeletePropagation> for PropagationPolicy {
    fn from(farewell: DeletePropagation) -> Self {
        match farewell {
            DeletePropagation::Background => Self::Background,
            DeletePropagation::Foreground => Self::Foreground,
            DeletePropagation::Orphan => Self::Orphan,
        }
    }
}

/// The name of a node, by its number.
#[must_use]
pub fn node(number: usize) -> String {
    format!("hollow-{number}")
}

/// Requests that go wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Whose.
    pub party: Party,
    /// Which.
    pub what: Which,
    /// In what way.
    pub verdict: Verdict,
    /// How many of a hundred.
    pub percent: u8,
    /// For how many milliseconds.
    pub lasts: u64,
}

/// Somebody with a way to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// A manager.
    Manager(usize),
    /// All nodes.
    Nodes,
}

/// Requests that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// What changes something.
    Writes,
    /// Creates.
    Creates,
    /// Changes of a status.
    Statuses,
    /// Deletes.
    Deletes,
    /// What reads one object or a list.
    Reads,
    /// Watches, when they are opened.
    Watches,
    /// Everything about pods.
    Pods,
    /// Everything about ReplicaSets.
    ReplicaSets,
    /// Everything about EndpointSlices.
    EndpointSlices,
    /// Everything about leases of leader election.
    Leases,
    /// Tokens.
    Tokens,
    /// Watches that begin with all that is there.
    Streams,
    /// Pages of lists after the first.
    Pages,
    /// Everything.
    All,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The request arrives so many milliseconds later.
    Late(u64),
    /// The answer arrives so many milliseconds later.
    LateAnswer(u64),
    /// The server refuses with this code, and has done nothing.
    Refused(u16),
    /// The server refuses with this code, but has done it.
    RefusedAfterwards(u16),
    /// The connection breaks before the server hears of it.
    Lost,
    /// The connection breaks after the server has done it.
    AnswerLost,
    /// No answer comes for a long time, and nothing was done.
    Hangs,
    /// What watches have to tell is held back.
    Stalls,
    /// Watches break in the middle.
    Cuts,
    /// The history that a watch goes on from is forgotten, for this watch alone.
    Expires,
    /// The answer breaks off in the middle.
    Truncated,
    /// A page of a list holds less than was asked for.
    SmallPages,
    /// A cache of the server is behind: a list that may be old is, and a watch from a state that the cache has not
    /// come to is refused.
    Old,
    /// There is no connection: the sides do not trust each other's certificates.
    Untrusted,
}
