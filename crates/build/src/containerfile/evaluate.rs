//! A Containerfile for one platform: which stages are needed, and what each of them does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_core::{Platform, Reference, suggest};

use super::{ContainerfileError, CopyWords, Instruction, Kind, Position, words};

/// The stages of one image, as far as it needs them, each after those it stands on.
#[derive(Debug, Clone)]
pub struct Stages {
    /// The last one is the image.
    pub stages: Vec<Stage>,
}

/// One stage.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Where it begins.
    pub at: Position,
    /// What it stands on.
    pub base: Base,
    pub(super) instructions: Vec<Instruction>,
    /// Variables that `ARG` brings into scope, with the values it gives them.
    pub(super) known: Arc<BTreeMap<String, String>>,
    pub(super) given: Arc<BTreeMap<String, String>>,
    pub(super) escape: char,
    /// From names and numbers of stages to places in [`Stages::stages`].
    pub(super) names: BTreeMap<String, usize>,
    pub(super) platform: Platform,
}

/// What a stage stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// Nothing.
    Scratch,
    /// An image, in its form for a platform.
    Image {
        /// Which.
        reference: Box<Reference>,
        /// For what.
        platform: Platform,
    },
    /// An earlier stage.
    Stage(usize),
}

/// One step of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Files are copied.
    Copy(Box<Copying>),
    /// A variable of the image.
    Env(String, String),
    /// A label of the image.
    Label(String, String),
    /// Where commands start, from the root.
    Workdir(String),
    /// Who runs them.
    User(String),
    /// A port with its protocol.
    Expose(String),
    /// A directory that outlives a container.
    Volume(String),
    /// The program.
    Entrypoint(Vec<String>),
    /// Its arguments.
    Cmd(Vec<String>),
    /// What runs commands that are one text.
    Shell(Vec<String>),
    /// How it is asked to end.
    StopSignal(String),
}

/// Files from somewhere to the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copying {
    /// Where that is said.
    pub at: Position,
    /// Whether archives and addresses would mean more than themselves.
    pub add: bool,
    /// From where.
    pub from: From,
    /// Whose they become: `user[:group]`, names or numbers.
    pub chown: Option<String>,
    /// Their mode.
    pub chmod: Option<u32>,
    /// Patterns of what is left out.
    pub exclude: Vec<String>,
    /// Paths and patterns below the place they come from.
    pub paths: Vec<String>,
    /// Files that stand in the Containerfile: name and content.
    pub inline: Vec<(String, String)>,
    /// From the root, with a slash at its end where one was written.
    pub destination: String,
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// The directory that is built.
    Context,
    /// An earlier stage.
    Stage(usize),
    /// An image.
    Image {
        /// Which.
        reference: Box<Reference>,
        /// For what.
        platform: Platform,
    },
}

/// What a stage knows of what it stands on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// Where its programs begin; empty for the root.
    pub workdir: String,
    /// What reads its commands; empty for `/bin/sh -c`.
    pub shell: Vec<String>,
}

/// Finds the stages that `target`, or else the last stage, needs.
///
/// # Errors
/// With line and column: what names no stage or image, or a variable that cannot be read.
pub fn evaluate(
    instructions: &[Instruction],
    escape: char,
    platform: &Platform,
    given: &BTreeMap<String, String>,
    target: Option<&str>,
) -> Result<Stages, ContainerfileError> {
    let first = instructions.iter().position(|i| matches!(i.kind, Kind::From { .. }));
    let top = Position { line: 1, column: 1 };
    let Some(first) = first else {
        return Err(ContainerfileError::new(
            instructions.first().map_or(top, |instruction| instruction.at),
            "there is no FROM; write FROM scratch for an image that stands on nothing",
        ));
    };
    check_given(instructions, given)?;
    let globals = Arc::new(globals(&instructions[..first], escape, platform, given)?);
    let given = Arc::new(given.clone());
    let mut stages: Vec<(Option<String>, Stage)> = Vec::new();
    for instruction in &instructions[first..] {
        let Kind::From { platform: other, image, name } = &instruction.kind else {
            let (_, stage) = stages.last_mut().expect("a FROM comes first");
            stage.instructions.push(instruction.clone());
            continue;
        };
        let say = |what: String| ContainerfileError::new(instruction.at, what);
        let expand = |word: &String| words::expand(word, escape, &words::of(&globals)).map_err(say);
        let platform = match other {
            None => platform.clone(),
            Some(other) => {
                let text = expand(other)?;
                let parsed = text.parse::<Platform>();
                parsed.map_err(|error| say(format!("--platform={text}: {error}")))?.normalised()
            }
        };
        let image = expand(image)?;
        let named: BTreeMap<String, usize> = names(&stages);
        let base = base(&image, &named, &platform).map_err(say)?;
        stages.push((
            name.clone(),
            Stage {
                at: instruction.at,
                base,
                instructions: Vec::new(),
                known: Arc::clone(&globals),
                given: Arc::clone(&given),
                escape,
                names: named,
                platform,
            },
        ));
    }
    let wanted = wanted(&stages, target)?;
    needed(stages.into_iter().map(|(_, stage)| stage).collect(), wanted)
}

