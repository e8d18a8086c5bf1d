//! Our client against docker-registry (no referrers API), olareg (referrers API) and the embedded
//! server: the same commands, the same outcome.

use portolan_e2e::{
    Registry, RegistryKind, digest, hello_reference, json, ok, ours, ours_output, peer,
};

const ARM64: &str = "linux/arm64";

#[allow(clippy::print_stdout, reason = "a failed test shows which registry it was")]
fn each(test: impl Fn(&Registry)) {
    for kind in RegistryKind::ALL {
        let registry = kind.start().expect("the registry starts");
        println!("== {kind:?}");
        test(&registry);
    }
}

#[test]
fn an_index_goes_in_and_comes_back_unchanged() {
    each(|registry| {
        let dir = tempfile::tempdir().unwrap();
        let remote = format!("{}/a/hello:1", registry.address);
        let back = format!("oci:{}:1", dir.path().display());
        ours(&["image", "copy", &hello_reference(), &remote]);
        assert_eq!(digest(&remote), digest(&hello_reference()));
        ours(&["image", "copy", &remote, &back]);
        assert_eq!(digest(&back), digest(&hello_reference()));
        let resolve = |reference: &str| ours(&["image", "resolve", reference, "--platform", ARM64]);
        assert_eq!(resolve(&remote), resolve(&hello_reference()));
    });
}

#[test]
fn blobs_that_are_there_are_neither_sent_nor_fetched_again() {
    each(|registry| {
        let one = format!("{}/b/one:1", registry.address);
        let two = format!("{}/b/two:1", registry.address);
        ours(&["image", "copy", &hello_reference(), &one]);
        let again = json(&ours(&["image", "copy", &hello_reference(), &one, "-o", "json"]));
        assert_eq!(again["blobsCopied"], 0, "{again}");
        let mounted = json(&ours(&["image", "copy", &one, &two, "-o", "json"]));
        assert_eq!(mounted["bytesCopied"], 0, "same registry, other repository: {mounted}");
        assert_eq!(digest(&two), digest(&one));
    });
}

#[test]
fn referrers_are_found_and_copied_with_and_without_the_api() {
    each(|registry| {
        let home = tempfile::tempdir().unwrap();
        let reference = format!("{}/c/hello:1", registry.address);
        ours(&["image", "copy", &hello_reference(), &reference]);
        std::fs::write(home.path().join("sig"), "sig").unwrap();
        ok(peer("oras", home.path()).args([
            "attach",
            "--plain-http",
            "--artifact-type",
            "application/vnd.example.sig",
            &reference,
            "sig:application/octet-stream",
        ]));
        // To another registry of the same kind and to a layout: what oras attached is found by
        // us, and what we wrote is found by oras.
        let other = registry.kind.start().unwrap();
        let copy = format!("{}/c/copy:1", other.address);
        let done = json(&ours(&["image", "copy", &reference, &copy, "--referrers", "-o", "json"]));
        assert_eq!(done["referrers"], 1, "{done}");
        let found = ok(peer("oras", home.path()).args([
            "discover",
            "--plain-http",
            "--format",
            "json",
            &copy,
        ]));
        assert!(found.contains("application/vnd.example.sig"), "{:?}: {found}", registry.kind);

        let layout = format!("oci:{}:1", home.path().join("layout").display());
        let done = json(&ours(&["image", "copy", &copy, &layout, "--referrers", "-o", "json"]));
        assert_eq!(done["referrers"], 1, "{done}");
        let found = ok(peer("oras", home.path()).args([
            "discover",
            "--oci-layout",
            "--format",
            "json",
            &format!("{}:1", home.path().join("layout").display()),
        ]));
        assert!(found.contains("application/vnd.example.sig"), "{found}");
    });
}

#[test]
fn tags_are_listed_and_missing_things_are_not_found() {
    each(|registry| {
        let repository = format!("{}/d/hello", registry.address);
        for tag in ["b", "a", "c"] {
            ours(&["image", "copy", &hello_reference(), &format!("{repository}:{tag}")]);
        }
        let listed = json(&ours(&["image", "ls", &repository, "-o", "json"]));
        let mut tags: Vec<_> =
            listed.as_array().unwrap().iter().map(|row| row["tag"].as_str().unwrap()).collect();
        tags.sort_unstable();
        assert_eq!(tags, ["a", "b", "c"]);
        let missing = ours_output(&["image", "inspect", &format!("{repository}:none")]);
        assert_eq!(missing.code, Some(4), "{missing:?}");
        let nothing = ours_output(&[
            "image",
            "resolve",
            &format!("{repository}:a"),
            "--platform",
            "linux/s390x",
        ]);
        assert_eq!(nothing.code, Some(1), "{nothing:?}");
    });
}

#[test]
fn an_index_is_assembled_in_place() {
    each(|registry| {
        let repository = format!("{}/e/hello", registry.address);
        let mut parts = Vec::new();
        for platform in ["linux/amd64", ARM64] {
            let part = format!("{repository}:{}", platform.replace('/', "-"));
            ours(&["image", "copy", &hello_reference(), &part, "--platform", platform]);
            parts.push(part);
        }
        let made = format!("{repository}:both");
        ours(&["image", "index", "create", &made, &parts[0], &parts[1]]);
        let resolved = ours(&["image", "resolve", &made, "--platform", ARM64]);
        assert_eq!(resolved, ours(&["image", "resolve", &hello_reference(), "--platform", ARM64]));
    });
}
