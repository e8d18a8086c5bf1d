//! Six whole hosts, and what a spec that needs AVX2 and VFIO says of each, word for word.
//!
//! `PORTOLAN_UPDATE_REPORTS=1 cargo test -p portolan-compat --test hosts` writes the words anew;
//! read what changed before you keep it.

use std::path::{Path, PathBuf};

use portolan_compat::check::{Options, check, needs};
use portolan_compat::document::{Mode, read};
use portolan_compat::evaluate::Depth;
use portolan_compat::plugins::NoExternal;
use portolan_compat::report::Compatibility::{self, Compatible, Incompatible, Unknown};
use portolan_compat::{Report, Spec};
use portolan_host::facts::{Facts, Wanted};

const HOSTS: [(&str, Compatibility, Compatibility); 6] = [
    // The host, whether AVX2 and VFIO are there, and what the proposal's example says of it.
    ("x86-v2", Incompatible, Incompatible),
    ("x86-v3", Compatible, Incompatible),
    ("x86-v4", Incompatible, Incompatible),
    ("graviton3", Incompatible, Incompatible),
    ("container", Unknown, Incompatible),
    ("unreadable", Unknown, Incompatible),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn spec(name: &str) -> Spec {
    let bytes = std::fs::read(fixtures().join("compat").join(name)).expect("a fixture");
    read(&bytes, Mode::Lenient).spec.expect("it is valid")
}

/// Only what the spec asks for is collected.
fn report(spec: &Spec, host: &str, depth: Depth) -> Report {
    let options = Options { depth, ..Options::default() };
    let wanted = needs(spec, &options).expect("its own roots");
    let facts = Facts::at(&fixtures().join("hosts").join(host), &wanted).expect("a fixture");
    let mut report = check(spec, &facts, &options, &mut NoExternal).expect("its own roots");
    report.host = Some(host.to_owned());
    report
}

fn compare(name: &str, text: &str) {
    let path = fixtures().join("compat/reports").join(name);
    if std::env::var_os("PORTOLAN_UPDATE_REPORTS").is_some() {
        std::fs::write(&path, text).expect("the report can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, text, "{name}: see the head of this file");
}

/// The guide tells lines and columns of it.
#[test]
fn the_guides_example_is_the_fixture() {
    let guide = std::fs::read_to_string(fixtures().join("../docs/compat.md")).unwrap();
    let example = std::fs::read_to_string(fixtures().join("compat/avx2-vfio.json")).unwrap();
    assert!(guide.contains(&format!("```json\n{example}```")), "they differ");
}

#[test]
fn six_hosts_word_for_word() {
    let spec = spec("avx2-vfio.json");
    for (host, expected, _) in HOSTS {
        let report = report(&spec, host, Depth::Everything);
        let json = serde_json::to_string_pretty(&report).unwrap() + "\n";
        compare(&format!("{host}.txt"), &report.table());
        compare(&format!("{host}.json"), &json);
        assert_eq!(report.verdict, expected, "{host}: {}", report.table());
    }
}

#[test]
fn the_proposals_example_on_six_hosts() {
    for name in ["example.json", "corrected.json"] {
        let spec = spec(name);
        for (host, _, expected) in HOSTS {
            let report = report(&spec, host, Depth::Everything);
            assert_eq!(report.verdict, expected, "{name} {host}: {}", report.table());
        }
    }
}

#[test]
fn haste_and_more_facts_change_no_verdict() {
    for name in ["avx2-vfio.json", "example.json"] {
        let spec = spec(name);
        for (host, ..) in HOSTS {
            let all = report(&spec, host, Depth::Everything);
            assert_eq!(
                report(&spec, host, Depth::UntilDecided).verdict,
                all.verdict,
                "{name} {host}"
            );
            let root = fixtures().join("hosts").join(host);
            let facts = Facts::at(&root, &Wanted::everything()).unwrap();
            let more = check(&spec, &facts, &Options::default(), &mut NoExternal).unwrap();
            assert_eq!(more.namespaces, all.namespaces, "{name} {host}");
        }
    }
}

/// The command line of x86-v3 holds a key; nothing of it is in any report.
#[test]
fn no_report_holds_the_command_line() {
    for name in ["avx2-vfio.json", "example.json", "corrected.json"] {
        let report = report(&spec(name), "x86-v3", Depth::Everything);
        let text = report.table() + &serde_json::to_string(&report).unwrap() + &report.svg();
        for secret in ["hush", "nvme0n1p2", "dyndbg"] {
            assert!(!text.contains(secret), "{name}: {secret}");
        }
    }
}
