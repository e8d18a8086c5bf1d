//! `registries.toml` as written, and how it becomes [`Settings`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::{Host, Repository};
use serde::Deserialize;

use super::{
    ClientCertificate, HostSettings, Limits, Mirror, MirrorPull, ReferrersIn, Settings,
    SettingsError,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: LimitsSection,
    #[serde(default)]
    host: BTreeMap<HostKey, HostSection>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    connect_timeout: Option<Span>,
    stall_timeout: Option<Span>,
    request_timeout: Option<Span>,
    retry_deadline: Option<Span>,
    retries: Option<Retries>,
    max_concurrency: Option<Concurrency>,
}

// The limits are repeated because serde cannot both flatten and refuse unknown keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostSection {
    plain_http: Option<bool>,
    #[serde(default)]
    ca: OneOrMany,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
    #[serde(default)]
    insecure_skip_verify: bool,
    #[serde(default)]
    mirror: Vec<MirrorSection>,
    upload_chunk_bytes: Option<ChunkBytes>,
    #[serde(default)]
    referrers: ReferrersIn,
    connect_timeout: Option<Span>,
    stall_timeout: Option<Span>,
    request_timeout: Option<Span>,
    retry_deadline: Option<Span>,
    retries: Option<Retries>,
    max_concurrency: Option<Concurrency>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MirrorSection {
    host: HostKey,
    prefix: Option<Prefix>,
    #[serde(default)]
    pull: MirrorPull,
    #[serde(default)]
    discovery: bool,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum OneOrMany {
    #[default]
    None,
    One(PathBuf),
    Many(Vec<PathBuf>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SpanText {
    Seconds(u64),
    Text(String),
}

// The types below check values while they are read, so that the parser's error names their line.

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
struct HostKey(Host);

impl TryFrom<String> for HostKey {
    type Error = portolan_core::reference::ParseReferenceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Prefix(Repository);

impl TryFrom<String> for Prefix {
    type Error = portolan_core::reference::ParseReferenceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.trim_end_matches('/').parse().map(Self)
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "SpanText")]
struct Span(Duration);

impl TryFrom<SpanText> for Span {
    type Error = &'static str;

    fn try_from(text: SpanText) -> Result<Self, Self::Error> {
        const WRONG: &str = "a time is whole seconds, or a text such as \"500ms\", \"30s\" or \"2m\", at most one hour and not zero";
        let span = match text {
            SpanText::Seconds(seconds) => Duration::from_secs(seconds),
            SpanText::Text(text) => span(&text).ok_or(WRONG)?,
        };
        let fits = !span.is_zero() && span <= Duration::from_secs(3600);
        if fits { Ok(Self(span)) } else { Err(WRONG) }
    }
}

/// Reads `500ms`, `30s` or `2m`.
fn span(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "u32")]
struct Retries(u32);

impl TryFrom<u32> for Retries {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number <= 20 { Ok(Self(number)) } else { Err("retries are 0 to 20") }
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "usize")]
struct Concurrency(usize);

impl TryFrom<usize> for Concurrency {
    type Error = &'static str;

    fn try_from(number: usize) -> Result<Self, Self::Error> {
        if (1..=64).contains(&number) {
            Ok(Self(number))
        } else {
            Err("max_concurrency is 1 to 64")
        }
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "u64")]
struct ChunkBytes(u64);

impl TryFrom<u64> for ChunkBytes {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        // Below 64 KiB the requests cost more than the bytes.
        if number >= 64 * 1024 {
            Ok(Self(number))
        } else {
            Err("upload_chunk_bytes is 65536 or more")
        }
    }
}

