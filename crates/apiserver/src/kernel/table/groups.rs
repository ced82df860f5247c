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
        namespaced: false,
        categories: &["api-extensions"],
        status: StatusField::ResetOnCreate,
        names: NameRule::PathSegment,
        conditional_update: true,
        strategy: Strategy::ApiService,
        ..Resource::new(
            "apiregistration.k8s.io",
            "v1",
            "apiservices",
            "apiservice",
            "APIService",
            "APIServiceList",
        )
    },
    Resource {
        strategy: Strategy::ControllerRevision,
        ..Resource::new(
            "apps",
            "v1",
            "controllerrevisions",
            "controllerrevision",
            "ControllerRevision",
            "ControllerRevisionList",
        )
    },
    Resource {
        short_names: &["ds"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::DaemonSet,
        ..Resource::new("apps", "v1", "daemonsets", "daemonset", "DaemonSet", "DaemonSetList")
    },
    Resource {
        short_names: &["deploy"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        subresources: &[SCALE],
        strategy: Strategy::Deployment,
        ..Resource::new("apps", "v1", "deployments", "deployment", "Deployment", "DeploymentList")
    },
    Resource {
        short_names: &["rs"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        subresources: &[SCALE],
        strategy: Strategy::ReplicaSet,
        ..Resource::new("apps", "v1", "replicasets", "replicaset", "ReplicaSet", "ReplicaSetList")
    },
    Resource {
        short_names: &["sts"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        subresources: &[SCALE],
        names: NameRule::Label,
        strategy: Strategy::StatefulSet,
        ..Resource::new("apps", "v1", "statefulsets", "statefulset", "StatefulSet", "StatefulSetList")
    },
    Resource {
        short_names: &["ev"],
        selectable: EVENTS_FIELDS,
        names: NameRule::PathSegment,
        create_on_update: true,
        stored_as: Some(("", "events")),
        strategy: Strategy::Event,
        ..Resource::new("events.k8s.io", "v1", "events", "event", "Event", "EventList")
    },
    Resource {
        namespaced: false,
        only_verbs: Some(&["create"]),
        ..Resource::new(
            "authentication.k8s.io",
            "v1",
            "selfsubjectreviews",
            "selfsubjectreview",
            "SelfSubjectReview",
            "SelfSubjectReviewList",
        )
    },
    Resource {
        namespaced: false,
        only_verbs: Some(&["create"]),
        ..Resource::new(
            "authentication.k8s.io",
            "v1",
            "tokenreviews",
            "tokenreview",
            "TokenReview",
            "TokenReviewList",
        )
    },
    Resource {
        only_verbs: Some(&["create"]),
        ..Resource::new(
            "authorization.k8s.io",
            "v1",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
            "LocalSubjectAccessReviewList",
        )
    },
    Resource {
        namespaced: false,
        only_verbs: Some(&["create"]),
        ..Resource::new(
            "authorization.k8s.io",
            "v1",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
            "SelfSubjectAccessReview",
            "SelfSubjectAccessReviewList",
        )
    },
    Resource {
        namespaced: false,
        only_verbs: Some(&["create"]),
        ..Resource::new(
            "authorization.k8s.io",
            "v1",
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
            "SelfSubjectRulesReview",
            "SelfSubjectRulesReviewList",
        )
    },
    Resource {
        namespaced: false,
        only_verbs: Some(&["create"]),
        ..Resource::new(
            "authorization.k8s.io",
            "v1",
            "subjectaccessreviews",
            "subjectaccessreview",
            "SubjectAccessReview",
            "SubjectAccessReviewList",
        )
    },
    Resource {
        short_names: &["hpa"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::HorizontalPodAutoscaler,
        ..Resource::new(
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
            "HorizontalPodAutoscalerList",
        )
    },
    Resource {
        short_names: &["hpa"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        stored_as: Some(("autoscaling", "horizontalpodautoscalers")),
        strategy: Strategy::HorizontalPodAutoscaler,
        ..Resource::new(
            "autoscaling",
            "v1",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
            "HorizontalPodAutoscalerList",
        )
    },
    Resource {
        short_names: &["cj"],
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::CronJob,
        ..Resource::new("batch", "v1", "cronjobs", "cronjob", "CronJob", "CronJobList")
    },
    Resource {
        categories: &["all"],
        status: StatusField::ResetOnCreate,
        generation: true,
        selectable: &[zero("status.successful", "/status/succeeded", "0")],
        orphans_by_default: true,
        strategy: Strategy::Job,
        ..Resource::new("batch", "v1", "jobs", "job", "Job", "JobList")
    },
    Resource {
        namespaced: false,
        short_names: &["csr"],
        status: StatusField::ResetOnCreate,
        selectable: &[field("spec.signerName", "/spec/signerName")],
        subresources: &[APPROVAL],
        strategy: Strategy::CertificateSigningRequest,
        names: NameRule::PathSegment,
        ..Resource::new(
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "certificatesigningrequest",
            "CertificateSigningRequest",
            "CertificateSigningRequestList",
        )
    },
    Resource {
        namespaced: false,
        selectable: &[field("spec.signerName", "/spec/signerName")],
        names: NameRule::PathSegment,
        conditional_update: true,
        ..Resource::new(
            "certificates.k8s.io",
            "v1",
            "clustertrustbundles",
            "clustertrustbundle",
            "ClusterTrustBundle",
            "ClusterTrustBundleList",
        )
    },
    Resource {
        status: StatusField::ResetOnCreate,
        selectable: &[
            field("spec.signerName", "/spec/signerName"),
            field("spec.podName", "/spec/podName"),
            field("spec.nodeName", "/spec/nodeName"),
        ],
        conditional_update: true,
        ..Resource::new(
            "certificates.k8s.io",
            "v1",
            "podcertificaterequests",
            "podcertificaterequest",
            "PodCertificateRequest",
            "PodCertificateRequestList",
        )
    },
    Resource {
        namespaced: false,
        generation: true,
        ..Resource::new(
            "networking.k8s.io",
            "v1",
            "ingressclasses",
            "ingressclass",
            "IngressClass",
            "IngressClassList",
        )
    },
    Resource {
        short_names: &["ing"],
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::Ingress,
        ..Resource::new("networking.k8s.io", "v1", "ingresses", "ingress", "Ingress", "IngressList")
    },
    Resource {
        namespaced: false,
        short_names: &["ip"],
        names: NameRule::PathSegment,
        ..Resource::new("networking.k8s.io", "v1", "ipaddresses", "ipaddress", "IPAddress", "IPAddressList")
    },
    Resource {
        short_names: &["netpol"],
        generation: true,
        strategy: Strategy::NetworkPolicy,
        ..Resource::new(
            "networking.k8s.io",
            "v1",
            "networkpolicies",
            "networkpolicy",
            "NetworkPolicy",
            "NetworkPolicyList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        ..Resource::new(
            "networking.k8s.io",
            "v1",
            "servicecidrs",
            "servicecidr",
            "ServiceCIDR",
            "ServiceCIDRList",
        )
    },
    Resource {
        short_names: &["pdb"],
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::PodDisruptionBudget,
        names: NameRule::PathSegment,
        ..Resource::new(
            "policy",
            "v1",
            "poddisruptionbudgets",
            "poddisruptionbudget",
            "PodDisruptionBudget",
            "PodDisruptionBudgetList",
        )
    },
    Resource {
        namespaced: false,
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::ClusterRoleBinding,
        ..Resource::new(
            "rbac.authorization.k8s.io",
            "v1",
            "clusterrolebindings",
            "clusterrolebinding",
            "ClusterRoleBinding",
            "ClusterRoleBindingList",
        )
    },
    Resource {
        namespaced: false,
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::ClusterRole,
        ..Resource::new(
            "rbac.authorization.k8s.io",
            "v1",
            "clusterroles",
            "clusterrole",
            "ClusterRole",
            "ClusterRoleList",
        )
    },
    Resource {
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::ClusterRoleBinding,
        ..Resource::new(
            "rbac.authorization.k8s.io",
            "v1",
            "rolebindings",
            "rolebinding",
            "RoleBinding",
            "RoleBindingList",
        )
    },
    Resource {
        names: NameRule::PathSegment,
        create_on_update: true,
        strategy: Strategy::Role,
        ..Resource::new("rbac.authorization.k8s.io", "v1", "roles", "role", "Role", "RoleList")
    },
    Resource {
        namespaced: false,
        conditional_update: true,
        returns_deleted: true,
        strategy: Strategy::CsiDriver,
        ..Resource::new("storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver", "CSIDriverList")
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        returns_deleted: true,
        ..Resource::new("storage.k8s.io", "v1", "csinodes", "csinode", "CSINode", "CSINodeList")
    },
    Resource {
        conditional_update: true,
        ..Resource::new(
            "storage.k8s.io",
            "v1",
            "csistoragecapacities",
            "csistoragecapacity",
            "CSIStorageCapacity",
            "CSIStorageCapacityList",
        )
    },
    Resource {
        namespaced: false,
        short_names: &["sc"],
        returns_deleted: true,
        strategy: Strategy::StorageClass,
        ..Resource::new(
            "storage.k8s.io",
            "v1",
            "storageclasses",
            "storageclass",
            "StorageClass",
            "StorageClassList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        returns_deleted: true,
        strategy: Strategy::VolumeAttachment,
        ..Resource::new(
            "storage.k8s.io",
            "v1",
            "volumeattachments",
            "volumeattachment",
            "VolumeAttachment",
            "VolumeAttachmentList",
        )
    },
    Resource {
        namespaced: false,
        short_names: &["vac"],
        returns_deleted: true,
        strategy: Strategy::VolumeAttributesClass,
        ..Resource::new(
            "storage.k8s.io",
            "v1",
            "volumeattributesclasses",
            "volumeattributesclass",
            "VolumeAttributesClass",
            "VolumeAttributesClassList",
        )
    },
    Resource {
        namespaced: false,
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        strategy: Strategy::AdmissionPolicy,
        ..Resource::new(
            "admissionregistration.k8s.io",
            "v1",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicy",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyList",
        )
    },
    Resource {
        namespaced: false,
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        ..Resource::new(
            "admissionregistration.k8s.io",
            "v1",
            "mutatingadmissionpolicybindings",
            "mutatingadmissionpolicybinding",
            "MutatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicyBindingList",
        )
    },
    Resource {
        namespaced: false,
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        strategy: Strategy::Webhooks,
        ..Resource::new(
            "admissionregistration.k8s.io",
            "v1",
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
            "MutatingWebhookConfiguration",
            "MutatingWebhookConfigurationList",
        )
    },
    Resource {
        namespaced: false,
        categories: &["api-extensions"],
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::AdmissionPolicy,
        ..Resource::new(
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyList",
        )
    },
    Resource {
        namespaced: false,
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        ..Resource::new(
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicyBindingList",
        )
    },
    Resource {
        namespaced: false,
        categories: &["api-extensions"],
        generation: true,
        conditional_update: true,
        strategy: Strategy::Webhooks,
        ..Resource::new(
            "admissionregistration.k8s.io",
            "v1",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
            "ValidatingWebhookConfiguration",
            "ValidatingWebhookConfigurationList",
        )
    },
    Resource {
        namespaced: false,
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        status: StatusField::ResetOnCreate,
        generation: true,
        conditional_update: true,
        strategy: Strategy::CustomResourceDefinition,
        ..Resource::new(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "customresourcedefinition",
            "CustomResourceDefinition",
            "CustomResourceDefinitionList",
        )
    },
    Resource {
        namespaced: false,
        short_names: &["pc"],
        generation: true,
        strategy: Strategy::PriorityClass,
        ..Resource::new(
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            "priorityclass",
            "PriorityClass",
            "PriorityClassList",
        )
    },
    Resource {
        conditional_update: true,
        create_on_update: true,
        strategy: Strategy::Lease,
        ..Resource::new("coordination.k8s.io", "v1", "leases", "lease", "Lease", "LeaseList")
    },
    Resource {
        names: NameRule::PathSegment,
        conditional_update: true,
        create_on_update: true,
        ..Resource::new(
            "coordination.k8s.io",
            "v1beta1",
            "leasecandidates",
            "leasecandidate",
            "LeaseCandidate",
            "LeaseCandidateList",
        )
    },
    Resource {
        namespaced: false,
        conditional_update: true,
        create_on_update: true,
        ..Resource::new(
            "node.k8s.io",
            "v1",
            "runtimeclasses",
            "runtimeclass",
            "RuntimeClass",
            "RuntimeClassList",
        )
    },
    Resource {
        generation: true,
        strategy: Strategy::EndpointSlice,
        ..Resource::new(
            "discovery.k8s.io",
            "v1",
            "endpointslices",
            "endpointslice",
            "EndpointSlice",
            "EndpointSliceList",
        )
    },
    Resource {
        namespaced: false,
        generation: true,
        returns_deleted: true,
        ..Resource::new(
            "resource.k8s.io",
            "v1",
            "deviceclasses",
            "deviceclass",
            "DeviceClass",
            "DeviceClassList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::DeviceTaintRule,
        ..Resource::new(
            "resource.k8s.io",
            "v1",
            "devicetaintrules",
            "devicetaintrule",
            "DeviceTaintRule",
            "DeviceTaintRuleList",
        )
    },
    Resource {
        status: StatusField::ResetOnCreate,
        returns_deleted: true,
        strategy: Strategy::ResourceClaim,
        ..Resource::new(
            "resource.k8s.io",
            "v1",
            "resourceclaims",
            "resourceclaim",
            "ResourceClaim",
            "ResourceClaimList",
        )
    },
    Resource {
        returns_deleted: true,
        strategy: Strategy::ResourceClaimTemplate,
        ..Resource::new(
            "resource.k8s.io",
            "v1",
            "resourceclaimtemplates",
            "resourceclaimtemplate",
            "ResourceClaimTemplate",
            "ResourceClaimTemplateList",
        )
    },
    Resource {
        namespaced: false,
        generation: true,
        selectable: &[field("spec.nodeName", "/spec/nodeName"), field("spec.driver", "/spec/driver")],
        returns_deleted: true,
        ..Resource::new(
            "resource.k8s.io",
            "v1",
            "resourceslices",
            "resourceslice",
            "ResourceSlice",
            "ResourceSliceList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::FlowSchema,
        ..Resource::new(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "flowschemas",
            "flowschema",
            "FlowSchema",
            "FlowSchemaList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        generation: true,
        strategy: Strategy::PriorityLevelConfiguration,
        ..Resource::new(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
            "PriorityLevelConfiguration",
            "PriorityLevelConfigurationList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        ..Resource::new(
            "storagemigration.k8s.io",
            "v1",
            "storageversionmigrations",
            "storageversionmigration",
            "StorageVersionMigration",
            "StorageVersionMigrationList",
        )
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        conditional_update: true,
        gated: true,
        ..Resource::new(
            "internal.apiserver.k8s.io",
            "v1alpha1",
            "storageversions",
            "storageversion",
            "StorageVersion",
            "StorageVersionList",
        )
    },
];
