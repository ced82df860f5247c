//! What the endpoints controllers compute alike: which pods back a Service, under which addresses and ports, which
//! changes affect them, and how slices belong to a Service.
//!
//! The EndpointSlice controller, the endpoints controller and the mirroring controller use these modules, so that
//! Endpoints and EndpointSlices of the same Service agree.

mod address_type;
mod debounce;
mod identity;
mod own_writes;
mod pod_change;
mod pods;
mod ports;
mod slice_write;
pub(crate) mod slices;
pub(crate) mod subsets;
mod totals;
mod trigger_time;

pub(crate) use address_type::AddressType;
pub(crate) use debounce::Debounce;
pub(crate) use identity::{EndpointIdentity, is_same};
pub(crate) use own_writes::{OwnWrite, PendingWrites, is_observed};
pub(crate) use pod_change::{PodChange, selects};
pub(crate) use pods::{has_endpoint, hostname, pod_selector, selected_pods, target_ref};
pub(crate) use ports::{PortSet, ResolvedPorts};
pub(crate) use slice_write::{Operation, SliceWrite, SliceWriteError, WrittenSlice};
pub(crate) use totals::Totals;
pub(crate) use trigger_time::{LAST_CHANGE_TRIGGER_TIME, TriggerTime};

/// The label of the Endpoints and EndpointSlices of a headless Service.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation of Endpoints that were locks of leader elections.
pub(crate) const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
