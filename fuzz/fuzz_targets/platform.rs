//! Any text is a platform or an error; what is printed reads back the same, and normalising
//! twice is normalising once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_core::Platform;

fuzz_target!(|text: &str| {
    let Ok(platform) = text.parse::<Platform>() else { return };
    let again = platform.to_string().parse::<Platform>().expect("what we print we read");
    assert_eq!(platform, again);
    let normal = platform.normalised();
    assert_eq!(normal, normal.normalised());
});
