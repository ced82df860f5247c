//! What happens to a cluster, as data: user actions and faults with their times.

use std::time::Duration;

use keleustes_client::PropagationPolicy;
use keleustes_objects::{self as objects, Key, Kind as _, Resource};
use serde::{Deserialize, Serialize};

pub use crate::actions_gated::{PodGroupChange, PoolChange, StorageVersionChange};
pub use crate::actions_reports::{LabelledPodChange, PolicyChange};

/// Everything that happens to a cluster before it must converge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How many managers compete for the lease.
    pub managers: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// Whether the API server enforces RBAC. Not in every storm, because it is slow.
    pub rbac: bool,
    /// Whether managers have lease lock files, so that a restarted one may take its predecessor's lease at once.
    #[serde(default)]
    pub lease_lock_files: bool,
    /// Whether a CSI driver provisions and attaches volumes, and kubelets wait for them.
    #[serde(default)]
    pub storage: bool,
    /// Whether the kinds behind feature gates that are off by default are served, and their controllers run.
    #[serde(default)]
    pub gated_kinds: bool,
    /// The actions, sorted by time.
    pub actions: Vec<TimedAction>,
}

/// An action and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedAction {
    /// Milliseconds since the start of the storm.
    pub at_ms: u64,
    /// The action.
    pub action: Action,
}

/// Something that happens to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A user changes objects.
    User(UserAction),
    /// Requests of one party fail or are delayed for a while.
    Fault(Fault),
    /// From now on until the cluster has converged without it, lists over all namespaces and watches of this kind fail,
    /// as if etcd held an object that cannot be decoded.
    FailLists(ListedKind),
    /// The API server compacts its history.
    Compact,
    /// All watches end with 410 Expired.
    ExpireWatches,
    /// All watch connections are closed.
    CutWatches,
    /// The API server is down for this number of milliseconds.
    RestartApiServer(u64),
    /// A manager is killed; requests that it has sent may still take effect.
    CrashManager(usize),
    /// A manager is asked to shut down gracefully.
    StopManager(usize),
    /// The manager that holds the lease is asked to shut down gracefully.
    StopLeader,
    /// The wall clock of a manager jumps by this number of seconds.
    SkewManagerClock(usize, i64),
    /// The wall clock of the API server jumps by this number of seconds.
    SkewServerClock(i64),
    /// A manager is paused for this number of milliseconds: it receives nothing, and requests that it was about to send
    /// are sent afterwards.
    PauseManager(usize, u64),
    /// All processes are paused for this number of milliseconds, like the guests of a suspended machine: all timers
    /// that expire meanwhile fire at once afterwards.
    FreezeMachine(u64),
    /// The connections of a manager are closed, and for this number of milliseconds certificates are rejected.
    RotateCertificates(usize, u64),
    /// A node stops sending heartbeats and running pods.
    FailNode(usize),
    /// A failed node works again.
    RecoverNode(usize),
    /// The next operations of the CSI driver go wrong, this many times.
    FailDriver(DriverOperation, DriverFault, u32),
}

/// An operation of the CSI driver that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverOperation {
    /// It creates a volume for a claim.
    Provision,
    /// It deletes a released volume.
    Delete,
    /// It expands a volume.
    Expand,
}

/// What goes wrong with an operation of the CSI driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverFault {
    /// The storage refuses.
    Refuse,
    /// Everything is done, and the driver does not learn that.
    LoseResponse,
    /// Only the first request is sent.
    Partial,
    /// The operation takes this number of milliseconds longer.
    Hang(u64),
}

/// A kind whose lists can fail. A failing kind must not affect the others through anything but a controller's start, or
/// no checker could be fair: without Jobs, for example, pods keep the Job controller's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the kinds of the API under their own names")]
pub enum ListedKind {
    Secret,
    ClusterRole,
    EndpointSlice,
    Service,
    ControllerRevision,
}

impl ListedKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Secret, Self::ClusterRole, Self::EndpointSlice, Self::Service, Self::ControllerRevision];

    /// The plural of its resource.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::ClusterRole => "clusterroles",
            Self::EndpointSlice => "endpointslices",
            Self::Service => "services",
            Self::ControllerRevision => "controllerrevisions",
        }
    }

    /// Whether the garbage collector deletes objects of this kind in a storm, or ends their foreground deletion, which
    /// users choose for Services.
    #[must_use]
    pub const fn needs_garbage_collector(self) -> bool {
        matches!(self, Self::EndpointSlice | Self::ControllerRevision | Self::Service)
    }
}

