//! Whom Gatekeeper's Providers and webhooks trust when they ask the verifier.

use jiff::Timestamp;
use portolan_api::install::NOBODY;
use portolan_api::k8s_openapi::ByteString;
use serde_json::Value;
use x509_cert::Certificate;

use super::super::finding::{Finding, ok, wrong};
use super::{Facts, each, programs, text};

const CHECK: &str = "trust";
/// Names that an installation gives.
const NAMES: [&str; 2] = ["portolan-verifier", "portolan-mutator"];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = |all: &Value| NAMES.contains(&text(all, "/metadata/name"));
    match facts.providers.items(CHECK) {
        Err(finding) if programs::has_verifier(facts) => findings.push(finding),
        Err(_) => {}
        Ok(all) => {
            for one in all.iter().filter(|one| named(one)) {
                let name = format!("Provider {}", text(one, "/metadata/name"));
                findings.push(judge(&name, &one["spec"]["caBundle"], facts.now));
            }
        }
    }
    match facts.webhooks.items(CHECK) {
        Err(finding) if programs::has_verifier(facts) => findings.push(finding),
        Err(_) => {}
        Ok(all) => {
            for webhook in
                all.iter().filter(|one| named(one)).flat_map(|one| each(one, "/webhooks"))
            {
                let name = format!("webhook {}", text(webhook, "/name"));
                findings.push(judge(&name, &webhook["clientConfig"]["caBundle"], facts.now));
            }
        }
    }
    findings
}

fn judge(name: &str, bundle: &Value, now: Timestamp) -> Finding {
    const WAIT: &str = "the verifier writes it within half a minute of its start: look at its log";
    let bundle: Option<ByteString> = serde_json::from_value(bundle.clone()).ok();
    let Some(ByteString(bundle)) = bundle.filter(|bundle| !bundle.0.trim_ascii().is_empty()) else {
        return wrong(CHECK, format!("{name} has no caBundle, so it trusts nobody"), WAIT);
    };
    if bundle == NOBODY.as_bytes() {
        return wrong(
            CHECK,
            format!("{name} still has what was put there first, and trusts nobody"),
            WAIT,
        );
    }
    let Ok(certificates) = Certificate::load_pem_chain(&bundle) else {
        return wrong(CHECK, format!("caBundle of {name} is not PEM"), WAIT);
    };
    let ends = certificates.iter().filter_map(|one| {
        let until = one.tbs_certificate.validity.not_after.to_unix_duration().as_secs();
        i64::try_from(until).ok().and_then(|until| Timestamp::from_second(until).ok())
    });
    match ends.max() {
        Some(end) if end > now => ok(CHECK, format!("{name} trusts an authority until {end}")),
        Some(end) => wrong(
            CHECK,
            format!("{name} trusts only what ended at {end}"),
            "the verifier renews what it made itself; a certificate of yours has to be renewed by you",
        ),
        None => wrong(CHECK, format!("caBundle of {name} holds no certificate"), WAIT),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Asked;
    use super::*;
    use crate::doctor::finding::State;

    fn of(bundle: &[u8], now: &str) -> Finding {
        let provider = json!({
            "metadata": {"name": "portolan-verifier"}, "spec": {"caBundle": ByteString(bundle.to_vec())},
        });
        let other = json!({"metadata": {"name": "somebody"}, "spec": {}});
        let providers = Asked::Is(vec![provider, other]);
        let facts = Facts { providers, now: now.parse().unwrap(), ..super::super::facts() };
        let mut found = check(&facts);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn bundles_that_trust_nobody_or_the_dead_are_wrong() {
        let now = "2026-06-01T00:00:00Z";
        for (bundle, word) in [
            (&b""[..], "no caBundle"),
            (b"\n\n", "no caBundle"),
            (NOBODY.as_bytes(), "put there first"),
            (b"rubbish", "not PEM"),
            // The same certificate in other bytes is one that ended in 1970.
            (format!("{NOBODY}\n").as_bytes(), "1970"),
        ] {
            let found = of(bundle, now);
            assert_eq!(found.state, State::Wrong, "{found:?}");
            assert!(found.found.contains(word), "{found:?}");
        }
        let alive = of(format!("{NOBODY}\n").as_bytes(), "1970-01-01T12:00:00Z");
        assert_eq!(alive.state, State::Ok, "{alive:?}");
    }
}
