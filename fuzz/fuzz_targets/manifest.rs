//! Any bytes are a document or an error; a document writes bytes that read back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_core::manifest::{Document, media_type};

fuzz_target!(|bytes: &[u8]| {
    for declared in [None, Some(media_type::OCI_INDEX), Some(media_type::DOCKER_MANIFEST)] {
        let Ok(document) = Document::parse(bytes, declared) else { continue };
        let written = match &document {
            Document::Index(index) => serde_json::to_vec(index),
            Document::Manifest(manifest) => serde_json::to_vec(manifest),
        };
        let written = written.expect("a document is plain data");
        let again = Document::parse(&written, Some(document.media_type())).expect("ours reads back");
        assert_eq!(document, again);
        let _ = (document.subject(), document.artifact_type(), document.blobs().count());
    }
});
