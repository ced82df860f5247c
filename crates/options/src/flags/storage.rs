//! Flags of the volume controllers.

use crate::flag::FlagDefault::{Bool, Int32, Text};
use crate::flag::{Flag, FlagDefault, flag};
use crate::go_text;

const ATTACH_DETACH_CONTROLLER: &[&str] = &["persistentvolume-attach-detach-controller"];
const BINDER: &[&str] = &["persistentvolume-binder-controller"];

pub(super) const ATTACH_DETACH: &[Flag] = &[
    flag(
        "attach-detach-reconcile-sync-period",
        FlagDefault::Duration(go_text::GoDuration::minutes(1)),
        "Pause between two checks that volumes are attached where the cluster thinks. At least a second; the longer, the longer a volume may be taken for attached that is not.",
    )
    .of(ATTACH_DETACH_CONTROLLER),
    flag("disable-attach-detach-reconcile-sync", Bool(false), "Do not check at all whether volumes are attached where the cluster thinks.")
        .of(ATTACH_DETACH_CONTROLLER),
    flag(
        "disable-force-detach-on-timeout",
        Bool(false),
        "Never detach a volume by force because unmounting takes long; lost nodes must then be marked out of service by hand.",
    )
    .of(ATTACH_DETACH_CONTROLLER),
];

pub(super) const EPHEMERAL_VOLUME: &[Flag] = &[flag(
    "concurrent-ephemeralvolume-syncs",
    Int32(5),
    "How many pods with ephemeral volumes are handled at a time. At least 1.",
)
.of(&["ephemeral-volume-controller"])];

pub(super) const VOLUME_BINDER: &[Flag] = &[
    flag("enable-dynamic-provisioning", Bool(true), "Have volumes made for claims when none fits.")
        .of(BINDER),
    flag(
        "enable-hostpath-provisioner",
        Bool(false),
        "Make volumes out of directories of the host. For experiments on one node only.",
    )
    .of(BINDER),
    flag(
        "flex-volume-plugin-dir",
        Text("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
        "Directory in which flex volume plugins are looked for.",
    )
    .unsupported("plugins of flex volumes are programs, which are not run"),
    flag(
        "pv-recycler-increment-timeout-nfs",
        Int32(30),
        "Seconds an NFS recycler pod gets on top for each Gi.",
    )
    .of(BINDER),
    flag(
        "pv-recycler-minimum-timeout-hostpath",
        Int32(60),
        "Seconds a host path recycler pod gets at least. For experiments on one node only.",
    )
    .of(BINDER),
    flag("pv-recycler-minimum-timeout-nfs", Int32(300), "Seconds an NFS recycler pod gets at least.")
        .of(BINDER),
    flag(
        "pv-recycler-pod-template-filepath-hostpath",
        Text(""),
        "Pod to use as a template for recycling host paths. For experiments on one node only.",
    )
    .of(BINDER),
    flag(
        "pv-recycler-pod-template-filepath-nfs",
        Text(""),
        "Pod to use as a template for recycling NFS volumes.",
    )
    .of(BINDER),
    flag(
        "pv-recycler-timeout-increment-hostpath",
        Int32(30),
        "Seconds a host path recycler pod gets on top for each Gi. For experiments on one node only.",
    )
    .of(BINDER),
    flag(
        "pvclaimbinder-sync-period",
        FlagDefault::Duration(go_text::GoDuration::seconds(15)),
        "Pause between two looks at all volumes and claims.",
    )
    .of(BINDER),
];
