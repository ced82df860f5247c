//! The ranges that nodes have or are about to get.

use std::collections::BTreeMap;

use keleustes_objects::{ArcStr, Key, Node, Uid};
use keleustes_plan::Measurement;

use super::cidr_set::CidrSet;
use super::{configuration, metrics};
use crate::cidr::Cidr;

/// The blocks of all cluster CIDRs and the reservations. A new process reads the used blocks from the nodes before it
/// allocates one; a reservation of the process before it is then a range that a node has, or was never written.
#[derive(Clone)]
pub(super) struct Allocator {
    sets: Vec<CidrSet>,
    /// Blocks that a node was given and its cached state does not have yet. They stay used until the node is observed
    /// with its ranges or deleted, so that a patch with an unknown outcome is never followed by a second owner.
    reserved: BTreeMap<Key, Reservation>,
    service_ranges: Vec<Cidr>,
    unknown_allocator: Option<String>,
}

#[derive(Clone)]
struct Reservation {
    uid: Uid,
    blocks: Vec<Cidr>,
}

/// What marking or releasing ranges did, and the error at which it stopped.
#[derive(Default)]
pub(super) struct Marked {
    pub(super) measurements: Vec<Measurement>,
    pub(super) error: Option<String>,
}

/// Why a node gets no range.
pub(super) struct Exhausted {
    pub(super) message: String,
    pub(super) measurements: Vec<Measurement>,
}

impl Allocator {
    pub(super) fn new(configuration: configuration::Configuration) -> Self {
        let configuration::Configuration { sets, service_ranges, unknown_allocator } = configuration;
        Self { sets, reserved: BTreeMap::new(), service_ranges, unknown_allocator }
    }