impl From<DriverOperation> for keleustes_hollow::DriverOperation {
    fn from(operation: DriverOperation) -> Self {
        match operation {
            DriverOperation::Provision => Self::Provision,
            DriverOperation::Delete => Self::Delete,
            DriverOperation::Expand => Self::Expand,
        }
    }
}

impl From<DriverFault> for keleustes_hollow::DriverFault {
    fn from(fault: DriverFault) -> Self {
        match fault {
            DriverFault::Refuse => Self::Refused,
            DriverFault::LoseResponse => Self::LostResponse,
            DriverFault::Partial => Self::Partial,
            DriverFault::Hang(time) => Self::Hang(Duration::from_millis(time)),
        }
    }
}

/// What a user does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserAction {
    /// Creates an object.
    Create(ObjectRef, ObjectSpec),
    /// Changes the number of replicas, or the parallelism of a Job.
    Scale(ObjectRef, u32),
    /// Changes the pod template.
    ChangeTemplate(ObjectRef, u32),
    /// Pauses or resumes a Deployment, suspends or resumes a Job.
    SetPaused(ObjectRef, bool),
    /// Deletes an object.
    Delete(ObjectRef, DeletePropagation),
    /// Deletes the pod of a namespace that this number selects.
    DeletePod(String, usize),
    /// Changes the labels of a pod so that its selector no longer matches, or changes them back.
    RelabelPod(String, usize),
    /// Creates a pod without a controllerRef whose labels match a selector.
    CreateStrayPod(String, String),
    /// Creates an object whose owner does not exist.
    CreateWithMissingOwner(String, String),
    /// Creates two objects that own each other.
    CreateOwnerCycle(String, String),
    /// Creates an object of this kind in this namespace whose controllerRef names an owner in another one.
    CreateWithOwnerElsewhere(DependentKind, String, ObjectRef),
    /// Creates an object with a finalizer that no controller removes.
    CreateWithFinalizer(String, String),
    /// Deletes a node.
    DeleteNode(usize),
    /// Cordons or uncordons a node.
    SetUnschedulable(usize, bool),
    /// Deletes the default ServiceAccount and the root CA ConfigMap of a namespace.
    DeleteNamespaceDefaults(String),
    /// Replaces the root CA ConfigMap of a namespace by one with another CA.
    ReplaceRootCa(String),
    /// Creates a ResourceQuota with limits that nothing reaches.
    CreateQuota(String, String),
    /// Changes what a ResourceQuota limits.
    ChangeQuota(String, String),
    /// Creates or changes the ResourceQuota of this namespace and name, whose limits refuse some objects until the storm
    /// is over; deletes it if no spec is given.
    SetQuota(String, String, Option<u8>),
    /// Raises the limits of all ResourceQuotas, so that they refuse nothing more.
    LiftQuotas,
    /// Defines the custom kind that quotas count.
    DefineWidgets,
    /// Creates or deletes an object of the custom kind.
    SetWidget(String, String, bool),
    /// Deletes an object and creates another with its name at once.
    Recreate(ObjectRef, DeletePropagation, ObjectSpec),
    /// Removes the owner references of the object of this kind and namespace that this number selects.
    RemoveOwnerReferences(DependentKind, String, usize),
    /// Creates a ServiceAccount and a token Secret for it; the Secret first if the flag is set.
    CreateTokenSecret(String, String, bool),
    /// Tampers with the token Secret of a ServiceAccount.
    TamperWithTokenSecret(String, String, TokenTampering),
    /// Deletes a ServiceAccount, and creates another with its name at once if the flag is set.
    DeleteServiceAccount(String, String, bool),
    /// Tampers with the EndpointSlice of a namespace that this number selects.
    TamperWithEndpointSlice(String, usize, SliceTampering),
    /// Changes the selector and the port of a Service.
    ChangeServiceSelector(ObjectRef, String, u16),
    /// Changes the Endpoints of a Service without a selector, which it creates first.
    ChangeCustomEndpoints(String, String, CustomEndpointsChange),
    /// Changes the zone of a node.
    SetNodeZone(usize, u8),
    /// Adds a NoExecute taint to a node, or removes it.
    SetNodeTaint(usize, bool),
    /// Deletes the ControllerRevision of a namespace that this number selects.
    DeleteControllerRevision(String, usize),
    /// Creates the aggregated ClusterRole, or overwrites its rules.
    ResetAggregatedRole,
    /// Creates or changes a ClusterRole that the aggregated one selects; deletes it if no rule is given.
    SetRolePart(String, Option<u8>),
    /// Tampers with the leader election lease.
    TamperWithLease(LeaseTampering),
    /// The original leads for this number of milliseconds as soon as a manager releases the lease, and adds the second number
    /// to `leaseTransitions`: 1, unless a test hides the term.
    LeadAsOriginal(u64, u32),
    /// Sets or removes `ttlSecondsAfterFinished` of the Job without owners in a namespace that this number selects.
    SetJobTtl(String, usize, Option<u32>),
    /// Creates a Job from the template of a CronJob, as `kubectl create job --from` does.
    RunCronJobNow(ObjectRef),
    /// Creates or changes the PodDisruptionBudget of this namespace and name; deletes it if no spec is given.
    SetBudget(String, String, Option<u8>),
    /// Creates or changes the autoscaler of the Deployment of this namespace and name; deletes it if no spec is given.
    SetAutoscaler(String, String, Option<u8>),
    /// Sets the load of the Deployment of this namespace and name, as the number of replicas that it takes.
    SetLoad(String, String, u8),
    /// Evicts the pod of a namespace that this number selects.
    EvictPod(String, usize),
    /// Changes the claim of this namespace and name, the volume named after both, or the pod that uses the claim.
    ChangeVolumes(String, String, VolumeChange),
    /// Creates a StorageVersionMigration of the resource that this number selects.
    CreateMigration(String, u8),
    /// Deletes a StorageVersionMigration.
    DeleteMigration(String),
    /// Changes the pod of this namespace and name that uses a device, its claim, or the taint of the devices of the
    /// namespace.
    ChangeDevices(String, String, DeviceChange),
    /// Changes the ServiceCIDR of this number, or the Service with an address of it.
    ChangeServiceRange(u8, ServiceRangeChange),
    /// Changes the CertificateSigningRequest of this name.
    ChangeCertificateRequest(String, CertificateRequestChange),
    /// Changes bootstrap tokens, cluster-info, a legacy token or the bundle of the API server's CA.
    ChangeCredentials(CredentialChange),
    /// Changes the claim of this namespace and name whose volume a CSI driver provisions, or the pods that use it.
    ChangeStorage(String, String, StorageChange),
    /// Sets or removes the taint of a node that is shut down for certain.
    SetOutOfService(usize, bool),
    /// Cordons a node and deletes its pods that use storage.
    DrainNode(usize),
    /// Changes the PodGroup of this namespace and name, or a pod of it.
    ChangePodGroup(String, String, PodGroupChange),
    /// Changes the identity Lease of an API server, or its record in a StorageVersion.
    ChangeStorageVersions(StorageVersionChange),
    /// Changes a pool of devices, or a ResourcePoolStatusRequest.
    ChangePools(PoolChange),
    /// Changes the ValidatingAdmissionPolicy of this name.
    ChangePolicy(String, PolicyChange),
    /// Changes pods that use one volume with SELinux labels.
    ChangeLabelledPods(LabelledPodChange),
}

