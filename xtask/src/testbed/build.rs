//! `testbed build`: every part asked for, found, installed or made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::cache::{Cache, Recipe};
use super::parts::{self, Make, Part, Use};
use super::{apt, find, gathered, go, image, kernel};

/// Where each part is: a program, or the folder of an image's layout or of files.
pub(crate) type Toolbox = BTreeMap<&'static str, PathBuf>;

/// What to do about a package that is missing and cannot be installed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Stop: the chore is meaningless without it.
    Fails,
    /// Say so loudly and go on; the part is absent from the toolbox.
    IsSkipped,
}

/// Everything that one chore needs.
pub(crate) fn ensure(chore: Use, missing: Missing) -> Result<Toolbox> {
    ensure_parts(&parts::closure(|part| part.uses.contains(&chore)), missing)
}

/// These parts, in this order.
pub(crate) fn ensure_parts(wanted: &[&'static Part], missing: Missing) -> Result<Toolbox> {
    let cache = Cache::of_user()?;
    let mut toolbox = packages(wanted, missing)?;
    for (at, part) in wanted.iter().enumerate() {
        if toolbox.contains_key(part.name) || matches!(part.make, Make::Apt { .. }) {
            continue;
        }
        let path = make(part, &cache, &toolbox, (at + 1, wanted.len()))
            .with_context(|| format!("testbed part {} {}", part.name, part.version))?;
        toolbox.insert(part.name, path);
    }
    Ok(toolbox)
}

/// Finds what is installed already, of any kind, and installs the packages that are not.
fn packages(wanted: &[&'static Part], missing: Missing) -> Result<Toolbox> {
    let mut toolbox = Toolbox::new();
    let mut absent = Vec::new();
    for part in wanted {
        match (present(part), &part.make) {
            (Some(path), _) => drop(toolbox.insert(part.name, path)),
            (None, Make::Apt { .. }) => absent.push(*part),
            (None, _) => {}
        }
    }
    if absent.is_empty() {
        return Ok(toolbox);
    }
    if missing == Missing::IsSkipped
        && let Some(obstacle) = apt::obstacle()
    {
        for part in &absent {
            eprintln!(
                "testbed: SKIPPED {}, so tests that need it will not run: {obstacle}",
                part.name
            );
        }
        return Ok(toolbox);
    }
    let mut names: Vec<_> = absent.iter().filter_map(|part| package(part)).collect();
    names.sort_unstable();
    names.dedup();
    apt::install(&names)?;
    for part in absent {
        let path = present(part).with_context(|| {
            format!(
                "{} is still missing, or of a version the testbed does not know, after installing \
                 its package: see its row in xtask/src/testbed/parts.rs",
                part.name
            )
        })?;
        toolbox.insert(part.name, path);
    }
    Ok(toolbox)
}

fn present(part: &Part) -> Option<PathBuf> {
    match part.make {
        Make::Apt { at, accepts, .. } => find::installed(part.name, at, accepts),
        Make::Go { accepts, .. } => find::installed(part.name, None, accepts),
        Make::GoSource { .. }
        | Make::GoFolder { .. }
        | Make::Image { .. }
        | Make::Gathered { .. }
        | Make::Kernel { .. } => None,
    }
}

fn package(part: &Part) -> Option<&'static str> {
    match part.make {
        Make::Apt { package, .. } => Some(package),
        _ => None,
    }
}

/// The cached part, made first if need be; `count` is for the progress line.
fn make(part: &Part, cache: &Cache, have: &Toolbox, count: (usize, usize)) -> Result<PathBuf> {
    let recipe = Recipe::default().with("make", format!("{:?}", part.make).as_bytes());
    let announce = || {
        println!("testbed: [{}/{}] making {} {}", count.0, count.1, part.name, part.version);
        Instant::now()
    };
    let done = |started: Instant| {
        println!("testbed: {} done in {:.0?}", part.name, started.elapsed());
    };
    let file = Path::new(part.name);
    let dir = match part.make {
        Make::Go { module, package, set, .. } => {
            cache.part(part.name, part.version, &go::recipe(recipe, module)?, |to| {
                let started = announce();
                go::build(module, package, set, &to.join(file))?;
                done(started);
                Ok(())
            })?
        }
        Make::GoSource { module, of, package } => {
            cache.part(part.name, part.version, &go::recipe(recipe, module)?, |to| {
                let started = announce();
                go::build_in_source(module, of, package, &to.join(file))?;
                done(started);
                Ok(())
            })?
        }
        Make::GoFolder { module, of, folder } => {
            cache.part(part.name, part.version, &go::recipe(recipe, module)?, |to| {
                let started = announce();
                go::copy_folder(module, of, folder, &to.join(file))?;
                done(started);
                Ok(())
            })?
        }
        Make::Image { .. } | Make::Gathered { .. } => {
            let contents = match part.make {
                Make::Image { files, links, entrypoint } => {
                    contents(files, links, entrypoint, have)?
                }
                Make::Gathered { programs, folders, texts, links } => {
                    let found = programs.iter().map(|program| {
                        have.get(program).cloned().with_context(|| format!("{program} is missing"))
                    });
                    let programs = found.collect::<Result<Vec<_>>>()?;
                    gathered::gather(&gathered::Wanted { programs, folders, texts, links })?
                }
                _ => bail!("only images have contents"),
            };
            let recipe =
                contents.files.iter().fold(
                    recipe.with("format", image::FORMAT.as_bytes()),
                    |recipe, (path, bytes)| recipe.with(path, bytes),
                );
            cache.part(part.name, part.version, &recipe, |to| {
                let started = announce();
                image::write_layout(&contents, &to.join(file))?;
                done(started);
                Ok(())
            })?
        }
        Make::Kernel { package } => cache.part(part.name, part.version, &recipe, |to| {
            let started = announce();
            kernel::unpack(package, &to.join(file))?;
            done(started);
            Ok(())
        })?,
        Make::Apt { .. } => bail!("packages are not made"),
    };
    Ok(dir.join(file))
}

fn contents(
    files: &[(&str, &str)],
    links: &[(&str, &str)],
    entrypoint: &[&str],
    have: &Toolbox,
) -> Result<image::Contents> {
    let mut contents = image::Contents {
        links: links.iter().map(|(path, to)| ((*path).to_owned(), (*to).to_owned())).collect(),
        entrypoint: entrypoint.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Default::default()
    };
    for (input, path) in files {
        let from = have.get(input).with_context(|| format!("its file {input} is missing"))?;
        let bytes = std::fs::read(from).with_context(|| format!("read {}", from.display()))?;
        contents.files.push(((*path).to_owned(), bytes));
    }
    Ok(contents)
}
