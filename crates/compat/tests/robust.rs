//! Documents that nobody wrote: changed at random, or as large as they may be.

use std::time::{Duration, Instant};

use portolan_compat::check::{Options, check};
use portolan_compat::document::{Mode, Plugin, read};
use portolan_compat::evaluate::{Answer, Depth};
use portolan_compat::plugins::{External, NoExternal};
use portolan_compat::report::{Graph, outline};
use portolan_compat::{Spec, Verdict};
use portolan_host::facts::{Facts, Kind};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const EXAMPLE: &[u8] = include_bytes!("../../../fixtures/compat/example.json");
const AREAS: &[u8] = include_bytes!("../../../fuzz/seeds/compat_spec/areas");

fn facts() -> Facts {
    Facts::builder()
        .attribute("kernel.version", "full", "5.10.0")
        .attribute("kernel.config", "VFIO", "m")
        .flags("kernel.loadedmodule", ["vfio"])
        .known("kernel.builtinmodule", Kind::Flags)
        .instance("pci.device", [("class", "0302"), ("vendor", "10de")])
        .cmdline("quiet")
        .build()
}

fn spec(namespaces: Map<String, Value>) -> Spec {
    let document = json!({"schemaVersion": "0.1.0", "namespaces": namespaces});
    let found = read(document.to_string().as_bytes(), Mode::Lenient);
    found.spec.unwrap_or_else(|| panic!("{:?}", found.diagnostics.first()))
}

/// Everything that can be done with bytes.
fn all_of_it(bytes: &[u8], facts: &Facts) {
    let strict = read(bytes, Mode::Strict);
    let Some(spec) = read(bytes, Mode::Lenient).spec else {
        assert!(strict.spec.is_none());
        return;
    };
    let few = Options { depth: Depth::UntilDecided, ..Options::default() };
    let all = check(&spec, facts, &Options::default(), &mut NoExternal).expect("its own roots");
    let hasty = check(&spec, facts, &few, &mut NoExternal).expect("its own roots");
    assert_eq!(all.verdict, hasty.verdict);
    for text in [all.table(), all.dot(), all.svg(), outline(&spec), Graph::of_spec(&spec).svg()] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_it_panic_or_disagree(
        which in 0usize..2,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..6),
    ) {
        let mut bytes = [EXAMPLE, AREAS][which].to_vec();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len());
            match how {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                2 => drop(bytes.remove(place)),
                // What stands elsewhere, such as a name or a bracket.
                _ => bytes[place] = bytes[usize::from(byte) * 7 % bytes.len()],
            }
        }
        all_of_it(&bytes, &facts());
    }
}

/// A thousand namespaces in layers, ten thousand references between them.
fn large() -> Spec {
    let namespaces = (0..1000u32).map(|n| {
        let to: Vec<String> = (1..=10)
            .map(|k| n + k * 7)
            .filter(|to| *to < 1000)
            .map(|to| format!("n{to}"))
            .collect();
        let data = json!({"VFIO": "m", format!("OPTION_{n}"): "n"});
        let mut namespace = json!({"plugins": {"kernelConfiguration": {"data": data}}});
        if !to.is_empty() {
            let list = ["all", "oneOf"][n as usize % 2];
            namespace["refs"] = json!({list: to});
        }
        (format!("n{n}"), namespace)
    });
    spec(namespaces.collect())
}

