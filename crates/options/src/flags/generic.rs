//! Flags of the manager itself.

use crate::flag::FlagDefault::{Bool, Float32, Gates, Int32, List, Text, Version};
use crate::flag::{Flag, FlagDefault, flag};
use crate::go_text;

const fn seconds(name: &'static str, seconds: i64, help: &'static str) -> Flag {
    flag(name, FlagDefault::Duration(go_text::GoDuration::seconds(seconds)), help)
}

const NODE_IPAM: &[&str] = &["node-ipam-controller"];

pub(super) const DEBUGGING: &[Flag] = &[
    flag("contention-profiling", Bool(false), "Also profile where the program waits, when profiling is on.")
        .unsupported("waiting for locks is not profiled"),
    flag("profiling", Bool(true), "Serve profiles of the running program below /debug/pprof/."),
];

pub(super) const LEADER_MIGRATION: &[Flag] = &[
    flag(
        "enable-leader-migration",
        Bool(false),
        "Hold a second lease that lets controllers move between managers without running twice.",
    ),
    flag(
        "leader-migration-config",
        Text(""),
        "File that says which controllers move: a LeaderMigrationConfiguration of group controllermanager.config.k8s.io, as YAML or JSON. Without a file, the controllers of the cloud-provider extraction move.",
    ),
];

pub(super) const GENERIC: &[Flag] = &[
    flag("allocate-node-cidrs", Bool(false), "Give every node a range of pod addresses out of --cluster-cidr.")
        .of(NODE_IPAM),
    flag("allow-untagged-cloud", Bool(false), "Run on cloud instances without a cluster id.")
        .without_effect()
        .deprecated("This flag is deprecated and will be removed in a future release. A cluster-id will be required on cloud instances."),
    flag("cidr-allocator-type", Text("RangeAllocator"), "How node address ranges are chosen. RangeAllocator is the only way left.")
        .of(NODE_IPAM),
    flag("cloud-config", Text(""), "Configuration file of the cloud provider.").without_effect(),
    flag("cloud-provider", Text(""), "Empty, or external when a cloud-controller-manager runs beside this manager.")
        .without_effect(),
    flag("cluster-cidr", Text(""), "Address range, or two of them for dual stack, that pods get their addresses from. Used with --allocate-node-cidrs.")
        .of(NODE_IPAM),
    flag("cluster-name", Text("kubernetes"), "Name that cloud resources of this cluster are marked with.").without_effect(),
    flag("configure-cloud-routes", Bool(true), "Let the cloud route the address ranges of nodes.").without_effect(),
    seconds("controller-shutdown-timeout", 10, "How long to wait for controllers to stop before the process ends anyway."),
    seconds("controller-start-interval", 0, "Pause between the starts of two controllers."),
    flag(
        "controllers",
        List(&["*"]),
        "Controllers to run: '*' stands for all that are on by default, 'name' switches one on, '-name' switches it off. The first entry that names a controller counts.",
    ),
    flag(
        "emulated-version",
        List(&[]),
        "Release whose feature gates and defaults apply, as major.minor with an optional 'kube=' before it; from three releases back up to this one.",
    ),
    flag("external-cloud-volume-plugin", Text(""), "Volume plugin to use with --cloud-provider=external.").without_effect(),
    flag(
        "feature-gates",
        Gates,
        "Features to switch, as Name=true or Name=false with an optional 'kube:' before it. May be given repeatedly.",
    ),
    flag(
        "kube-api-burst",
        Int32(30),
        "How many requests may be sent at once before --kube-api-qps holds them back. When neither flag is given, requests are not held back and the API server sets the pace.",
    ),
    flag(
        "kube-api-content-type",
        Text("application/vnd.kubernetes.protobuf"),
        "Content type to prefer when talking to the API server. This manager writes JSON and reads protobuf where that is cheaper and the server has it; application/json makes it read JSON only.",
    ),
    flag(
        "kube-api-qps",
        Float32(20.0),
        "Requests a second to the API server; a negative number lifts the limit. When neither this flag nor --kube-api-burst is given, requests are not held back and the API server sets the pace.",
    ),
    flag("leader-elect", Bool(true), "Work only while holding a lease, so that one of several managers works at a time."),
    seconds("leader-elect-lease-duration", 15, "How long others wait after the last renewal by the leader before they take over."),
    seconds("leader-elect-renew-deadline", 10, "How long the leader tries to renew before it gives up. Must be less than the lease duration."),
    flag("leader-elect-resource-lock", Text("leases"), "Kind of object the lock is kept in. Only leases is left."),
    flag("leader-elect-resource-name", Text("kube-controller-manager"), "Name of the lease."),
    flag("leader-elect-resource-namespace", Text("kube-system"), "Namespace of the lease."),
    seconds("leader-elect-retry-period", 2, "Pause between two attempts to acquire or renew the lease."),
    flag(
        "min-compatibility-version",
        List(&[]),
        "Oldest release of the control plane this manager has to get along with, as major.minor with an optional 'kube=' before it; not above the emulated version.",
    ),
    flag(
        "min-resync-period",
        FlagDefault::Duration(go_text::GoDuration::hours(12)),
        "All objects are looked at again after a random time between this and twice this. 0 means never.",
    ),
    flag("node-sync-period", FlagDefault::Duration(go_text::GoDuration::ZERO), "Pause between two synchronisations with the cloud's nodes.")
        .without_effect()
        .deprecated("This flag is currently no-op and will be deleted."),
    seconds("route-reconciliation-period", 10, "Pause between two looks at the cloud's routes.").without_effect(),
    flag(
        "use-service-account-credentials",
        Bool(false),
        "Let each controller speak to the API server as its own service account.",
    ),
];

pub(super) const MISC: &[Flag] = &[
    flag(
        "kubeconfig",
        Text(""),
        "Kubeconfig file that says how to reach the API server. Without it and without --master, the manager must run in a pod.",
    ),
    flag("master", Text(""), "Address of the API server; goes before the one in the kubeconfig."),
];

pub(super) const GLOBAL: &[Flag] = &[
    flag("help", Bool(false), "Print this text and exit.").short('h'),
    flag(
        "version",
        Version,
        "Print the version and exit; --version=raw prints all that is known about the build. --version=vX.Y.Z-suffix reports that version instead and runs.",
    ),
];
