//! `docs/verifier.md` names everything that an operator can set, match on or draw.

use std::error::Error as _;
use std::path::Path;

use portolan_verify::server::Config;

use crate::harness::Bench;

const GUIDE: &str = include_str!("../../../../docs/verifier.md");

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("x")).map_err(|error| match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    })
}

const LEAST: &str =
    "listen = \"127.0.0.1:1\"\npolicy = \"p\"\n[tls]\ncertificate = \"c\"\nkey = \"k\"\n";

/// The keys of a section, from the parser's own words about a key that is none.
fn keys(section: &str) -> Vec<String> {
    let text = match section {
        "" => format!("zzz = 1\n{LEAST}"),
        "tls" => format!("{LEAST}zzz = 1\n"),
        section => format!("{LEAST}[{section}]\nzzz = 1\n"),
    };
    let error = parse(&text).unwrap_err();
    let (_, expected) = error.split_once("expected").expect("it lists the keys");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_verifiers_configuration_is_in_the_guide() {
    let mut seen = 0;
    for section in [
        "",
        "tls",
        "tls.generate",
        "admission",
        "timeouts",
        "limits",
        "cache",
        "exempt",
        "pods",
        "cluster",
    ] {
        for key in keys(section) {
            let is_section = section.is_empty() && parse(&format!("{LEAST}[{key}]\n")).is_ok();
            let wanted = match is_section || key == "tls" {
                true => format!("**[{key}]**"),
                false => format!("`{key}`"),
            };
            assert!(GUIDE.contains(&wanted), "docs/verifier.md does not speak of {section} {key}");
            seen += 1;
        }
    }
    assert!(seen > 58, "{seen}");
}

#[test]
fn the_configuration_in_the_guide_can_be_used() {
    let (_, rest) = GUIDE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let config = parse(text).unwrap();
    assert_eq!(config.exempt.namespaces, ["kube-system", "gatekeeper-system"]);
    assert!(
        config.admission.listen.is_some() && config.tls.is_some_and(|tls| tls.client_ca.is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_verifier_is_in_the_guide() {
    let bench = Bench::new();
    let (_, text) = bench.start().await.health("/metrics").await;
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for line in names {
        let (name, kind) = line.split_once(' ').unwrap();
        let total = if kind == "counter" { "_total" } else { "" };
        assert!(
            GUIDE.contains(&format!("`{name}{total}`")),
            "docs/verifier.md lacks {name}{total}"
        );
    }
}
