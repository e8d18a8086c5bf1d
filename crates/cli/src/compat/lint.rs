//! `portolan compat lint FILE`

use std::fmt::Write as _;
use std::path::PathBuf;

use portolan_compat::artifact::Kind;
use portolan_compat::diagnostic::{Diagnostic, Severity};
use portolan_compat::document::{Mode, Read, read};
use portolan_compat::nfd;
use portolan_compat::requirements::Requirements;
use serde::Serialize;

use super::{json, read_spec};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan compat lint needs.json\n  \
    portolan compat lint needs.json --strict -o json\n\n\
    Exit codes: 0 valid, perhaps with warnings, 2 invalid, 4 no such file.")]
pub(crate) struct Args {
    /// The compatibility spec, or rules of NFD
    file: PathBuf,
    /// Take what is wrong and yet understood, such as unknown fields, for an error
    #[arg(long)]
    strict: bool,
    /// How to print what was found
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    format: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people and editors: FILE:LINE:COLUMN: what
    Table,
    /// For programs
    Json,
}

/// What is printed for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Linted<'a> {
    file: String,
    valid: bool,
    /// Where evaluation would begin.
    roots: Vec<&'a str>,
    diagnostics: &'a [Diagnostic],
    /// How many more there were.
    left_out: usize,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let bytes = read_spec(&args.file)?;
    if nfd::looks_like_rules(&bytes) {
        return rules(args, &bytes);
    }
    let mode = if args.strict { Mode::Strict } else { Mode::Lenient };
    let found = read(&bytes, mode);
    let file = format::safe(&args.file.display().to_string());
    match args.format {
        Output::Table => format::write(&format::printable(&lines(&file, &found)))?,
        Output::Json => json(&Linted {
            file,
            valid: found.spec.is_some(),
            roots: roots(&found),
            diagnostics: &found.diagnostics,
            left_out: found.left_out,
        })?,
    }
    Ok(if found.spec.is_some() { Exit::Ok } else { Exit::Usage })
}

/// Rules of NFD have no places, no codes and nothing that is understood though it is wrong.
fn rules(args: &Args, bytes: &[u8]) -> Result<Exit, Failure> {
    let read = Requirements::read(Kind::Nfd, bytes).map_err(Failure::usage)?;
    let file = format::safe(&args.file.display().to_string());
    for warning in &read.warnings {
        format::tell(&format!("{file}: warning: {warning}"));
    }
    match args.format {
        Output::Table => format::write(&format!("{file}: valid rules of NFD\n"))?,
        Output::Json => {
            let (roots, diagnostics) = (Vec::new(), &[][..]);
            json(&Linted { file, valid: true, roots, diagnostics, left_out: 0 })?;
        }
    }
    Ok(Exit::Ok)
}

fn roots(found: &Read) -> Vec<&str> {
    let spec = found.spec.iter();
    let roots = spec.flat_map(|spec| spec.roots().iter().map(|id| spec.namespace(*id)));
    roots.map(|namespace| namespace.name.as_str()).collect()
}

fn lines(file: &str, found: &Read) -> String {
    let mut text = String::new();
    for one in &found.diagnostics {
        _ = writeln!(text, "{file}:{one}");
    }
    if found.left_out > 0 {
        _ = writeln!(text, "{file}: and {} more", found.left_out);
    }
    let count = |severity| found.diagnostics.iter().filter(|one| one.severity == severity).count();
    let warnings = match count(Severity::Warning) {
        0 => String::new(),
        1 => ", with a warning".to_owned(),
        n => format!(", with {n} warnings"),
    };
    _ = match &found.spec {
        Some(spec) => writeln!(
            text,
            "{file}: valid{warnings}; {} namespaces, beginning at {}",
            spec.namespaces().len(),
            roots(found).join(", ")
        ),
        None => writeln!(text, "{file}: not valid"),
    };
    text
}
