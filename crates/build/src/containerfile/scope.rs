//! What the instructions of one stage do, with variables, directories and shells as they stand at
//! each of them.

use std::collections::BTreeMap;

use portolan_core::Platform;

use super::evaluate::{Base, Change, Copying, From, Inherited, Stage, base};
use super::words::Spent;
use super::{
    Command, ContainerfileError, CopyWords, Instruction, Kind, Position, SourceWord, words,
};

impl Stage {
    /// What it is built for.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// What it does, each with the line that says so.
    ///
    /// # Errors
    /// With line and column: a value, a path or a word that means nothing.
    pub fn changes(
        &self,
        inherited: &Inherited,
    ) -> Result<Vec<(String, Change)>, ContainerfileError> {
        let mut scope = Scope {
            stage: self,
            spent: Spent::default(),
            args: BTreeMap::new(),
            env: inherited.env.iter().cloned().collect(),
            workdir: match inherited.workdir.as_str() {
                "" => "/".to_owned(),
                workdir => workdir.to_owned(),
            },
            shell: match inherited.shell.is_empty() {
                true => vec!["/bin/sh".to_owned(), "-c".to_owned()],
                false => inherited.shell.clone(),
            },
        };
        let mut changes = Vec::new();
        for instruction in &self.instructions {
            let say = |what| ContainerfileError::new(instruction.at, what);
            let made = scope.instruction(instruction).map_err(say)?;
            // The history has the text with each change.
            scope.spent.add(instruction.text.len().saturating_mul(made.len())).map_err(say)?;
            changes.extend(made.into_iter().map(|change| (instruction.text.clone(), change)));
        }
        Ok(changes)
    }
}

struct Scope<'a> {
    stage: &'a Stage,
    spent: Spent,
    args: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
    workdir: String,
    shell: Vec<String>,
}

