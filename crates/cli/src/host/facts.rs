//! `portolan host facts [--host ROOT]`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use portolan_host::facts::{Facts, Feature, Instance, Recorded, Wanted};

use crate::context::root_failure;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, printable};

const EXAMPLES: &str = "\
Examples:
  portolan host facts
  portolan host facts -o json > $(hostname).json
  portolan host facts --host /host -o yaml
  kubectl label node worker-1 $(portolan host facts --node-labels)";

/// So many values are named in a table; of more only the number, for people have eyes.
const NAMED: usize = 40;

/// The same for flags, which share a line.
const NAMED_FLAGS: usize = 12;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Of the machine whose root directory this is, instead of this machine
    #[arg(long, value_name = "ROOT")]
    host: Option<PathBuf>,
    /// The labels that Node Feature Discovery would give this machine as a node of Kubernetes,
    /// and portolan.dev/cpu-level
    #[arg(long)]
    node_labels: bool,
    /// Also print the boot parameters, in which people keep secrets
    #[arg(long, conflicts_with = "node_labels")]
    include_cmdline: bool,
    /// How to print them
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let wanted = Wanted::everything();
    let facts = match &args.host {
        Some(root) => Facts::at(root, &wanted),
        None => Facts::here(&wanted),
    };
    let mut facts = facts.map_err(root_failure)?;
    if !args.include_cmdline {
        facts.withhold_cmdline();
    }
    if args.node_labels {
        let labels = facts.node_labels();
        for refused in &labels.refused {
            format::tell(&format!("warning: left out {refused}"));
        }
        args.format.print(&labels.labels, draw_labels)?;
    } else {
        args.format.print(&Recorded { facts: &facts, include_cmdline: true }, draw)?;
    }
    if args.format == Format::Table {
        for warning in facts.warnings() {
            format::tell(&format!("warning: {warning}"));
        }
    }
    Ok(Exit::Ok)
}

/// A stranger's text on one line of a table, with its quotes as they are.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(200).collect();
    printable(&cut).replace('\n', "\\n").replace('\t', "\\t")
}

/// One to a line, as `kubectl label` takes them.
fn draw_labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}={value}");
        text
    })
}

fn draw(recorded: &Recorded<'_>) -> String {
    let facts = recorded.facts;
    let rows = facts.features().flat_map(|(name, feature)| rows_of(name, feature)).collect();
    let mut text = match facts.platform() {
        Ok(host) => format!("{}\n\n", host.platform),
        Err(error) => format!("{error}\n\n"),
    };
    text += &format::table(&["FACT", "VALUE", "SOURCE"], rows);
    let unknown = unknown(facts);
    if !unknown.is_empty() {
        text.push('\n');
        text += &format::table(&["NOT KNOWN", "WHY"], unknown);
    }
    text
}

fn rows_of(name: &str, feature: &Feature) -> Vec<Vec<String>> {
    let row = |element: &str, value: String, source: &str| {
        let name = if element.is_empty() { name.to_owned() } else { format!("{name}.{element}") };
        vec![shown(&name), value, shown(source)]
    };
    let mut rows = Vec::new();
    if let Some(flags) = &feature.flags {
        let value = if flags.len() > NAMED_FLAGS {
            format!("{} flags", flags.len())
        } else {
            flags.iter().map(|flag| shown(flag)).collect::<Vec<_>>().join(" ")
        };
        rows.push(row("", value, &feature.source));
    }
    let instances = feature.instances.as_ref().filter(|_| name != "kernel.cmdline");
    match &feature.attributes {
        Some(values) if values.len() > NAMED => {
            rows.push(row("", format!("{} values", values.len()), &feature.source));
        }
        Some(values) if values.is_empty() && rows.is_empty() && instances.is_none() => {
            rows.push(row("", "-".to_owned(), &feature.source));
        }
        Some(values) => {
            for (element, value) in values {
                rows.push(row(element, shown(value), feature.source_of(element)));
            }
        }
        None => {}
    }
    match instances {
        Some(list) if list.len() > NAMED => {
            rows.push(row("", format!("{} of them", list.len()), &feature.source));
        }
        Some(list) if list.is_empty() => rows.push(row("", "-".to_owned(), &feature.source)),
        Some(list) => rows.extend(list.iter().map(|one| row("", line(one), &feature.source))),
        None => {}
    }
    rows
}

/// `name=value` of all attributes, the name first.
fn line(instance: &Instance) -> String {
    let name = instance.get("name").map(|name| shown(name));
    let others = instance.iter().filter(|(name, _)| *name != "name");
    let others = others.map(|(name, value)| format!("{}={}", shown(name), shown(value)));
    name.into_iter().chain(others).collect::<Vec<_>>().join(" ")
}

/// Whole features, and elements that share a reason in one row.
fn unknown(facts: &Facts) -> Vec<Vec<String>> {
    let mut rows: Vec<_> =
        facts.unknown().map(|(name, why)| vec![name.to_owned(), shown(why)]).collect();
    for (name, feature) in facts.features() {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (element, why) in &feature.unknown {
            reasons.entry(why).or_default().push(element);
        }
        for (why, elements) in reasons {
            let what = match elements.as_slice() {
                [one] => format!("{name}.{}", shown(one)),
                many => format!("{name}: {} of them", many.len()),
            };
            rows.push(vec![what, shown(why)]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_few_and_counts_many() {
        let many: Vec<String> = (0..50).map(|n| format!("F{n}")).collect();
        let facts = Facts::builder()
            .flags("cpu.cpuid", many.iter().map(String::as_str))
            .flags("kernel.loadedmodule", ["veth", "vfio"])
            .attribute("cpu.model", "family", "6\u{1b}[0m")
            .instance("pci.device", [("class", "0300"), ("vendor", "10de")])
            .attribute("system.platform", "os", "linux")
            .attribute("system.platform", "arch", "amd64")
            .unknown("kernel.config", "there is none")
            .unknown_element("cpu.cpuid", "A", "not printed")
            .unknown_element("cpu.cpuid", "B", "not printed")
            .build();
        let table = draw(&Recorded { facts: &facts, include_cmdline: true });
        for part in [
            "linux/amd64\n",
            "50 flags",
            "veth vfio",
            "cpu.model.family",
            "6\\u{1b}[0m",
            "class=0300 vendor=10de",
            "cpu.cpuid: 2 of them",
            "there is none",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }

    #[test]
    fn labels_are_what_kubectl_takes() {
        let labels = BTreeMap::from([("a/b".to_owned(), "true".to_owned())]);
        assert_eq!(draw_labels(&labels), "a/b=true\n");
    }
}
