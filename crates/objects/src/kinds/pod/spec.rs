//! The part of a pod spec that all pods of a template share.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::PodParts;
use super::inline_volumes::{InlineVolume, WireInlineSource};
use super::resources::{InitRequests, ResourceList, pod_level_requests};
use super::secrets::{
    EnvFromSource, EnvVar, ProjectedVolume, SecretReference, SecretVolume, VolumeWithSecret,
};
use super::selinux::{SelinuxSpec, SelinuxVolumeSource, WireMount, WireSecurityContext};
use crate::meta::{null_is_default, null_is_empty};
use crate::placement::WireAffinity;
use crate::{ArcStr, ClaimEntry, InternedStr, PersistentVolumeSource, Toleration};

/// The fields of a pod spec that come from the template and that a controller reads. A field that differs between pods
/// of one template must not be here, because then they could not share the allocation.
///
/// Each field is in one of the [`PodParts`]; a method panics if its part is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSpec {
    parts: PodParts,
    has_cross_namespace_affinity: bool,
    containers: Box<[Container]>,
    pub(super) sidecars: Box<[Container]>,
    init_containers: Box<[Container]>,
    tolerations: Box<[Toleration]>,
    subdomain: InternedStr,
    secret_names: Box<[InternedStr]>,
    resource_claims: Box<[ClaimEntry]>,
    pod_group_name: InternedStr,
    ephemeral_volumes: Box<[InternedStr]>,
    inline_volumes: Box<[InlineVolume]>,
    pod_level_requests: Option<ResourceList>,
    pod_level_resources: Option<ResourceRequirements>,
    overhead: ResourceList,
    active_deadline_seconds: Option<i64>,
    priority_class_name: InternedStr,
    selinux: Option<Box<SelinuxSpec>>,
}

impl PodSpec {
    /// The parts of the pod that are kept.
    #[must_use]
    pub fn parts(&self) -> PodParts {
        self.parts
    }

    /// Drops the fields of all other parts.
    pub(super) fn keeping(self, parts: PodParts) -> Self {
        if parts.contains(self.parts) {
            return self;
        }
        let (parts, all) = (self.parts.intersection(parts), self);
        let mut kept = Self { parts, ..Self::default() };
        let lists = [all.containers, all.sidecars, all.init_containers];
        let [containers, sidecars, init_containers] =
            lists.map(|list| list.into_iter().map(|container| container.keeping(parts)).collect());
        if parts.intersects(WITH_CONTAINERS) {
            (kept.containers, kept.sidecars) = (containers, sidecars);
        }
        if parts.contains(PodParts::RESOURCES) {
            kept.init_containers = init_containers;
            kept.pod_level_requests = all.pod_level_requests;
            kept.pod_level_resources = all.pod_level_resources;
            kept.overhead = all.overhead;
            kept.active_deadline_seconds = all.active_deadline_seconds;
            kept.priority_class_name = all.priority_class_name;
            kept.has_cross_namespace_affinity = all.has_cross_namespace_affinity;
        }
        if parts.contains(PodParts::SECRET_NAMES) {
            kept.secret_names = all.secret_names;
        }
        if parts.contains(PodParts::INLINE_VOLUMES) {
            kept.inline_volumes = all.inline_volumes;
        }
        if parts.contains(PodParts::VOLUME_CLAIMS) {
            kept.ephemeral_volumes = all.ephemeral_volumes;
        }
        if parts.contains(PodParts::RESOURCE_CLAIMS) {
            kept.resource_claims = all.resource_claims;
        }
        if parts.contains(PodParts::POD_GROUP) {
            kept.pod_group_name = all.pod_group_name;
        }
        if parts.contains(PodParts::ENDPOINTS) {
            kept.subdomain = all.subdomain;
        }
        if parts.contains(PodParts::TOLERATIONS) {
            kept.tolerations = all.tolerations;
        }
        if parts.contains(PodParts::SELINUX) {
            kept.selinux = all.selinux;
        }
        kept
    }

    /// The spec, if a part is kept.
    fn kept(&self, part: PodParts) -> &Self {
        self.parts.require(part);
        self
    }

