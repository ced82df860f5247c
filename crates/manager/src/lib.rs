//! The drop-in kube-controller-manager.
