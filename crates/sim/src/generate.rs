//! Generates a schedule from a seed: the user actions and their times. `faults` generates the faults.

use crate::actions::{
    Action, CertificateRequestChange, CredentialChange, CustomEndpointsChange, DeletePropagation,
    DependentKind, DeviceChange, Kind, ObjectRef, ObjectSpec, PodBehaviour, Schedule, ServiceRangeChange,
    SliceTampering, TimedAction, TokenTampering, UserAction, VolumeChange,
};
use crate::bodies::TEMPLATE_WITH_REQUESTS;
use crate::generate_devices::shared_claim_actions;
use crate::generate_gated::gated_actions;
use crate::generate_reports::{labelled_pod_actions, policy_actions};
use crate::generate_storage::{attributes_class_actions, host_path_actions, storage_actions};

/// One storm of this many has a CSI driver.
const STORAGE_EVERY: u64 = 4;
/// One storm of this many has the kinds behind feature gates. It has no divisor in common with the other numbers, so that
/// these kinds meet every other theme.
const GATED_EVERY: u64 = 7;
/// One storm of this many has admission policies, and pods that use one volume with SELinux labels.
const REPORTS_EVERY: u64 = 7;

/// The namespaces that users work in; the first always exists.
pub const NAMESPACES: [&str; 3] = ["default", "harbour", "reef"];
pub(crate) const NAMES: [&str; 3] = ["oar", "sail", "hull"];
const WORKLOADS: [Kind; 6] = [
    Kind::Deployment,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::Job,
    Kind::ReplicaSet,
    Kind::ReplicationController,
];
/// Whether users create objects whose owner is in another namespace.
const OWNERS_ELSEWHERE: bool = true;
/// Whether users tamper with the leader election lease.
const LEASE_TAMPERING: bool = true;
/// Whether leaders hand over twice in quick succession, some of them among three managers.
pub(crate) const QUICK_HANDOVERS: bool = true;
/// Whether the original leads between two managers.
pub(crate) const ORIGINAL_TERMS: bool = true;
/// In one of this number of storms, lists of one kind fail.
const FAILING_LISTS_EVERY: u64 = 8;
/// The first action comes when the managers have had time to start.
pub(crate) const FIRST_AT: u64 = 2_000;

/// The schedule of a seed.
#[must_use]
pub fn generate_schedule(seed: u64) -> Schedule {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (nodes, managers) = (rng.usize(1..4), rng.usize(1..3));
    // The third manager takes over from one that has led for a moment only.
    let managers = if QUICK_HANDOVERS && managers == 2 && seed.is_multiple_of(4) { 3 } else { managers };
    let theme = THEMES[rng.usize(..THEMES.len())];
    let mut generator =
        ScheduleGenerator { rng, created: Vec::new(), accounts: Vec::new(), nodes, managers, theme };
    let actions = generator.rng.usize(6..40);
    // Most storms take seconds, some take minutes.
    let mean_gap_ms = match generator.rng.u8(..16) {
        ..4 => 300,
        4..10 => 1_500,
        10..13 => 4_000,
        13..15 => 8_000,
        _ => 20_000,
    };
    let with_faults = generator.rng.u8(..100) < 80;
    let mut at = FIRST_AT;
    let rbac = generator.rng.u8(..100) < 20;
    // Half of all storms, whatever else is drawn.
    let lease_lock_files = seed.count_ones().is_multiple_of(2);
    let storage = seed.is_multiple_of(STORAGE_EVERY);
    let gated_kinds = seed % GATED_EVERY == 3;
    let mut schedule =
        Schedule { seed, managers, nodes, rbac, lease_lock_files, storage, gated_kinds, actions: Vec::new() };
    for _ in 0..actions {
        at += generator.rng.u64(..mean_gap_ms * 2);
        let actions = if with_faults && generator.rng.u8(..100) < 45 {
            generator.fault_actions()
        } else if LEASE_TAMPERING && !with_faults && generator.rng.u8(..100) < 15 {
            generator.lease_tampering()
        } else {
            vec![(0, generator.user_action())]
        };
        schedule
            .actions
            .extend(actions.into_iter().map(|(later, action)| TimedAction { at_ms: at + later, action }));
    }
    // The last actions are about the theme of the storm.
    for _ in 0..if theme == Theme::Everything { 0 } else { 2 } {
        at += generator.rng.u64(..5_000);
        schedule.actions.push(TimedAction { at_ms: at, action: Action::User(generator.action_about(theme)) });
    }
    schedule.actions.extend(actions_about_some_kinds(&schedule, with_faults, at));
    if with_faults && seed % FAILING_LISTS_EVERY == 1 {
        schedule.actions.extend(generator.failing_lists(at));
    }
    // Actions with a delay overlap with later ones.
    schedule.actions.sort_by_key(|timed| timed.at_ms);
    schedule
}