/// A change to a dynamically provisioned claim, its volume, its attachments, or the pods that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageChange {
    /// Creates the claim, for one node or for several.
    CreateClaim {
        /// Its class.
        class: StorageKind,
        /// Whether several nodes may have its volume at once.
        shared: bool,
    },
    /// Selects a node for a claim that waits for its first consumer, as the scheduler does.
    SelectNode(usize),
    /// Asks for a larger volume.
    GrowClaim,
    /// Deletes the claim.
    DeleteClaim,
    /// Creates the pod of this number on a node; with an ephemeral volume if the flag is set.
    CreatePod(u8, usize, bool),
    /// Deletes the pod of this number; without waiting for its node if the flag is set.
    DeletePod(u8, bool),
    /// Changes the reclaim policy of the volume to Retain, or back.
    Retain(bool),
    /// Changes how attaching and detaching the volume goes.
    SetAttaching(Attaching),
    /// Deletes a VolumeAttachment of the volume by hand.
    DeleteAttachment,
    /// Lets the bound claim ask for the VolumeAttributesClass of this number.
    SetAttributes(u8),
    /// Gives the volume the VolumeAttributesClass that its claim asks for, as the external resizer does.
    ModifyVolume,
    /// Creates the VolumeAttributesClass of this number, or deletes it.
    SetAttributesClass(u8, bool),
}

/// The StorageClass of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageKind {
    /// Volumes are deleted with their claims.
    Deleted,
    /// Volumes are retained.
    Retained,
    /// Volumes are provisioned when a node is selected.
    Delayed,
}