impl Scope<'_> {
    /// A variable of the image is before one of the build.
    fn expand(&mut self, word: &str) -> Result<String, String> {
        let value = |name: &str| self.env.get(name).or_else(|| self.args.get(name));
        let values = |name: &str| value(name).map(String::as_str);
        let expanded = words::expand(word, self.stage.escape, &values)?;
        self.spent.add(expanded.len())?;
        Ok(expanded)
    }

    fn all(&mut self, list: &[String]) -> Result<Vec<String>, String> {
        list.iter().map(|word| self.expand(word)).collect()
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<Vec<Change>, String> {
        Ok(match &instruction.kind {
            Kind::From { .. } => Vec::new(),
            Kind::Arg(names) => {
                for (name, default) in names {
                    self.arg(name, default.as_deref())?;
                }
                Vec::new()
            }
            Kind::Env(pairs) => {
                let pairs = self.pairs(pairs)?;
                self.env.extend(pairs.iter().cloned());
                pairs.into_iter().map(|(key, value)| Change::Env(key, value)).collect()
            }
            Kind::Label(pairs) => {
                let pairs = self.pairs(pairs)?;
                pairs.into_iter().map(|(key, value)| Change::Label(key, value)).collect()
            }
            Kind::Workdir(dir) => {
                let dir = self.expand(dir)?;
                self.workdir = self.join(&dir)?;
                vec![Change::Workdir(self.workdir.clone())]
            }
            Kind::User(user) => vec![Change::User(self.expand(user)?)],
            Kind::StopSignal(signal) => vec![Change::StopSignal(self.expand(signal)?)],
            Kind::Expose(ports) => {
                let ports = self.all(ports)?;
                ports.iter().map(|port| expose(port)).collect::<Result<_, _>>()?
            }
            Kind::Volume(dirs) => self.all(dirs)?.into_iter().map(Change::Volume).collect(),
            Kind::Entrypoint(command) => vec![Change::Entrypoint(self.command(command)?)],
            Kind::Cmd(command) => vec![Change::Cmd(self.command(command)?)],
            Kind::Shell(words) => {
                self.shell.clone_from(words);
                vec![Change::Shell(words.clone())]
            }
            Kind::Copy(copy) => {
                vec![Change::Copy(Box::new(self.copy(copy, instruction.at)?))]
            }
        })
    }

    fn arg(&mut self, name: &str, default: Option<&str>) -> Result<(), String> {
        let stage = self.stage;
        let value = match (stage.given.get(name), default) {
            (Some(value), _) => Some(value.clone()),
            (None, Some(default)) => Some(self.expand(default)?),
            (None, None) => stage.known.get(name).cloned(),
        };
        self.args.extend(value.map(|value| (name.to_owned(), value)));
        Ok(())
    }

    /// Values of one instruction do not see each other.
    fn pairs(&mut self, pairs: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
        pairs.iter().map(|(key, value)| Ok((self.expand(key)?, self.expand(value)?))).collect()
    }

    fn command(&mut self, command: &Command) -> Result<Vec<String>, String> {
        Ok(match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(text) => {
                self.spent.add(self.shell.iter().map(String::len).sum())?;
                self.shell.iter().cloned().chain([text.clone()]).collect()
            }
        })
    }

    /// A path from the working directory.
    fn join(&mut self, path: &str) -> Result<String, String> {
        let joined = join(&self.workdir, path)?;
        self.spent.add(joined.len())?;
        Ok(joined)
    }

    fn copy(&mut self, copy: &CopyWords, at: Position) -> Result<Copying, String> {
        let from = match &copy.from {
            None => From::Context,
            Some(name) => match self.stage.names.get(&name.to_ascii_lowercase()) {
                Some(stage) => From::Stage(*stage),
                None => match base(name, &BTreeMap::new(), &self.stage.platform)? {
                    Base::Image { reference, platform } => From::Image { reference, platform },
                    Base::Scratch | Base::Stage(_) => {
                        return Err("nothing can be copied from scratch".to_owned());
                    }
                },
            },
        };
        let chmod = copy.chmod.as_ref().map(|text| {
            let text = self.expand(text)?;
            let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777);
            mode.ok_or_else(|| format!("--chmod={text} is no mode of up to four octal digits"))
        });
        let (mut paths, mut inline) = (Vec::new(), Vec::new());
        for source in &copy.sources {
            match source {
                SourceWord::Path(path) => paths.push(self.expand(path)?),
                SourceWord::Inline { name, content, expand } => {
                    let content = if *expand { self.document(content)? } else { content.clone() };
                    inline.push((name.clone(), content));
                }
            }
        }
        let written = self.expand(&copy.destination)?;
        let mut destination = self.join(&written)?;
        let is_dir = written.ends_with('/') || written.ends_with("/.") || written == ".";
        if is_dir && !destination.ends_with('/') {
            destination.push('/');
        }
        Ok(Copying {
            at,
            add: copy.add,
            from,
            chown: copy.chown.as_ref().map(|chown| self.expand(chown)).transpose()?,
            chmod: chmod.transpose()?,
            exclude: self.all(&copy.exclude)?,
            paths,
            inline,
            destination,
        })
    }

    /// Variables in a here-document; its quotes are content.
    fn document(&mut self, content: &str) -> Result<String, String> {
        let escape = self.stage.escape;
        let mut quoted = String::with_capacity(content.len());
        for c in content.chars() {
            if c == '"' || c == '\'' {
                quoted.push(escape);
            }
            quoted.push(c);
        }
        self.expand(&quoted)
    }
}

/// A port, and tcp where nothing else is said.
fn expose(port: &str) -> Result<Change, String> {
    let (number, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
    let fits = number.split('-').all(|part| part.parse::<u16>().is_ok_and(|n| n > 0));
    match fits && ["tcp", "udp", "sctp"].contains(&protocol.to_ascii_lowercase().as_str()) {
        true => Ok(Change::Expose(format!("{number}/{}", protocol.to_ascii_lowercase()))),
        false => Err(format!("{port:?} is no port; write 8080, 8080/udp or 8000-8010")),
    }
}

/// A path from the root, without dots; nothing leads above the root.
fn join(workdir: &str, path: &str) -> Result<String, String> {
    if path.contains('\0') {
        return Err("a path has a zero byte in it".to_owned());
    }
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{workdir}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}