/// Actions about kinds that only some storms have, until this time. Each has random numbers of its own, so that a new kind
/// changes no other action of a seed.
fn actions_about_some_kinds(schedule: &Schedule, with_faults: bool, at: u64) -> Vec<TimedAction> {
    let (seed, mut actions) = (schedule.seed, Vec::new());
    if seed % BATCH_EVERY == 1 {
        actions.extend(batch_actions(seed, at));
    }
    if seed % VOLUMES_EVERY == 2 {
        actions.extend(volume_actions(seed, at));
    }
    if seed % VOLUMES_EVERY == 2 || schedule.storage {
        actions.extend(host_path_actions(seed, at));
    }
    if seed % BUDGETS_EVERY == 2 {
        actions.extend(budget_actions(seed, at));
    }
    if seed % QUOTAS_EVERY == 5 {
        actions.extend(quota_actions(seed, at));
    }
    if seed % DEVICES_EVERY == 3 {
        actions.extend(device_actions(seed, at));
        actions.extend(shared_claim_actions(seed, at));
    }
    if seed % CERTIFICATES_EVERY == 1 {
        actions.extend(certificate_actions(seed, at));
    }
    if seed % CREDENTIALS_EVERY == 2 {
        actions.extend(credential_actions(seed, at));
    }
    if seed % SERVICE_RANGES_EVERY == 4 {
        actions.extend(service_range_actions(seed, at));
    }
    if schedule.storage {
        actions.extend(storage_actions(seed, schedule.nodes, with_faults, at));
        actions.extend(attributes_class_actions(seed, at));
    }
    if seed % AUTOSCALERS_EVERY == 3 {
        actions.extend(autoscaler_actions(seed, at));
    }
    if seed % REPORTS_EVERY == 1 {
        actions.extend(policy_actions(seed, at));
        actions.extend(labelled_pod_actions(seed, at));
    }
    if schedule.gated_kinds {
        actions.extend(gated_actions(seed, at));
    }
    actions
}

/// One storm of this many has claims, volumes and pods that use them.
const VOLUMES_EVERY: u64 = 4;

/// Actions about claims and volumes, until this time, with random numbers of their own.
fn volume_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x766f_6c73);
    let until_ms = until_ms.max(FIRST_AT + 20_000);
    let mut times: Vec<u64> = (0..rng.usize(8..24)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(at, at_ms): (usize, u64)| {
        let (namespace, name) = (NAMESPACES[usize::from(rng.u8(..4) == 0)], NAMES[rng.usize(..2)]);
        // Most of the first actions create something.
        let change = match rng.u8(..100) {
            ..20 => VolumeChange::CreateClaim,
            20..40 => VolumeChange::CreatePod,
            40..50 if at < 6 => VolumeChange::CreateVolume,
            40..50 => VolumeChange::SetVolumePhase(rng.bool()),
            50..58 => VolumeChange::BindClaim,
            58..72 => VolumeChange::DeleteClaim,
            72..82 => VolumeChange::DeletePod,
            82..86 => VolumeChange::RemoveClaimFinalizers,
            86..90 => VolumeChange::TakeEphemeralName,
            90..94 => VolumeChange::DeleteEphemeralClaim,
            94..97 => VolumeChange::DeleteVolume,
            _ => VolumeChange::CreateVolume,
        };
        let action = UserAction::ChangeVolumes(namespace.to_owned(), name.to_owned(), change);
        TimedAction { at_ms, action: Action::User(action) }
    };
    times.into_iter().enumerate().map(action).collect()
}

