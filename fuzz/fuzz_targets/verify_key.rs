//! Any text is a question or a bad key; a question is echoed as it came, and names an image in a
//! registry. Any text is a policy or an error, and a pod or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_core::platform::PartialPlatform;
use portolan_core::{Platform, Reference};
use portolan_verify::{contract, pod, policy};

fuzz_target!(|text: &str| {
    if let Ok(key) = contract::parse(text) {
        assert_eq!(key.original(), text);
        assert!(text.len() <= contract::MAX_KEY);
        assert!(matches!(key.reference(), Reference::Registry(_)));
        for platform in key.platforms() {
            let printed = platform.to_string();
            assert_eq!(printed.parse::<PartialPlatform>().as_ref(), Ok(platform), "{printed}");
        }
    }
    let _ = policy::parse(text.as_bytes(), &|_| Err("no files here".to_owned()));
    if let Ok(spec) = pod::PodSpec::from_yaml(text.as_bytes()) {
        let host = Platform::new("linux", "amd64");
        let settings = pod::Settings::new(pod::Default::Host, host);
        assert!(pod::platforms(&spec, &settings).platforms().next().is_some());
    }
});
