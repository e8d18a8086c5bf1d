//! The system: distribution, board, name, platform.

use std::collections::BTreeMap;

use super::machine::{Attributes, Machine, Outcome, no};
use super::{Elements, Feature};
use crate::root::{NotRead, VALUE};

/// `system.osrelease`.
pub(crate) fn osrelease(machine: &Machine<'_>) -> Outcome {
    // The first is often a link to the second, which may be mounted without it.
    const PATHS: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
    machine
        .files_are_the_hosts()
        .map_err(|why| format!("{} is not the host's: {why}", PATHS[0]))?;
    let mut why = NotRead::Missing;
    for path in PATHS {
        match machine.root.text(path, VALUE) {
            Ok(text) => return Ok(Feature::attributes(path, parse_release(&text))),
            Err(NotRead::Missing) => {}
            Err(unreadable) => why = unreadable,
        }
    }
    Err(why.about(PATHS[0]))
}

/// The assignments of a shell, of which only plain ones are allowed here.
fn parse_release(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if !name.is_empty() && name.bytes().all(plain) {
            values.insert(name.to_owned(), unquoted(value.trim()));
        }
    }
    if let Some(version) = values.get("VERSION_ID") {
        let mut parts = version.split('.');
        let mut number = || {
            let part = parts.next()?;
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.to_owned())
        };
        let (major, minor) = (number(), number());
        for (name, value) in [("VERSION_ID.major", &major), ("VERSION_ID.minor", &minor)] {
            if let (Some(_), Some(value)) = (&major, value) {
                values.insert(name.to_owned(), value.clone());
            }
        }
    }
    values
}

/// A value without its quotes; a backslash outside single quotes stands for what follows it.
fn unquoted(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut quote = None;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => plain.extend(chars.next()),
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, _) => plain.push(c),
        }
    }
    plain
}

/// Without [`NAMES_ONE`]: serial numbers, the machine's identifier, and asset tags, with which
/// clouds and owners name one machine.
const DMI: [&str; 15] = [
    "bios_date",
    "bios_release",
    "bios_vendor",
    "bios_version",
    "board_name",
    "board_vendor",
    "board_version",
    "chassis_type",
    "chassis_vendor",
    "chassis_version",
    "product_family",
    "product_name",
    "product_sku",
    "product_version",
    "sys_vendor",
];

/// What is left out: nobody knows it.
const NAMES_ONE: [&str; 6] = [
    "board_asset_tag",
    "board_serial",
    "chassis_asset_tag",
    "chassis_serial",
    "product_serial",
    "product_uuid",
];

/// `system.dmiid`. Machines without such tables (most of ARM, microVMs) have none of it.
pub(crate) fn dmiid(machine: &Machine<'_>) -> Outcome {
    const DIR: &str = "/sys/devices/virtual/dmi/id";
    let Some(dir) = machine.dir("/sys/devices/virtual", DIR)? else {
        return Ok(Feature::attributes(no(DIR), BTreeMap::new()));
    };
    let mut found = Attributes::default();
    for name in DMI {
        match dir.text(name) {
            Ok(value) => found.set(name, value, DIR),
            Err(NotRead::Missing) => {}
            Err(why) => found.unknown(name, why.about(&dir.inside(name))),
        }
    }
    for name in NAMES_ONE {
        found.unknown(name, "it names one machine and is left out");
    }
    Ok(found.feature(DIR))
}

/// `system.name`: what the cluster told this process.
pub(crate) fn name(machine: &Machine<'_>) -> Outcome {
    const VARIABLE: &str = "the environment variable NODE_NAME";
    if !machine.live().here {
        return Err(format!("{VARIABLE} says nothing about another machine's root"));
    }
    let name = machine.live().node_name.clone().unwrap_or_default();
    Ok(Feature::attributes(VARIABLE, BTreeMap::from([("nodename".to_owned(), name)])))
}

/// `system.platform`: what images are chosen for. Whether 32-bit programs run is told by the
/// kernel's configuration, which is only looked at for those who want to know.
pub(crate) fn platform(machine: &Machine<'_>) -> Outcome {
    let basics = machine.basics();
    let mut found = Attributes::default();
    let nobody = "neither /proc nor a program says it";
    match &basics.os {
        Some(os) => found.set("os", os.value.clone(), &os.source.to_string()),
        None => found.unknown("os", nobody),
    }
    match &basics.architecture {
        Some(arch) => found.set("arch", arch.value.clone(), &arch.source.to_string()),
        None => found.unknown("arch", nobody),
    }
    match basics.level.as_ref().map(|fact| (fact.value.level, &fact.source)) {
        Some((Some(level), source)) => {
            found.set("variant", level.to_string(), &source.to_string());
        }
        Some((None, source)) => found.absent("variant", &source.to_string()),
        None => found.unknown("variant", "no source tells a level of this architecture"),
    }
    let asked = match machine.wanted.elements("system.platform") {
        Some(Elements::Only(asked)) => Some(asked),
        Some(Elements::All) | None => None,
    };
    if asked.is_none_or(|asked| asked.contains("compat32")) {
        match &machine.host().compat32 {
            Some(fact) => found.set("compat32", fact.value.to_string(), &fact.source.to_string()),
            None => found.unknown("compat32", "nothing tells whether 32-bit programs run"),
        }
    }
    let mut feature = found.feature("/proc");
    feature.only = asked.cloned();
    Ok(feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_a_shells() {
        for (written, value) in [
            ("debian", "debian"),
            ("\"Debian GNU/Linux 12 (bookworm)\"", "Debian GNU/Linux 12 (bookworm)"),
            ("'single $HOME \\'", "single $HOME \\"),
            (r#""a \"b\" \$c""#, "a \"b\" $c"),
            ("a\\ b", "a b"),
            ("\"open", "open"),
            ("", ""),
            ("\\", ""),
        ] {
            assert_eq!(unquoted(written), value, "{written}");
        }
    }

    #[test]
    fn versions_are_split_only_where_they_are_numbers() {
        let version = |text: &str| {
            let values = parse_release(&format!("VERSION_ID={text}\n"));
            let get = |name: &str| values.get(name).cloned();
            (get("VERSION_ID.major"), get("VERSION_ID.minor"))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(version("\"22.04\""), (some("22"), some("04")));
        assert_eq!(version("12"), (some("12"), None));
        assert_eq!(version("3.19.1"), (some("3"), some("19")));
        assert_eq!(version("rolling"), (None, None));
        assert_eq!(version("v3.1"), (None, None));
        let odd = parse_release("# a comment\nID=x\nNOT A NAME=y\n=z\nlonely\nID=later\n");
        assert_eq!(odd.len(), 1);
        assert_eq!(odd["ID"], "later");
    }
}