/// One storm of this many has CronJobs and Jobs with a TTL.
const BATCH_EVERY: u64 = 4;

/// Actions about CronJobs and TTLs, until this time. They have random numbers of their own, so that the other actions
/// of a seed do not depend on them.
fn batch_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6372_6f6e);
    let mut cron_jobs: Vec<ObjectRef> = Vec::new();
    let mut actions = Vec::new();
    let until_ms = until_ms.max(FIRST_AT + 150_000);
    for _ in 0..rng.usize(4..12) {
        let created = (!cron_jobs.is_empty()).then(|| cron_jobs[rng.usize(..cron_jobs.len())].clone());
        let namespace = NAMESPACES[usize::from(rng.u8(..4) == 0)].to_owned();
        let action = match (rng.u8(..100), created) {
            (..30, _) | (_, None) => {
                let name = NAMES[rng.usize(..NAMES.len())].to_owned();
                let object = ObjectRef { kind: Kind::CronJob, namespace, name };
                cron_jobs.push(object.clone());
                let pods = if rng.u8(..4) == 0 { PodBehaviour::Failing } else { PodBehaviour::Healthy };
                let (replicas, template_version) = (rng.u32(..3), rng.u32(..3));
                UserAction::Create(
                    object,
                    ObjectSpec { replicas, template_version, pods, alternative: false },
                )
            }
            (30..45, Some(cron_job)) => UserAction::SetPaused(cron_job, rng.u8(..3) == 0),
            (45..55, Some(cron_job)) => UserAction::RunCronJobNow(cron_job),
            (55..65, Some(cron_job)) => UserAction::Delete(cron_job, DeletePropagation::Background),
            _ => {
                let ttl = Some(rng.u32(..20)).filter(|_| rng.u8(..4) > 0);
                UserAction::SetJobTtl(namespace, rng.usize(..10), ttl)
            }
        };
        actions.push((rng.u64(FIRST_AT..until_ms), Action::User(action)));
    }
    // Objects are created before they are changed.
    let mut times: Vec<u64> = actions.iter().map(|(at_ms, _)| *at_ms).collect();
    times.sort_unstable();
    times.into_iter().zip(actions).map(|(at_ms, (_, action))| TimedAction { at_ms, action }).collect()
}

/// One storm of this many has pods with devices.
const DEVICES_EVERY: u64 = 4;

/// Actions about devices, until this time, with random numbers of their own.
fn device_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6465_7669);
    let until_ms = until_ms.max(FIRST_AT + 30_000);
    let mut times: Vec<u64> = (0..rng.usize(10..30)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(at, at_ms): (usize, u64)| {
        let (namespace, name) = (NAMESPACES[usize::from(rng.u8(..4) == 0)], NAMES[rng.usize(..2)]);
        let change = match rng.u8(..100) {
            _ if at < 2 => DeviceChange::CreatePod,
            ..25 => DeviceChange::CreatePod,
            25..42 => DeviceChange::Allocate,
            // Pods leave while the storm lasts, after it, or stay.
            42..55 => DeviceChange::AllocateTolerating([None, Some(5), Some(40), Some(600)][rng.usize(..4)]),
            55..62 => DeviceChange::FinishPod,
            62..75 => DeviceChange::DeletePod,
            75..82 => DeviceChange::DeleteClaim,
            82..89 => DeviceChange::Taint(rng.u8(..4) > 0),
            89..94 => DeviceChange::Untaint,
            _ => DeviceChange::TaintSlice(rng.u8(..3) > 0),
        };
        let action = UserAction::ChangeDevices(namespace.to_owned(), name.to_owned(), change);
        TimedAction { at_ms, action: Action::User(action) }
    };
    times.into_iter().enumerate().map(action).collect()
}

/// One storm of this many has ServiceCIDRs.
const SERVICE_RANGES_EVERY: u64 = 5;