/// How attaching and detaching a volume goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attaching {
    /// Both succeed at once.
    Works,
    /// Attaching takes this number of seconds.
    AttachesAfter(u16),
    /// Attaching fails.
    AttachFails,
    /// Detaching takes this number of seconds.
    DetachesAfter(u16),
    /// Detaching fails.
    DetachFails,
}

/// A change to a ServiceCIDR or to the Service with an address of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceRangeChange {
    /// Creates the ServiceCIDR.
    Create,
    /// Deletes the ServiceCIDR.
    Delete,
    /// Creates the Service.
    CreateService,
    /// Deletes the Service.
    DeleteService,
}

/// A change to a CertificateSigningRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateRequestChange {
    /// Creates a kubelet's request, with this key and number of seconds that the certificate may live.
    CreateForKubelet(u8, Option<u32>),
    /// Creates a user's request, which nothing approves by itself, with this key.
    CreateForUser(u8),
    /// Approves it, or denies it.
    Decide(bool),
    /// Deletes it.
    Delete,
}

/// A change to bootstrap tokens, cluster-info, a legacy token or the bundle of the API server's CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialChange {
    /// Sets the kubeconfig in cluster-info.
    SetKubeconfig(u8),
    /// Replaces one signature of cluster-info and removes another.
    BreakSignatures,
    /// Deletes the bootstrap token of this number and creates it again; it expires this many seconds after the start of the
    /// storm, or never.
    ReplaceToken(u8, Option<u32>),
    /// Deletes the bootstrap token of this number.
    DeleteToken(u8),
    /// Makes an invalidated legacy token valid again, and uses it.
    RestoreLegacyToken,
    /// Replaces the CA in the bundle.
    ReplaceBundle,
    /// Labels the bundle.
    LabelBundle(u8),
    /// Deletes the bundle.
    DeleteBundle,
    /// Creates another bundle of the signer.
    AddBundle(u8),
}

/// A change to a pod with a device, its claim, or the taint of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceChange {
    /// Creates the pod, and the template of its claim.
    CreatePod,
    /// Allocates the claim of the pod and reserves it, as the scheduler does.
    Allocate,
    /// Sets the phase of the pod to Succeeded.
    FinishPod,
    /// Deletes the pod.
    DeletePod,
    /// Deletes the claim of the pod.
    DeleteClaim,
    /// The same, with a request that tolerates `NoExecute` taints for this number of seconds, or always.
    AllocateTolerating(Option<u16>),
    /// Taints the devices with a rule; whether pods are evicted.
    Taint(bool),
    /// Deletes the rule.
    Untaint,
    /// Taints the device of the pod in the slice of its pool, or removes this taint.
    TaintSlice(bool),
    /// Creates a claim without an owner, which several pods share.
    CreateSharedClaim,
    /// Creates the pod of this number, which names the shared claim.
    CreateSharingPod(u8),
    /// Allocates the shared claim and reserves it for all pods that name it, as the scheduler does.
    AllocateShared,
    /// Sets the phase of the sharing pod of this number to Succeeded.
    FinishSharingPod(u8),
    /// Deletes the sharing pod of this number.
    DeleteSharingPod(u8),
    /// Deletes the shared claim.
    DeleteSharedClaim,
}

/// A change to a claim, a volume or the pod that uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeChange {
    /// Creates the claim.
    CreateClaim,
    /// Sets its phase to Bound.
    BindClaim,
    /// Deletes it.
    DeleteClaim,
    /// Removes its finalizers.
    RemoveClaimFinalizers,
    /// Creates a pod that uses the claim and has an ephemeral volume.
    CreatePod,
    /// Deletes that pod.
    DeletePod,
    /// Creates a claim with the name that the claim of the ephemeral volume needs.
    TakeEphemeralName,
    /// Deletes the claim of the ephemeral volume.
    DeleteEphemeralClaim,
    /// Creates the volume.
    CreateVolume,
    /// Sets its phase to Bound, or to Released.
    SetVolumePhase(bool),
    /// Deletes it.
    DeleteVolume,
    /// Creates a volume that is a directory of the manager's host, which the binder itself deletes or recycles.
    CreateHostPath(ReclaimPolicy),
    /// Changes the reclaim policy of that volume.
    SetReclaimPolicy(ReclaimPolicy),
}

/// The reclaim policy of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the policies of the API under their own names")]
pub enum ReclaimPolicy {
    Retain,
    Delete,
    Recycle,
}

/// How the leader election lease is tampered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseTampering {
    /// It is deleted.
    Delete,
    /// Its holderIdentity is cleared.
    ClearHolder,
}

/// A kind whose objects controllers create and users' objects own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the kinds of the API under their own names")]
pub enum DependentKind {
    Pod,
    ReplicaSet,
    ControllerRevision,
}

