//! What `Document::parse` takes and refuses.

use std::error::Error as _;
use std::time::{Duration, Instant};

use portolan_core::manifest::{
    Document, ImageConfig, MAX_MANIFEST_BYTES, ParseManifestError, config_platform,
};
use portolan_core::{Descriptor, Digest, Index, Manifest, Platform, media_type};

const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

fn descriptor(media_type: &str) -> String {
    format!(r#"{{"mediaType":"{media_type}","digest":"{DIGEST}","size":2}}"#)
}

fn manifest(extra: &str) -> String {
    format!(
        r#"{{"schemaVersion":2,{extra}"config":{},"layers":[{}]}}"#,
        descriptor(media_type::OCI_CONFIG),
        descriptor("application/vnd.oci.image.layer.v1.tar+gzip")
    )
}

fn index(extra: &str) -> String {
    format!(
        r#"{{"schemaVersion":2,{extra}"manifests":[{}]}}"#,
        descriptor(media_type::OCI_MANIFEST)
    )
}

fn media(media_type: &str) -> String {
    format!(r#""mediaType":"{media_type}","#)
}

fn refusal(text: &str, declared: Option<&str>) -> ParseManifestError {
    match Document::parse(text.as_bytes(), declared) {
        Ok(document) => panic!("{text} was read as {document:?}"),
        Err(error) => error,
    }
}

#[test]
fn the_kind_comes_from_the_field_then_the_header_then_the_shape() {
    for (text, declared, expected) in [
        (index(&media(media_type::OCI_INDEX)), None, media_type::OCI_INDEX),
        (index(&media(media_type::DOCKER_LIST)), None, media_type::DOCKER_LIST),
        (manifest(&media(media_type::OCI_MANIFEST)), None, media_type::OCI_MANIFEST),
        (manifest(&media(media_type::DOCKER_MANIFEST)), None, media_type::DOCKER_MANIFEST),
        (index(""), Some(media_type::DOCKER_LIST), media_type::DOCKER_LIST),
        (manifest(""), Some(media_type::DOCKER_MANIFEST), media_type::DOCKER_MANIFEST),
        (index(""), None, media_type::OCI_INDEX),
        (manifest(""), None, media_type::OCI_MANIFEST),
        (manifest(r#""mediaType":"","#), None, media_type::OCI_MANIFEST),
        (manifest(""), Some("application/json"), media_type::OCI_MANIFEST),
        (index(""), Some("text/plain; charset=utf-8"), media_type::OCI_INDEX),
        (index(""), Some("Application/VND.oci.image.index.v1+JSON ; x=y"), media_type::OCI_INDEX),
        (index(&media(media_type::OCI_INDEX)), Some(media_type::OCI_INDEX), media_type::OCI_INDEX),
    ] {
        let document = Document::parse(text.as_bytes(), declared).unwrap();
        assert_eq!(document.media_type(), expected, "{text} declared {declared:?}");
        assert_eq!(matches!(document, Document::Index(_)), media_type::is_index(expected));
    }
}

#[test]
fn parts_of_a_document() {
    let text = format!(
        r#"{{"schemaVersion":2,"artifactType":"a/b","config":{},"layers":[{},{}],"subject":{},"annotations":{{"k":"v"}}}}"#,
        descriptor(media_type::OCI_EMPTY),
        descriptor("one/1"),
        descriptor("two/2"),
        descriptor(media_type::OCI_INDEX)
    );
    let document = Document::parse(text.as_bytes(), None).unwrap();
    let blobs: Vec<_> = document.blobs().map(|d| d.media_type.as_str()).collect();
    assert_eq!(blobs, [media_type::OCI_EMPTY, "one/1", "two/2"]);
    assert_eq!(document.artifact_type(), Some("a/b"));
    assert_eq!(document.subject().unwrap().media_type, media_type::OCI_INDEX);
    assert_eq!(document.annotations()["k"], "v");
    assert!(document.children().is_empty());

    let plain = Document::parse(manifest("").as_bytes(), None).unwrap();
    assert_eq!(plain.artifact_type(), Some(media_type::OCI_CONFIG), "the config's type stands in");
    let list = Document::parse(index("").as_bytes(), None).unwrap();
    assert_eq!((list.children().len(), list.blobs().count()), (1, 0));
    assert_eq!(list.artifact_type(), None);
}

#[test]
fn lists_that_go_left_null_are_empty() {
    let text = format!(
        r#"{{"schemaVersion":2,"config":{},"layers":null,"annotations":null,"subject":null}}"#,
        descriptor(media_type::OCI_EMPTY)
    );
    let document = Document::parse(text.as_bytes(), None).unwrap();
    assert_eq!(document.blobs().count(), 1);
    let text = r#"{"schemaVersion":2,"manifests":null}"#;
    assert!(Document::parse(text.as_bytes(), None).unwrap().children().is_empty());
}

#[test]
fn refusals_say_what_is_wrong() {
    let both = format!(
        r#"{{"schemaVersion":2,"manifests":[],"config":{}}}"#,
        descriptor(media_type::OCI_CONFIG)
    );
    let deep = format!(r#"{{"schemaVersion":2,"x":{}{}}}"#, "[".repeat(40), "]".repeat(40));
    for (text, declared, expected) in [
        (String::new(), None, "not valid JSON"),
        ("{".to_owned(), None, "not valid JSON"),
        ("[]".to_owned(), None, "not an object"),
        ("null".to_owned(), None, "not an object"),
        (format!("{} x", index("")), None, "not valid JSON"),
        ("{}".to_owned(), None, "schemaVersion nothing"),
        (r#"{"schemaVersion":3,"manifests":[]}"#.to_owned(), None, "schemaVersion 3"),
        (r#"{"schemaVersion":"2","manifests":[]}"#.to_owned(), None, "schemaVersion nothing"),
        (r#"{"schemaVersion":2}"#.to_owned(), None, "neither an index nor a manifest"),
        (r#"{"schemaVersion":1,"fsLayers":[]}"#.to_owned(), None, "schema 1"),
        (
            manifest(""),
            Some("application/vnd.docker.distribution.manifest.v1+prettyjws"),
            "schema 1",
        ),
        (index(&media("application/vnd.example+json")), None, "\"application/vnd.example+json\""),
        (index(""), Some("text/html"), "\"text/html\" is not an image index"),
        (index(&media(media_type::OCI_INDEX)), Some(media_type::DOCKER_LIST), "but says it is"),
        (index(&media(media_type::OCI_INDEX)), Some(media_type::OCI_MANIFEST), "but says it is"),
        (index(""), Some(media_type::OCI_MANIFEST), "has no `config`"),
        (manifest(&media(media_type::OCI_INDEX)), None, "has no `manifests`"),
        (both, None, "both `manifests` and `config`"),
        (deep, None, "deeper than 32"),
    ] {
        let error = refusal(&text, declared);
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_key_written_twice_is_refused_wherever_it_is() {
    let twice = r#""k":"1","k":"2""#;
    let with_annotations = |annotations: &str| {
        format!(
            r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"m","digest":"{DIGEST}","size":1,"annotations":{{{annotations}}}}}]}}"#
        )
    };
    for text in [
        index(r#""mediaType":"a","mediaType":"b","#),
        index(r#""annotations":{"k":"1","\u006b":"2"},"#),
        with_annotations(twice),
        index(&format!(r#""x":[[{{"y":{{{twice}}}}}]],"#)),
    ] {
        let error = refusal(&text, None);
        assert!(matches!(error, ParseManifestError::DuplicateKey { .. }), "{text}: {error}");
    }
    let text = with_annotations(r#""k":"1","K":"2","Digest":"3""#);
    Document::parse(text.as_bytes(), None).expect("annotation keys are the author's own");
}

#[test]
fn a_field_in_other_letters_is_refused() {
    for text in [
        index(r#""Layers":[],"#),
        index(r#""layer\u017f":[],"#),
        manifest(r#""SUBJECT":null,"#),
        manifest("").replace("\"size\":2", "\"size\":2,\"Size\":3"),
    ] {
        let error = refusal(&text, None);
        assert!(matches!(error, ParseManifestError::MisspeltKey { .. }), "{text}: {error}");
    }
}

#[test]
fn fields_of_the_wrong_type_name_the_cause_in_the_source() {
    for text in [
        index("").replace("\"size\":2", "\"size\":-2"),
        index("").replace("\"size\":2", "\"size\":2.5"),
        index("").replace(DIGEST, "sha256:../../../etc/passwd"),
        index("").replace(DIGEST, "md5:d41d8cd98f00b204e9800998ecf8427e"),
        manifest(r#""annotations":{"k":1},"#),
    ] {
        let error = refusal(&text, None);
        assert!(matches!(error, ParseManifestError::Json(_)), "{text}: {error}");
        assert!(error.source().unwrap().to_string().contains("line 1"));
    }
}

#[test]
fn more_than_four_mebibytes_are_not_looked_at() {
    let mut text = index("");
    text.push_str(&" ".repeat(MAX_MANIFEST_BYTES - text.len()));
    Document::parse(text.as_bytes(), None).expect("exactly the bound is allowed");
    text.push(' ');
    assert!(
        matches!(refusal(&text, None), ParseManifestError::TooLarge { size } if size == MAX_MANIFEST_BYTES + 1)
    );
}

#[test]
fn many_entries_and_many_keys_take_time_in_proportion() {
    let entry = Descriptor::new(media_type::OCI_MANIFEST, Digest::sha256(b""), 1);
    let bytes = Index::new(vec![entry; 20_000]).to_vec();
    assert!(bytes.len() > 3_000_000 && bytes.len() <= MAX_MANIFEST_BYTES, "{}", bytes.len());
    let keys: Vec<_> = (0..200_000).map(|n| format!(r#""{n}":"""#)).collect();
    let keys = index(&format!(r#""annotations":{{{}}},"#, keys.join(",")));
    let begin = Instant::now();
    assert_eq!(Document::parse(&bytes, None).unwrap().children().len(), 20_000);
    assert_eq!(Document::parse(keys.as_bytes(), None).unwrap().annotations().len(), 200_000);
    // Quadratic work on 200,000 keys would be minutes even on a fast machine.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn what_we_write_we_read() {
    let platform = Platform {
        os: "windows".to_owned(),
        architecture: "amd64".to_owned(),
        variant: Some("v2".to_owned()),
        os_version: Some("10.0.20348.1".to_owned()),
        os_features: vec!["win32k".to_owned()],
    };
    let mut entry = Descriptor::of(media_type::OCI_MANIFEST, b"x");
    entry.platform = Some(platform);
    entry.annotations.insert("b".to_owned(), "2".to_owned());
    entry.annotations.insert("a".to_owned(), "1".to_owned());
    let index = Index::new(vec![entry.clone()]);
    assert_eq!(Document::parse(&index.to_vec(), None).unwrap(), Document::Index(index.clone()));
    let text = String::from_utf8(index.to_vec()).unwrap();
    assert!(text.contains(r#""annotations":{"a":"1","b":"2"}"#), "{text}");
    assert!(text.contains(r#""os.version":"10.0.20348.1","os.features":["win32k"]"#), "{text}");
    let manifest = Manifest::new(Descriptor::of(media_type::OCI_CONFIG, b"{}"), vec![entry]);
    assert_eq!(Document::parse(&manifest.to_vec(), None).unwrap(), Document::Manifest(manifest));
}

#[test]
fn a_config_tells_its_platform_or_that_it_has_none() {
    let text = br#"{"os":"linux","architecture":"arm64","variant":"v8","os.version":"6","os.features":["a"],"rootfs":{}}"#;
    let platform = config_platform(text).unwrap().unwrap();
    assert_eq!((platform.os.as_str(), platform.variant.as_deref()), ("linux", Some("v8")));
    assert_eq!((platform.os_version.as_deref(), platform.os_features.len()), (Some("6"), 1));
    assert_eq!(config_platform(b"{}").unwrap(), None);
    assert_eq!(config_platform(br#"{"os":"","architecture":"amd64"}"#).unwrap(), None);
    assert!(config_platform(b"[1").unwrap_err().to_string().contains("not valid JSON"));
    assert!(
        config_platform(&vec![b' '; MAX_MANIFEST_BYTES + 1])
            .unwrap_err()
            .to_string()
            .contains("4194305")
    );
}

#[test]
fn a_config_that_readers_read_differently_is_refused() {
    for text in [
        r#"{"os":"linux","architecture":"s390x","Architecture":"amd64"}"#,
        r#"{"os":"linux","architecture":"s390x","architecture":"amd64"}"#,
        r#"{"os":"linux","o\u017f":"windows","architecture":"s390x"}"#,
        r#"{"OS":"linux","architecture":"s390x"}"#,
        r#"{"os":"linux","architecture":"arm","Variant":"v7"}"#,
        r#"{"os":"linux","architecture":"arm","OS.Version":"1"}"#,
    ] {
        assert!(config_platform(text.as_bytes()).is_err(), "{text}");
        assert!(ImageConfig::parse(text.as_bytes()).is_err(), "{text}");
    }
    // Labels are the author's.
    let free = br#"{"os":"linux","architecture":"arm","config":{"Labels":{"OS":"x","os":"y"}}}"#;
    assert!(config_platform(free).unwrap().is_some());
}
