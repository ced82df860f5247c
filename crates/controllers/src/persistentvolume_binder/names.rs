//! Annotations, finalizers and plugin names of the binder.

/// On a claim: binding is complete, and the claim is on the bound path.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: the binder chose the other side, not a user.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: the plugin or driver that provisioned it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim or a volume: the CSI driver that an in-tree plugin was migrated to.
pub(super) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a claim: the provisioner that is asked for a volume.
pub(super) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// On a claim: the provisioner that is asked for a volume, for older provisioners.
pub(super) const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: the node that the scheduler chose for its first consumer.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume: the capacity that a claim reports until the file system is resized.
pub(super) const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// On a volume: this controller deletes it.
pub(super) const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";
/// On a volume: an external provisioner deletes it.
pub(super) const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Prefix of the names of in-tree plugins.
pub(super) const IN_TREE_PREFIX: &str = "kubernetes.io/";
/// The plugin that provisions, deletes and recycles directories of the controller's host.
pub(super) const HOST_PATH: &str = "kubernetes.io/host-path";
/// The plugin that recycles NFS volumes.
pub(super) const NFS: &str = "kubernetes.io/nfs";

/// Value of the marks that this controller sets.
pub(super) const YES: &str = "yes";