    /// Its containers; part [`PodParts::RESOURCES`] or [`PodParts::ENDPOINTS`].
    #[must_use]
    pub fn containers(&self) -> &[Container] {
        self.parts.require_any(WITH_CONTAINERS);
        &self.containers
    }

    /// Sidecars: init containers with `restartPolicy: Always`; part [`PodParts::RESOURCES`] or [`PodParts::ENDPOINTS`].
    #[must_use]
    pub fn sidecars(&self) -> &[Container] {
        self.parts.require_any(WITH_CONTAINERS);
        &self.sidecars
    }

    /// All init containers, in order, sidecars included; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn init_containers(&self) -> &[Container] {
        &self.kept(PodParts::RESOURCES).init_containers
    }

    /// `tolerations`; part [`PodParts::TOLERATIONS`].
    #[must_use]
    pub fn tolerations(&self) -> &[Toleration] {
        &self.kept(PodParts::TOLERATIONS).tolerations
    }

    /// `subdomain`; part [`PodParts::ENDPOINTS`].
    #[must_use]
    pub fn subdomain(&self) -> &InternedStr {
        &self.kept(PodParts::ENDPOINTS).subdomain
    }

    /// The Secrets that containers, volumes and `imagePullSecrets` refer to, sorted; part [`PodParts::SECRET_NAMES`].
    #[must_use]
    pub fn secret_names(&self) -> &[InternedStr] {
        &self.kept(PodParts::SECRET_NAMES).secret_names
    }

    /// `resourceClaims`; part [`PodParts::RESOURCE_CLAIMS`].
    #[must_use]
    pub fn resource_claims(&self) -> &[ClaimEntry] {
        &self.kept(PodParts::RESOURCE_CLAIMS).resource_claims
    }

    /// `schedulingGroup.podGroupName`, empty if the pod is in no PodGroup; part [`PodParts::POD_GROUP`].
    #[must_use]
    pub fn pod_group_name(&self) -> &InternedStr {
        &self.kept(PodParts::POD_GROUP).pod_group_name
    }

    /// The names of the generic ephemeral volumes, in order; part [`PodParts::VOLUME_CLAIMS`].
    #[must_use]
    pub fn ephemeral_volumes(&self) -> &[InternedStr] {
        &self.kept(PodParts::VOLUME_CLAIMS).ephemeral_volumes
    }

    /// The inline volumes of plugins that attach volumes, or that did before their migration to CSI, in order; part
    /// [`PodParts::INLINE_VOLUMES`].
    #[must_use]
    pub fn inline_volumes(&self) -> &[InlineVolume] {
        &self.kept(PodParts::INLINE_VOLUMES).inline_volumes
    }

    /// The requests of the whole pod, if `resources` sets some of them, as `PodRequests` of component-helpers
    /// computes them; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn pod_level_requests(&self) -> Option<&ResourceList> {
        self.kept(PodParts::RESOURCES).pod_level_requests.as_ref()
    }

    /// `resources`, those of the pod as a whole; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn pod_level_resources(&self) -> Option<&ResourceRequirements> {
        self.kept(PodParts::RESOURCES).pod_level_resources.as_ref()
    }

    /// `overhead`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn overhead(&self) -> &ResourceList {
        &self.kept(PodParts::RESOURCES).overhead
    }

    /// What decides the SELinux labels of its volumes; part [`PodParts::SELINUX`].
    #[must_use]
    pub fn selinux(&self) -> &SelinuxSpec {
        static NONE: LazyLock<SelinuxSpec> = LazyLock::new(SelinuxSpec::default);
        self.kept(PodParts::SELINUX).selinux.as_deref().unwrap_or(&NONE)
    }

    /// `activeDeadlineSeconds`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn active_deadline_seconds(&self) -> Option<i64> {
        self.kept(PodParts::RESOURCES).active_deadline_seconds
    }

    /// `priorityClassName`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn priority_class_name(&self) -> &InternedStr {
        &self.kept(PodParts::RESOURCES).priority_class_name
    }

    /// Whether a term of the pod affinity or anti-affinity has namespaces or a namespace selector; part
    /// [`PodParts::RESOURCES`].
    #[must_use]
    pub fn has_cross_namespace_affinity(&self) -> bool {
        self.kept(PodParts::RESOURCES).has_cross_namespace_affinity
    }
}