/// Actions about ServiceCIDRs, until this time, with random numbers of their own.
fn service_range_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6369_6472);
    let until_ms = until_ms.max(FIRST_AT + 60_000);
    let mut times: Vec<u64> = (0..rng.usize(8..24)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(at, at_ms): (usize, u64)| {
        let change = match rng.u8(..100) {
            _ if at < 3 => ServiceRangeChange::Create,
            ..25 => ServiceRangeChange::Create,
            25..50 => ServiceRangeChange::Delete,
            50..80 => ServiceRangeChange::CreateService,
            _ => ServiceRangeChange::DeleteService,
        };
        TimedAction { at_ms, action: Action::User(UserAction::ChangeServiceRange(rng.u8(..4), change)) }
    };
    times.into_iter().enumerate().map(action).collect()
}

/// One storm of this many has CertificateSigningRequests.
const CERTIFICATES_EVERY: u64 = 3;

/// Actions about CertificateSigningRequests, until this time, with random numbers of their own.
fn certificate_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6365_7274);
    let until_ms = until_ms.max(FIRST_AT + 30_000);
    let mut times: Vec<u64> = (0..rng.usize(6..20)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |(at, at_ms): (usize, u64)| {
        let name = NAMES[rng.usize(..NAMES.len())].to_owned();
        let change = match rng.u8(..100) {
            ..40 => {
                let seconds = [None, Some(600), Some(3_600), Some(100_000)][rng.usize(..4)];
                CertificateRequestChange::CreateForKubelet(rng.u8(1..5), seconds)
            }
            40..65 => CertificateRequestChange::CreateForUser(rng.u8(1..5)),
            _ if at < 2 => CertificateRequestChange::CreateForUser(rng.u8(1..5)),
            65..85 => CertificateRequestChange::Decide(rng.u8(..3) > 0),
            _ => CertificateRequestChange::Delete,
        };
        TimedAction { at_ms, action: Action::User(UserAction::ChangeCertificateRequest(name, change)) }
    };
    times.into_iter().enumerate().map(action).collect()
}

/// In one storm of this many, users change bootstrap tokens, cluster-info, a legacy token and the bundle of the CA.
const CREDENTIALS_EVERY: u64 = 3;

/// Actions about credentials, until this time, with random numbers of their own.
fn credential_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6372_6564);
    let until_ms = until_ms.max(FIRST_AT + 30_000);
    let mut times: Vec<u64> = (0..rng.usize(6..20)).map(|_| rng.u64(FIRST_AT..until_ms)).collect();
    times.sort_unstable();
    let action = |at_ms: u64| {
        let change = match rng.u8(..100) {
            ..15 => CredentialChange::SetKubeconfig(rng.u8(..4)),
            15..25 => CredentialChange::BreakSignatures,
            25..50 => {
                let now = u32::try_from(at_ms / 1_000).unwrap_or(u32::MAX / 2);
                let seconds = Some(now + rng.u32(1..60)).filter(|_| rng.u8(..5) > 0);
                CredentialChange::ReplaceToken(rng.u8(..3), seconds)
            }
            50..58 => CredentialChange::DeleteToken(rng.u8(..3)),
            58..66 => CredentialChange::RestoreLegacyToken,
            66..76 => CredentialChange::ReplaceBundle,
            76..80 => CredentialChange::LabelBundle(rng.u8(..4)),
            80..90 => CredentialChange::DeleteBundle,
            _ => CredentialChange::AddBundle(rng.u8(..2)),
        };
        TimedAction { at_ms, action: Action::User(UserAction::ChangeCredentials(change)) }
    };
    times.into_iter().map(action).collect()
}

/// One storm of this many has autoscalers.
const AUTOSCALERS_EVERY: u64 = 5;

