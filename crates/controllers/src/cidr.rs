//! Address ranges in CIDR notation, read leniently as in flags and nodes, or strictly as in ServiceCIDRs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address range: a prefix of an IPv4 or IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cidr {
    /// The first address, with the host bits cleared; an IPv4 address is in the low 32 bits.
    base: u128,
    prefix_length: u32,
    is_ipv6: bool,
}

impl Cidr {
    /// Reads a range as the original's `ParseCIDRSloppy` does: IPv4 octets may have leading zeros, and host bits are
    /// cleared.
    pub(crate) fn parse_leniently(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address = match parse_ipv4_leniently(address) {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
        };
        let is_number = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
        Self::of(address, length.parse().ok().filter(|_| is_number)?)
    }

    /// Reads a range as Go's `netip.ParsePrefix` does: without leading zeros. Host bits are cleared.
    pub(crate) fn parse_strictly(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let is_canonical = length.bytes().all(|digit| digit.is_ascii_digit())
            && (length == "0" || !length.starts_with('0'))
            && !length.is_empty();
        Self::of(address.parse().ok()?, length.parse().ok().filter(|_| is_canonical)?)
    }

    /// The range of an address and a prefix length; `None` if the address is shorter.
    fn of(address: IpAddr, prefix_length: u32) -> Option<Self> {
        let (bits, is_ipv6) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), false),
            IpAddr::V6(address) => (u128::from(address), true),
        };
        let width = if is_ipv6 { 128 } else { 32 };
        (prefix_length <= width).then(|| Self {
            base: bits & !host_mask(width, prefix_length),
            prefix_length,
            is_ipv6,
        })
    }

    /// The range of the same family with this first address and prefix length. A length beyond the address is kept: the
    /// API server refuses such a range.
    pub(crate) fn within(&self, base: u128, prefix_length: u32) -> Self {
        Self { base, prefix_length, is_ipv6: self.is_ipv6 }
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    pub(crate) fn prefix_length(&self) -> u32 {
        self.prefix_length
    }

    /// The number of bits of an address: 32 or 128.
    pub(crate) fn width(&self) -> u32 {
        if self.is_ipv6 { 128 } else { 32 }
    }

    /// The first address as a number.
    pub(crate) fn first(&self) -> u128 {
        self.base
    }

    /// The last address as a number.
    pub(crate) fn last(&self) -> u128 {
        self.base | host_mask(self.width(), self.prefix_length)
    }

    /// Whether the two ranges have an address in common. Ranges of different families have none.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.is_ipv6 == other.is_ipv6 && self.first() <= other.last() && other.first() <= self.last()
    }

    /// Whether every address of the other range is in this one; equal ranges contain each other.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.overlaps(other) && self.prefix_length <= other.prefix_length
    }

    /// Whether a Service can have this address: it is in the range, and neither its first address nor the broadcast
    /// address of an IPv4 range.
    pub(crate) fn contains_service_address(&self, address: IpAddr) -> bool {
        let (number, is_ipv6) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), false),
            IpAddr::V6(address) => (u128::from(address), true),
        };
        self.is_ipv6 == is_ipv6
            && (self.first()..=self.last()).contains(&number)
            && number != self.first()
            && (is_ipv6 || number != self.last())
    }
}

fn host_mask(width: u32, prefix_length: u32) -> u128 {
    match width.saturating_sub(prefix_length) {
        128 => u128::MAX,
        host_bits => (1 << host_bits) - 1,
    }
}

fn parse_ipv4_leniently(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits = parts.next().filter(|part| !part.is_empty())?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        *octet = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    }
    parts.next().is_none().then(|| octets.into())
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ipv6 {
            write!(f, "{}/{}", Ipv6Addr::from(self.base), self.prefix_length)
        } else {
            // The base of an IPv4 range is below 2^32.
            let base = u32::try_from(self.base).unwrap_or(u32::MAX);
            write!(f, "{}/{}", Ipv4Addr::from(base), self.prefix_length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lenient_reading_accepts_leading_zeros_and_clears_host_bits() {
        let read = |text: &str| Cidr::parse_leniently(text).map(|range| range.to_string());
        for (text, expected) in [
            ("10.0.0.0/16", "10.0.0.0/16"),
            ("010.000.01.0/16", "10.0.0.0/16"),
            ("127.123.3.0/16", "127.123.0.0/16"),
            ("10.0.0.0/016", "10.0.0.0/16"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8:1234:5::/48", "2001:db8:1234::/48"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0/16",
            "10.0.0.0.0/8",
            "10.0.0.256/8",
            " 10.0.0.0/8",
            "10.0.0.0/33",
            "::/129",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in ["10.0.0.0/+8", "10.0.0.0/", "10.0.0.-1/8", "a/8", "10..0.0/8", "fd00::/64 ", "/8"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    /// Proves SCIDR-7.
    #[test]
    fn strict_reading_refuses_leading_zeros() {
        for text in
            ["010.0.0.0/8", "10.0.0.0/08", "10.0.0.0/+8", "10.0.0.0", "", "fe80::1%eth0/64", "10.0.0.0/33"]
        {
            assert_eq!(Cidr::parse_strictly(text), None, "{text}");
        }
        assert_eq!(Cidr::parse_strictly("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        let mapped = Cidr::parse_strictly("::ffff:10.0.0.0/104").unwrap();
        assert!(mapped.is_ipv6() && !mapped.contains_service_address("10.0.0.1".parse().unwrap()));
    }

    /// Proves SCIDR-8, SCIDR-32, SCIDR-45.
    #[test]
    fn network_and_ipv4_broadcast_addresses_are_no_service_addresses() {
        let contains = |range: &str, address: &str| {
            Cidr::parse_strictly(range).unwrap().contains_service_address(address.parse().unwrap())
        };
        for (range, inside) in [
            ("10.0.0.0/24", &["10.0.0.1", "10.0.0.254"][..]),
            ("fd00::/120", &["fd00::1", "fd00::ff"]),
            ("10.0.0.0/30", &["10.0.0.1", "10.0.0.2"]),
        ] {
            assert!(inside.iter().all(|address| contains(range, address)), "{range}");
        }
        for (range, outside) in [
            ("10.0.0.0/24", &["10.0.0.0", "10.0.0.255", "10.0.1.1", "fd00::1", "::ffff:10.0.0.1"][..]),
            ("fd00::/120", &["fd00::", "fd00::100", "10.0.0.1"]),
            ("10.0.0.4/32", &["10.0.0.4"]),
            ("10.0.0.4/31", &["10.0.0.4", "10.0.0.5"]),
            ("fd00::1/128", &["fd00::1"]),
        ] {
            assert!(outside.iter().all(|address| !contains(range, address)), "{range}");
        }
    }

    /// Proves SCIDR-9.
    #[test]
    fn range_contains_equal_and_narrower_ranges() {
        let contains = |outer: &str, inner: &str| {
            Cidr::parse_strictly(outer).unwrap().contains(&Cidr::parse_strictly(inner).unwrap())
        };
        assert!(contains("10.0.0.0/16", "10.0.3.0/24") && contains("10.0.3.0/24", "10.0.3.0/24"));
        assert!(!contains("10.0.3.0/24", "10.0.0.0/16") && !contains("10.0.0.0/24", "10.0.1.0/24"));
        assert!(!contains("0.0.0.0/0", "fd00::/64") && contains("::/0", "fd00::/64"));
    }
}
