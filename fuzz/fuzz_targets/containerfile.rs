//! Any bytes are a Containerfile or an error with a place in it. What is read is evaluated for two
//! platforms, within bounds, down to what each stage changes.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use portolan_build::containerfile::{Inherited, evaluate, outline, parse};

fuzz_target!(|bytes: &[u8]| {
    let outline = outline(bytes);
    match parse(bytes) {
        Err(error) => assert!(error.at.line >= 1 && error.at.column >= 1, "{error:?}"),
        Ok((instructions, escape)) => {
            assert!(!outline.runs, "what runs a program is not read");
            let args = BTreeMap::from([("A".to_owned(), "value".to_owned())]);
            for platform in ["linux/amd64", "linux/arm/v7"] {
                let platform = platform.parse().expect("a platform");
                let Ok(found) = evaluate(&instructions, escape, &platform, &args, None) else {
                    continue;
                };
                for stage in &found.stages {
                    let _ = stage.changes(&Inherited::default());
                }
            }
        }
    }
});