/// How a token Secret is tampered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenTampering {
    /// The token is removed.
    RemoveToken,
    /// The CA is replaced.
    ReplaceCa,
    /// The Secret is deleted.
    Delete,
    /// The Secret is deleted and created again.
    Recreate,
}

/// How an EndpointSlice is tampered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceTampering {
    /// Its endpoints are removed.
    RemoveEndpoints,
    /// Its endpoints are replaced by a foreign address.
    ReplaceEndpoints,
    /// It is deleted.
    Delete,
    /// Its managed-by label is removed.
    RemoveManagedByLabel,
}

/// How the Endpoints of a Service without a selector change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CustomEndpointsChange {
    /// They get the addresses of this number.
    SetAddresses(u8),
    /// They get or lose the label that excludes them from mirroring.
    SkipMirror(bool),
    /// The Service gets or loses a selector.
    SetSelector(bool),
    /// They are deleted.
    DeleteEndpoints,
    /// The Service is deleted.
    DeleteService,
}

/// An object that users create.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for a namespace itself.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() }
    }
}

/// The kinds that users create.
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
    CronJob,
}

impl Kind {
    /// The resource of the kind.
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
            Self::CronJob => objects::CronJob::RESOURCE,
        }
    }
}

/// The variable part of a new object's spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// How many replicas, or completions.
    pub replicas: u32,
    /// Which of a few pod templates.
    pub template_version: u32,
    /// How its pods behave.
    pub pods: PodBehaviour,
    /// Whether it uses the less common variant of its kind: Recreate, Parallel, a surge, Indexed, or zone hints.
    pub alternative: bool,
}

/// How pods behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodBehaviour {
    /// They start at once and run.
    Healthy,
    /// They start after 8 seconds.
    SlowStart,
    /// They crash twice before they run.
    CrashingAtFirst,
    /// They fail.
    Failing,
}

/// The deletion propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeletePropagation {
    /// Dependents are deleted after their owner.
    Background,
    /// Dependents are deleted before their owner.
    Foreground,
    /// Dependents are kept.
    Orphan,
}

impl From<DeletePropagation> for PropagationPolicy {
    fn from(propagation: DeletePropagation) -> Self {
        match propagation {
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

/// A fault that affects requests for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Whose requests.
    pub party: Party,
    /// Which requests.
    pub requests: RequestClass,
    /// What happens to them.
    pub effect: FaultEffect,
    /// How many of a hundred are affected.
    pub percent: u8,
    /// For how many milliseconds.
    pub duration_ms: u64,
}

/// A client of the API server whose requests can be affected by faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// A manager.
    Manager(usize),
    /// All nodes.
    Nodes,
    /// The provisioner of the CSI driver.
    Driver,
}

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestClass {
    /// All but GET.
    Writes,
    /// POST.
    Creates,
    /// Writes of the status subresource.
    StatusWrites,
    /// DELETE.
    Deletes,
    /// Gets and lists.
    Reads,
    /// Watches.
    Watches,
    /// All requests for pods.
    Pods,
    /// All requests for ReplicaSets.
    ReplicaSets,
    /// All requests for EndpointSlices.
    EndpointSlices,
    /// All requests for the leader election lease.
    LeaderLease,
    /// Token requests.
    TokenRequests,
    /// Watches with `sendInitialEvents=true`.
    WatchLists,
    /// Pages of lists after the first.
    ContinuedLists,
    /// All requests.
    All,
}

/// What a fault does to a request or a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultEffect {
    /// The request arrives this number of milliseconds later.
    DelayRequest(u64),
    /// The response arrives this number of milliseconds later.
    DelayResponse(u64),
    /// The server rejects the request with this status code.
    Reject(u16),
    /// The server executes the request and responds with this status code.
    ApplyThenReject(u16),
    /// The connection breaks before the request arrives.
    DropRequest,
    /// The connection breaks after the server has executed the request.
    DropResponse,
    /// The request never arrives, and the client notices it only after a long timeout.
    Hang,
    /// Watch events are held back.
    StallWatches,
    /// Watch connections break.
    BreakWatches,
    /// The watch ends with 410 Expired.
    ExpireWatches,
    /// The response breaks off in the middle.
    TruncateResponse,
    /// Pages of lists hold fewer objects than the limit.
    SmallPages,
    /// The server's watch cache is behind: lists that may be stale are, and a watch from a resourceVersion that the cache
    /// has not reached is rejected.
    StaleCache,
    /// No connection: certificates are rejected.
    RejectCertificate,
}
