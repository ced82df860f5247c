//! Address types: those of a Service, and that of an address.

use keleustes_objects::{Address, Service};

/// An address type of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressType {
    Ipv4,
    Ipv6,
}

impl AddressType {
    /// The spelling of the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    /// The address types of a Service: those in `ipFamilies`; without it, the type of the cluster IP, or
    /// both for a headless Service.
    pub(crate) fn of(service: &Service) -> Vec<Self> {
        let both = [Self::Ipv4, Self::Ipv6];
        let is_listed =
            |address_type: &Self| service.ip_families.iter().any(|name| *name == address_type.as_str());
        let address_types: Vec<_> = both.into_iter().filter(is_listed).collect();
        if !address_types.is_empty() {
            return address_types;
        }
        if service.is_headless() {
            return both.to_vec();
        }
        let is_v6 = Address::from(&*service.cluster_ip).ip().is_some_and(|ip| ip.is_ipv6());
        vec![if is_v6 { Self::Ipv6 } else { Self::Ipv4 }]
    }

    /// An address in canonical form with its type; `None` if it is no IP address. IPv4-mapped IPv6 counts as IPv4.
    pub(crate) fn of_address(address: &Address) -> Option<(Self, Address)> {
        let ip = address.ip()?.to_canonical();
        Some((if ip.is_ipv6() { Self::Ipv6 } else { Self::Ipv4 }, Address::from(ip)))
    }

    /// An address in canonical form, if it is of this type.
    pub(crate) fn canonical(self, address: &Address) -> Option<Address> {
        let (address_type, canonical) = Self::of_address(address)?;
        (address_type == self).then_some(canonical)
    }
}
