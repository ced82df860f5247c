//! The blocks of one cluster CIDR: which are used, and which is next.
//!
//! Parity: pkg/controller/nodeipam/ipam/cidrset/.

use std::ops::RangeInclusive;

use super::bitmap::Bitmap;
use crate::cidr::Cidr;

/// The longest node mask of an IPv6 range, relative to that of the cluster CIDR.
const IPV6_MASK_DIFFERENCE_MAX: u32 = 16;

/// The blocks of one cluster CIDR, each of which a node can get.
#[derive(Clone)]
pub(super) struct CidrSet {
    cluster: Cidr,
    node_mask: u32,
    capacity: u64,
    used: Bitmap,
    /// The block after the one that was allocated last.
    next: u64,
}

/// A block that was allocated.
pub(super) struct Allocated {
    /// The block.
    pub(super) block: Cidr,
    /// How many used blocks were skipped.
    pub(super) skipped: u64,
}

impl CidrSet {
    /// The blocks of a cluster CIDR, which is not longer than the node mask.
    pub(super) fn new(cluster: Cidr, node_mask: u32) -> Result<Self, String> {
        let difference = node_mask.saturating_sub(cluster.prefix_length());
        if cluster.is_ipv6() && difference > IPV6_MASK_DIFFERENCE_MAX {
            return Err("New CIDR set failed; the node CIDR size is too big".to_owned());
        }
        // As in Go, a shift by more than the width of the number yields zero: such a range has no block.
        let capacity = 1_u64.checked_shl(difference).unwrap_or(0);
        Ok(Self { cluster, node_mask, capacity, used: Bitmap::default(), next: 0 })
    }

