//! Header values come from strangers: every parser returns, none panics, ranges stay in bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_registry::headers;

fuzz_target!(|text: &str| {
    if let Ok(challenges) = headers::parse_challenges(text) {
        for challenge in challenges {
            let _ = challenge.get("realm");
        }
    }
    let _ = headers::parse_links(text);
    let _ = headers::next_link(text);
    let _ = headers::media_type(text);
    let _ = headers::filter_applied(text, "artifactType");
    let _ = headers::is_strong_etag(text);
    let _ = headers::parse_retry_after(text, std::time::SystemTime::UNIX_EPOCH);
    let _ = headers::parse_content_range(text);
    let _ = headers::parse_upload_range(text);
    if let Some(range) = headers::parse_range(text) {
        for size in [0, 1, 10, u64::MAX] {
            if let Some((first, last)) = range.within(size) {
                assert!(first <= last && last < size);
            }
        }
    }
    let asked = url::Url::parse("https://registry.example/v2/a/blobs/uploads/").expect("a constant");
    if let Ok(url) = headers::resolve_location(&asked, text) {
        assert!(matches!(url.scheme(), "http" | "https"));
    }
});
