//! Which images a rule is for.

use std::fmt;

use portolan_core::{Host, Reference, RegistryReference, Repository};

/// Some repositories.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// In its canonical spelling: `host:443` is `host`, and must not fall out of its scope.
    host: String,
    path: Path,
}

/// From the widest to the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Path {
    Any,
    /// Everything below it.
    Below(Repository),
    One(Repository),
}

/// How narrow a pattern is: of several that match, the one with the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Narrowness(usize);

impl Pattern {
    /// Reads `host`, `host/*`, `host/path/*` or `host/repository`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} names no repositories; write host, host/path/* or host/repository, such as \
                 docker.io/library/nginx; a tag or digest cannot be named"
            )
        };
        let (host, path) = text.split_once('/').unwrap_or((text, "*"));
        // As in a reference: what could be a repository of Docker Hub is no host.
        if !(host.contains(['.', ':', '[']) || host.eq_ignore_ascii_case("localhost")) {
            return Err(wrong());
        }
        let host: Host = host.parse().map_err(|_| wrong())?;
        let path = match path.strip_suffix("/*") {
            _ if path == "*" => Path::Any,
            Some(above) => Path::Below(above.parse().map_err(|_| wrong())?),
            None => {
                // Through the reader of references, which knows Docker Hub's short names.
                let one: RegistryReference = text.parse().map_err(|_| wrong())?;
                if one.tag.is_some() || one.digest.is_some() {
                    return Err(wrong());
                }
                Path::One(one.repository)
            }
        };
        Ok(Self { host: host.canonical().into_owned(), path })
    }

    /// Whether all of these are of this registry.
    pub fn is_of(&self, host: &Host) -> bool {
        host.canonical() == self.host
    }

    /// Whether `reference` is one of these, and how narrowly it was meant.
    pub fn matches(&self, reference: &Reference) -> Option<Narrowness> {
        let Reference::Registry(reference) = reference else { return None };
        if !self.is_of(&reference.registry) {
            return None;
        }
        let repository = reference.repository.as_str();
        match &self.path {
            Path::Any => Some(Narrowness(0)),
            Path::Below(above) => {
                let above = above.as_str();
                let below = repository.strip_prefix(above)?.strip_prefix('/')?;
                (!below.is_empty()).then_some(Narrowness(above.len()))
            }
            Path::One(one) => (one.as_str() == repository).then_some(Narrowness(usize::MAX)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Path::Any => write!(f, "{}/*", self.host),
            Path::Below(above) => write!(f, "{}/{above}/*", self.host),
            Path::One(one) => write!(f, "{}/{one}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Runtimes take the default port for none, so whoever writes one must not choose the rule.
        #[test]
        fn a_default_port_neither_escapes_a_scope_nor_makes_another(
            host in "[a-z]{1,8}\\.(example|test)",
            (scope, asked) in (0..4_usize, 0..4_usize),
            path in prop::sample::select(vec!["", "/*", "/team/*", "/team/app"]),
            other in 1..u16::MAX,
        ) {
            let spelt = |n: usize| format!("{host}{}", ["", ":443", ":0443", ":00443"][n]);
            let pattern = Pattern::parse(&format!("{}{path}", spelt(scope))).unwrap();
            prop_assert_eq!(&pattern, &Pattern::parse(&format!("{}{path}", spelt(asked))).unwrap());
            let reference: Reference = format!("{}/team/app:1", spelt(asked)).parse().unwrap();
            prop_assert!(pattern.matches(&reference).is_some(), "{pattern} {reference}");
            prop_assume!(other != 443);
            let elsewhere = format!("{host}:{other}/team/app:1").parse().unwrap();
            prop_assert!(pattern.matches(&elsewhere).is_none(), "{pattern} {elsewhere}");
            let elsewhere = Pattern::parse(&format!("{host}:{other}{path}")).unwrap();
            prop_assert!(elsewhere.matches(&reference).is_none(), "{elsewhere} {reference}");
        }
    }

    fn narrowness(pattern: &str, reference: &str) -> Option<Narrowness> {
        Pattern::parse(pattern).unwrap().matches(&reference.parse().unwrap())
    }

    #[test]
    fn patterns_match_whole_parts_of_names() {
        for (pattern, reference, matches) in [
            ("r.example", "r.example/a/b:1", true),
            ("r.example/*", "r.example/a", true),
            ("r.example", "r.example:5000/a", false),
            ("R.Example:5000", "r.example:5000/a", true),
            (
                "r.example/team/*",
                "r.example/team/app@sha256:1111111111111111111111111111111111111111111111111111111111111111",
                true,
            ),
            ("r.example/team/*", "r.example/team/x/y", true),
            ("r.example/team/*", "r.example/team", false),
            ("r.example/team/*", "r.example/teams/app", false),
            ("r.example/team/app", "r.example/team/app:2", true),
            ("r.example/team/app", "r.example/team/app/more", false),
            ("docker.io/nginx", "nginx", true),
            ("docker.io/library/*", "nginx", true),
            ("docker.io/library/nginx", "docker.io/nginx:1", true),
            ("docker.io", "oci:dir:1", false),
        ] {
            let found = narrowness(pattern, reference).is_some();
            assert_eq!(found, matches, "{pattern} {reference}");
        }
    }

    #[test]
    fn the_narrower_is_greater() {
        let reference = "r.example/team/app:1";
        let order = ["r.example", "r.example/team/*", "r.example/team/app"]
            .map(|p| narrowness(p, reference));
        assert!(order.is_sorted() && order.iter().all(Option::is_some), "{order:?}");
    }

    #[test]
    fn what_names_no_repositories_is_refused() {
        for text in [
            "",
            "*",
            "team/app",
            "nginx",
            "r.example/",
            "r.example/a:1",
            "r.example/a*",
            "r.example/*/a",
            "r.example/A",
            "r.example/a@sha256:1111111111111111111111111111111111111111111111111111111111111111",
            "oci:dir",
            "r.example//*",
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains("host/path/*"), "{text}: {error}");
        }
    }
}
