//! `docs/agent.md` names everything that an operator can set, match on or draw.

use std::error::Error as _;
use std::path::Path;

use portolan_agent::config::Config;
use portolan_agent::metrics::Metrics;
use portolan_agent::reason::Reason;
use portolan_agent::server::routes;

#[path = "../../../xtask/tests/reference/page.rs"]
mod page;
#[path = "../../../xtask/tests/reference/metrics.rs"]
mod reference;

const GUIDE: &str = include_str!("../../../docs/agent.md");

/// The keys of a section, from the parser's own words about a key that is none.
fn keys(section: &str) -> Vec<String> {
    let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
    let error =
        Config::parse(&format!("{header}zzz = 1"), Path::new("x")).expect_err("no such key");
    let text = error.source().expect("the parser's error").to_string();
    let (_, expected) = text.split_once("expected").expect("it lists the keys");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_configuration_is_in_the_guide() {
    let mut sections = vec![String::new()];
    let mut seen = 0;
    while let Some(section) = sections.pop() {
        for key in keys(&section) {
            let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
            let is_section = Config::parse(&format!("[{path}]"), Path::new("x")).is_ok();
            let wanted = if is_section { format!("[{path}]") } else { format!("`{key}`") };
            assert!(GUIDE.contains(&wanted), "docs/agent.md does not speak of {path}");
            seen += 1;
            if is_section {
                sections.push(path);
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn every_metric_reason_and_call_is_in_the_guide() {
    let metrics = Metrics::new();
    metrics.api_request("/healthz", http::StatusCode::OK, std::time::Duration::ZERO);
    let metrics = metrics.encode();
    let names = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut seen = 0;
    for name in names {
        // A row may name several: `portolan_agent_cache_bytes`, `_cache_entries`.
        let end = name.strip_prefix("portolan_agent").expect("the prefix");
        assert!(GUIDE.contains(end), "docs/agent.md does not speak of {name}");
        seen += 1;
    }
    assert_eq!(seen, 27);
    for reason in Reason::ALL {
        assert!(GUIDE.contains(&format!("| `{reason}` |")), "{reason}");
    }
    for route in &routes::ALL {
        assert!(GUIDE.contains(route.path), "{}", route.path);
    }
}

#[test]
fn the_checked_in_reference_has_the_metrics_of_the_agent() {
    let metrics = Metrics::new();
    metrics.api_request("/healthz", http::StatusCode::OK, std::time::Duration::ZERO);
    reference::check("portolan-agent", &metrics.encode(), &["code", "route", "version"]);
}
