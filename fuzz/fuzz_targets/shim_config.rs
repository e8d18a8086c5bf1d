//! A node's configuration is somebody else's: what is added comes off again without a trace, upstream's
//! blocks come off once, and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_shim::node::config::{Entry, Version, add, parse, remove};
use portolan_shim::node::request::Options;
use portolan_shim::node::upstream::{State, remove_block};

fuzz_target!(|input: (bool, &str)| {
    let (default, text) = input;
    let _ = State::parse(text.as_bytes());
    let _ = Options::from_json(text);
    let once = remove_block(text, "x");
    assert_eq!(remove_block(&once, "x"), once);
    let _ = parse("fuzz", text).map(|document| Version::of("fuzz", &document));
    // With blocks of ours in it, the text is no foreign one.
    if text.contains("# portolan: ") {
        let _ = remove("fuzz", text, "x");
        return;
    }
    let options = Options::default();
    let mut now = text.to_owned();
    for name in ["x", "y"] {
        let entry = Entry { handler: name, program: "/opt/rcm/x", options: &options };
        now = add("fuzz", &now, name, Version::V2, &entry, default).expect("no block is torn");
    }
    for name in ["x", "y"] {
        now = remove("fuzz", &now, name).expect("no block is torn");
    }
    assert_eq!(now, text);
});