/// Debug builds are slow and machines busy: this only tells a line from a parabola, and the
/// bench measures.
#[test]
fn large_documents_take_time_in_proportion() {
    let (spec, facts) = (large(), facts());
    assert!(spec.namespaces().map(|(_, one)| one.refs.iter().count()).sum::<usize>() > 9_000);
    let options = (0..10_000).map(|n| (format!("OPTION_{n}"), json!("n"))).collect::<Map<_, _>>();
    let many = Map::from_iter([(
        "a".to_owned(),
        json!({"plugins": {"kernelConfiguration": {"data": options}}}),
    )]);
    let many = self::spec(many);
    let modules = (0..10_000).map(|n| (format!("module_{n}"), json!({}))).collect::<Map<_, _>>();
    let modules = self::spec(Map::from_iter([(
        "a".to_owned(),
        json!({"plugins": {"kernelModules": {"data": modules}}}),
    )]));
    let host = (0..10_000).fold(Facts::builder(), |builder, n| {
        builder
            .attribute("kernel.config", &format!("HAVE_{n}"), "y")
            .flag("kernel.loadedmodule", &format!("have_{n}"))
    });
    let host = host
        .known("kernel.builtinmodule", Kind::Flags)
        .known("kernel.availablemodule", Kind::Flags)
        .build();
    let start = Instant::now();
    for (spec, facts) in [(&spec, &facts), (&many, &host), (&modules, &host)] {
        let report = check(spec, facts, &Options::default(), &mut NoExternal).unwrap();
        assert!(!report.table().is_empty() && !report.svg().is_empty());
    }
    // Ten thousand questions to a host with ten thousand things, compared one by one, would be
    // a hundred million comparisons, twice.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_document_full_of_mistakes_is_told_soon() {
    let start = Instant::now();
    let names: Vec<String> = (0..9_000).map(|n| format!("{}{n:05}", "x".repeat(60))).collect();
    let dangling = (0..900).map(|n| {
        let own: Vec<&String> = names.iter().skip(n * 10).take(10).collect();
        (format!("{}{n:05}", "y".repeat(60)), json!({"refs": {"all": own}}))
    });
    let document = json!({"schemaVersion": "0.1.0", "namespaces": dangling.collect::<Map<_, _>>()});
    let found = read(document.to_string().as_bytes(), Mode::Lenient);
    assert!(found.spec.is_none() && found.left_out > 7_000);
    let flags: Vec<String> = (0..30_000).map(|n| format!("NOFLAG{n}")).collect();
    let patterns = json!({"op": "InRegexp", "value": vec!["(a|b)*c{1,40}"; 50_000]});
    for data in [json!({"flags": flags}), json!({"vendor": patterns})] {
        let document = json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": {"cpu": {"data": data}}}}});
        let found = read(document.to_string().as_bytes(), Mode::Lenient);
        // Unknown flags are only unlikely; so many patterns are too many.
        let limit = found.diagnostics.iter().any(|one| one.code.as_str() == "E_LIMIT");
        assert_eq!(limit, found.spec.is_none());
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

/// Counts how often it is asked.
#[derive(Default)]
struct Counting {
    asked: Vec<String>,
}

impl External for Counting {
    fn ask(&mut self, namespace: &str, plugin: &Plugin, _: &Facts) -> Answer {
        self.asked.push(format!("{namespace}/{}", plugin.name));
        Answer {
            verdict: Verdict::Pass,
            provider: "test".to_owned(),
            digest: None,
            duration_ms: None,
            sandbox: Vec::new(),
            reasons: Vec::new(),
        }
    }
}

#[test]
fn the_same_question_is_asked_once() {
    let plugin = |data: Value, digest: &str| {
        let digest = format!("sha256:{}", digest.repeat(32));
        json!({"plugins": {"gpu": {"data": data, "digest": digest}}})
    };
    let spec = spec(Map::from_iter([
        ("a".to_owned(), plugin(json!({"x": 1, "y": [1, 2]}), "d1")),
        ("b".to_owned(), plugin(json!({"y": [1, 2], "x": 1}), "d1")),
        ("c".to_owned(), plugin(json!({"x": 1, "y": [2, 1]}), "d1")),
        ("d".to_owned(), plugin(json!({"x": 1, "y": [1, 2]}), "d2")),
    ]));
    let mut counting = Counting::default();
    let report = check(&spec, &facts(), &Options::default(), &mut counting).unwrap();
    assert_eq!(counting.asked, ["a/gpu", "c/gpu", "d/gpu"]);
    assert_eq!(report.namespaces["b"].plugins["gpu"].verdict, Verdict::Pass);
}
