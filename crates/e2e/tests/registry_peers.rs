//! Other people's tools against the embedded server: indexes, referrers, deletes.

use portolan_e2e::{
    Registry, RegistryKind, digest, hello, hello_reference, json, ok, ours_output, peer,
};

fn embedded() -> (Registry, tempfile::TempDir) {
    let registry = RegistryKind::Embedded.start().expect("the embedded server starts");
    (registry, tempfile::tempdir().expect("a temporary folder"))
}

/// Found again by `portolan image inspect`, or not.
fn exists(reference: &str) -> bool {
    match ours_output(&["image", "inspect", reference]).code {
        Some(0) => true,
        Some(4) => false,
        code => panic!("{reference}: exit code {code:?}"),
    }
}

#[test]
fn crane_pushes_pulls_copies_and_deletes_an_index() {
    let (registry, home) = embedded();
    let reference = format!("{}/crane/hello:1", registry.address);
    let crane = |args: &[&str]| ok(peer("crane", home.path()).arg("--insecure").args(args));
    crane(&["push", hello().to_str().unwrap(), &reference]);
    assert_eq!(digest(&reference), digest(&hello_reference()));
    assert_eq!(crane(&["digest", &reference]).trim(), digest(&hello_reference()));
    assert_eq!(crane(&["ls", &format!("{}/crane/hello", registry.address)]).trim(), "1");
    let raw = json(&crane(&["manifest", &reference]));
    assert_eq!(raw["manifests"].as_array().map(Vec::len), Some(5));

    let copy = format!("{}/crane/other:2", registry.address);
    crane(&["copy", &reference, &copy]);
    let out = home.path().join("out");
    crane(&["pull", "--format=oci", &copy, out.to_str().unwrap()]);
    assert_eq!(digest(&format!("oci:{}", out.display())), digest(&hello_reference()));
    assert!(crane(&["catalog", &registry.address]).contains("crane/other"));

    crane(&["delete", &copy]);
    assert!(!exists(&copy));
    let pinned = format!("{}/crane/hello@{}", registry.address, digest(&reference));
    crane(&["delete", &pinned]);
    assert!(!exists(&reference));
}

#[test]
fn skopeo_pushes_pulls_and_deletes_an_index() {
    let (registry, home) = embedded();
    let reference = format!("{}/skopeo/hello:1", registry.address);
    let remote = format!("docker://{reference}");
    let skopeo = |args: &[&str]| ok(peer("skopeo", home.path()).args(args));
    let layout = format!("oci:{}:1", hello().display());
    let policy = ["--insecure-policy", "copy", "--all", "--preserve-digests"];
    skopeo(&[&policy[..], &["--dest-tls-verify=false", &layout, &remote]].concat());
    assert_eq!(digest(&reference), digest(&hello_reference()));

    let back = format!("oci:{}:back", home.path().join("back").display());
    skopeo(&[&policy[..], &["--src-tls-verify=false", &remote, &back]].concat());
    assert_eq!(digest(&back), digest(&hello_reference()));
    let tags = json(&skopeo(&[
        "list-tags",
        "--tls-verify=false",
        &format!("docker://{}/skopeo/hello", registry.address),
    ]));
    assert_eq!(tags["Tags"], serde_json::json!(["1"]));
    skopeo(&["delete", "--tls-verify=false", &remote]);
    assert!(!exists(&reference));
}

#[test]
fn oras_attaches_discovers_copies_and_deletes_referrers() {
    let (registry, home) = embedded();
    let reference = format!("{}/oras/hello:1", registry.address);
    let oras = |args: &[&str]| ok(peer("oras", home.path()).args(args));
    let layout = format!("{}:1", hello().display());
    oras(&["cp", "--from-oci-layout", "--to-plain-http", &layout, &reference]);
    assert_eq!(digest(&reference), digest(&hello_reference()));

    std::fs::write(home.path().join("sbom.json"), "{}").unwrap();
    let attach = ["attach", "--plain-http", "--artifact-type", "application/vnd.example.sbom"];
    oras(
        &[&attach[..], &["--annotation", "who=oras", &reference, "sbom.json:application/json"]]
            .concat(),
    );
    let found = json(&oras(&["discover", "--plain-http", "--format", "json", &reference]));
    let list =
        found["referrers"].as_array().or_else(|| found["manifests"].as_array()).expect("a list");
    assert_eq!(list.len(), 1, "{found}");
    assert_eq!(list[0]["artifactType"], "application/vnd.example.sbom");
    assert_eq!(list[0]["annotations"]["who"], "oras");
    // The referrers API answered, so there is no fallback tag.
    let tags = oras(&["repo", "tags", "--plain-http", &format!("{}/oras/hello", registry.address)]);
    assert_eq!(tags.trim(), "1");

    let copy = format!("{}/oras/copy:1", registry.address);
    oras(&["cp", "-r", "--from-plain-http", "--to-plain-http", &reference, &copy]);
    let copied = json(&oras(&["discover", "--plain-http", "--format", "json", &copy]));
    assert!(copied.to_string().contains("application/vnd.example.sbom"), "{copied}");

    let artifact = list[0]["digest"].as_str().unwrap();
    let pinned = format!("{}/oras/hello@{artifact}", registry.address);
    oras(&["manifest", "delete", "--plain-http", "--force", &pinned]);
    let gone = oras(&["discover", "--plain-http", "--format", "json", &reference]);
    assert!(!gone.contains("vnd.example.sbom"), "{gone}");
}

#[test]
fn regctl_copies_attaches_lists_and_deletes() {
    let (registry, home) = embedded();
    let address = &registry.address;
    let regctl = |args: &[&str]| ok(peer("regctl", home.path()).args(args));
    regctl(&["registry", "set", address, "--tls", "disabled"]);
    let reference = format!("{address}/regctl/hello:1");
    regctl(&["image", "copy", &format!("ocidir://{}:1", hello().display()), &reference]);
    assert_eq!(digest(&reference), digest(&hello_reference()));
    assert_eq!(regctl(&["image", "digest", &reference]).trim(), digest(&hello_reference()));

    std::fs::write(home.path().join("note.txt"), "note").unwrap();
    let put = ["artifact", "put", "--artifact-type", "application/vnd.example.note"];
    regctl(&[&put[..], &["-f", "note.txt", "--subject", &reference]].concat());
    let listed = regctl(&["artifact", "list", &reference, "--format", "{{json .}}"]);
    assert!(listed.contains("application/vnd.example.note"), "{listed}");

    let copy = format!("{address}/regctl/copy:1");
    regctl(&["image", "copy", "--referrers", &reference, &copy]);
    assert!(regctl(&["artifact", "list", &copy]).contains("application/vnd.example.note"));
    assert!(regctl(&["repo", "ls", address]).contains("regctl/copy"));

    regctl(&["tag", "delete", &copy]);
    assert_eq!(regctl(&["tag", "ls", &format!("{address}/regctl/copy")]).trim(), "");
    regctl(&["manifest", "delete", "--force-tag-dereference", &reference]);
    assert!(!exists(&reference));
}
