//! Merging as one would explain it: a flat map from whole paths to files, walked as text.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

type Path = Vec<String>;

#[derive(Debug, Clone, PartialEq)]
enum What {
    Directory { mode: &'static str, uid: u32 },
    File(u32),
    Link(String),
    Fifo,
}

/// All paths. Hard links are paths with the same number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    names: BTreeMap<Path, usize>,
    files: Vec<What>,
}

fn lexical(text: &str) -> Path {
    text.split('/').fold(Vec::new(), |mut path, part| {
        match part {
            ".." => drop(path.pop()),
            "" | "." => {}
            name => path.push(name.to_owned()),
        }
        path
    })
}

impl Model {
    fn at(&self, path: &Path) -> Option<&What> {
        self.names.get(path).map(|number| &self.files[*number])
    }

    /// The path with every link in it replaced by what it says; starts again after each.
    ///
    /// Of `path` the last `own` parts are those of the path as it was written, `whole`; those
    /// before them came from links. `stop` is asked about links by their written paths.
    fn real(
        &self,
        (whole, path, own): (&[String], &[String], usize),
        links: u32,
        stop: &dyn Fn(&Path) -> bool,
    ) -> Result<Path, bool> {
        let mut done: Path = Vec::new();
        for (at, part) in path.iter().enumerate() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(part.clone());
            let behind = path.len() - at - 1;
            match self.at(&done) {
                None | Some(What::Directory { .. }) => {}
                Some(What::Link(_))
                    if behind < own && stop(&whole[..whole.len() - behind].to_vec()) =>
                {
                    return Err(true);
                }
                Some(What::Link(_)) if links == 255 => return Err(false),
                Some(What::Link(target)) => {
                    done.pop();
                    let parts = target.split('/').filter(|p| !matches!(*p, "" | "."));
                    let parts = parts.map(str::to_owned);
                    let mut rest: Path = if target.starts_with('/') { vec![] } else { done };
                    rest.extend(parts);
                    rest.extend_from_slice(&path[at + 1..]);
                    return self.real((whole, &rest, own.min(behind)), links + 1, stop);
                }
                Some(_) => return Err(true),
            }
        }
        Ok(done)
    }

    fn remove_below(&mut self, path: &Path, itself: bool) {
        self.names
            .retain(|name, _| !(name.starts_with(path) && (itself || name.len() > path.len())));
    }

    fn set(&mut self, path: Path, what: What) {
        self.files.push(what);
        self.names.insert(path, self.files.len() - 1);
    }

    /// Lines as in `tests/merge.rs`. `None` when one of them is impossible.
    pub(crate) fn apply(&mut self, lines: &[&str]) -> Option<()> {
        let lines: Vec<Vec<&str>> = lines.iter().map(|l| l.split(' ').collect()).collect();
        let directories: Vec<Path> =
            lines.iter().filter(|line| line[0] == "d").map(|line| lexical(line[1])).collect();
        for line in &lines {
            let mut path = lexical(line[1]);
            let name = match line[0] {
                "w" => Some(path.pop()?),
                "o" => None,
                _ => continue,
            };
            match self.real((&path, &path, path.len()), 0, &|path| directories.contains(path)) {
                Ok(mut path) => {
                    let itself = name.is_some();
                    path.extend(name);
                    self.remove_below(&path, itself);
                }
                // Nothing is there; but a circle is an error.
                Err(nothing) => nothing.then_some(())?,
            }
        }
        for line in &lines {
            match line[0] {
                "w" | "o" => {}
                _ => self.put(line)?,
            }
        }
        Some(())
    }

    fn put(&mut self, line: &[&str]) -> Option<()> {
        let mut path = lexical(line[1]);
        let Some(name) = path.pop() else { return (line[0] == "d").then_some(()) };
        let mut path = self.real((&path, &path, path.len()), 0, &|_| false).ok()?;
        for end in 1..=path.len() {
            if self.at(&path[..end].to_vec()).is_none() {
                self.set(path[..end].to_vec(), What::Directory { mode: "755", uid: 0 });
            }
        }
        path.push(name);
        let number = line.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
        let what = match line[0] {
            "d" => {
                if !matches!(self.at(&path), Some(What::Directory { .. })) {
                    self.remove_below(&path, true);
                }
                What::Directory { mode: "700", uid: number }
            }
            "h" => {
                let mut target = lexical(line[2]);
                let name = target.pop()?;
                let mut target = self.real((&target, &target, target.len()), 0, &|_| false).ok()?;
                target.push(name);
                if matches!(self.at(&target)?, What::Directory { .. }) {
                    return None;
                }
                let number = self.names[&target];
                self.remove_below(&path, true);
                self.names.insert(path, number);
                return Some(());
            }
            "f" => What::File(number),
            "l" => What::Link(line[2].to_owned()),
            _ => What::Fifo,
        };
        if line[0] != "d" {
            self.remove_below(&path, true);
        }
        self.set(path, what);
        Some(())
    }

    /// Lines as `tests/merge.rs` lists a tree.
    pub(crate) fn listing(&self) -> Vec<String> {
        let mut lines: Vec<(String, String)> = Vec::new();
        for (path, number) in &self.names {
            let names = self.names.values().filter(|other| *other == number).count();
            let path = path.join("/");
            let line = match &self.files[*number] {
                What::Directory { mode, uid } => format!("{path}/ {mode} {uid}"),
                What::File(number) => format!("{path} {number} x{names}"),
                What::Link(target) => format!("{path} -> {target}"),
                What::Fifo => format!("{path} |"),
            };
            lines.push((path, line));
        }
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }
}
