//! How images are named.

use std::path::Path;

use portolan_core::reference::ParseReferenceError;
use portolan_core::{Digest, Host, Reference, Repository, Tag, Target};
use proptest::prelude::*;

const SHA: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn parse(text: &str) -> Reference {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> ParseReferenceError {
    match text.parse::<Reference>() {
        Ok(reference) => panic!("{text} was read as {reference:?}"),
        Err(error) => error,
    }
}

#[test]
fn every_spelling_of_a_registry_is_one() {
    for (written, canonical) in [
        ("r.example", "r.example"),
        ("R.Example:443", "r.example"),
        ("r.example:0443", "r.example"),
        ("r.example:05000", "r.example:5000"),
        ("r.example:80", "r.example:80"),
        ("localhost:80", "localhost"),
        ("127.0.0.1:443", "127.0.0.1"),
        ("[::1]:80", "[::1]"),
        ("[2001:DB8:0:0::5]", "[2001:db8::5]"),
        ("[2001:db8::5]:443", "[2001:db8::5]"),
        ("[::ffff:10.0.0.1]:5000", "10.0.0.1:5000"),
        ("docker.io:443", "docker.io"),
        ("registry-1.docker.io:443", "docker.io"),
        ("registry-1.docker.io:444", "registry-1.docker.io:444"),
    ] {
        let host: Host = written.parse().unwrap();
        assert_eq!(host.canonical(), canonical, "{written}");
        let again: Host = canonical.parse().unwrap();
        assert_eq!(again.canonical(), canonical, "once is enough");
    }
}

#[test]
fn dockers_short_names() {
    for (written, full) in [
        ("nginx", "docker.io/library/nginx"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("library/nginx", "docker.io/library/nginx"),
        ("user/app", "docker.io/user/app"),
        ("user/app/deep", "docker.io/user/app/deep"),
        ("docker.io/nginx", "docker.io/library/nginx"),
        ("index.docker.io/nginx", "docker.io/library/nginx"),
        ("registry-1.docker.io/user/app", "docker.io/user/app"),
        ("registry.hub.docker.com/nginx", "docker.io/library/nginx"),
        ("localhost/app", "localhost/app"),
        ("LOCALHOST/app", "localhost/app"),
        ("localhost:5000", "docker.io/library/localhost:5000"),
        ("localhost:5000/app", "localhost:5000/app"),
        ("127.0.0.1:5000/app:v1", "127.0.0.1:5000/app:v1"),
        ("[::1]:5000/app:v1", "[::1]:5000/app:v1"),
        ("[::1]/app", "[::1]/app"),
        ("ghcr.io/a/b:c", "ghcr.io/a/b:c"),
        ("GHCR.io/a/b", "ghcr.io/a/b"),
        ("registry:5000/a", "registry:5000/a"),
        ("my_host.local/a", "my_host.local/a"),
        ("a.b/c__d/e---f/g.h", "a.b/c__d/e---f/g.h"),
    ] {
        assert_eq!(parse(written).to_string(), full, "{written}");
        assert_eq!(parse(written), parse(full), "{written}");
    }
}

#[test]
fn a_tag_and_a_digest_together() {
    let text = format!("quay.io/a/b:v1@{SHA}");
    let reference = parse(&text);
    assert_eq!(reference.to_string(), text);
    assert_eq!(reference.tag().unwrap().as_str(), "v1");
    let Reference::Registry(registry) = &reference else { panic!("{reference:?}") };
    assert_eq!(registry.target(), Target::Digest(SHA.parse().unwrap()), "the digest wins");
    let Reference::Registry(plain) = parse("quay.io/a/b") else { panic!() };
    assert_eq!(plain.target(), Target::Tag(Tag::latest()));
    let other = Digest::sha256(b"other");
    let pinned = reference.with_digest(other);
    assert_eq!(pinned.to_string(), format!("quay.io/a/b@{other}"));
    assert_eq!((pinned.tag(), pinned.digest()), (None, Some(&other)));
}

#[test]
fn layouts_on_disk() {
    for (text, dir, tag, digest) in [
        ("oci:dir".to_owned(), "dir", None, false),
        ("oci:dir:v1".to_owned(), "dir", Some("v1"), false),
        ("oci:/a/b c:v1".to_owned(), "/a/b c", Some("v1"), false),
        ("oci:../up".to_owned(), "../up", None, false),
        ("oci:.".to_owned(), ".", None, false),
        (format!("oci:dir@{SHA}"), "dir", None, true),
        (format!("oci:dir:v1@{SHA}"), "dir", Some("v1"), true),
        ("oci:a:b/c".to_owned(), "a:b/c", None, false),
        ("oci:a:b/c:v1".to_owned(), "a:b/c", Some("v1"), false),
        ("oci:user@host/dir".to_owned(), "user@host/dir", None, false),
    ] {
        let Reference::Layout(layout) = parse(&text) else { panic!("{text}") };
        assert_eq!(layout.dir, Path::new(dir), "{text}");
        assert_eq!(layout.tag.as_ref().map(Tag::as_str), tag, "{text}");
        assert_eq!(layout.digest.is_some(), digest, "{text}");
        assert_eq!(Reference::Layout(layout.clone()).to_string(), text);
        assert_eq!(layout.target().is_some(), tag.is_some() || digest, "no tag is made up");
    }
    assert_eq!(parse("ocI:5000/x"), parse("oci:5000/x"), "a directory in any letters");
}

#[test]
fn what_names_no_image() {
    use ParseReferenceError as E;
    let id = "a".repeat(64);
    let long_name = format!("example.org/{}", "a/".repeat(150) + "a");
    let long = "a".repeat(5000);
    let bad_tag = format!("a:{}", "t".repeat(129));
    for (text, expected) in [
        ("", "the reference is empty"),
        ("oci:", "oci: needs a directory"),
        ("oci::v1", "oci: needs a directory"),
        ("oci:a\0b", "oci: needs a directory"),
        ("oci:dir:", "is not a tag"),
        ("oci:dir:a b", "is not a tag"),
        ("a:", "is not a tag"),
        ("a:.b", "is not a tag"),
        ("a:-b", "is not a tag"),
        ("a:b c", "is not a tag"),
        (&bad_tag, "is not a tag"),
        ("a@", "not a digest"),
        ("a@sha256:abc", "not a digest"),
        ("a@latest", "not a digest"),
        (&format!("a@{SHA}@{SHA}"), "not a digest"),
        ("A", "is not a repository name"),
        ("user/App", "is not a repository name"),
        ("Registry/a", "is not a repository name"),
        ("129A/a/b", "is not a repository name"),
        ("a//b", "is not a repository name"),
        ("/a", "is not a repository name"),
        ("a/", "is not a repository name"),
        ("a..b", "is not a repository name"),
        ("a___b", "is not a repository name"),
        ("a.-b", "is not a repository name"),
        ("-a", "is not a repository name"),
        ("a_", "is not a repository name"),
        ("ä", "is not a repository name"),
        ("https://example.org/a", "is not a registry host"),
        ("host:99999/a", "is not a registry host"),
        ("host:0/a", "is not a registry host"),
        ("host:/a", "is not a registry host"),
        ("host:+80/a", "is not a registry host"),
        ("ho st.org/a", "is not a registry host"),
        ("-a.org/b", "is not a registry host"),
        ("a..org/b", "is not a registry host"),
        ("[::1/a", "is not a registry host"),
        ("[nonsense]/a", "is not a registry host"),
        ("[::1]x/a", "is not a registry host"),
        ("user:password@example.org/a", "not a digest"),
        (&id, "reads as an image id"),
        (&long_name, "characters together"),
        (&long, "more than 4096"),
    ] {
        let message = refusal(text).to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
    assert!(matches!(refusal("a@sha256:abc"), E::Digest(_)));
    assert!(refusal(&"x y".repeat(500)).to_string().len() < 300, "a page of input is not quoted");
}

#[test]
fn no_path_gets_out_of_a_repository() {
    for text in [
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a/./b",
        "a/.b",
        "example.org/../a",
        "example.org/a/../../b",
        "example.org/%2e%2e/a",
        "example.org/a\\b",
        "example.org//etc/passwd",
        "example.org/a\0b",
        "example.org/a\nb",
        "example.org/a?x=1",
        "example.org/a#b",
        "..:5000/a",
        "...../a",
    ] {
        refusal(text);
    }
    for text in ["..", "a/../b", "", "/", "a/", "/a", "A", "a b"] {
        assert!(text.parse::<Repository>().is_err(), "{text}");
    }
    for text in ["", "..", ".", "-", "a/b", "a:b", "a b", "a\n"] {
        assert!(text.parse::<Tag>().is_err(), "{text}");
    }
}

#[test]
fn hosts() {
    let host = |text: &str| text.parse::<Host>().unwrap();
    for (text, name, loopback) in [
        ("localhost", "localhost", true),
        ("localhost:5000", "localhost", true),
        ("127.0.0.1:80", "127.0.0.1", true),
        ("127.8.9.1", "127.8.9.1", true),
        ("[::1]:5000", "[::1]", true),
        ("[::1]", "[::1]", true),
        ("[fe80::1]:80", "[fe80::1]", false),
        ("10.0.0.1:5000", "10.0.0.1", false),
        ("example.org", "example.org", false),
        ("localhost.example.org", "localhost.example.org", false),
        ("127.0.0.1.example.org", "127.0.0.1.example.org", false),
    ] {
        assert_eq!((host(text).name(), host(text).is_loopback()), (name, loopback), "{text}");
        assert_eq!(host(text).as_str(), text);
    }
    assert!(host("Index.Docker.IO").is_docker_hub());
    assert_eq!(host("index.docker.io"), Host::docker_hub());
    for text in [
        "",
        ":5000",
        "a:b",
        "a/b",
        "a.",
        ".a",
        "[]",
        "[::1",
        "[127.0.0.1]",
        "a:1:2",
        &"a".repeat(256),
    ] {
        assert!(text.parse::<Host>().is_err(), "{text}");
    }
}

#[test]
fn targets() {
    assert_eq!("v1".parse::<Target>().unwrap().to_string(), "v1");
    assert_eq!(SHA.parse::<Target>(), Ok(Target::Digest(SHA.parse().unwrap())));
    assert!("sha256:short".parse::<Target>().is_err());
    assert!("../x".parse::<Target>().is_err());
}

prop_compose! {
    fn registry_reference()(
        host in "([a-z0-9]{1,6}\\.[a-z]{2,4}|localhost|127\\.0\\.0\\.1|\\[::1\\])(:[1-9][0-9]{0,3})?",
        repository in "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,3})?(/[a-z0-9]{1,5}){0,3}",
        tag in prop::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,10}"),
        digest in prop::option::of(any::<u64>()),
    ) -> String {
        let tag = tag.map(|t| format!(":{t}")).unwrap_or_default();
        let digest = digest.map(|d| format!("@{}", Digest::sha256(&d.to_be_bytes()))).unwrap_or_default();
        format!("{host}/{repository}{tag}{digest}")
    }
}

proptest! {
    #[test]
    fn a_full_reference_prints_as_written(text in registry_reference()) {
        prop_assert_eq!(parse(&text).to_string(), text);
    }

    #[test]
    fn parse_undoes_print(text in prop_oneof![
        "\\PC{0,40}",
        "(oci:)?[a-zA-Z0-9:/@._-]{1,30}",
        registry_reference(),
    ]) {
        if let Ok(reference) = text.parse::<Reference>() {
            prop_assert_eq!(reference.to_string().parse::<Reference>(), Ok(reference));
        }
    }

    #[test]
    fn what_is_accepted_is_safe_in_a_path(text in "[a-zA-Z0-9:/@._%\\\\-]{1,30}") {
        if let Ok(Reference::Registry(reference)) = text.parse() {
            let path = reference.repository.as_str();
            prop_assert!(!path.starts_with('/') && !path.contains("//"));
            prop_assert!(path.split('/').all(|part| part != "." && part != ".." && !part.is_empty()));
            prop_assert!(path.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b)));
        }
    }
}
