//! Who the workload runs as: the image's `User` against the image's own `/etc/passwd` and
//! `/etc/group`, by the rules container runtimes share.

/// The numbers a process gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups, in the order of `/etc/group`, without repetition.
    pub(crate) groups: Vec<u32>,
    /// `HOME`, where the image sets none.
    pub(crate) home: String,
}

/// The most supplementary groups the kernel takes.
const MAX_GROUPS: usize = 65_536;

/// Resolves `user`: empty, `name`, `uid`, either with `:group` or `:gid`.
///
/// A number needs no entry; a name does. An entry gives group, home and supplementary groups, unless
/// a group is named: then it is the only one. Lines that are no entries are passed over, as libc does.
pub(crate) fn resolve(user: &str, passwd: &str, group: &str) -> Result<Identity, String> {
    let (user, explicit) = match user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (user, None),
    };
    let entry = if user.is_empty() {
        entries(passwd).find(|entry| entry.uid == 0)
    } else {
        entries(passwd).find(|entry| entry.name == user).or_else(|| {
            let number = number(user)?;
            entries(passwd).find(|entry| entry.uid == number)
        })
    };
    let (uid, gid, home) = match (&entry, user) {
        (Some(entry), _) => (entry.uid, entry.gid, entry.home),
        (None, "") => (0, 0, "/root"),
        (None, user) => match number(user) {
            Some(uid) => (uid, 0, "/"),
            None => return Err(format!("the image's /etc/passwd has no user {user:?}")),
        },
    };
    let (gid, groups) = match explicit {
        Some(explicit) => (group_id(explicit, group)?, vec![]),
        None => (gid, entry.map_or_else(Vec::new, |entry| groups_of(entry.name, group))),
    };
    let home = if home.is_empty() { "/" } else { home }.to_owned();
    Ok(Identity { uid, gid, groups, home })
}

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

fn entries(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let (uid, gid) = (number(fields.nth(1)?)?, number(fields.next()?)?);
        Some(Entry { name, uid, gid, home: fields.nth(1).unwrap_or("") })
    })
}

fn group_lines(group: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some((name, number(fields.nth(1)?)?, fields.next().unwrap_or("")))
    })
}

fn group_id(wanted: &str, group: &str) -> Result<u32, String> {
    group_lines(group)
        .find(|(name, ..)| *name == wanted)
        .map(|(_, gid, _)| gid)
        .or_else(|| number(wanted))
        .ok_or_else(|| format!("the image's /etc/group has no group {wanted:?}"))
}

fn groups_of(user: &str, group: &str) -> Vec<u32> {
    let mut groups = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (_, gid, members) in group_lines(group) {
        let listed = members.split(',').any(|member| member.trim() == user);
        if listed && groups.len() < MAX_GROUPS && seen.insert(gid) {
            groups.push(gid);
        }
    }
    groups
}

/// Ids are 32 bits wide; the last one means "no change" to the kernel and is none.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|id| digits && *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken\napp:x:1000:1001:App:/home/app:/bin/sh\n1234:x:7:8::/odd:\nhomeless:x:9:9::\n";
    const GROUP: &str =
        "root:x:0:\nstaff:x:50:other,app\nwheel:x:10:app\nagain:x:50:app\napp:x:1001:\n+::\n";

    fn ids(user: &str) -> (u32, u32, Vec<u32>, String) {
        let found = resolve(user, PASSWD, GROUP).unwrap();
        (found.uid, found.gid, found.groups, found.home)
    }

    #[test]
    fn users_are_found_as_runtimes_find_them() {
        let app = || (1000, 1001, vec![50, 10], "/home/app".to_owned());
        assert_eq!(ids(""), (0, 0, vec![], "/root".to_owned()));
        assert_eq!(ids("app"), app());
        assert_eq!(ids("1000"), app(), "a number with an entry has the entry's groups");
        assert_eq!(ids("app:"), app());
        assert_eq!(ids("app:staff"), (1000, 50, vec![], "/home/app".to_owned()));
        assert_eq!(ids("app:4321"), (1000, 4321, vec![], "/home/app".to_owned()));
        assert_eq!(ids("65532:65532"), (65532, 65532, vec![], "/".to_owned()));
        assert_eq!(ids("65532"), (65532, 0, vec![], "/".to_owned()));
        assert_eq!(ids("1234"), (7, 8, vec![], "/odd".to_owned()), "a name of digits is a name");
        assert_eq!(ids("homeless").3, "/");
        assert_eq!(ids(":staff"), (0, 50, vec![], "/root".to_owned()));
        assert_eq!(
            resolve("", "", "").unwrap().home,
            "/root",
            "no /etc/passwd is no trouble for root"
        );
    }

    #[test]
    fn unknown_names_and_impossible_numbers_are_errors() {
        for bad in
            ["nobody", "app:nogroup", "-1", "+5", "4294967295", "99999999999", "0x10", "app:-1"]
        {
            assert!(resolve(bad, PASSWD, GROUP).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hostile_group_file_is_only_read_once() {
        let group: String = (0..100_000).map(|i| format!("g{i}:x:{i}:app\n")).collect();
        let found = resolve("app", PASSWD, &group).unwrap();
        assert_eq!(found.groups.len(), MAX_GROUPS);
    }
}
