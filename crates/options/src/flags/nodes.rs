//! Flags of the controllers of nodes, certificates and ServiceAccounts.

use crate::flag::FlagDefault::{Float32, Int32, Text};
use crate::flag::{Flag, FlagDefault, flag};
use crate::go_text;

const SIGNING: &[&str] = &["certificatesigningrequest-signing-controller"];
const IPAM: &[&str] = &["node-ipam-controller"];
const LIFECYCLE: &[&str] = &["node-lifecycle-controller"];

pub(super) const CSR_SIGNING: &[Flag] = &[
    flag(
        "cluster-signing-cert-file",
        Text(""),
        "Authority in PEM that signs for all signers. Not together with the flags for single signers.",
    )
    .of(&["certificatesigningrequest-signing-controller"]),
    flag(
        "cluster-signing-duration",
        FlagDefault::Duration(go_text::GoDuration::hours(8760)),
        "Longest validity of a signed certificate; a request may ask for less.",
    )
    .of(SIGNING),
    flag("cluster-signing-key-file", Text(""), "Private key in PEM for --cluster-signing-cert-file.")
        .of(SIGNING),
    flag(
        "cluster-signing-kube-apiserver-client-cert-file",
        Text(""),
        "Authority for the signer kubernetes.io/kube-apiserver-client.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-kube-apiserver-client-key-file",
        Text(""),
        "Private key for the signer kubernetes.io/kube-apiserver-client.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-kubelet-client-cert-file",
        Text(""),
        "Authority for the signer kubernetes.io/kube-apiserver-client-kubelet.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-kubelet-client-key-file",
        Text(""),
        "Private key for the signer kubernetes.io/kube-apiserver-client-kubelet.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-kubelet-serving-cert-file",
        Text(""),
        "Authority for the signer kubernetes.io/kubelet-serving.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-kubelet-serving-key-file",
        Text(""),
        "Private key for the signer kubernetes.io/kubelet-serving.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-legacy-unknown-cert-file",
        Text(""),
        "Authority for the signer kubernetes.io/legacy-unknown.",
    )
    .of(SIGNING),
    flag(
        "cluster-signing-legacy-unknown-key-file",
        Text(""),
        "Private key for the signer kubernetes.io/legacy-unknown.",
    )
    .of(SIGNING),
];

pub(super) const LEGACY_TOKEN_CLEANER: &[Flag] = &[flag(
    "legacy-service-account-token-clean-up-period",
    FlagDefault::Duration(go_text::GoDuration::hours(8760)),
    "How long a generated token Secret must have been unused before it is removed.",
)
.of(&["legacy-serviceaccount-token-cleaner-controller"])];

pub(super) const NODE_IPAM: &[Flag] = &[
    flag("node-cidr-mask-size", Int32(0), "Size of a node's range in a single-stack cluster; 24 for IPv4 and 64 for IPv6 when it is not given.").of(IPAM),
    flag("node-cidr-mask-size-ipv4", Int32(0), "Size of a node's IPv4 range; 24 when it is not given.").of(IPAM),
    flag("node-cidr-mask-size-ipv6", Int32(0), "Size of a node's IPv6 range; 64 when it is not given.").of(IPAM),
    flag("service-cluster-ip-range", Text(""), "Address range of Services, or two of them, that nodes must not get. Used with --allocate-node-cidrs.").of(IPAM),
];

pub(super) const NODE_LIFECYCLE: &[Flag] = &[
    flag("large-cluster-size-threshold", Int32(50), "Number of nodes up to which a zone counts as small; in small zones that are unhealthy nothing is evicted.").of(LIFECYCLE),
    flag("node-eviction-rate", Float32(0.1), "Nodes a second that are tainted for eviction in a healthy zone.").of(LIFECYCLE),
    flag(
        "node-monitor-grace-period",
        FlagDefault::Duration(go_text::GoDuration::seconds(50)),
        "How long a node may be silent before it counts as unhealthy. Must be several times the kubelet's reporting interval.",
    )
    .of(LIFECYCLE),
    flag("node-monitor-period", FlagDefault::Duration(go_text::GoDuration::seconds(5)), "Pause between two looks at the health of all nodes.").of(LIFECYCLE),
    flag("node-startup-grace-period", FlagDefault::Duration(go_text::GoDuration::minutes(1)), "How long a new node may be silent before it counts as unhealthy.").of(LIFECYCLE),
    flag("secondary-node-eviction-rate", Float32(0.01), "Nodes a second that are tainted for eviction in an unhealthy zone, if it is large.").of(LIFECYCLE),
    flag("unhealthy-zone-threshold", Float32(0.55), "Share of nodes, three at least, that must be lost for a zone to count as unhealthy.").of(LIFECYCLE),
];

pub(super) const SERVICE_ACCOUNT: &[Flag] = &[
    flag("concurrent-serviceaccount-token-syncs", Int32(5), "How many token Secrets are handled at a time.")
        .of(&["serviceaccount-token-controller"]),
    flag(
        "root-ca-file",
        Text(""),
        "Authorities in PEM that are put into token Secrets and published to every namespace.",
    )
    .of(&["serviceaccount-token-controller", "root-ca-certificate-publisher-controller"]),
    flag(
        "service-account-private-key-file",
        Text(""),
        "RSA or ECDSA key in PEM that signs the tokens in Secrets. Without it no such tokens are made.",
    )
    .of(&["serviceaccount-token-controller"]),
];