/// Actions about autoscalers, until this time, with random numbers of their own. Each begins with a Deployment and a load.
fn autoscaler_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6870_6173);
    let until_ms = until_ms.max(FIRST_AT + 240_000);
    let place = |rng: &mut fastrand::Rng| (NAMESPACES[0].to_owned(), NAMES[rng.usize(..2)].to_owned());
    let mut actions = Vec::new();
    for name in &NAMES[..2] {
        let object = ObjectRef {
            kind: Kind::Deployment,
            namespace: NAMESPACES[0].to_owned(),
            name: (*name).to_owned(),
        };
        let (replicas, template_version) = (rng.u32(1..4), rng.u32(..3));
        let spec = ObjectSpec { replicas, template_version, pods: PodBehaviour::Healthy, alternative: false };
        actions.push((FIRST_AT, UserAction::Create(object, spec)));
    }
    for _ in 0..rng.usize(6..20) {
        let (namespace, name) = place(&mut rng);
        let action = match rng.u8(..100) {
            ..40 => {
                let spec = Some(rng.u8(..5)).filter(|_| rng.u8(..6) > 0);
                UserAction::SetAutoscaler(namespace, name, spec)
            }
            40..90 => UserAction::SetLoad(namespace, name, rng.u8(..10)),
            _ => {
                let object = ObjectRef { kind: Kind::Deployment, namespace, name };
                UserAction::Scale(object, rng.u32(..10))
            }
        };
        actions.push((rng.u64(FIRST_AT..until_ms), action));
    }
    actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action: Action::User(action) }).collect()
}

/// One storm of this many has PodDisruptionBudgets and evictions.
const BUDGETS_EVERY: u64 = 3;

/// Actions about budgets, until this time. They have random numbers of their own, like [`batch_actions`].
fn budget_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x0070_6462);
    let until_ms = until_ms.max(FIRST_AT + 60_000);
    let action = |rng: &mut fastrand::Rng| {
        let namespace = NAMESPACES[usize::from(rng.u8(..4) == 0)].to_owned();
        match rng.u8(..100) {
            ..50 => {
                let spec = Some(rng.u8(..5)).filter(|_| rng.u8(..5) > 0);
                UserAction::SetBudget(namespace, NAMES[rng.usize(..NAMES.len())].to_owned(), spec)
            }
            _ => UserAction::EvictPod(namespace, rng.usize(..20)),
        }
    };
    let count = rng.usize(6..20);
    let actions = (0..count)
        .map(|_| TimedAction { at_ms: rng.u64(FIRST_AT..until_ms), action: Action::User(action(&mut rng)) });
    actions.collect()
}

/// One storm of this many has ResourceQuotas that refuse objects.
const QUOTAS_EVERY: u64 = 8;

/// Actions about quotas, until this time, with random numbers of their own.
fn quota_actions(seed: u64, until_ms: u64) -> Vec<TimedAction> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7175_6f74);
    let until_ms = until_ms.max(FIRST_AT + 60_000);
    let action = |rng: &mut fastrand::Rng| {
        let namespace = NAMESPACES[usize::from(rng.u8(..4) == 0)].to_owned();
        let name = NAMES[rng.usize(..NAMES.len())].to_owned();
        match rng.u8(..100) {
            ..50 => UserAction::SetQuota(namespace, name, Some(rng.u8(..5)).filter(|_| rng.u8(..5) > 0)),
            50..80 => UserAction::SetWidget(namespace, name, rng.u8(..3) > 0),
            _ => {
                let kind = if rng.bool() { Kind::ReplicaSet } else { Kind::Service };
                let (replicas, template_version) = (rng.u32(1..5), TEMPLATE_WITH_REQUESTS - rng.u32(..2));
                let spec = ObjectSpec {
                    replicas,
                    template_version,
                    pods: PodBehaviour::Healthy,
                    alternative: false,
                };
                UserAction::Create(ObjectRef { kind, namespace, name }, spec)
            }
        }
    };
    let count = rng.usize(10..24);
    let mut actions = vec![(FIRST_AT, UserAction::DefineWidgets), (until_ms, UserAction::LiftQuotas)];
    actions.extend((0..count).map(|_| (rng.u64(FIRST_AT..until_ms), action(&mut rng))));
    // Raised limits let every quota be counted again, which would hide that a deletion was not noticed.
    for _ in 0..rng.usize(3..10) {
        let (namespace, name) = (NAMESPACES[0].to_owned(), NAMES[rng.usize(..NAMES.len())].to_owned());
        let action = match rng.u8(..3) {
            0 => UserAction::SetWidget(namespace, name, rng.bool()),
            1 => UserAction::DeletePod(namespace, rng.usize(..20)),
            _ => {
                let object = ObjectRef { kind: Kind::ReplicaSet, namespace, name };
                UserAction::Scale(object, rng.u32(..3))
            }
        };
        actions.push((until_ms + rng.u64(5_000..60_000), action));
    }
    actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action: Action::User(action) }).collect()
}

