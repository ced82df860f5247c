//! Reads the controller's options: which ranges it divides, into blocks of which size, and what it leaves out.
//!
//! Parity: `newNodeIpamController`, `validateCIDRs`, `setNodeCIDRMaskSizes` in `cmd/kube-controller-manager/app/core.go`.

use super::cidr_set::CidrSet;
use crate::cidr::Cidr;

/// The mask of a node's range, if no flag sets it.
const IPV4_MASK_DEFAULT: i32 = 24;
const IPV6_MASK_DEFAULT: i32 = 64;

/// Options of the controller, as the flags have them: the controller reads them when it is constructed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIpamOptions {
    /// Whether nodes get ranges; without it, the controller does not run.
    pub allocate_node_cidrs: bool,
    /// The allocator; only `RangeAllocator` runs.
    pub cidr_allocator_type: String,
    /// The ranges to divide, separated by commas.
    pub cluster_cidr: String,
    /// The first Service range; empty for none.
    pub service_cidr: String,
    /// The second Service range; empty for none.
    pub secondary_service_cidr: String,
    /// The mask size of nodes in a single-stack cluster; 0 for the default.
    pub node_cidr_mask_size: i32,
    /// The mask size of IPv4 ranges; 0 for the default.
    pub node_cidr_mask_size_ipv4: i32,
    /// The mask size of IPv6 ranges; 0 for the default.
    pub node_cidr_mask_size_ipv6: i32,
}

impl Default for NodeIpamOptions {
    fn default() -> Self {
        Self {
            allocate_node_cidrs: false,
            cidr_allocator_type: "RangeAllocator".to_owned(),
            cluster_cidr: String::new(),
            service_cidr: String::new(),
            secondary_service_cidr: String::new(),
            node_cidr_mask_size: 0,
            node_cidr_mask_size_ipv4: 0,
            node_cidr_mask_size_ipv6: 0,
        }
    }
}

impl NodeIpamOptions {
    /// The Service ranges that are given but cannot be read. They are ignored, which is worth a warning.
    pub fn unreadable_service_ranges(&self) -> impl Iterator<Item = &str> {
        let given = [self.service_cidr.as_str(), &self.secondary_service_cidr].into_iter();
        given.filter(|text| !text.trim().is_empty() && Cidr::parse_leniently(text).is_none())
    }
}

/// What the controller works with.
pub(super) struct Configuration {
    /// The blocks of each cluster CIDR.
    pub(super) sets: Vec<CidrSet>,
    /// The ranges that no node gets.
    pub(super) service_ranges: Vec<Cidr>,
    /// Why the controller cannot start, which is reported when the nodes are known.
    pub(super) unknown_allocator: Option<String>,
}

/// Reads the options, with the checks of the original in its order.
pub(super) fn read(options: &NodeIpamOptions) -> Result<Configuration, String> {
    let allocator = options.cidr_allocator_type.as_str();
    if allocator == "CloudAllocator" {
        let message = "--cidr-allocator-type is set to 'CloudAllocator' but cloud provider is not configured";
        return Err(message.to_owned());
    }
    let clusters = cluster_cidrs(&options.cluster_cidr)?;
    let service_ranges = service_ranges(options)?;
    let masks = node_masks(options, &clusters)?;
    if clusters
        .iter()
        .zip(&masks)
        .any(|(cluster, mask)| i64::from(cluster.prefix_length()) > i64::from(*mask))
    {
        return Err(
            "Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to \
                    --node-cidr-mask-size configured for CIDR family"
                .to_owned(),
        );
    }
    if ["IPAMFromCluster", "IPAMFromCloud"].contains(&allocator) {
        return Err("Error trying to Init(): legacy cloud provider support disabled at build time".to_owned());
    }
    if allocator != "RangeAllocator" {
        let unknown_allocator = Some(format!("invalid CIDR allocator type: {allocator}"));
        return Ok(Configuration { sets: Vec::new(), service_ranges, unknown_allocator });
    }
    // No mask is negative: it is not below the cluster's.
    let set = |(cluster, mask): (Cidr, i32)| CidrSet::new(cluster, mask.unsigned_abs());
    let sets = clusters.into_iter().zip(masks).map(set).collect::<Result<_, _>>()?;
    Ok(Configuration { sets, service_ranges, unknown_allocator: None })
}

fn cluster_cidrs(list: &str) -> Result<Vec<Cidr>, String> {
    let read = |(at, text): (usize, &str)| {
        Cidr::parse_leniently(text)
            .ok_or_else(|| format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})"))
    };
    let ranges: Vec<_> = list.trim().split(',').enumerate().map(read).collect::<Result<_, _>>()?;
    let count = ranges.len();
    if count > 1 && !is_dual_stack(&ranges) {
        return Err(format!(
            "len of ClusterCIDRs=={count} and they are not configured as dual stack (at least one from each \
             IPFamily"
        ));
    }
    if count > 2 {
        return Err(format!("length of clusterCIDRs is:{count} more than max allowed of 2"));
    }
    Ok(ranges)
}

