//! `portolan crds`

use portolan_api::definitions::{self, Definition};
use serde::Deserialize as _;
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan crds --roles | kubectl apply --server-side -f -\n  portolan crds -o table"
)]
pub(crate) struct Args {
    /// Also print the roles that let people of a namespace use them
    #[arg(long)]
    roles: bool,
    /// How to print them; json is one list
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let definitions = definitions::all();
    let text = match args.format {
        Format::Table => table(&definitions),
        Format::Yaml => {
            let mut documents: Vec<String> =
                definitions.iter().map(|definition| definition.to_yaml()).collect();
            documents.extend(args.roles.then(|| definitions::ROLES.to_owned()));
            documents.join("---\n")
        }
        Format::Json => {
            let mut items: Vec<Value> = definitions.iter().map(|d| d.value.clone()).collect();
            if args.roles {
                items.extend(roles()?);
            }
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items });
            format::json(&list)?
        }
    };
    format::write(&text)?;
    Ok(Exit::Ok)
}

fn roles() -> Result<Vec<Value>, Failure> {
    let documents = serde_yaml_ng::Deserializer::from_str(definitions::ROLES);
    documents.map(Value::deserialize).collect::<Result<_, _>>().map_err(Failure::usage)
}

fn table(definitions: &[&Definition]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = definitions.iter().map(|definition| {
        let spec = &definition.value["spec"];
        vec![
            text(&spec["names"]["kind"]),
            format!("{}/{}", text(&spec["group"]), definition.version()),
            text(&spec["scope"]),
            text(&definition.value["metadata"]["name"]),
        ]
    });
    format::table(&["KIND", "VERSION", "SCOPE", "NAME"], rows.collect())
}