/// The area that most user actions of a storm are about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    Everything,
    Services,
    Accounts,
    Nodes,
    Owners,
}

const THEMES: [Theme; 8] = [
    Theme::Everything,
    Theme::Everything,
    Theme::Everything,
    Theme::Services,
    Theme::Accounts,
    Theme::Nodes,
    Theme::Owners,
    Theme::Owners,
];

pub(crate) struct ScheduleGenerator {
    pub(crate) rng: fastrand::Rng,
    created: Vec<ObjectRef>,
    /// The ServiceAccounts with token Secrets.
    accounts: Vec<(String, String)>,
    pub(crate) nodes: usize,
    pub(crate) managers: usize,
    theme: Theme,
}

impl ScheduleGenerator {
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    /// A namespace, mostly one that was created.
    fn namespace(&mut self) -> String {
        let created = self.created.iter().filter(|object| object.kind == Kind::Namespace);
        let known: Vec<_> =
            created.map(|object| object.name.clone()).chain([NAMESPACES[0].to_owned()]).collect();
        match self.rng.u8(..100) {
            ..25 => self.pick(&NAMESPACES).to_owned(),
            _ => known[self.rng.usize(..known.len())].clone(),
        }
    }

    /// A ServiceAccount, mostly one with a token Secret.
    fn account(&mut self) -> (String, String) {
        let known = self.rng.u8(..100) < 80 && !self.accounts.is_empty();
        if known {
            self.accounts[self.rng.usize(..self.accounts.len())].clone()
        } else {
            (self.namespace(), self.name())
        }
    }

    fn name(&mut self) -> String {
        self.pick(&NAMES).to_owned()
    }

    /// An object that was created, if any was.
    fn created(&mut self) -> Option<ObjectRef> {
        (!self.created.is_empty()).then(|| self.created[self.rng.usize(..self.created.len())].clone())
    }

    /// A user action.
    pub(crate) fn user_action(&mut self) -> Action {
        let use_theme = self.theme != Theme::Everything && self.rng.u8(..100) < 40;
        let theme = if use_theme {
            self.theme
        } else {
            match self.rng.u8(..100) {
                ..78 => Theme::Everything,
                78..84 => Theme::Services,
                84..89 => Theme::Accounts,
                89..94 => Theme::Nodes,
                _ => Theme::Owners,
            }
        };
        Action::User(self.action_about(theme))
    }

    fn action_about(&mut self, theme: Theme) -> UserAction {
        match theme {
            Theme::Everything => self.workload_action(),
            Theme::Services => self.service_action(),
            Theme::Accounts => self.account_action(),
            Theme::Nodes => self.node_action(),
            Theme::Owners => self.ownership_action(),
        }
    }

    /// Everyday actions on workloads, and some disruptive ones.
    fn workload_action(&mut self) -> UserAction {
        let created = self.created();
        match (self.rng.u8(..100), created) {
            (..36, _) | (36..84, None) => self.creation(),
            (36..48, Some(object)) => UserAction::Scale(object, self.rng.u32(..5)),
            (48..60, Some(object)) => UserAction::ChangeTemplate(object, self.rng.u32(..4)),
            (60..65, Some(object)) => UserAction::SetPaused(object, self.rng.bool()),
            (65..78, Some(object)) => UserAction::Delete(object, self.propagation()),
            (78..84, Some(object)) => self.recreation(object),
            (84..91, _) => UserAction::DeletePod(self.namespace(), self.rng.usize(..20)),
            (91..94, _) => UserAction::CreateWithMissingOwner(self.namespace(), self.name()),
            (94..97, _) => UserAction::CreateOwnerCycle(self.namespace(), self.name()),
            _ => UserAction::CreateWithFinalizer(self.namespace(), self.name()),
        }
    }

