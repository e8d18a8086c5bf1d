//! From logical lines to instructions.

use portolan_core::suggest;

use super::lex::{self, Line};
use super::{Command, ContainerfileError, CopyWords, Instruction, Kind, SourceWord, words};

const KNOWN: [&str; 13] = [
    "FROM",
    "COPY",
    "ADD",
    "ENV",
    "LABEL",
    "ARG",
    "WORKDIR",
    "USER",
    "EXPOSE",
    "VOLUME",
    "ENTRYPOINT",
    "CMD",
    "STOPSIGNAL",
];
/// What runs in a container, or later: not here.
const REFUSED: [(&str, &str); 4] = [
    (
        "RUN",
        "runs a program, and the embedded assembler runs none; build this Containerfile with buildah (`--backend buildah`, or `buildah build --platform …`), or copy in what was built before",
    ),
    (
        "ONBUILD",
        "is for images that are built later, and OCI images cannot hold it; build it with buildah",
    ),
    (
        "HEALTHCHECK",
        "has no place in an OCI image; say it where the container is run, or build with buildah in docker's format",
    ),
    ("MAINTAINER", "is long deprecated; write LABEL org.opencontainers.image.authors=…"),
];

/// A Containerfile as instructions, and the character that escapes in it.
///
/// # Errors
/// With line and column: what cannot be read, and what is not done here.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Instruction>, char), ContainerfileError> {
    let (lines, escape) = lex::lines(bytes)?;
    let all = lines.iter().map(|line| instruction(line, escape));
    Ok((all.collect::<Result<_, _>>()?, escape))
}

/// What can be told of a Containerfile that need not be one for the assembler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// Whether a program is run.
    pub runs: bool,
    /// What stages stand on and copy from, as it is written.
    pub bases: Vec<String>,
}

/// Looks over a Containerfile; what cannot be read is left for who builds it to tell.
pub fn outline(bytes: &[u8]) -> Outline {
    let mut outline = Outline::default();
    let Ok((lines, _)) = lex::lines(bytes) else { return outline };
    for line in &lines {
        let mut words = line.text.split_whitespace();
        let keyword = words.next().unwrap_or_default().to_ascii_uppercase();
        match keyword.as_str() {
            "RUN" => outline.runs = true,
            "FROM" => {
                outline.bases.extend(words.find(|word| !word.starts_with("--")).map(str::to_owned));
            }
            "COPY" | "ADD" => {
                let from = words.find_map(|word| word.strip_prefix("--from="));
                outline.bases.extend(from.map(str::to_owned));
            }
            _ => {}
        }
    }
    outline
}

fn instruction(line: &Line, escape: char) -> Result<Instruction, ContainerfileError> {
    let end = line.text.find(char::is_whitespace).unwrap_or(line.text.len());
    let keyword = line.text[..end].to_ascii_uppercase();
    let fail = |what: String| Err(ContainerfileError::new(line.at(0), what));
    if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == keyword) {
        return fail(format!("{keyword} {why}"));
    }
    let rest = Rest { line, start: end, text: &line.text[end..], escape };
    let kind = match keyword.as_str() {
        "FROM" => from(&rest)?,
        "COPY" => copy(&rest, false)?,
        "ADD" => copy(&rest, true)?,
        "ENV" => Kind::Env(pairs(&rest)?),
        "LABEL" => Kind::Label(pairs(&rest)?),
        "ARG" => arg(&rest)?,
        "WORKDIR" => Kind::Workdir(rest.whole("a directory")?),
        "USER" => Kind::User(rest.whole("a user")?),
        "STOPSIGNAL" => Kind::StopSignal(rest.whole("a signal")?),
        "EXPOSE" => Kind::Expose(rest.list("a port")?),
        "VOLUME" => Kind::Volume(match rest.json()? {
            Some(words) => words,
            None => rest.list("a directory")?,
        }),
        "ENTRYPOINT" => Kind::Entrypoint(rest.command()?),
        "CMD" => Kind::Cmd(rest.command()?),
        "SHELL" => match rest.json()? {
            Some(words) if !words.is_empty() => Kind::Shell(words),
            _ => {
                return fail("SHELL needs a list of words: SHELL [\"/bin/sh\", \"-c\"]".to_owned());
            }
        },
        other => {
            let near = suggest::nearest(other, KNOWN.into_iter().chain(["SHELL", "RUN"]));
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return fail(format!("{other:?} is no instruction{near}"));
        }
    };
    Ok(Instruction { at: line.at(0), text: line.text.clone(), kind })
}

/// What follows an instruction's name.
struct Rest<'a> {
    line: &'a Line,
    start: usize,
    text: &'a str,
    escape: char,
}

impl<'a> Rest<'a> {
    fn error(&self, offset: usize, what: impl Into<String>) -> ContainerfileError {
        ContainerfileError::new(self.line.at(self.start + offset), what.into())
    }

    fn words(&self) -> Vec<(usize, &'a str)> {
        words::split(self.text, self.escape)
    }

    /// All of it, as one text.
    fn whole(&self, what: &str) -> Result<String, ContainerfileError> {
        match self.text.trim() {
            "" => Err(self.error(0, format!("{what} is missing"))),
            text => Ok(text.to_owned()),
        }
    }

    fn list(&self, what: &str) -> Result<Vec<String>, ContainerfileError> {
        self.whole(what)?;
        Ok(self.words().into_iter().map(|(_, word)| word.to_owned()).collect())
    }

    /// A list of words in JSON, if that is what it is.
    fn json(&self) -> Result<Option<Vec<String>>, ContainerfileError> {
        let text = self.text.trim();
        if !text.starts_with('[') {
            return Ok(None);
        }
        // Shells know `[` as a program, so what is no JSON is a text.
        Ok(serde_json::from_str(text).ok())
    }