/// The parts for which containers are kept.
const WITH_CONTAINERS: PodParts = PodParts::RESOURCES.and(PodParts::ENDPOINTS);

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// `requests`.
    pub requests: ResourceList,
    /// `limits`.
    pub limits: ResourceList,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Container {
    /// Its name.
    pub name: InternedStr,
    /// Whether it is a sidecar.
    pub is_sidecar: bool,
    parts: PodParts,
    ports: Box<[ContainerPort]>,
    requests: ResourceList,
    limits: ResourceList,
}

impl Container {
    /// Drops the fields of all other parts.
    fn keeping(mut self, parts: PodParts) -> Self {
        if !parts.contains(PodParts::RESOURCES) {
            (self.requests, self.limits) = (ResourceList::default(), ResourceList::default());
        }
        if !parts.contains(PodParts::ENDPOINTS) {
            self.ports = Box::default();
        }
        Self { parts: self.parts.intersection(parts), ..self }
    }

    fn kept(&self, part: PodParts) -> &Self {
        self.parts.require(part);
        self
    }

    /// The ports it declares; part [`PodParts::ENDPOINTS`].
    #[must_use]
    pub fn ports(&self) -> &[ContainerPort] {
        &self.kept(PodParts::ENDPOINTS).ports
    }

    /// `resources.requests`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn requests(&self) -> &ResourceList {
        &self.kept(PodParts::RESOURCES).requests
    }

    /// `resources.limits`; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn limits(&self) -> &ResourceList {
        &self.kept(PodParts::RESOURCES).limits
    }
}

/// A port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Its name, if it has one.
    pub name: InternedStr,
    /// Its number.
    pub container_port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: InternedStr,
}

impl Default for ContainerPort {
    fn default() -> Self {
        Self { name: InternedStr::default(), container_port: 0, protocol: "TCP".into() }
    }
}