    /// Marks what must not be allocated: the Service ranges and the ranges of all nodes.
    pub(super) fn start<'n>(
        &mut self,
        nodes: impl Iterator<Item = &'n Node>,
    ) -> Result<Vec<Measurement>, String> {
        if let Some(message) = self.unknown_allocator.clone() {
            return Err(message);
        }
        let mut measurements = metrics::started(&self.sets);
        for range in &self.service_ranges {
            for set in &mut self.sets {
                // Only an overlapping range is occupied, so this cannot fail.
                if let Ok(blocks) = set.occupy(range) {
                    measurements.extend(metrics::changed(&metrics::ALLOCATIONS, set, blocks));
                }
            }
        }
        for node in nodes {
            let marked = self.occupy(node);
            measurements.extend(marked.measurements);
            marked.error.map_or(Ok(()), Err)?;
        }
        Ok(measurements)
    }

    /// Marks the ranges of a node as used. A range at position `i` belongs to cluster CIDR `i`, whatever its family.
    pub(super) fn occupy(&mut self, node: &Node) -> Marked {
        let mut marked = Marked::default();
        let name = &node.meta.key.name;
        for (at, text) in node.pod_cidrs.iter().enumerate() {
            let Some(range) = Cidr::parse_leniently(text) else {
                marked.error = Some(format!("failed to parse node {name}, CIDR {}", node.pod_cidr));
                break;
            };
            let Some(set) = self.sets.get_mut(at) else {
                marked.error = Some(beyond_the_configuration(name, text, at));
                break;
            };
            match set.occupy(&range) {
                Ok(blocks) => {
                    marked.measurements.extend(metrics::changed(&metrics::ALLOCATIONS, set, blocks));
                }
                Err(error) => {
                    marked.error = Some(format!(
                        "failed to mark cidr[{range}] at idx [{at}] as occupied for node: {name}: {error}"
                    ));
                    break;
                }
            }
        }
        marked
    }

    /// Releases the ranges of a deleted node, and what was reserved for it.
    pub(super) fn release(&mut self, node: &Node) -> Marked {
        let mut marked = Marked::default();
        if let Some(reservation) = self.take_reservation(node) {
            marked.measurements.extend(self.release_blocks(&reservation.blocks));
        }
        let name = &node.meta.key.name;
        for (at, text) in node.pod_cidrs.iter().enumerate() {
            let released = match (Cidr::parse_leniently(text), self.sets.get_mut(at)) {
                (None, _) => Err(format!("failed to parse CIDR {text} on Node {name}")),
                (_, None) => Err(beyond_the_configuration(name, text, at)),
                (Some(range), Some(set)) => {
                    set.release(&range).map(|blocks| metrics::changed(&metrics::RELEASES, set, blocks))
                }
            };
            match released {
                Ok(measurements) => marked.measurements.extend(measurements),
                Err(error) => {
                    marked.error = Some(error);
                    break;
                }
            }
        }
        marked
    }

    /// The node was observed with ranges: its reservation is settled. Reserved blocks that it did not get are released.
    pub(super) fn settle(&mut self, node: &Node) -> Vec<Measurement> {
        let Some(Reservation { blocks, .. }) = self.take_reservation(node) else { return Vec::new() };
        let has = |block: &Cidr| node.pod_cidrs.iter().any(|text| **text == *block.to_string());
        self.release_where(&blocks, |block| !has(block))
    }

    /// The blocks for a node without ranges: those that are reserved for it already, or one of each cluster CIDR.
    pub(super) fn allocate(&mut self, node: &Node) -> Result<(Vec<Cidr>, Vec<Measurement>), Exhausted> {
        if let Some(reservation) =
            self.reserved.get(&node.meta.key).filter(|there| there.uid == node.meta.uid)
        {
            return Ok((reservation.blocks.clone(), Vec::new()));
        }
        let (mut blocks, mut measurements) = (Vec::new(), Vec::new());
        for (at, set) in self.sets.iter_mut().enumerate() {
            let Some(allocated) = set.allocate_next() else {
                let message = format!(
                    "failed to allocate cidr from cluster cidr at idx:{at}: CIDR allocation failed; there are no \
                     remaining CIDRs left to allocate in the accepted range"
                );
                measurements.extend(self.release_blocks(&blocks));
                return Err(Exhausted { message, measurements });
            };
            measurements.extend(metrics::allocated(set, allocated.skipped));
            blocks.push(allocated.block);
        }
        let reservation = Reservation { uid: node.meta.uid.clone(), blocks: blocks.clone() };
        if let Some(earlier) = self.reserved.insert(node.meta.key.clone(), reservation) {
            measurements.extend(self.release_blocks(&earlier.blocks));
        }
        Ok((blocks, measurements))
    }

    /// Gives back what was reserved for a node: the API server refused the patch.
    pub(super) fn cancel(&mut self, node: &Node) -> Vec<Measurement> {
        let reservation = self.take_reservation(node);
        reservation.map_or(Vec::new(), |reservation| self.release_blocks(&reservation.blocks))
    }

    fn take_reservation(&mut self, node: &Node) -> Option<Reservation> {
        let key = &node.meta.key;
        self.reserved
            .get(key)
            .is_some_and(|there| there.uid == node.meta.uid)
            .then(|| self.reserved.remove(key))?
    }

    /// Releases one block of each set, in the order of the sets.
    fn release_blocks(&mut self, blocks: &[Cidr]) -> Vec<Measurement> {
        self.release_where(blocks, |_| true)
    }

    fn release_where(&mut self, blocks: &[Cidr], which: impl Fn(&Cidr) -> bool) -> Vec<Measurement> {
        let mut measurements = Vec::new();
        for (set, block) in self.sets.iter_mut().zip(blocks).filter(|(_, block)| which(block)) {
            // A block of the set is always in its range.
            if let Ok(released) = set.release(block) {
                measurements.extend(metrics::changed(&metrics::RELEASES, set, released));
            }
        }
        measurements
    }
}

fn beyond_the_configuration(node: &ArcStr, range: &str, at: usize) -> String {
    format!(
        "node:{node} has an allocated cidr: {range} at index:{at} that does not exist in cluster cidrs configuration"
    )
}
