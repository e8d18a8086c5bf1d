//! Any text is a reference or an error; a reference prints as text that reads back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_core::{Digest, Reference, Target};

fuzz_target!(|text: &str| {
    if let Ok(reference) = text.parse::<Reference>() {
        let printed = reference.to_string();
        let again = printed.parse::<Reference>().expect("what we print we read");
        assert_eq!(reference, again, "{text:?} printed as {printed:?}");
        if let Reference::Registry(name) = &reference {
            assert!(!name.repository.as_str().split('/').any(|part| part == ".." || part.is_empty()));
        }
    }
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string(), text);
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
    }
});
