//! Source on its way: pushed, pulled, deleted.

use portolan_build::steps;
use portolan_build::steps::{Access, source};
use portolan_core::Reference;
use portolan_registry::client::Settings;

use crate::{Yard, names};

#[test]
fn what_is_pushed_is_pulled_by_digest_with_the_time_of_its_newest_file() {
    let yard = Yard::new();
    let from = yard.folder("from");
    std::fs::create_dir(from.join("bin")).unwrap();
    std::fs::write(from.join("bin/app"), "app").unwrap();
    std::os::unix::fs::symlink("bin/app", from.join("link")).unwrap();
    let image = yard.reference("1-src");
    let (client, temp) = (yard.client(), yard.folder("temp"));
    let pushed = yard.block(source::push(&from, &image, &client, &temp)).unwrap();
    assert_eq!(yard.digest("1-src"), Some(pushed.digest));
    // Once more is nothing new.
    let again = yard.block(source::push(&from, &image, &client, &temp)).unwrap();
    assert_eq!(again.digest, pushed.digest);
    let pinned: Reference = image.with_digest(pushed.digest);
    // A directory that is there and empty, as a volume is.
    let to = yard.folder("to");
    let pulled = yard.block(source::pull(&pinned, &to, &client, &temp)).unwrap();
    assert_eq!((pulled.digest, pulled.newest), (pushed.digest, pushed.newest));
    assert!(pulled.newest > 1_700_000_000);
    assert_eq!(names(&to), ["bin", "bin/app", "link"]);
    let full = yard.block(source::pull(&pinned, &to, &client, &temp)).unwrap_err();
    assert_eq!(full.reason, "SourcePullFailed");
    assert!(names(&temp).is_empty(), "nothing stays behind");
}

#[test]
fn a_source_that_leads_out_is_not_pushed_and_one_that_is_gone_is_not_pulled() {
    let yard = Yard::new();
    let (client, temp) = (yard.client(), yard.folder("temp"));
    let from = yard.folder("from");
    std::os::unix::fs::symlink("../../etc", from.join("out")).unwrap();
    let image = yard.reference("1-src");
    let error = yard.block(source::push(&from, &image, &client, &temp)).unwrap_err();
    assert_eq!((error.reason, error.exit), ("SourcePushFailed", 2));
    assert_eq!(yard.digest("1-src"), None);
    let error = yard.block(source::pull(&image, &yard.path("to"), &client, &temp)).unwrap_err();
    assert_eq!((error.reason, error.exit), ("SourcePullFailed", 4));
}

#[test]
fn a_source_is_deleted_and_one_that_is_not_there_is_told() {
    let yard = Yard::new();
    let (client, temp) = (yard.client(), yard.folder("temp"));
    let image = yard.reference("1-src");
    let from = yard.folder("from");
    std::fs::write(from.join("a"), "a").unwrap();
    let pushed = yard.block(source::push(&from, &image, &client, &temp)).unwrap();
    assert_eq!(yard.block(source::prune(&image, &client)).unwrap(), pushed.digest);
    assert_eq!(yard.digest("1-src"), None);
    let error = yard.block(source::prune(&image, &client)).unwrap_err();
    assert_eq!(error.reason, "SourcePruneFailed");
}

#[test]
fn a_secret_is_used_and_one_without_the_registry_names_whom_it_has() {
    let yard = Yard::new();
    let secret = yard.folder("secret");
    let client = |image: &str| {
        let access = Access { secret: Some(secret.clone()), insecure: false };
        let image: Reference = image.parse().unwrap();
        yard.block(steps::client(&image, &access, Settings::default()))
    };
    let error = client("r.example/a:1").unwrap_err();
    assert!(error.to_string().contains(".dockerconfigjson"), "{error}");
    let logins = r#"{"auths": {"r.example": {"username": "u", "password": "hunter2"}}}"#;
    std::fs::write(secret.join(".dockerconfigjson"), logins).unwrap();
    assert!(client("r.example/a:1").is_ok());
    let error = client("other.example/a:1").unwrap_err();
    let told = error.to_string();
    assert_eq!((error.reason, error.exit), ("RegistryCredentialsNotValid", 2));
    assert!(told.contains("other.example") && told.contains("r.example"), "{told}");
    assert!(!format!("{error:?}").contains("hunter2"));
    std::fs::write(secret.join(".dockerconfigjson"), "{").unwrap();
    assert_eq!(client("r.example/a:1").unwrap_err().reason, "RegistryCredentialsNotValid");
}

#[test]
fn a_registry_without_tls_is_only_spoken_to_where_that_is_allowed() {
    let yard = Yard::new();
    yard.push("1", "linux/amd64");
    // Not loopback by its name, so that plain HTTP is not the default.
    let address = yard.address.replace("127.0.0.1", "localhost.localdomain");
    if !can_resolve(&address) {
        // The machine has no such name; 127.0.0.1 under another one is all that is needed.
        return plain_http_by_settings(&yard);
    }
    let image: Reference = format!("{address}/team/app:1").parse().unwrap();
    let resolved = |insecure: bool| {
        let access = Access { secret: None, insecure };
        let client = yard.block(steps::client(&image, &access, fast())).unwrap();
        let place = portolan_registry::images::Place::open(&image, &client).unwrap();
        yard.block(place.resolve(portolan_registry::images::target(&image).as_ref())).is_ok()
    };
    assert!(!resolved(false));
    assert!(resolved(true));
}

fn can_resolve(address: &str) -> bool {
    use std::net::ToSocketAddrs as _;
    address.to_socket_addrs().is_ok_and(|mut found| found.any(|a| a.ip().is_loopback()))
}

/// Settings that ask for TLS on loopback win over what is usual there, and "insecure" leaves them.
fn plain_http_by_settings(yard: &Yard) {
    let image = yard.reference("1");
    let Reference::Registry(registry) = &image else { panic!() };
    for (plain, expected) in [(Some(false), false), (None, true)] {
        let mut settings = fast();
        settings.host_mut(&registry.registry).plain_http = plain;
        let access = Access { secret: None, insecure: true };
        let client = yard.block(steps::client(&image, &access, settings)).unwrap();
        let place = portolan_registry::images::Place::open(&image, &client).unwrap();
        let found = yard.block(place.resolve(portolan_registry::images::target(&image).as_ref()));
        assert_eq!(found.is_ok(), expected, "{plain:?}");
    }
}

fn fast() -> Settings {
    let mut settings = Settings::default();
    settings.defaults_mut().limits.retries = 0;
    settings
}