/// The part of a pod spec that differs between pods of a template.
pub(super) struct Own {
    pub(super) node_name: InternedStr,
    pub(super) hostname: ArcStr,
    pub(super) affinity_node: Option<InternedStr>,
    pub(super) claims: Vec<(InternedStr, ArcStr)>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireSpec {
    #[serde(deserialize_with = "null_is_empty")]
    containers: Box<[WireContainer]>,
    #[serde(deserialize_with = "null_is_empty")]
    init_containers: Box<[WireContainer]>,
    #[serde(deserialize_with = "null_is_empty")]
    ephemeral_containers: Box<[WireContainer]>,
    #[serde(deserialize_with = "null_is_empty")]
    image_pull_secrets: Box<[SecretReference]>,
    #[serde(deserialize_with = "null_is_empty")]
    tolerations: Box<[Toleration]>,
    subdomain: InternedStr,
    resources: Option<ResourceRequirements>,
    overhead: ResourceList,
    active_deadline_seconds: Option<i64>,
    priority_class_name: InternedStr,
    node_name: InternedStr,
    hostname: ArcStr,
    affinity: Option<WireAffinity>,
    #[serde(deserialize_with = "null_is_empty")]
    volumes: Box<[WireVolume]>,
    #[serde(deserialize_with = "null_is_empty")]
    resource_claims: Box<[ClaimEntry]>,
    #[serde(deserialize_with = "null_is_default")]
    scheduling_group: WireSchedulingGroup,
    #[serde(deserialize_with = "null_is_default")]
    security_context: WireSecurityContext,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSchedulingGroup {
    #[serde(deserialize_with = "null_is_default")]
    pod_group_name: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    name: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    ports: Box<[ContainerPort]>,
    restart_policy: InternedStr,
    #[serde(deserialize_with = "null_is_empty")]
    env: Box<[EnvVar]>,
    #[serde(deserialize_with = "null_is_empty")]
    env_from: Box<[EnvFromSource]>,
    #[serde(deserialize_with = "null_is_default")]
    resources: ResourceRequirements,
    #[serde(deserialize_with = "null_is_empty")]
    volume_mounts: Box<[WireMount]>,
    #[serde(deserialize_with = "null_is_default")]
    security_context: WireSecurityContext,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: ArcStr,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<IgnoredAny>,
    secret: Option<SecretVolume>,
    projected: Option<ProjectedVolume>,
    azure_file: Option<Box<WireInlineSource>>,
    cephfs: Option<VolumeWithSecret>,
    cinder: Option<Box<WireInlineSource>>,
    flex_volume: Option<Box<WireInlineSource>>,
    rbd: Option<VolumeWithSecret>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<VolumeWithSecret>,
    iscsi: Option<Box<WireInlineSource>>,
    storageos: Option<VolumeWithSecret>,
    csi: Option<Box<WireInlineSource>>,
    fc: Option<Box<WireInlineSource>>,
    aws_elastic_block_store: Option<Box<WireInlineSource>>,
    gce_persistent_disk: Option<Box<WireInlineSource>>,
    azure_disk: Option<Box<WireInlineSource>>,
    vsphere_volume: Option<Box<WireInlineSource>>,
    portworx_volume: Option<Box<WireInlineSource>>,
    host_path: Option<Box<WireInlineSource>>,
    nfs: Option<Box<WireInlineSource>>,
}

type ToSource = fn(&WireInlineSource) -> PersistentVolumeSource;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    claim_name: ArcStr,
}

impl WireSpec {
    /// Separates the fields of the pod from those of its template, with all parts.
    pub(super) fn split(self) -> (Own, PodSpec) {
        let secret_names = self.secret_names();
        let ephemeral = self.volumes.iter().filter(|volume| volume.ephemeral.is_some());
        let ephemeral_volumes = ephemeral.map(|volume| InternedStr::from(&*volume.name)).collect();
        let inline_volumes = self.volumes.iter().filter_map(WireVolume::inline_volume).collect();
        let pod_level_requests = self.pod_level_requests();
        let selinux = self.selinux();
        let claim = |volume: WireVolume| {
            Some((InternedStr::from(&*volume.name), volume.persistent_volume_claim?.claim_name))
        };
        let has_cross_namespace_affinity =
            self.affinity.as_ref().is_some_and(WireAffinity::is_cross_namespace);
        let own = Own {
            node_name: self.node_name,
            hostname: self.hostname,
            affinity_node: self.affinity.and_then(named_node),
            claims: self.volumes.into_iter().filter_map(claim).collect(),
        };
        let init = |init: WireContainer| {
            let is_sidecar = init.restart_policy == "Always";
            Container { is_sidecar, ..init.into_container() }
        };
        let init_containers: Box<[Container]> = self.init_containers.into_iter().map(init).collect();
        let spec = PodSpec {
            parts: PodParts::ALL,
            containers: self.containers.into_iter().map(WireContainer::into_container).collect(),
            sidecars: init_containers.iter().filter(|container| container.is_sidecar).cloned().collect(),
            init_containers,
            tolerations: self.tolerations,
            subdomain: self.subdomain,
            secret_names,
            resource_claims: self.resource_claims,
            pod_group_name: self.scheduling_group.pod_group_name,
            ephemeral_volumes,
            inline_volumes,
            pod_level_requests,
            pod_level_resources: self.resources,
            overhead: self.overhead,
            active_deadline_seconds: self.active_deadline_seconds,
            priority_class_name: self.priority_class_name,
            has_cross_namespace_affinity,
            selinux: (selinux != SelinuxSpec::default()).then(|| Box::new(selinux)),
        };
        (own, spec)
    }

    fn selinux(&self) -> SelinuxSpec {
        let containers = [&self.init_containers, &self.containers, &self.ephemeral_containers];
        let containers = containers.into_iter().flatten();
        SelinuxSpec::new(
            &self.security_context,
            containers.map(|container| (&container.security_context, &*container.volume_mounts)),
            self.volumes.iter().map(|volume| (InternedStr::from(&*volume.name), volume.selinux_source())),
        )
    }

    fn pod_level_requests(&self) -> Option<ResourceList> {
        let containers = self.containers.iter().map(|container| &container.resources.requests);
        let init_containers = self.init_containers.iter().map(|init| InitRequests {
            requests: &init.resources.requests,
            is_sidecar: init.restart_policy == "Always",
        });
        let set = &self.resources.as_ref()?.requests;
        pod_level_requests(set, &self.overhead, containers, init_containers)
    }

