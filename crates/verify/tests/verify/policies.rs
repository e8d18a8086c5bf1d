//! Policies from files, over images in a registry.

use std::path::Path;

use portolan_verify::decision::Verdict;
use portolan_verify::key::PrivateKey;
use portolan_verify::policy::{self, Policy};
use portolan_verify::sign::{Form, sign};

use crate::bench::{Bench, is};

fn write(dir: &Path, name: &str, key: &PrivateKey) {
    std::fs::write(dir.join(name), key.public().to_pem()).unwrap();
}

fn load(dir: &Path, text: &str) -> Policy {
    let file = dir.join("policy.yaml");
    std::fs::write(&file, text).unwrap();
    policy::load(&file)
        .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

#[tokio::test]
async fn two_of_three_signers_are_two_different_ones() {
    let bench = Bench::new(&["linux/amd64"]);
    let [b, c] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("keys")).unwrap();
    for (name, key) in
        [("a.pub", &bench.key), ("again.pub", &bench.key), ("b.pub", &b), ("c.pub", &c)]
    {
        write(&dir.path().join("keys"), name, key);
    }
    let policy = load(
        dir.path(),
        "version: 1\nsigners:\n  a: {keys: {files: [keys/a.pub]}}\n  again: {keys: {files: [keys/again.pub]}}\n  b: {keys: {files: [keys/b.pub]}}\n  c: {keys: {files: [keys/c.pub]}}\ndefault:\n  platforms: [linux/amd64]\n  require: {anyOf: [a, again, b, c], atLeast: 2}\n",
    );
    let reference = bench.reference();
    let rule = policy.rule(&reference).unwrap();
    bench.sign_all().await;
    // One key under two names.
    is(&bench.ask(&reference, "linux/amd64", rule).await.unwrap(), Verdict::Refused);
    for subject in [bench.top(), bench.entry(0)] {
        is(&bench.ask(&reference, "linux/amd64", rule).await.unwrap(), Verdict::Refused);
        sign(&bench.place(), &subject, &b, Form::Simple).await.unwrap();
    }
    is(&bench.ask(&reference, "linux/amd64", rule).await.unwrap(), Verdict::Verified);
}

/// A key on P-256 with its point written short.
fn compressed(key: &PrivateKey) -> String {
    let der = key.public().as_der();
    let (x, is_odd) = (&der[27..59], der[90] & 1);
    let short = [&[0x30, 0x39], &der[2..23], &[3, 0x22, 0, 2 + is_odd], x].concat();
    pem::encode(&pem::Pem::new("PUBLIC KEY", short))
}

#[tokio::test]
async fn one_key_in_two_forms_is_one_signer() {
    let bench = Bench::new(&["linux/amd64"]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.pub", &bench.key);
    std::fs::write(dir.path().join("b.pub"), compressed(&bench.key)).unwrap();
    let text = |count: usize| {
        format!(
            "version: 1\nsigners:\n  a: {{keys: {{files: [a.pub]}}}}\n  b: {{keys: {{files: [b.pub]}}}}\ndefault:\n  platforms: [linux/amd64]\n  require: {{anyOf: [a, b], atLeast: {count}}}\n"
        )
    };
    bench.sign_all().await;
    let reference = bench.reference();
    for (count, verdict) in [(1, Verdict::Verified), (2, Verdict::Refused)] {
        let policy = load(dir.path(), &text(count));
        let rule = policy.rule(&reference).unwrap();
        is(&bench.ask(&reference, "linux/amd64", rule).await.unwrap(), verdict);
    }
}

#[tokio::test]
async fn the_narrowest_scope_decides_alone() {
    let bench = Bench::new(&["linux/amd64"]);
    bench.sign_all().await;
    let stranger = PrivateKey::generate().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "own.pub", &bench.key);
    write(dir.path(), "stranger.pub", &stranger);
    let host = bench.server.host();
    let scopes = |own: &str, other: &str| {
        format!(
            "version: 1\nsigners:\n  own: {{keys: {{files: [own.pub]}}}}\n  stranger: {{keys: {{files: [stranger.pub]}}}}\nscopes:\n- {{name: wide, match: [\"{host}{other}\"], rule: {{require: {{allOf: [stranger]}}}}}}\n- {{name: narrow, match: [\"{host}{own}\"], rule: {{require: {{allOf: [own]}}}}}}\n"
        )
    };
    let reference = bench.reference();
    for (own, other, verdict) in [
        ("/team/app", "/team/*", Verdict::Verified),
        ("/team/*", "/*", Verdict::Verified),
        ("/team/*", "/team/app", Verdict::Refused),
        ("/*", "/team/*", Verdict::Refused),
    ] {
        let policy = load(dir.path(), &scopes(own, other));
        let rule = policy.rule(&reference).unwrap();
        is(&bench.ask(&reference, "linux/amd64", rule).await.unwrap(), verdict);
    }
    let elsewhere = load(dir.path(), &scopes("/elsewhere", "/else/*"));
    assert!(elsewhere.rule(&reference).is_none(), "nothing said is no yes");
}