    fn service_action(&mut self) -> UserAction {
        let service = self.created.iter().rfind(|object| object.kind == Kind::Service).cloned();
        match (self.rng.u8(..100), service) {
            (..45, _) | (_, None) => {
                // Most Services select the pods of an existing workload.
                let workload = self.created().filter(|_| self.rng.u8(..100) < 75);
                let (namespace, name) =
                    workload.filter(|workload| workload.kind != Kind::Namespace).map_or_else(
                        || (self.namespace(), self.name()),
                        |workload| (workload.namespace, workload.name),
                    );
                let object = ObjectRef { kind: Kind::Service, namespace, name };
                self.created.push(object.clone());
                let spec = ObjectSpec { alternative: self.rng.bool(), ..self.spec_for(Kind::Service) };
                UserAction::Create(object, spec)
            }
            (45..65, Some(service)) => {
                let tampering = self.pick(&[
                    SliceTampering::RemoveEndpoints,
                    SliceTampering::ReplaceEndpoints,
                    SliceTampering::Delete,
                    SliceTampering::RemoveManagedByLabel,
                ]);
                UserAction::TamperWithEndpointSlice(service.namespace, self.rng.usize(..5), tampering)
            }
            (65..80, Some(service)) => {
                let (name, port) = (self.name(), self.pick(&[80, 81, 82]));
                UserAction::ChangeServiceSelector(service, name, port)
            }
            (80..90, _) => {
                let change = self.custom_endpoints_change();
                UserAction::ChangeCustomEndpoints(self.namespace(), self.name(), change)
            }
            _ => UserAction::SetNodeZone(self.rng.usize(..self.nodes), self.rng.u8(..3)),
        }
    }

    fn custom_endpoints_change(&mut self) -> CustomEndpointsChange {
        match self.rng.u8(..10) {
            0 => CustomEndpointsChange::SkipMirror(self.rng.bool()),
            1 => CustomEndpointsChange::SetSelector(self.rng.bool()),
            2 => CustomEndpointsChange::DeleteEndpoints,
            3 => CustomEndpointsChange::DeleteService,
            _ => CustomEndpointsChange::SetAddresses(self.rng.u8(..5)),
        }
    }

    fn account_action(&mut self) -> UserAction {
        match self.rng.u8(..100) {
            ..25 => {
                let (namespace, name) = (self.namespace(), self.name());
                self.accounts.push((namespace.clone(), name.clone()));
                UserAction::CreateTokenSecret(namespace, name, self.rng.u8(..100) < 20)
            }
            25..45 => {
                let tampering = self.pick(&[
                    TokenTampering::RemoveToken,
                    TokenTampering::ReplaceCa,
                    TokenTampering::Delete,
                    TokenTampering::Recreate,
                ]);
                let (namespace, name) = self.account();
                UserAction::TamperWithTokenSecret(namespace, name, tampering)
            }
            45..60 => {
                let (namespace, name) = self.account();
                UserAction::DeleteServiceAccount(namespace, name, self.rng.bool())
            }
            60..68 => UserAction::ResetAggregatedRole,
            68..84 => {
                let allows = Some(self.rng.u8(..4)).filter(|_| self.rng.u8(..100) < 75);
                UserAction::SetRolePart(self.name(), allows)
            }
            84 => UserAction::ReplaceRootCa(self.namespace()),
            85 if self.rng.u8(..100) < 15 => UserAction::DeleteMigration(self.name()),
            85 => UserAction::CreateMigration(self.name(), self.rng.u8(..4)),
            86..89 => UserAction::CreateQuota(self.namespace(), self.name()),
            89 => UserAction::ChangeQuota(self.namespace(), self.name()),
            _ => UserAction::DeleteNamespaceDefaults(self.namespace()),
        }
    }

