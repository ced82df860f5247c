//! The kinds of the named groups.

use super::super::resources::{NameRule, Resource, SelectableField, StatusField, Strategy, Subresource};
use super::{READ_WRITE, SCALE, field, zero};

/// The event fields by their events.k8s.io names; the pointers refer to the storage version.
const EVENTS_FIELDS: &[SelectableField] = &[
    field("regarding.kind", "/involvedObject/kind"),
    field("regarding.namespace", "/involvedObject/namespace"),
    field("regarding.name", "/involvedObject/name"),
    field("regarding.uid", "/involvedObject/uid"),
    field("regarding.apiVersion", "/involvedObject/apiVersion"),
    field("regarding.resourceVersion", "/involvedObject/resourceVersion"),
    field("regarding.fieldPath", "/involvedObject/fieldPath"),
    field("reason", "/reason"),
    field("reportingController", "/reportingComponent"),
    field("type", "/type"),
];

const APPROVAL: Subresource = Subresource {
    name: "approval",
    group_version_kind: ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    verbs: READ_WRITE,
};

pub(super) static KINDS: &[Resource] = &[
    Resource {
        categories: &["api-extensions"],
        status: StatusField::ResetOnCreate,
        names: NameRule::PathSegment,
        conditional_update: true,
        strategy: Strategy::ApiService,
        ..Resource::built_in("apiregistration.k8s.io", "APIService")
    },
    Resource { strategy: Strategy::ControllerRevision, ..Resource::built_in("apps", "ControllerRevision") },
    Resource {
        short_names: &["ds"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::DaemonSet,
        ..Resource::built_in("apps", "DaemonSet")
    },
    Resource {
        short_names: &["deploy"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        subresources: &[SCALE],
        strategy: Strategy::Deployment,
        ..Resource::built_in("apps", "Deployment")
    },
    Resource {
        short_names: &["rs"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        subresources: &[SCALE],
        strategy: Strategy::ReplicaSet,
        ..Resource::built_in("apps", "ReplicaSet")
    },
    Resource {
        short_names: &["sts"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        subresources: &[SCALE],
        names: NameRule::Label,
        strategy: Strategy::StatefulSet,
        ..Resource::built_in("apps", "StatefulSet")
    },
    Resource {
        short_names: &["ev"],
        selectable: EVENTS_FIELDS,
        names: NameRule::PathSegment,
        create_on_update: true,
        stored_as: Some(("", "events")),
        strategy: Strategy::Event,
        ..Resource::built_in("events.k8s.io", "Event")
    },
    Resource {
        only_verbs: Some(&["create"]),
        ..Resource::built_in("authentication.k8s.io", "SelfSubjectReview")
    },
    Resource { only_verbs: Some(&["create"]), ..Resource::built_in("authentication.k8s.io", "TokenReview") },
    Resource {
        only_verbs: Some(&["create"]),
        ..Resource::built_in("authorization.k8s.io", "LocalSubjectAccessReview")
    },
    Resource {
        only_verbs: Some(&["create"]),
        ..Resource::built_in("authorization.k8s.io", "SelfSubjectAccessReview")
    },
    Resource {
        only_verbs: Some(&["create"]),
        ..Resource::built_in("authorization.k8s.io", "SelfSubjectRulesReview")
    },
    Resource {
        only_verbs: Some(&["create"]),
        ..Resource::built_in("authorization.k8s.io", "SubjectAccessReview")
    },
    Resource {
        short_names: &["hpa"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::HorizontalPodAutoscaler,
        ..Resource::built_in("autoscaling", "HorizontalPodAutoscaler")
    },
    Resource {
        short_names: &["hpa"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        stored_as: Some(("autoscaling", "horizontalpodautoscalers")),
        strategy: Strategy::HorizontalPodAutoscaler,
        ..Resource::built_in_version("autoscaling", "v1", "HorizontalPodAutoscaler")
    },
    Resource {
        short_names: &["cj"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::CronJob,
        ..Resource::built_in("batch", "CronJob")
    },
    Resource {
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        selectable: &[zero("status.successful", "/status/succeeded", "0")],
        orphans_by_default: true,
        strategy: Strategy::Job,
        ..Resource::built_in("batch", "Job")
    },
    Resource {
        short_names: &["csr"],
        status: StatusField::ResetOnCreate,
        selectable: &[field("spec.signerName", "/spec/signerName")],
        subresources: &[APPROVAL],
        strategy: Strategy::CertificateSigningRequest,
        names: NameRule::PathSegment,
        ..Resource::built_in("certificates.k8s.io", "CertificateSigningRequest")
    },
    Resource {
        selectable: &[field("spec.signerName", "/spec/signerName")],
        names: NameRule::PathSegment,
        conditional_update: true,
        ..Resource::built_in("certificates.k8s.io", "ClusterTrustBundle")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        selectable: &[
            field("spec.signerName", "/spec/signerName"),
            field("spec.podName", "/spec/podName"),
            field("spec.nodeName", "/spec/nodeName"),
        ],
        conditional_update: true,
        ..Resource::built_in("certificates.k8s.io", "PodCertificateRequest")
    },
    Resource { generation: true, ..Resource::built_in("networking.k8s.io", "IngressClass") },
    Resource {
        short_names: &["ing"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::Ingress,
        ..Resource::built_in("networking.k8s.io", "Ingress")
    },
    Resource {
        short_names: &["ip"],
        names: NameRule::IpAddress,
        ..Resource::built_in("networking.k8s.io", "IPAddress")
    },
    Resource {
        short_names: &["netpol"],
        generation: true,
        strategy: Strategy::NetworkPolicy,
        ..Resource::built_in("networking.k8s.io", "NetworkPolicy")
    },
    Resource { status: StatusField::ResetOnCreate, ..Resource::built_in("networking.k8s.io", "ServiceCIDR") },
    Resource {
        short_names: &["pdb"],
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::PodDisruptionBudget,
        names: NameRule::PathSegment,
        ..Resource::built_in("policy", "PodDisruptionBudget")
    },
    Resource {
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::ClusterRoleBinding,
        ..Resource::built_in("rbac.authorization.k8s.io", "ClusterRoleBinding")
    },
    Resource {
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::ClusterRole,
        ..Resource::built_in("rbac.authorization.k8s.io", "ClusterRole")
    },
    Resource {
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::ClusterRoleBinding,
        ..Resource::built_in("rbac.authorization.k8s.io", "RoleBinding")
    },
    Resource {
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::Role,
        ..Resource::built_in("rbac.authorization.k8s.io", "Role")
    },
    Resource {
        conditional_update: true,
        returns_deleted: true,
        strategy: Strategy::CsiDriver,
        ..Resource::built_in("storage.k8s.io", "CSIDriver")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        returns_deleted: true,
        ..Resource::built_in("storage.k8s.io", "CSINode")
    },
    Resource { conditional_update: true, ..Resource::built_in("storage.k8s.io", "CSIStorageCapacity") },
    Resource {
        short_names: &["sc"],
        returns_deleted: true,
        strategy: Strategy::StorageClass,
        ..Resource::built_in("storage.k8s.io", "StorageClass")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        returns_deleted: true,
        strategy: Strategy::VolumeAttachment,
        ..Resource::built_in("storage.k8s.io", "VolumeAttachment")
    },
    Resource {
        short_names: &["vac"],
        returns_deleted: true,
        strategy: Strategy::VolumeAttributesClass,
        ..Resource::built_in("storage.k8s.io", "VolumeAttributesClass")
    },
    Resource {
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        strategy: Strategy::AdmissionPolicy,
        ..Resource::built_in("admissionregistration.k8s.io", "MutatingAdmissionPolicy")
    },
    Resource {
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        ..Resource::built_in("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding")
    },
    Resource {
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        strategy: Strategy::Webhooks,
        ..Resource::built_in("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
    },
    Resource {
        categories: &["api-extensions"],
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::AdmissionPolicy,
        ..Resource::built_in("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
    },
    Resource {
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        ..Resource::built_in("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")
    },
    Resource {
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        strategy: Strategy::Webhooks,
        ..Resource::built_in("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
    },
    Resource {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::CustomResourceDefinition,
        ..Resource::built_in("apiextensions.k8s.io", "CustomResourceDefinition")
    },
    Resource {
        short_names: &["pc"],
        generation: true,
        strategy: Strategy::PriorityClass,
        ..Resource::built_in("scheduling.k8s.io", "PriorityClass")
    },
    Resource {
        conditional_update: true,
        create_on_update: true,
        strategy: Strategy::Lease,
        ..Resource::built_in("coordination.k8s.io", "Lease")
    },
    Resource {
        // Served without flags, unlike in kube-apiserver: managers of any configuration find their API.
        gated: false,
        names: NameRule::PathSegment,
        conditional_update: true,
        create_on_update: true,
        ..Resource::built_in("coordination.k8s.io", "LeaseCandidate")
    },
    Resource {
        conditional_update: true,
        create_on_update: true,
        ..Resource::built_in("node.k8s.io", "RuntimeClass")
    },
    Resource {
        generation: true,
        strategy: Strategy::EndpointSlice,
        ..Resource::built_in("discovery.k8s.io", "EndpointSlice")
    },
    Resource {
        generation: true,
        returns_deleted: true,
        ..Resource::built_in("resource.k8s.io", "DeviceClass")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::DeviceTaintRule,
        ..Resource::built_in("resource.k8s.io", "DeviceTaintRule")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        returns_deleted: true,
        strategy: Strategy::ResourceClaim,
        ..Resource::built_in("resource.k8s.io", "ResourceClaim")
    },
    Resource {
        returns_deleted: true,
        strategy: Strategy::ResourceClaimTemplate,
        ..Resource::built_in("resource.k8s.io", "ResourceClaimTemplate")
    },
    Resource {
        generation: true,
        selectable: &[field("spec.nodeName", "/spec/nodeName"), field("spec.driver", "/spec/driver")],
        returns_deleted: true,
        ..Resource::built_in("resource.k8s.io", "ResourceSlice")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::FlowSchema,
        ..Resource::built_in("flowcontrol.apiserver.k8s.io", "FlowSchema")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::PriorityLevelConfiguration,
        ..Resource::built_in("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        ..Resource::built_in("storagemigration.k8s.io", "StorageVersionMigration")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        ..Resource::built_in("internal.apiserver.k8s.io", "StorageVersion")
    },
];
