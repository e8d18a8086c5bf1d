//! Which file is executed, and with which environment.

use std::collections::BTreeMap;

/// What runtimes give a process whose image sets no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment: the last of two settings of one name wins, `PATH` and `HOME` are always set.
/// What has no `=` is dropped, as it names nothing.
pub(crate) fn environment(env: &[String], home: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (name, value) in env.iter().filter_map(|line| line.split_once('=')) {
        if !name.is_empty() {
            all.insert(name.to_owned(), value.to_owned());
        }
    }
    all.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
    all.entry("HOME".to_owned()).or_insert_with(|| home.to_owned());
    all
}

/// The path of the program `name`: itself where it has a slash, else the first entry of `path` where
/// `executable` finds it. An empty entry is the working directory.
pub(crate) fn search(
    name: &str,
    path: &str,
    executable: impl Fn(&str) -> bool,
) -> Result<String, String> {
    if name.is_empty() {
        return Err("the name of the program is empty; set command or args, or use an image with an entrypoint".to_owned());
    }
    if name.contains('/') {
        return Ok(name.to_owned());
    }
    path.split(':')
        .map(|dir| match dir {
            "" => format!("./{name}"),
            dir => format!("{}/{name}", dir.trim_end_matches('/')),
        })
        .find(|candidate| executable(candidate))
        .ok_or_else(|| format!("there is no executable {name:?} in PATH {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_as_a_shell_would() {
        let has = |wanted: &'static str| move |candidate: &str| candidate == wanted;
        assert_eq!(search("sh", "/a:/bin", has("/bin/sh")).unwrap(), "/bin/sh");
        assert_eq!(search("sh", "/bin/:/a", has("/bin/sh")).unwrap(), "/bin/sh");
        assert_eq!(search("sh", "/:/a", has("/sh")).unwrap(), "/sh");
        assert_eq!(search("sh", ":/a", has("./sh")).unwrap(), "./sh");
        assert_eq!(search("./run", "/bin", |_| false).unwrap(), "./run");
        let err = search("sh", "/a", |_| false).unwrap_err();
        assert!(err.contains("\"sh\"") && err.contains("/a"), "{err}");
        assert!(search("", "/a", |_| true).is_err());
    }

    #[test]
    fn the_last_setting_wins_and_path_and_home_are_always_there() {
        let env = ["A=1", "A=2=3", "novalue", "=x", "HOME=/h"].map(str::to_owned);
        let all = environment(&env, "/root");
        assert_eq!(all["A"], "2=3");
        assert_eq!((all["HOME"].as_str(), all["PATH"].as_str()), ("/h", DEFAULT_PATH));
        assert_eq!(all.len(), 3);
        assert_eq!(environment(&[], "/root")["HOME"], "/root");
    }
}