    fn node_action(&mut self) -> UserAction {
        let node = self.rng.usize(..self.nodes);
        match self.rng.u8(..100) {
            ..25 => UserAction::DeleteNode(node),
            25..45 => UserAction::SetUnschedulable(node, self.rng.bool()),
            45..70 => UserAction::SetNodeTaint(node, self.rng.u8(..100) < 65),
            70..85 => UserAction::SetNodeZone(node, self.rng.u8(..3)),
            _ => UserAction::CreateStrayPod(self.namespace(), self.name()),
        }
    }

    fn ownership_action(&mut self) -> UserAction {
        let created = self.created();
        match (self.rng.u8(..100), created) {
            (..25, Some(object)) => self.recreation(object),
            (25..32, Some(object)) => UserAction::Delete(object, DeletePropagation::Orphan),
            (..60, _) => {
                let child = self.pick(&[
                    DependentKind::Pod,
                    DependentKind::Pod,
                    DependentKind::ReplicaSet,
                    DependentKind::ControllerRevision,
                ]);
                UserAction::RemoveOwnerReferences(child, self.namespace(), self.rng.usize(..20))
            }
            (60..75, _) => UserAction::RelabelPod(self.namespace(), self.rng.usize(..20)),
            (75..87, _) => UserAction::CreateStrayPod(self.namespace(), self.name()),
            (87..94, Some(owner))
                if OWNERS_ELSEWHERE && !matches!(owner.kind, Kind::Namespace | Kind::Service) =>
            {
                self.owner_elsewhere(owner)
            }
            _ => UserAction::DeleteControllerRevision(self.namespace(), self.rng.usize(..10)),
        }
    }

    /// An object in another namespace that claims this owner as its controller.
    fn owner_elsewhere(&mut self, owner: ObjectRef) -> UserAction {
        let others: Vec<_> = NAMESPACES.into_iter().filter(|name| *name != owner.namespace).collect();
        let namespace = self.pick(&others).to_owned();
        let kind = match owner.kind {
            Kind::Deployment => self.pick(&[DependentKind::ReplicaSet, DependentKind::Pod]),
            _ => DependentKind::Pod,
        };
        let target = ObjectRef { kind: Kind::Namespace, namespace: String::new(), name: namespace.clone() };
        if namespace != NAMESPACES[0] && !self.created.contains(&target) {
            self.created.push(target);
        }
        UserAction::CreateWithOwnerElsewhere(kind, namespace, owner)
    }

    fn recreation(&mut self, object: ObjectRef) -> UserAction {
        let (propagation, spec) = (self.propagation(), self.spec_for(object.kind));
        UserAction::Recreate(object, propagation, spec)
    }

    pub(crate) fn creation(&mut self) -> UserAction {
        let roll = self.rng.u8(..100);
        let object = if roll < 12 {
            let name = self.pick(&NAMESPACES[1..]).to_owned();
            ObjectRef { kind: Kind::Namespace, namespace: String::new(), name }
        } else {
            let kind = if roll < 20 { Kind::Service } else { self.pick(&WORKLOADS) };
            ObjectRef { kind, namespace: self.namespace(), name: self.name() }
        };
        self.create_action(object)
    }

    pub(crate) fn create_action(&mut self, object: ObjectRef) -> UserAction {
        let spec = self.spec_for(object.kind);
        self.created.push(object.clone());
        UserAction::Create(object, spec)
    }

    fn spec_for(&mut self, kind: Kind) -> ObjectSpec {
        let pods = self.pick(&[
            PodBehaviour::Healthy,
            PodBehaviour::Healthy,
            PodBehaviour::Healthy,
            PodBehaviour::SlowStart,
            PodBehaviour::CrashingAtFirst,
            PodBehaviour::Failing,
        ]);
        let pods =
            if kind != Kind::Job && pods == PodBehaviour::Failing { PodBehaviour::Healthy } else { pods };
        let (replicas, template_version) = (self.rng.u32(..4), self.rng.u32(..4));
        ObjectSpec { replicas, template_version, pods, alternative: self.rng.u8(..100) < 30 }
    }

    fn propagation(&mut self) -> DeletePropagation {
        self.pick(&[
            DeletePropagation::Background,
            DeletePropagation::Background,
            DeletePropagation::Foreground,
            DeletePropagation::Orphan,
        ])
    }
}
