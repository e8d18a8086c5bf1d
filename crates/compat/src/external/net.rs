//! Which addresses a plugin may be fetched from. A spec is a stranger's: without this it could
//! make a node ask its cloud's metadata service, or a neighbour behind the firewall.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// Addresses that begin alike: `10.0.0.0/8`, `fd00::/8`, or a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network such as 10.0.0.0/8 or fd00::/8")]
pub struct ParseNetworkError(String);

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseNetworkError(text.chars().take(80).collect());
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, bits: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)), bits }
    }

    const fn v6(a: u16, b: u16, bits: u8) -> Self {
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), bits }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let rest = width - u32::from(self.bits);
            a.checked_shr(rest).unwrap_or(0) == b.checked_shr(rest).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

/// Not public: this machine, its neighbours, metadata services, and what is set aside.
const NOT_PUBLIC: [Network; 23] = [
    Network::v4(0, 0, 0, 8),
    Network::v4(10, 0, 0, 8),
    Network::v4(100, 64, 0, 10),
    Network::v4(127, 0, 0, 8),
    Network::v4(169, 254, 0, 16),
    Network::v4(172, 16, 0, 12),
    Network::v4(192, 0, 0, 24),
    Network::v4(192, 0, 2, 24),
    Network::v4(192, 168, 0, 16),
    Network::v4(198, 18, 0, 15),
    Network::v4(198, 51, 100, 24),
    Network::v4(203, 0, 113, 24),
    Network::v4(224, 0, 0, 4),
    Network::v4(240, 0, 0, 4),
    // Unspecified, loopback and the old embeddings of IPv4.
    Network::v6(0, 0, 96),
    Network::v6(0x100, 0, 64),
    Network::v6(0x2001, 0, 23),
    Network::v6(0x2001, 0xdb8, 32),
    Network::v6(0x3fff, 0, 20),
    Network::v6(0xfc00, 0, 7),
    Network::v6(0xfe80, 0, 10),
    Network::v6(0xfec0, 0, 10),
    Network::v6(0xff00, 0, 8),
];

/// Whether a plugin may be fetched from `address`.
pub(super) fn may_connect(address: IpAddr, allowed: &[Network]) -> bool {
    if allowed.iter().any(|network| network.contains(address)) {
        return true;
    }
    match address {
        IpAddr::V6(address) => match embedded(address) {
            // However it is written, it is the IPv4 address that answers.
            Some(inner) => may_connect(IpAddr::V4(inner), allowed),
            None => is_public(IpAddr::V6(address)),
        },
        IpAddr::V4(_) => is_public(address),
    }
}

fn is_public(address: IpAddr) -> bool {
    !NOT_PUBLIC.iter().any(|network| network.contains(address))
}

/// The IPv4 address that an IPv6 address stands for: mapped, NAT64, 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let low = |a: u16, b: u16| Ipv4Addr::from((u32::from(a) << 16) | u32::from(b));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, a, b] | [0x64, 0xff9b, 0, 0, 0, 0, a, b] => Some(low(a, b)),
        [0x64, 0xff9b, 1, .., a, b] => Some(low(a, b)),
        [0x2002, a, b, ..] => Some(low(a, b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_and_listed_ones() {
        for (address, public) in [
            ("1.1.1.1", true),
            ("93.184.216.34", true),
            ("2606:4700::1", true),
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("0.0.0.0", false),
            ("10.0.0.1", false),
            ("172.15.0.1", true),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:1.1.1.1", true),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b:1::7f00:1", false),
            ("64:ff9b::101:101", true),
            ("2002:7f00:1::", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(may_connect(address.parse().unwrap(), &[]), public, "{address}");
        }
        let allowed: Vec<Network> =
            ["127.0.0.1", "10.1.0.0/16", "fd00::/8"].map(|n| n.parse().unwrap()).into();
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("::ffff:10.1.2.3", true),
            ("fdab::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(may_connect(address.parse().unwrap(), &allowed), expected, "{address}");
        }
    }

    #[test]
    fn networks_are_read_and_printed() {
        for text in ["10.0.0.0/8", "fd00::/8", "0.0.0.0/0", "::/0", "127.0.0.1/32"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.0/33", "fd00::/129", "a/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