/// By name and by number.
fn names(stages: &[(Option<String>, Stage)]) -> BTreeMap<String, usize> {
    let numbers = (0..stages.len()).map(|at| (at.to_string(), at));
    let named = stages.iter().enumerate();
    numbers.chain(named.filter_map(|(at, (name, _))| Some((name.clone()?, at)))).collect()
}

/// What a stage or a copy names: nothing, an earlier stage or an image.
pub(super) fn base(
    image: &str,
    named: &BTreeMap<String, usize>,
    platform: &Platform,
) -> Result<Base, String> {
    if image == "scratch" {
        return Ok(Base::Scratch);
    }
    let by_name = named.get(&image.to_ascii_lowercase());
    if let Some(stage) = by_name.filter(|_| image.parse::<usize>().is_err()) {
        return Ok(Base::Stage(*stage));
    }
    let reference: Reference = image.parse().map_err(|error| format!("{image:?}: {error}"))?;
    Ok(Base::Image { reference: Box::new(reference), platform: platform.clone() })
}

fn wanted(
    stages: &[(Option<String>, Stage)],
    target: Option<&str>,
) -> Result<usize, ContainerfileError> {
    let Some(target) = target else { return Ok(stages.len() - 1) };
    let named = names(stages);
    let lower = target.to_ascii_lowercase();
    named.get(&lower).copied().ok_or_else(|| {
        let near = suggest::nearest(&lower, named.keys().map(String::as_str));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        ContainerfileError::new(stages[0].1.at, format!("no stage is called {target:?}{near}"))
    })
}

/// An argument that nothing declares was meant for something.
fn check_given(
    instructions: &[Instruction],
    given: &BTreeMap<String, String>,
) -> Result<(), ContainerfileError> {
    let declared: BTreeSet<&str> = instructions
        .iter()
        .filter_map(|instruction| match &instruction.kind {
            Kind::Arg(names) => Some(names.iter().map(|(name, _)| name.as_str())),
            _ => None,
        })
        .flatten()
        .collect();
    match given.keys().find(|name| !declared.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let near = suggest::nearest(name, declared.iter().copied());
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            let top = Position { line: 1, column: 1 };
            let what = format!("no ARG declares {name:?}, which was given a value{near}");
            Err(ContainerfileError::new(top, what))
        }
    }
}

/// What `ARG`s before the first stage say, and what is known of the platform. Nothing is run, so
/// the platform that builds is the one that is built for: no machine shows in the result.
fn globals(
    instructions: &[Instruction],
    escape: char,
    platform: &Platform,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ContainerfileError> {
    let variant = platform.variant.clone().unwrap_or_default();
    let (mut values, mut spent) = (BTreeMap::new(), words::Spent::default());
    for side in ["TARGET", "BUILD"] {
        values.insert(format!("{side}PLATFORM"), platform.to_string());
        values.insert(format!("{side}OS"), platform.os.clone());
        values.insert(format!("{side}ARCH"), platform.architecture.clone());
        values.insert(format!("{side}VARIANT"), variant.clone());
    }
    for instruction in instructions {
        let Kind::Arg(names) = &instruction.kind else {
            let what = "only ARG may stand before the first FROM";
            return Err(ContainerfileError::new(instruction.at, what));
        };
        let say = |what| ContainerfileError::new(instruction.at, what);
        for (name, default) in names {
            let value = match (given.get(name), default) {
                (Some(value), _) => value.clone(),
                (None, Some(default)) => {
                    let value = words::expand(default, escape, &words::of(&values)).map_err(say)?;
                    spent.add(value.len()).map_err(say)?;
                    value
                }
                (None, None) => continue,
            };
            values.insert(name.clone(), value);
        }
    }
    Ok(values)
}

/// Keeps what the wanted stage needs, in order, with places counted anew.
fn needed(stages: Vec<Stage>, wanted: usize) -> Result<Stages, ContainerfileError> {
    let mut keep = BTreeSet::new();
    let mut open = vec![wanted];
    while let Some(at) = open.pop() {
        if !keep.insert(at) {
            continue;
        }
        let stage = &stages[at];
        open.extend(match stage.base {
            Base::Stage(below) => Some(below),
            _ => None,
        });
        for instruction in &stage.instructions {
            if let Kind::Copy(CopyWords { from: Some(from), .. }) = &instruction.kind {
                open.extend(stage.names.get(&from.to_ascii_lowercase()));
            }
        }
    }
    let places: BTreeMap<usize, usize> =
        keep.iter().enumerate().map(|(new, old)| (*old, new)).collect();
    let kept = stages.into_iter().enumerate().filter(|(at, _)| keep.contains(at));
    let stages = kept.map(|(_, mut stage)| {
        if let Base::Stage(below) = &mut stage.base {
            *below = places[below];
        }
        stage.names.retain(|_, at| places.contains_key(at));
        stage.names.values_mut().for_each(|at| *at = places[at]);
        stage
    });
    Ok(Stages { stages: stages.collect() })
}
