//! `portolan verify image REF`

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use portolan_core::Reference;
use portolan_core::platform::PartialPlatform;
use portolan_registry::client::Client;
use portolan_verify::collect::Limits;
use portolan_verify::decision::{self, Answer, Question, Verdict};
use portolan_verify::policy::{IndexPolicy, Rule};
use portolan_verify::rego::{MAX_REGO, RegoPolicy};
use portolan_verify::verify::verify;

use super::signers::SignerArgs;
use super::{failure, in_file, load_policy, read, table, this_host};
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan verify image registry.example/app:1 --key release.pub\n  \
    portolan verify image registry.example/app:1 --policy policy.yaml --platform linux/arm64 -o json\n  \
    portolan verify image registry.example/app:1 --trusted-root trusted_root.json \\\n    \
    --certificate-identity https://ci.example/release --certificate-oidc-issuer https://ci.example\n\n\
    Exit codes: 0 verified, 1 refused, 2 bad input, 4 no such image, 5 transport, 6 no policy applies."
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "REF")]
    reference: Reference,
    /// What is asked of images (docs/verify.md); FILE.rego decides over what the signers of the
    /// flags below say
    #[arg(long, value_name = "FILE", required_unless_present = "signer")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    signers: SignerArgs,
    /// For machines of this platform instead of this one (repeatable); half of it (arm64, linux)
    /// means all that the image has of that
    #[arg(long = "platform", value_name = "PLATFORM", conflicts_with = "all_platforms")]
    platforms: Vec<PartialPlatform>,
    /// For every platform that the image has
    #[arg(long)]
    all_platforms: bool,
    /// What of an image with an index must pass; the policy's own where it is not said, else both
    #[arg(long, value_enum, value_name = "POLICY")]
    index_policy: Option<IndexPolicyArg>,
    /// Read signatures and documents up to this many bytes each
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().blob)]
    document_bytes: u64,
    /// How to print the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum IndexPolicyArg {
    /// The index and every image that could run
    Both,
    /// The index, or else every image that could run
    Any,
    /// The index alone
    Index,
    /// Every image that could run
    Platform,
}

impl From<IndexPolicyArg> for IndexPolicy {
    fn from(arg: IndexPolicyArg) -> Self {
        match arg {
            IndexPolicyArg::Both => Self::Both,
            IndexPolicyArg::Any => Self::Any,
            IndexPolicyArg::Index => Self::Index,
            IndexPolicyArg::Platform => Self::Platform,
        }
    }
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let Some(rule) = rule(&args)? else {
        return tell(&args, &decision::no_policy(&args.reference));
    };
    let named = match args.all_platforms {
        true => vec![PartialPlatform::any()],
        false => args.platforms.clone(),
    };
    let client = context::client(global)?;
    let answer = ask(&args.reference, &rule, &named, &limits(&args), &client).await?;
    tell(&args, &answer)
}

/// Asks whether an image is signed as `rule` says, for these platforms; none means this machine's.
pub(crate) async fn ask(
    reference: &Reference,
    rule: &Rule,
    named: &[PartialPlatform],
    limits: &Limits,
    client: &Client,
) -> Result<Answer, Failure> {
    let wanted = rule.wanted(named, None, this_host)?;
    let place = crate::image::open(reference, client)?;
    let now = Timestamp::now();
    let question = Question { reference, namespace: None, rule, wanted: &wanted, now };
    verify(&place, &question, limits).await.map_err(failure)
}

/// The sum has to hold at least one of the largest.
fn limits(args: &Args) -> Limits {
    let usual = Limits::default();
    let total = usual.total.max(args.document_bytes.saturating_mul(2));
    Limits { blob: args.document_bytes, total, ..usual }
}

/// What is asked of the image; none where the policy does not speak of it.
fn rule(args: &Args) -> Result<Option<Rule>, Failure> {
    let mut rule = match &args.policy {
        None => args.signers.rule()?,
        Some(file) if file.extension().is_some_and(|extension| extension == "rego") => {
            let rego = RegoPolicy::parse(&file.display().to_string(), &read(file, MAX_REGO)?);
            args.signers.by_rego(rego.map_err(|error| in_file(file, error))?)?
        }
        Some(file) if args.signers.is_given() => {
            let what =
                "its signers are its own; flags name them only for a policy in Rego (FILE.rego)";
            return Err(in_file(file, anyhow::anyhow!(what)));
        }
        Some(file) => {
            let policy = load_policy(file)?;
            match policy.rule(&args.reference) {
                None => return Ok(None),
                Some(rule) => Arc::unwrap_or_clone(Arc::clone(rule)),
            }
        }
    };
    if let Some(index_policy) = args.index_policy {
        if rule.rego.is_some() {
            let what = "--index-policy means nothing here: a policy in Rego sees the index and every image, and decides";
            return Err(Failure::usage(anyhow::anyhow!(what)));
        }
        rule.index_policy = index_policy.into();
    }
    Ok(Some(rule))
}

fn tell(args: &Args, answer: &Answer) -> Result<Exit, Failure> {
    for warning in &answer.warnings {
        format::tell(&format!("warning: {warning}"));
    }
    args.format.print(answer, table::answer)?;
    Ok(match answer.verdict {
        Verdict::Verified => Exit::Ok,
        Verdict::Refused => Exit::No,
        Verdict::NoPolicy => Exit::NoArtifact,
    })
}
