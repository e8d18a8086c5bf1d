//! What a cluster calls things, from flags.

use portolan_core::platform::PartialPlatform;
use portolan_verify::pod::Settings;
use portolan_verify::policy::PartialMeaning;
use portolan_verify::subjects::Wanted;

use crate::exit::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct LabelArgs {
    /// What half a platform means
    #[arg(long, value_enum, default_value_t = Partial::Wildcard)]
    partial: Partial,
    /// Another label that names the operating system (repeatable)
    #[arg(long = "os-label", value_name = "LABEL")]
    os_labels: Vec<String>,
    /// Another label that names the architecture (repeatable)
    #[arg(long = "arch-label", value_name = "LABEL")]
    arch_labels: Vec<String>,
    /// What a value of those labels means, as graviton=arm64 (repeatable)
    #[arg(long = "value", value_name = "VALUE=NAME")]
    values: Vec<String>,
    /// A label's value that tells a platform, as example.com/pool=arm-pool=linux/arm64 (repeatable)
    #[arg(long = "pool", value_name = "LABEL=VALUE=PLATFORM")]
    pools: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Partial {
    /// Every platform with that half
    Wildcard,
    /// The other half is that of the machine that verifies
    Host,
}

impl LabelArgs {
    /// Whether the other half of a platform is the host's.
    pub(super) fn fills_from_host(&self) -> bool {
        self.partial == Partial::Host
    }

    /// Adds them to what is usual.
    pub(super) fn add_to(&self, settings: &mut Settings) -> Result<(), Failure> {
        settings.partial = match self.partial {
            Partial::Wildcard => PartialMeaning::Wildcard,
            Partial::Host => PartialMeaning::Host,
        };
        settings.os_labels.extend(self.os_labels.iter().cloned());
        settings.arch_labels.extend(self.arch_labels.iter().cloned());
        for text in &self.values {
            let wrong = || Failure::usage(anyhow::anyhow!("{text:?} is not VALUE=NAME"));
            let (value, name) = text.split_once('=').ok_or_else(wrong)?;
            settings.values.insert(value.to_owned(), name.to_owned());
        }
        for text in &self.pools {
            let wrong = || Failure::usage(anyhow::anyhow!("{text:?} is not LABEL=VALUE=PLATFORM"));
            let (label, rest) = text.split_once('=').ok_or_else(wrong)?;
            let (value, platform) = rest.split_once('=').ok_or_else(wrong)?;
            let platform = platform.parse().map_err(Failure::usage)?;
            let told = settings.labels.entry(label.to_owned()).or_default();
            told.insert(value.to_owned(), platform);
        }
        Ok(())
    }
}

/// Platforms with commas between; `named` are the words that could have been meant instead.
pub(super) fn listed(text: &str, named: &str) -> Result<Wanted, Failure> {
    let platforms: Result<Vec<PartialPlatform>, _> = text.split(',').map(str::parse).collect();
    let platforms = platforms.map_err(|error| {
        let what = format!("--default is {named}, or platforms with commas between");
        Failure::usage(anyhow::Error::new(error).context(what))
    })?;
    Ok(Wanted::of(platforms).unwrap_or_else(Wanted::all))
}
