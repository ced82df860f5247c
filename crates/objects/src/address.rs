//! Network addresses, stored compactly and written back unchanged.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use crate::ArcStr;

/// An address. An IP address in its canonical spelling takes no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Ip(IpAddr),
    Other(ArcStr),
}

impl Address {
    /// The IP address, parsed like `netutils.ParseIPSloppy`: leading zeros in IPv4 octets are allowed and decimal.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match &self.0 {
            Form::Ip(ip) => Some(*ip),
            Form::Other(text) => text.parse().ok().or_else(|| sloppy_ipv4(text).map(IpAddr::V4)),
        }
    }
}

fn sloppy_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.').map(|part| {
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if plain { part.parse::<u8>().ok() } else { None }
    });
    let mut next = || parts.next().flatten();
    let octets = [next()?, next()?, next()?, next()?];
    parts.next().is_none().then(|| octets.into())
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        let canonical = text.parse::<IpAddr>().ok().filter(|ip| ip.to_string() == text);
        Self(canonical.map_or_else(|| Form::Other(text.into()), Form::Ip))
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(Form::Ip(ip))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Ip(ip) => ip.fmt(f),
            Form::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*std::borrow::Cow::<'de, str>::deserialize(deserializer)?))
    }
}

/// A list of addresses. A list of one takes no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Addresses(ListForm);

#[derive(Clone, PartialEq, Eq, Hash)]
enum ListForm {
    One(Address),
    Many(Box<[Address]>),
}

impl Default for Addresses {
    fn default() -> Self {
        Self(ListForm::Many(Box::default()))
    }
}

impl std::ops::Deref for Addresses {
    type Target = [Address];
    fn deref(&self) -> &[Address] {
        match &self.0 {
            ListForm::One(address) => std::slice::from_ref(address),
            ListForm::Many(addresses) => addresses,
        }
    }
}

impl FromIterator<Address> for Addresses {
    fn from_iter<I: IntoIterator<Item = Address>>(addresses: I) -> Self {
        let mut addresses: Vec<Address> = addresses.into_iter().collect();
        match (addresses.len(), addresses.pop()) {
            (1, Some(address)) => Self(ListForm::One(address)),
            (_, last) => Self(ListForm::Many(addresses.into_iter().chain(last).collect())),
        }
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self[..].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<Vec<Address>>::deserialize(deserializer)?.unwrap_or_default().into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_small_and_keep_their_spelling() {
        for (text, ip) in [
            ("10.0.0.7", Some("10.0.0.7")),
            ("010.0.0.07", Some("10.0.0.7")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("2001:DB8:0::1", Some("2001:db8::1")),
            ("example.com", None),
            ("10.0.0", None),
            ("10.0.0.+7", None),
        ] {
            let address = Address::from(text);
            assert_eq!(address.to_string(), text);
            assert_eq!(address.ip().map(|ip| ip.to_string()).as_deref(), ip);
        }
        assert_eq!(size_of::<Addresses>(), 24);
        for text in ["[]", "[\"10.0.0.7\"]", "[\"10.0.0.7\",\"::1\"]"] {
            let list: Addresses = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&list).unwrap(), text);
        }
        assert!(serde_json::from_str::<Addresses>("null").unwrap().is_empty());
    }
}
