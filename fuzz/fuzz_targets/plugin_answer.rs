//! Whatever a plugin prints is an answer that agrees with its exit code, a description, or an error;
//! and nothing of it plays with a terminal. The first byte is the exit code.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_compat::Verdict;
use portolan_compat::external::protocol::{answer, describe};

fn is_plain(text: &str) -> bool {
    !text.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\n', '\r', '\u{7}'])
}

fuzz_target!(|bytes: &[u8]| {
    let Some((code, stdout)) = bytes.split_first() else { return };
    let code = i32::from(*code % 4);
    match answer(stdout, code) {
        Ok(said) => {
            assert_eq!(said.verdict == Verdict::Pass, code == 0);
            assert_eq!(said.verdict == Verdict::Fail, code == 1);
            for reason in &said.reasons {
                let texts = [&reason.expected, &reason.found, &reason.source, &reason.remedy];
                let mut texts = texts.into_iter().flatten().map(String::as_str);
                assert!(is_plain(&reason.code) && is_plain(&reason.message));
                assert!(texts.all(is_plain));
            }
        }
        Err(error) => assert!(is_plain(&error.to_string()), "{error:?}"),
    }
    match describe(stdout) {
        Ok(description) => {
            assert!(description.facts.iter().all(|fact| fact != "kernel.cmdline"));
            assert!(is_plain(&description.version) && is_plain(&description.name));
        }
        Err(error) => assert!(is_plain(&error.to_string()), "{error:?}"),
    }
});