pub(super) fn parse(text: &str, path: &Path) -> Result<Settings, SettingsError> {
    let file: File = toml::from_str(text).map_err(|source| SettingsError::Parse {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    let limits = file.defaults.over(&Limits::default());
    let defaults = HostSettings { limits, ..HostSettings::default() };
    let mut hosts = BTreeMap::new();
    for (HostKey(host), section) in file.host {
        let settings = section.resolve(&defaults.limits, path.parent()).map_err(|problem| {
            let section = format!("[host.{:?}]", host.as_str());
            SettingsError::Contradiction { path: path.to_owned(), section, problem }
        })?;
        hosts.insert(host, settings);
    }
    Ok(Settings { defaults, hosts, room: None })
}

impl LimitsSection {
    fn over(&self, base: &Limits) -> Limits {
        let pick = |own: Option<Span>, base| own.map_or(base, |span| span.0);
        Limits {
            first_wait: base.first_wait,
            connect_timeout: pick(self.connect_timeout, base.connect_timeout),
            stall_timeout: pick(self.stall_timeout, base.stall_timeout),
            request_timeout: pick(self.request_timeout, base.request_timeout),
            retry_deadline: pick(self.retry_deadline, base.retry_deadline),
            retries: self.retries.map_or(base.retries, |n| n.0),
            max_concurrency: self.max_concurrency.map_or(base.max_concurrency, |n| n.0),
        }
    }
}

impl HostSection {
    fn resolve(self, base: &Limits, dir: Option<&Path>) -> Result<HostSettings, &'static str> {
        let limits = LimitsSection {
            connect_timeout: self.connect_timeout,
            stall_timeout: self.stall_timeout,
            request_timeout: self.request_timeout,
            retry_deadline: self.retry_deadline,
            retries: self.retries,
            max_concurrency: self.max_concurrency,
        };
        let beside = |path: PathBuf| dir.map_or_else(|| path.clone(), |dir| dir.join(&path));
        let client_certificate = match (self.client_cert, self.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(ClientCertificate { certificate: beside(certificate), key: beside(key) })
            }
            _ => return Err("client_cert and client_key are given together or not at all"),
        };
        let ca = match self.ca {
            OneOrMany::None => Vec::new(),
            OneOrMany::One(path) => vec![beside(path)],
            OneOrMany::Many(paths) => paths.into_iter().map(beside).collect(),
        };
        let tls = !ca.is_empty() || client_certificate.is_some() || self.insecure_skip_verify;
        if tls && self.plain_http == Some(true) {
            return Err(
                "plain_http has no certificates: drop it, or ca, client_cert and insecure_skip_verify",
            );
        }
        let mirrors = self.mirror.into_iter().map(|mirror| Mirror {
            host: mirror.host.0,
            prefix: mirror.prefix.map(|prefix| prefix.0),
            pull: mirror.pull,
            discovery: mirror.discovery,
        });
        Ok(HostSettings {
            // Certificates for a loopback host say that it speaks TLS.
            plain_http: if tls { Some(false) } else { self.plain_http },
            ca,
            client_certificate,
            insecure_skip_verify: self.insecure_skip_verify,
            mirrors: mirrors.collect(),
            limits: limits.over(base),
            upload_chunk_bytes: self.upload_chunk_bytes.map(|n| n.0),
            referrers: self.referrers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        parse(text, Path::new("/etc/portolan/registries.toml")).map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", source.unwrap_or_default())
        })
    }

    fn host(name: &str) -> Host {
        name.parse().unwrap()
    }

    #[test]
    fn a_whole_file() {
        let settings = read(
            r#"
            [defaults]
            stall_timeout = "5s"
            retries = 2

            [host."registry.example:5000"]
            ca = "ca.pem"
            client_cert = "me.pem"
            client_key = "/keys/me.key"
            connect_timeout = 3
            max_concurrency = 2
            upload_chunk_bytes = 1048576
            referrers = "tag"

            [host."docker.io"]
            [[host."docker.io".mirror]]
            host = "mirror.example"
            prefix = "hub/"
            pull = "digest"
            [[host."docker.io".mirror]]
            host = "localhost:5001"
            discovery = true
            "#,
        )
        .unwrap();
        let own = settings.host(&host("registry.example:5000"));
        assert_eq!(own.ca, [PathBuf::from("/etc/portolan/ca.pem")]);
        let certificate = own.client_certificate.as_ref().unwrap();
        assert_eq!(certificate.certificate, Path::new("/etc/portolan/me.pem"));
        assert_eq!(certificate.key, Path::new("/keys/me.key"));
        assert_eq!(own.limits.connect_timeout, Duration::from_secs(3));
        assert_eq!(own.limits.stall_timeout, Duration::from_secs(5));
        assert_eq!((own.limits.retries, own.limits.max_concurrency), (2, 2));
        assert_eq!(own.upload_chunk_bytes, Some(1024 * 1024));
        assert_eq!(own.referrers, ReferrersIn::Tag);
        // The official alias finds the same section.
        let hub = settings.host(&host("index.docker.io"));
        assert_eq!(hub.mirrors.len(), 2);
        assert_eq!(hub.mirrors[0].prefix.as_ref().unwrap().as_str(), "hub");
        assert_eq!(hub.mirrors[0].pull, MirrorPull::Digest);
        assert_eq!(hub.referrers, ReferrersIn::Api);
        assert!(hub.mirrors[1].discovery && !hub.mirrors[0].discovery);
        assert_eq!(settings.host(&host("other.example")).limits.retries, 2);
    }

    #[test]
    fn plain_http() {
        let settings = read(
            "[host.\"localhost:1\"]\nca = [\"ca.pem\"]\n[host.\"lab.example\"]\nplain_http = true\n[host.\"localhost:2\"]\nplain_http = false\n",
        )
        .unwrap();
        for (name, plain) in [
            ("localhost:1", false),
            ("localhost:2", false),
            ("localhost:3", true),
            ("127.0.0.1:9", true),
            ("lab.example", true),
            ("example.com", false),
        ] {
            let host = host(name);
            assert_eq!(settings.host(&host).speaks_plain_http(&host), plain, "{name}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("[defaults]\nretrys = 3\n", "line 2"),
            ("[hosts.\"a.example\"]\n", "line 1"),
            ("\n[host.\"a.example\"]\nplain-http = true\n", "line 3"),
            ("[host.\"a b\"]\n", "line 1"),
            ("[host.\"a.example\"]\n\nstall_timeout = \"soon\"\n", "line 3"),
            ("[defaults]\nretries = 21\n", "line 2"),
            ("[defaults]\nmax_concurrency = 0\n", "line 2"),
            ("[defaults]\nconnect_timeout = 0\n", "line 2"),
            ("[[host.\"a.example\".mirror]]\nhost = \"m\"\npull = \"some\"\n", "line 3"),
            ("[host.\"a.example\"]\nupload_chunk_bytes = 1\n", "line 2"),
            ("[host.\"a.example\"]\nreferrers = \"none\"\n", "line 2"),
            ("[host.\"a.example\"\n", "line 1"),
            ("[host.\"a.example\"]\nclient_cert = \"x\"\n", "client_cert and client_key"),
            (
                "[host.\"a.example\"]\nplain_http = true\ninsecure_skip_verify = true\n",
                "plain_http has no certificates",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.contains(expected) && error.contains("registries.toml"),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn what_mirrors_are_asked_for() {
        use portolan_core::{Digest, Target};
        let tag = Target::Tag("1".parse().unwrap());
        let digest = Target::Digest(Digest::sha256(b""));
        for (pull, of_tag, of_digest) in [
            (MirrorPull::All, true, true),
            (MirrorPull::Digest, false, true),
            (MirrorPull::Tag, true, false),
        ] {
            assert_eq!((pull.allows(&tag), pull.allows(&digest)), (of_tag, of_digest), "{pull:?}");
        }
    }
}