    /// The Secrets that the spec refers to. Parity: VisitPodSecretNames.
    fn secret_names(&self) -> Box<[InternedStr]> {
        let mut names = BTreeSet::new();
        let mut add = |name: &InternedStr| {
            names.insert(name.clone());
        };
        self.image_pull_secrets.iter().for_each(|reference| add(&reference.name));
        let containers =
            self.containers.iter().chain(&self.init_containers).chain(&self.ephemeral_containers);
        for container in containers {
            let keys = container.env.iter().filter_map(EnvVar::secret);
            keys.chain(container.env_from.iter().filter_map(EnvFromSource::secret)).for_each(&mut add);
        }
        self.volumes.iter().for_each(|volume| volume.visit_secrets(&mut add));
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }
}

impl WireVolume {
    /// Where the volume comes from, for its SELinux label.
    fn selinux_source(&self) -> SelinuxVolumeSource {
        if self.ephemeral.is_some() {
            return SelinuxVolumeSource::EphemeralClaim;
        }
        if self.persistent_volume_claim.as_ref().is_some_and(|claim| !claim.claim_name.is_empty()) {
            return SelinuxVolumeSource::Claim;
        }
        let of_node =
            [(&self.host_path, WireInlineSource::host_path as ToSource), (&self.nfs, WireInlineSource::nfs)];
        let of_node = of_node.into_iter().find_map(|(wire, to_source)| wire.as_deref().map(to_source));
        let inline = of_node.or_else(|| self.inline_volume().map(|volume| volume.source));
        SelinuxVolumeSource::Inline(inline.unwrap_or_default())
    }

    /// The volume, if it is an inline volume of a plugin that attaches volumes.
    fn inline_volume(&self) -> Option<InlineVolume> {
        let sources: [(&Option<Box<WireInlineSource>>, ToSource); 11] = [
            (&self.azure_file, WireInlineSource::azure_file),
            (&self.cinder, WireInlineSource::cinder),
            (&self.flex_volume, WireInlineSource::flex_volume),
            (&self.iscsi, WireInlineSource::iscsi),
            (&self.csi, WireInlineSource::csi),
            (&self.fc, WireInlineSource::fc),
            (&self.aws_elastic_block_store, WireInlineSource::aws_elastic_block_store),
            (&self.gce_persistent_disk, WireInlineSource::gce_persistent_disk),
            (&self.azure_disk, WireInlineSource::azure_disk),
            (&self.vsphere_volume, WireInlineSource::vsphere_volume),
            (&self.portworx_volume, WireInlineSource::portworx_volume),
        ];
        let name = InternedStr::from(&*self.name);
        sources.into_iter().find_map(|(wire, to_source)| {
            let wire = wire.as_deref()?;
            Some(wire.volume(name.clone(), to_source(wire)))
        })
    }

    fn visit_secrets(&self, visit: &mut impl FnMut(&InternedStr)) {
        self.secret.iter().for_each(|volume| visit(&volume.secret_name));
        self.azure_file.iter().for_each(|volume| visit(&volume.secret_name));
        let projected = self.projected.iter().flat_map(|volume| &volume.sources);
        let with_secret = [&self.cephfs, &self.rbd, &self.scale_io, &self.storageos];
        let inline = [&self.cinder, &self.flex_volume, &self.iscsi];
        let references = projected
            .filter_map(|source| source.secret.as_ref())
            .chain(with_secret.into_iter().flatten().filter_map(|volume| volume.secret_ref.as_ref()))
            .chain(inline.into_iter().flatten().filter_map(|volume| volume.secret_ref.as_ref()))
            .chain(self.csi.iter().filter_map(|volume| volume.node_publish_secret_ref.as_ref()));
        references.for_each(|reference| visit(&reference.name));
    }
}

impl WireContainer {
    fn into_container(self) -> Container {
        let ResourceRequirements { requests, limits } = self.resources;
        let Self { name, ports, .. } = self;
        Container { name, is_sidecar: false, parts: PodParts::ALL, ports, requests, limits }
    }
}

/// The only node name in the first `metadata.name In` requirement of the required node affinity.
fn named_node(affinity: WireAffinity) -> Option<InternedStr> {
    let terms = affinity.required()?;
    match terms.iter().find_map(|term| term.named_nodes())? {
        [name] => Some(name.clone()),
        _ => None,
    }
}