    pub(super) fn cluster(&self) -> &Cidr {
        &self.cluster
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of used blocks.
    pub(super) fn used(&self) -> u64 {
        self.used.count()
    }

    /// Takes the first free block at or after the cursor, and moves the cursor behind it; `None` if all are used.
    pub(super) fn allocate_next(&mut self) -> Option<Allocated> {
        if self.used.count() >= self.capacity {
            return None;
        }
        let found = self.used.first_clear(self.next, self.capacity);
        let index = found.or_else(|| self.used.first_clear(0, self.next))?;
        let skipped = if index >= self.next { index - self.next } else { self.capacity - self.next + index };
        self.used.set(index);
        self.next = (index + 1) % self.capacity;
        Some(Allocated { block: self.block(index), skipped })
    }

    /// Marks the blocks that a range overlaps as used, and returns how many were free.
    pub(super) fn occupy(&mut self, range: &Cidr) -> Result<u64, String> {
        Ok(self.blocks_of(range)?.map(|index| u64::from(self.used.set(index))).sum())
    }

    /// Marks the blocks that a range overlaps as free, and returns how many were used.
    pub(super) fn release(&mut self, range: &Cidr) -> Result<u64, String> {
        Ok(self.blocks_of(range)?.map(|index| u64::from(self.used.clear(index))).sum())
    }

    fn block(&self, index: u64) -> Cidr {
        // A mask longer than the address leaves no bits to shift; the API server refuses such a block.
        let host_bits = self.cluster.width().saturating_sub(self.node_mask);
        let offset = if self.node_mask > self.cluster.width() { 0 } else { u128::from(index) << host_bits };
        self.cluster.within(self.cluster.first() | offset, self.node_mask)
    }

    /// The indexes of the blocks that a range overlaps: all, if it is at least as wide as the cluster CIDR.
    fn blocks_of(&self, range: &Cidr) -> Result<RangeInclusive<u64>, String> {
        let cluster = &self.cluster;
        if !cluster.overlaps(range) {
            return Err(format!("cidr {range} is out the range of cluster cidr {cluster}"));
        }
        let last = self.capacity.saturating_sub(1);
        if range.prefix_length() <= cluster.prefix_length() {
            return Ok(0..=last);
        }
        let Some(host_bits) = cluster.width().checked_sub(self.node_mask) else { return Ok(0..=0) };
        let index = |address: u128| {
            u64::try_from((address - cluster.first()) >> host_bits).unwrap_or(u64::MAX).min(last)
        };
        Ok(index(range.first())..=index(range.last()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        Cidr::parse_leniently(text).unwrap()
    }

    fn set(cluster: &str, node_mask: u32) -> CidrSet {
        CidrSet::new(cidr(cluster), node_mask).unwrap()
    }

    fn next(set: &mut CidrSet) -> String {
        set.allocate_next().map_or("none".to_owned(), |allocated| allocated.block.to_string())
    }

    /// Proves IPAM-20, IPAM-30, IPAM-56, IPAM-57, IPAM-59.
    #[test]
    fn blocks_divide_the_cluster_cidr_in_order() {
        for (cluster, mask, capacity, first, second) in [
            ("10.10.0.0/22", 24, 4, "10.10.0.0/24", "10.10.1.0/24"),
            ("127.123.3.0/16", 24, 256, "127.123.0.0/24", "127.123.1.0/24"),
            ("10.0.0.0/8", 30, 1 << 22, "10.0.0.0/30", "10.0.0.4/30"),
            ("2001:db8:1234::/48", 64, 65_536, "2001:db8:1234::/64", "2001:db8:1234:1::/64"),
            ("2001:db8::/60", 72, 4096, "2001:db8::/72", "2001:db8:0:0:100::/72"),
            ("10.0.0.0/24", 24, 1, "10.0.0.0/24", "none"),
            ("0.0.0.0/0", 2, 4, "0.0.0.0/2", "64.0.0.0/2"),
        ] {
            let mut set = set(cluster, mask);
            assert_eq!(set.capacity(), capacity, "{cluster}");
            assert_eq!([next(&mut set), next(&mut set)], [first, second], "{cluster}");
        }
        let mut spanning = set("2001:db8::/60", 72);
        spanning.occupy(&cidr("2001:db8::/64")).unwrap();
        assert_eq!(next(&mut spanning), "2001:db8:0:1::/72", "an index reaches both halves of the address");
    }

    /// Proves IPAM-16.
    #[test]
    fn ipv6_node_mask_is_at_most_16_bits_longer_than_the_cluster_mask() {
        assert_eq!(set("fd00::/48", 64).capacity(), 65_536);
        let refused = CidrSet::new(cidr("fd00::/47"), 64).err().unwrap();
        assert_eq!(refused, "New CIDR set failed; the node CIDR size is too big");
        assert_eq!(set("10.0.0.0/8", 30).capacity(), 1 << 22, "IPv4 has no such limit");
    }

    /// Proves IPAM-29.
    #[test]
    fn cursor_moves_behind_the_allocated_block_and_wraps() {
        let mut set = set("10.0.0.0/22", 24);
        assert_eq!([next(&mut set), next(&mut set)], ["10.0.0.0/24", "10.0.1.0/24"]);
        set.release(&cidr("10.0.0.0/24")).unwrap();
        set.occupy(&cidr("10.0.2.0/24")).unwrap();
        let skipping = set.allocate_next().unwrap();
        assert_eq!((skipping.block.to_string().as_str(), skipping.skipped), ("10.0.3.0/24", 1));
        let wrapped = set.allocate_next().unwrap();
        assert_eq!((wrapped.block.to_string().as_str(), wrapped.skipped), ("10.0.0.0/24", 0));
        assert_eq!(next(&mut set), "none");
        set.release(&cidr("10.0.2.0/24")).unwrap();
        let around = set.allocate_next().unwrap();
        assert_eq!((around.block.to_string().as_str(), around.skipped), ("10.0.2.0/24", 1));
    }

    /// Proves IPAM-38.
    #[test]
    fn examples_of_used_blocks() {
        let mut with_services = set("127.123.234.0/24", 30);
        with_services.occupy(&cidr("127.123.234.0/26")).unwrap();
        assert_eq!(next(&mut with_services), "127.123.234.64/30");
        let mut with_nodes = set("10.10.0.0/22", 24);
        with_nodes.occupy(&cidr("10.10.0.0/24")).unwrap();
        with_nodes.occupy(&cidr("10.10.2.0/24")).unwrap();
        assert_eq!(next(&mut with_nodes), "10.10.1.0/24");
    }

    /// Proves IPAM-31, IPAM-33.
    #[test]
    fn range_of_any_width_marks_the_blocks_it_overlaps_once() {
        let mut set = set("10.0.0.0/22", 24);
        assert_eq!(set.occupy(&cidr("10.0.0.0/16")), Ok(4), "wider than the cluster CIDR");
        assert_eq!(set.occupy(&cidr("10.0.0.0/22")), Ok(0), "again");
        assert_eq!((set.used(), next(&mut set).as_str()), (4, "none"));
        assert_eq!(set.release(&cidr("10.0.2.0/23")), Ok(2), "wider than a block");
        assert_eq!(set.release(&cidr("10.0.3.0/24")), Ok(0), "again");
        assert_eq!(set.occupy(&cidr("10.0.3.128/26")), Ok(1), "narrower than a block");
        assert_eq!(set.used(), 3);
        assert_eq!(next(&mut set), "10.0.2.0/24");
    }

    /// Proves IPAM-32.
    #[test]
    fn range_outside_or_of_the_other_family_is_an_error() {
        let mut set = set("10.0.0.0/16", 24);
        for outside in ["10.1.0.0/24", "fd00::/64", "::/0"] {
            let message = format!("cidr {outside} is out the range of cluster cidr 10.0.0.0/16");
            assert_eq!(set.occupy(&cidr(outside)), Err(message.clone()));
            assert_eq!(set.release(&cidr(outside)), Err(message));
        }
        assert_eq!(set.used(), 0);
    }

    #[test]
    fn hundred_thousand_blocks_are_allocated_and_reused_in_constant_time_each() {
        let mut set = set("10.0.0.0/8", 25);
        for _ in 0..100_000 {
            assert!(set.allocate_next().is_some());
        }
        // Every block is used but one, and the cursor is just behind it: the search passes all others.
        set.occupy(&cidr("10.0.0.0/8")).unwrap();
        set.next = 70_001;
        for _ in 0..100_000 {
            set.release(&cidr("10.136.184.0/25")).unwrap();
            let found = set.allocate_next().unwrap();
            assert_eq!(found.block.to_string(), "10.136.184.0/25");
            assert_eq!(found.skipped, set.capacity() - 1);
        }
    }
}
