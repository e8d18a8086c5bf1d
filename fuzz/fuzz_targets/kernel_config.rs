//! A kernel's configuration, packed or not, and its boot parameters: any bytes end in an answer,
//! and what is listed is what a single question is answered.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use portolan_host::facts::cmdline;
use portolan_host::kernel::{Config, Setting};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    for (name, value) in cmdline::parse(&text) {
        assert!(name.len() + value.map_or(0, |value| value.len()) <= text.len());
        assert!(!name.contains('='));
    }
    let Ok(config) = Config::read(bytes) else { return };
    let mut said = BTreeMap::new();
    for (name, setting) in config.options() {
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        assert_ne!(setting, Setting::Absent);
        said.insert(name, setting);
    }
    // Each question reads the whole text: some are enough.
    for (name, setting) in said.iter().take(32) {
        assert_eq!(config.get(name), *setting);
    }
    assert_eq!(config.get("no such option"), Setting::Absent);
});