    fn command(&self) -> Result<Command, ContainerfileError> {
        Ok(match self.json()? {
            Some(words) => Command::Exec(words),
            None => Command::Shell(self.whole("a command")?),
        })
    }
}

/// Where a flag stands, its name and its value.
type Flag<'a> = (usize, &'a str, Option<&'a str>);

/// The flags that begin a text, and where the rest begins.
fn flags<'a>(rest: &Rest<'a>) -> (Vec<Flag<'a>>, usize) {
    let mut found = Vec::new();
    let mut end = 0;
    for (at, word) in rest.words() {
        let Some(flag) = word.strip_prefix("--") else { break };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        found.push((at, name, value));
        end = at + word.len();
    }
    (found, end)
}

fn from(rest: &Rest<'_>) -> Result<Kind, ContainerfileError> {
    let (flags, end) = flags(rest);
    let mut platform = None;
    for (at, name, value) in flags {
        match (name, value) {
            ("platform", Some(value)) => platform = Some(value.to_owned()),
            _ => {
                return Err(
                    rest.error(at, format!("FROM has no flag --{name}; it has --platform="))
                );
            }
        }
    }
    let words = words::split(&rest.text[end..], rest.escape);
    let words: Vec<(usize, &str)> = words.into_iter().map(|(at, word)| (at + end, word)).collect();
    let (image, name) = match words[..] {
        [(_, image)] => (image, None),
        [(_, image), (_, word), (at, name)] if word.eq_ignore_ascii_case("as") => {
            let lower = name.to_ascii_lowercase();
            let fits = lower.starts_with(|c: char| c.is_ascii_lowercase())
                && lower.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if !fits {
                return Err(rest.error(at, format!("{name:?} is no name for a stage; begin with a letter, then letters, digits and - _ .")));
            }
            (image, Some(lower))
        }
        _ => {
            return Err(
                rest.error(end, "FROM needs an image, and may be followed by AS and a name")
            );
        }
    };
    Ok(Kind::From { platform, image: image.to_owned(), name })
}

fn copy(rest: &Rest<'_>, add: bool) -> Result<Kind, ContainerfileError> {
    let keyword = if add { "ADD" } else { "COPY" };
    let mut copy = CopyWords {
        add,
        from: None,
        chown: None,
        chmod: None,
        exclude: Vec::new(),
        sources: Vec::new(),
        destination: String::new(),
    };
    let (flags, end) = flags(rest);
    for (at, name, value) in flags {
        let value = value.map(str::to_owned);
        match (name, value) {
            ("from", Some(value)) if !add => copy.from = Some(value),
            ("chown", Some(value)) => copy.chown = Some(value),
            ("chmod", Some(value)) => copy.chmod = Some(value),
            ("exclude", Some(value)) => copy.exclude.push(value),
            // Layers here are always independent of those below.
            ("link", _) => {}
            (name, _) => {
                let known = ["from", "chown", "chmod", "exclude", "link"];
                let near = suggest::nearest(name, known);
                let near = near.map(|n| format!("; did you mean --{n}=?")).unwrap_or_default();
                return Err(rest.error(at, format!("{keyword} --{name} is not done here{near}")));
            }
        }
    }
    let inner = Rest { start: rest.start + end, text: &rest.text[end..], ..*rest };
    let words: Vec<String> = match inner.json()? {
        Some(words) => words,
        None => inner.words().into_iter().map(|(_, word)| word.to_owned()).collect(),
    };
    let Some((destination, sources)) =
        words.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        return Err(inner.error(0, format!("{keyword} needs something to copy and where to")));
    };
    copy.destination.clone_from(destination);
    let mut documents = rest.line.documents.iter();
    for source in sources {
        copy.sources.push(match source.starts_with("<<") {
            false => SourceWord::Path(source.clone()),
            true => match documents.next() {
                Some(document) => SourceWord::Inline {
                    name: document.name.clone(),
                    content: document.content.clone(),
                    expand: document.expand,
                },
                None => return Err(inner.error(0, format!("{source:?} is no here-document"))),
            },
        });
    }
    Ok(Kind::Copy(copy))
}

/// `KEY=VALUE …`, or the old `KEY VALUE`.
fn pairs(rest: &Rest<'_>) -> Result<Vec<(String, String)>, ContainerfileError> {
    let words = rest.words();
    let Some((_, first)) = words.first() else {
        return Err(rest.error(0, "KEY=VALUE is missing"));
    };
    if !first.contains('=') {
        let text = rest.text.trim();
        let Some((key, value)) = text.split_once(char::is_whitespace) else {
            return Err(rest.error(0, format!("{text:?} has no value; write {text}=VALUE")));
        };
        return Ok(vec![(key.to_owned(), value.trim().to_owned())]);
    }
    let pair = |(at, word): &(usize, &str)| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(rest.error(*at, format!("{word:?} is not KEY=VALUE"))),
    };
    words.iter().map(pair).collect()
}

fn arg(rest: &Rest<'_>) -> Result<Kind, ContainerfileError> {
    let words = rest.words();
    if words.is_empty() {
        return Err(rest.error(0, "ARG needs a name"));
    }
    let one = |(at, word): &(usize, &str)| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (*word, None),
        };
        let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if fits {
            Ok((name.to_owned(), value))
        } else {
            Err(rest.error(*at, format!("{name:?} is no name for a variable")))
        }
    };
    Ok(Kind::Arg(words.iter().map(one).collect::<Result<_, _>>()?))
}
