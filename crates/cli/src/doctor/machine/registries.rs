//! Settings of registries and logins, as every command here would use them.

use super::super::finding::{Finding, ok, wrong};

#[derive(Debug)]
pub(in super::super) struct Facts {
    /// Why registries.toml cannot be used.
    pub(super) settings: Option<String>,
    /// What stands in the way of a login.
    pub(super) credentials: Vec<String>,
}

pub(in super::super) fn check(facts: &Facts) -> Vec<Finding> {
    let settings = match &facts.settings {
        None => ok("registries", "the settings can be read"),
        Some(why) => wrong("registries", why, "repair the file (docs/registries.md)"),
    };
    let advice = "repair the file, install the helper, or log in again: portolan registry login";
    let problems = facts.credentials.iter().map(|why| wrong("logins", why, advice));
    let mut logins: Vec<_> = problems.collect();
    if logins.is_empty() {
        logins.push(ok("logins", "files and helpers are there where they are named"));
    }
    logins.insert(0, settings);
    logins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn each_file_that_cannot_be_used_is_told() {
        let facts = Facts {
            settings: Some("a".to_owned()),
            credentials: vec!["b".to_owned(), "c".to_owned()],
        };
        assert!(check(&facts).iter().all(|one| one.state == State::Wrong));
        assert_eq!(check(&facts).len(), 3);
        let facts = Facts { settings: None, credentials: vec![] };
        assert!(check(&facts).iter().all(|one| one.state == State::Ok));
    }
}
