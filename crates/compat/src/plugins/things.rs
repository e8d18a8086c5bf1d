//! The kinds of things of which a host may have many, and what each of them has.

use crate::text::short;

/// A kind of thing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// As facts call it.
    pub(super) feature: &'static str,
    /// In a sentence.
    pub(super) what: &'static str,
    /// What its instances have, each as NFD calls it.
    pub(super) attributes: &'static [(&'static str, Way)],
}

/// The attribute that says whose a thing is: our own facts never have it.
pub(super) const SERIAL: &str = "serial";

/// How authors and hosts write an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Alike.
    Plain,
    /// So many digits, in any case and perhaps after `0x`.
    Hex(usize),
    /// The class of a PCI device: four digits, or two for all that begin so.
    Class,
}

pub(super) const PCI: Kind = Kind {
    feature: "pci.device",
    what: "PCI device",
    attributes: &[
        ("class", Way::Class),
        ("vendor", Way::Hex(4)),
        ("device", Way::Hex(4)),
        ("subsystem_vendor", Way::Hex(4)),
        ("subsystem_device", Way::Hex(4)),
        ("sriov_totalvfs", Way::Plain),
        ("iommu_group/type", Way::Plain),
        ("iommu/intel-iommu/version", Way::Plain),
    ],
};

pub(super) const USB: Kind = Kind {
    feature: "usb.device",
    what: "USB device",
    attributes: &[
        ("class", Way::Hex(2)),
        ("vendor", Way::Hex(4)),
        ("device", Way::Hex(4)),
        (SERIAL, Way::Plain),
    ],
};

pub(super) const NETWORK: Kind = Kind {
    feature: "network.device",
    what: "network device",
    attributes: &[
        ("name", Way::Plain),
        ("operstate", Way::Plain),
        ("speed", Way::Plain),
        ("mtu", Way::Plain),
        ("sriov_numvfs", Way::Plain),
        ("sriov_totalvfs", Way::Plain),
    ],
};

pub(super) const VIRTUAL: Kind = Kind {
    feature: "network.virtual",
    what: "virtual network device",
    attributes: &[
        ("name", Way::Plain),
        ("operstate", Way::Plain),
        ("speed", Way::Plain),
        ("mtu", Way::Plain),
    ],
};

pub(super) const BLOCK: Kind = Kind {
    feature: "storage.block",
    what: "block device",
    attributes: &[
        ("name", Way::Plain),
        ("dax", Way::Plain),
        ("rotational", Way::Plain),
        ("nr_zones", Way::Plain),
        ("zoned", Way::Plain),
    ],
};

pub(super) const NV: Kind = Kind {
    feature: "memory.nv",
    what: "non-volatile memory",
    attributes: &[("name", Way::Plain), ("devtype", Way::Plain), ("mode", Way::Plain)],
};

impl Way {
    /// What an author wrote, as hosts write it.
    pub(super) fn written(self, name: &str, text: &str) -> Result<String, String> {
        let widths: &[usize] = match self {
            Self::Plain => return Ok(text.to_owned()),
            Self::Hex(2) => &[2],
            Self::Hex(_) => &[4],
            Self::Class => &[2, 4],
        };
        let digits = self.found(text);
        if widths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(digits);
        }
        let words = match widths {
            [2] => "two hexadecimal digits",
            [4] => "four hexadecimal digits",
            _ => "two or four hexadecimal digits",
        };
        Err(format!("{:?} is no {name}: it has {words}", short(text)))
    }

    /// What a host has, in one way of writing.
    pub(super) fn found(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Hex(_) | Self::Class => {
                let lower = text.to_ascii_lowercase();
                lower.strip_prefix("0x").map(str::to_owned).unwrap_or(lower)
            }
        }
    }
}
