//! `portolan sign IMAGE --key FILE`

use std::path::PathBuf;

use portolan_core::{Digest, Reference};
use portolan_registry::client::Client;
use portolan_registry::images;
use portolan_verify::key::PrivateKey;
use portolan_verify::sign::{self, Form, SignError, Signature};
use portolan_verify::subject::{Kind, Subject};
use serde::Serialize;

use crate::cli::Global;
use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::{image, key};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan sign registry.example/app:1 --key release.key --recursive\n  \
    portolan sign oci:./build:1 --key release.key --form both -o json\n\n\
    Where an index is signed and its images are not, a machine that checks both refuses to run \
    them: sign with --recursive. A key that signed an image before does not sign it again.\n\
    The password of the key comes from COSIGN_PASSWORD, else it is asked for."
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "IMAGE")]
    reference: Reference,
    /// The private key: of `portolan key generate`, of cosign, or PKCS#8
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Also every image and index in the index
    #[arg(short, long)]
    recursive: bool,
    /// How the signature is kept
    #[arg(long, value_enum, default_value_t = FormArg::Bundle)]
    form: FormArg,
    /// How to print what was signed
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FormArg {
    /// A Sigstore bundle that refers to the image: for cosign 3, and 2.6
    Bundle,
    /// A layer under a tag made of the digest: for cosign before 2.6
    Simple,
    /// Both
    Both,
}

impl FormArg {
    fn forms(self) -> &'static [Form] {
        match self {
            Self::Bundle => &[Form::Bundle],
            Self::Simple => &[Form::Simple],
            Self::Both => &[Form::Bundle, Form::Simple],
        }
    }
}

/// What a script reads.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Signed {
    image: String,
    /// Who signed, by the fingerprint.
    pub(crate) key: String,
    pub(crate) signatures: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) signature: Signature,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<String>,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let key = key::open(&args.key)?;
    let client = context::client(global)?;
    let signed = all(&args.reference, &key, args.recursive, args.form.forms(), &client).await?;
    args.format.print(&signed, table)?;
    Ok(Exit::Ok)
}

/// Signs what a reference names and, where `recursive`, all that is in it.
pub(crate) async fn all(
    reference: &Reference,
    key: &PrivateKey,
    recursive: bool,
    forms: &[Form],
    client: &Client,
) -> Result<Signed, Failure> {
    let place = image::open(reference, client)?;
    let target = images::target(reference);
    let top = place.fetch(target.as_ref()).await.map_err(image::failure)?;
    let subjects = sign::subjects(&place, &top, recursive).await.map_err(failure)?;
    let mut signatures = Vec::new();
    for subject in &subjects {
        for &form in forms {
            let signature = sign::sign(&place, &subject.descriptor, key, form).await;
            signatures.push(row(signature.map_err(failure)?, subject));
        }
    }
    let image = pinned(&place, &top.descriptor.digest);
    Ok(Signed { image, key: fingerprint(key), signatures })
}

impl Row {
    /// What is signed, for people: a platform, or what it is.
    pub(crate) fn name(&self) -> String {
        self.platform.clone().unwrap_or_else(|| self.kind.to_owned())
    }
}

/// What was signed is named by digest: the tag may have moved by now.
fn pinned(place: &images::Place, digest: &Digest) -> String {
    format!("{place}@{digest}")
}

pub(crate) fn fingerprint(key: &PrivateKey) -> String {
    format!("sha256:{}", key.public().fingerprint())
}

fn row(signature: Signature, subject: &Subject) -> Row {
    let kind = match subject.kind {
        Kind::Index => "index",
        Kind::Manifest => "manifest",
    };
    let platform = subject.platform.as_ref().map(ToString::to_string);
    Row { signature, kind, platform }
}

fn table(signed: &Signed) -> String {
    let rows = signed.signatures.iter().map(|row| {
        let Row { signature, kind, platform } = row;
        let form = match signature.form {
            Form::Bundle => "bundle",
            Form::Simple => "simple",
        };
        let state = if signature.existing { "was there" } else { "new" };
        vec![
            platform.clone().unwrap_or_else(|| format!("({kind})")),
            signature.subject.short(),
            form.to_owned(),
            signature.artifact.to_string(),
            state.to_owned(),
        ]
    });
    format::table(&["PLATFORM", "SUBJECT", "FORM", "ARTIFACT", ""], rows.collect())
}

fn failure(error: SignError) -> Failure {
    classed(error.class(), error)
}