fn is_dual_stack(ranges: &[Cidr]) -> bool {
    ranges.iter().any(Cidr::is_ipv6) && !ranges.iter().all(Cidr::is_ipv6)
}

/// The Service ranges, the primary one first. One that cannot be read counts as not given.
fn service_ranges(options: &NodeIpamOptions) -> Result<Vec<Cidr>, String> {
    let given = [options.service_cidr.as_str(), &options.secondary_service_cidr].into_iter();
    let ranges: Vec<_> = given.filter_map(Cidr::parse_leniently).collect();
    if ranges.len() > 1 && !is_dual_stack(&ranges) {
        let message = "serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles)";
        return Err(message.to_owned());
    }
    Ok(ranges)
}

/// The node mask for each cluster CIDR.
fn node_masks(options: &NodeIpamOptions, clusters: &[Cidr]) -> Result<Vec<i32>, String> {
    let NodeIpamOptions { node_cidr_mask_size: both, node_cidr_mask_size_ipv4: ipv4, .. } = *options;
    let ipv6 = options.node_cidr_mask_size_ipv6;
    let or_default = |mask: i32, default: i32| if mask == 0 { default } else { mask };
    let by_family = |ipv4: i32, ipv6: i32| {
        clusters.iter().map(|cluster| if cluster.is_ipv6() { ipv6 } else { ipv4 }).collect()
    };
    let defaulted = by_family(or_default(ipv4, IPV4_MASK_DEFAULT), or_default(ipv6, IPV6_MASK_DEFAULT));
    let refused = |message: &str| Err(message.to_owned());
    if clusters.len() > 1 {
        return match both {
            0 => Ok(defaulted),
            _ => refused("usage of --node-cidr-mask-size is not allowed with dual-stack clusters"),
        };
    }
    let is_ipv6 = clusters.iter().all(Cidr::is_ipv6);
    match (both != 0, ipv4 != 0, ipv6 != 0) {
        (true, false, false) => Ok(by_family(both, both)),
        (true, ..) => refused(
            "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if \
             --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
        ),
        (false, true, _) if is_ipv6 => {
            refused("usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster")
        }
        (false, _, true) if !is_ipv6 => {
            refused("usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster")
        }
        _ => Ok(defaulted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(cluster_cidr: &str) -> NodeIpamOptions {
        NodeIpamOptions {
            allocate_node_cidrs: true,
            cluster_cidr: cluster_cidr.to_owned(),
            ..NodeIpamOptions::default()
        }
    }

    fn error(options: &NodeIpamOptions) -> String {
        read(options).err().unwrap_or_default()
    }

    /// Cluster CIDR, number of blocks and first block of each set.
    fn sets(options: &NodeIpamOptions) -> Vec<(String, u64, String)> {
        let describe = |set: &mut CidrSet| {
            let first = set.allocate_next().unwrap().block.to_string();
            (set.cluster().to_string(), set.capacity(), first)
        };
        read(options).unwrap_or_else(|error| panic!("{error}")).sets.iter_mut().map(describe).collect()
    }

    /// Proves IPAM-7, IPAM-8.
    #[test]
    fn cluster_cidrs_are_one_or_one_of_each_family() {
        let invalid =
            |at: usize, text: &str| format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})");
        assert_eq!(error(&options("")), invalid(0, ""));
        assert_eq!(error(&options("10.0.0.0/16,")), invalid(1, ""));
        assert_eq!(error(&options("10.0.0.0/16, fd00::/48")), invalid(1, " fd00::/48"));
        assert_eq!(error(&options("10.0.0.0")), invalid(0, "10.0.0.0"));
        assert_eq!(sets(&options(" 010.0.7.0/16\n"))[0].0, "10.0.0.0/16");
        let single = |count: usize| {
            format!(
                "len of ClusterCIDRs=={count} and they are not configured as dual stack (at least one from each \
                 IPFamily"
            )
        };
        assert_eq!(error(&options("10.0.0.0/16,10.1.0.0/16")), single(2));
        assert_eq!(error(&options("10.0.0.0/16,10.1.0.0/16,10.2.0.0/16")), single(3));
        assert_eq!(
            error(&options("10.0.0.0/16,10.1.0.0/16,fd00::/48")),
            "length of clusterCIDRs is:3 more than max allowed of 2"
        );
    }

    /// Proves IPAM-5, IPAM-6.
    #[test]
    fn only_the_range_allocator_runs() {
        let of_type = |kind: &str, cluster: &str| NodeIpamOptions {
            cidr_allocator_type: kind.to_owned(),
            ..options(cluster)
        };
        let cloud = "--cidr-allocator-type is set to 'CloudAllocator' but cloud provider is not configured";
        assert_eq!(error(&of_type("CloudAllocator", "malformed")), cloud);
        for legacy in ["IPAMFromCluster", "IPAMFromCloud"] {
            assert!(error(&of_type(legacy, "malformed")).starts_with("invalid CIDR[0]"));
            assert_eq!(
                error(&of_type(legacy, "10.0.0.0/16")),
                "Error trying to Init(): legacy cloud provider support disabled at build time"
            );
        }
        let unknown = read(&of_type("Range", "10.0.0.0/16")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(unknown.unknown_allocator.as_deref(), Some("invalid CIDR allocator type: Range"));
    }

    /// Proves IPAM-9.
    #[test]
    fn unreadable_service_ranges_count_as_not_given_and_two_must_differ_in_family() {
        let with = |primary: &str, secondary: &str| NodeIpamOptions {
            service_cidr: primary.to_owned(),
            secondary_service_cidr: secondary.to_owned(),
            ..options("10.0.0.0/16")
        };
        let refused = "serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles)";
        assert_eq!(error(&with("10.96.0.0/16", "10.97.0.0/16")), refused);
        assert_eq!(error(&with("fd00::/108", "fd01::/108")), refused);
        for (primary, secondary, read_ranges, unreadable) in [
            ("10.96.0.0/16", " fd00::/108", 1, &[" fd00::/108"][..]),
            ("10.96.0.0", "10.97.0.0/16", 1, &["10.96.0.0"]),
            ("10.96.0.0/16", "fd00::/108", 2, &[]),
            ("", "  ", 0, &[]),
        ] {
            let options = with(primary, secondary);
            assert_eq!(
                read(&options).unwrap_or_else(|error| panic!("{error}")).service_ranges.len(),
                read_ranges
            );
            assert_eq!(options.unreadable_service_ranges().collect::<Vec<_>>(), unreadable);
        }
    }

    /// Proves IPAM-10, IPAM-11, IPAM-12, IPAM-13, IPAM-14, OPT-94.
    #[test]
    fn masks_come_from_the_flags_of_the_family_or_are_24_and_64() {
        let with = |cluster: &str, both: i32, ipv4: i32, ipv6: i32| NodeIpamOptions {
            node_cidr_mask_size: both,
            node_cidr_mask_size_ipv4: ipv4,
            node_cidr_mask_size_ipv6: ipv6,
            ..options(cluster)
        };
        let firsts = |options: &NodeIpamOptions| {
            sets(options).into_iter().map(|(_, _, first)| first).collect::<Vec<_>>()
        };
        assert_eq!(firsts(&with("10.0.0.0/16", 0, 0, 0)), ["10.0.0.0/24"]);
        assert_eq!(firsts(&with("fd00::/48", 0, 0, 0)), ["fd00::/64"]);
        assert_eq!(firsts(&with("fd00::/48,10.0.0.0/16", 0, 0, 0)), ["fd00::/64", "10.0.0.0/24"]);
        assert_eq!(firsts(&with("10.0.0.0/16,fd00::/48", 0, 25, 60)), ["10.0.0.0/25", "fd00::/60"]);
        assert_eq!(firsts(&with("10.0.0.0/16", 26, 0, 0)), ["10.0.0.0/26"]);
        assert_eq!(firsts(&with("fd00::/48", 56, 0, 0)), ["fd00::/56"]);
        assert_eq!(firsts(&with("10.0.0.0/16", 0, 27, 0)), ["10.0.0.0/27"]);
        assert_eq!(firsts(&with("fd00::/48", 0, 0, 58)), ["fd00::/58"]);
        let dual = "usage of --node-cidr-mask-size is not allowed with dual-stack clusters";
        assert_eq!(error(&with("10.0.0.0/16,fd00::/48", 24, 0, 0)), dual);
        let both = "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if \
                    --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily \
                    specific flags";
        assert_eq!(error(&with("10.0.0.0/16", 24, 24, 0)), both);
        assert_eq!(error(&with("10.0.0.0/16", 24, 0, 64)), both);
        assert_eq!(
            error(&with("fd00::/48", 0, 24, 0)),
            "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster"
        );
        assert_eq!(
            error(&with("10.0.0.0/16", 0, 0, 64)),
            "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"
        );
    }

    /// Proves IPAM-15, IPAM-16, IPAM-66.
    #[test]
    fn node_mask_is_at_least_the_cluster_mask_and_may_exceed_the_address() {
        let with_mask =
            |cluster: &str, mask: i32| NodeIpamOptions { node_cidr_mask_size: mask, ..options(cluster) };
        let too_short = "Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or \
                         equal to --node-cidr-mask-size configured for CIDR family";
        assert_eq!(error(&with_mask("10.0.0.0/16", 15)), too_short);
        assert_eq!(error(&with_mask("10.0.0.0/16", -1)), too_short);
        assert_eq!(error(&options("fd00::/65")), too_short);
        assert_eq!(sets(&with_mask("10.0.0.0/16", 16))[0].1, 1);
        let too_big = "New CIDR set failed; the node CIDR size is too big";
        assert_eq!(error(&options("fd00::/47")), too_big);
        assert_eq!(error(&options("10.0.0.0/16,fd00::/47")), too_big);
        let (_, blocks, first) = sets(&with_mask("10.0.0.0/16", 40)).remove(0);
        assert_eq!((blocks, first.as_str()), (1 << 24, "10.0.0.0/40"), "the API server refuses this block");
        let none = read(&with_mask("10.0.0.0/16", i32::MAX)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(none.sets[0].capacity(), 0);
    }
}
