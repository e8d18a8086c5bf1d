//! A page for each command of a program, from what the program itself parses its arguments with.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

#[path = "page.rs"]
mod page;
use page::{MARK, cell, outside_code, settle};

/// Holds the pages of a program and of all its commands against those in `docs/reference/cli`.
#[test]
fn the_checked_in_reference_is_what_the_program_parses() {
    let mut program = <crate::Args as clap::CommandFactory>::command();
    let name = program.get_name().to_owned();
    // Also puts the flags together that are left out of other commands, and flags for all into each.
    program.build();
    let mut pages = BTreeMap::new();
    render(&program, None, &mut pages);
    let (own, below) = (format!("{name}.md"), format!("{name}_"));
    settle("cli", &pages, |file| file == own || file.starts_with(&below));
}

fn words(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// Words are joined by `_`: `portolan agent` is another command than `portolan-agent`.
fn file(command: &Command) -> String {
    format!("{}.md", words(command).replace(' ', "_"))
}

fn inner(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
}

fn render(command: &Command, parent: Option<&Command>, pages: &mut BTreeMap<String, String>) {
    let mut page = format!("{MARK}# {}\n\n", words(command));
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(page, "{}\n", outside_code(&about));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let lines: Vec<&str> = usage.lines().map(str::trim).collect();
    let _ = writeln!(page, "```\n{}\n```\n", lines.join("\n"));
    if command.has_subcommands() {
        page.push_str("## Commands\n\n| command | |\n|---|---|\n");
        for inner in inner(command) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(page, "| [`{}`]({}) | {} |", words(inner), file(inner), cell(&about));
        }
        page.push('\n');
    }
    arguments(command, parent.is_none(), &mut page);
    closing(command, &mut page);
    if let Some(parent) = parent {
        let globals = command.get_arguments().any(Arg::is_global_set);
        let more = if globals { ", and flags that all commands take" } else { "" };
        let _ = writeln!(page, "Part of [`{}`]({}){more}.", words(parent), file(parent));
    }
    pages.insert(file(command), format!("{}\n", page.trim_end()));
    inner(command).for_each(|inner| render(inner, Some(command), pages));
}

fn arguments(command: &Command, top: bool, page: &mut String) {
    let shown = |arg: &&Arg| {
        let own = ["help", "version"].contains(&arg.get_id().as_str());
        // Flags for all are told once, where they belong.
        !own && !arg.is_hide_set() && (top || !arg.is_global_set())
    };
    let mut tables: Vec<(String, Vec<&Arg>)> = Vec::new();
    for arg in command.get_arguments().filter(shown) {
        let heading = match arg.get_help_heading() {
            Some(heading) => heading.to_owned(),
            None if arg.is_positional() => "Arguments".to_owned(),
            None => "Options".to_owned(),
        };
        match tables.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, args)) => args.push(arg),
            None => tables.push((heading, vec![arg])),
        }
    }
    tables.sort_by_key(|(heading, _)| heading != "Arguments");
    for (heading, args) in tables {
        let _ = writeln!(page, "## {heading}\n\n| | default | |\n|---|---|---|");
        args.into_iter().for_each(|arg| row(arg, page));
        page.push('\n');
    }
}

fn row(arg: &Arg, page: &mut String) {
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let takes = arg.get_action().takes_values();
    let default = match takes && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        true => format!("`{}`", defaults.join(" ")),
        false => String::new(),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut told = help.map(ToString::to_string).unwrap_or_default();
    if takes {
        told.push_str(&possible(arg));
    }
    if arg.is_required_set() {
        told.push_str(". **Required**");
    }
    if matches!(arg.get_action(), ArgAction::Append | ArgAction::Count) {
        told.push_str(". May be repeated");
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(told, ". Also `{}`", variable.to_string_lossy());
    }
    let _ = writeln!(page, "| {} | {} | {} |", named(arg), cell(&default), cell(&told));
}

fn named(arg: &Arg) -> String {
    let values = match arg.get_value_names() {
        Some(names) => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    };
    if arg.is_positional() {
        return format!("`{values}`");
    }
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let value = match arg.get_action().takes_values() {
        true if arg.is_require_equals_set() => format!("[={values}]"),
        true => format!(" {values}"),
        false => String::new(),
    };
    let long = arg.get_long().map(|long| format!("`--{long}{value}`"));
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

fn possible(arg: &Arg) -> String {
    let values = arg.get_possible_values();
    let told: Vec<String> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) }
}

/// What stands below the flags: a heading with lines that are pushed in, or sentences.
fn closing(command: &Command, page: &mut String) {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let pushed_in = lines.peek().is_some_and(|next| next.starts_with("  "));
        match line.strip_suffix(':') {
            Some(heading) if pushed_in => {
                let _ = writeln!(page, "## {heading}\n\n```");
                while let Some(code) = lines.next_if(|next| next.starts_with("  ")) {
                    let _ = writeln!(page, "{}", &code[2..]);
                }
                page.push_str("```\n\n");
            }
            _ if line.trim().is_empty() => page.push('\n'),
            _ => {
                let _ = writeln!(page, "{}", outside_code(line.trim()));
                if lines.peek().is_none() {
                    page.push('\n');
                }
            }
        }
    }
}
