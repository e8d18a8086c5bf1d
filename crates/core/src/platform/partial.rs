//! Machines of which only a part is known.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::parse::{Word, word};
use super::{ParsePlatformError, Platform};

/// A platform, or all that share a part of one: `linux/arm64`, `*/arm64`, `linux/*`, `*`.
///
/// Under its usual names, so that equal things compare equal. A variant that is not said may be
/// any, and so may a version of Windows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartialPlatform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
    os_version: Option<String>,
}

impl PartialPlatform {
    /// Every machine.
    pub fn any() -> Self {
        Self { os: None, architecture: None, variant: None, os_version: None }
    }

    /// What is known, by any of its names; none or nothing is anything.
    pub fn new(os: Option<&str>, architecture: Option<&str>) -> Self {
        let known = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self::from(&Platform::new(&known(os), &known(architecture)))
    }

    /// The operating system; none where it may be any.
    pub fn os(&self) -> Option<&str> {
        self.os.as_deref()
    }

    /// The architecture; none where it may be any.
    pub fn architecture(&self) -> Option<&str> {
        self.architecture.as_deref()
    }

    /// Whether it speaks of every machine.
    pub fn is_any(&self) -> bool {
        self.os.is_none() && self.architecture.is_none()
    }

    /// Whether both halves are known.
    pub fn is_whole(&self) -> bool {
        self.os.is_some() && self.architecture.is_some()
    }

    /// The same with what is not known taken from `other`. A variant belongs to an architecture and
    /// a version to a system: they are only taken along with those.
    pub fn filled_from(&self, other: &Platform) -> Platform {
        let own =
            |known: &Option<String>, other: &str| known.clone().unwrap_or_else(|| other.to_owned());
        let variant = match &self.architecture {
            Some(_) => self.variant.clone(),
            None => other.variant.clone(),
        };
        Platform {
            variant,
            os_version: self.os_version.clone(),
            os_features: other.os_features.clone(),
            ..Platform::new(
                &own(&self.os, &other.os),
                &own(&self.architecture, &other.architecture),
            )
        }
    }

    /// Whether every machine of `other` is one of these: what it says is said there too.
    pub fn covers(&self, other: &Self) -> bool {
        let says = |mine: &Option<String>, its: &Option<String>| mine.is_none() || mine == its;
        says(&self.os, &other.os)
            && says(&self.architecture, &other.architecture)
            && says(&self.variant, &other.variant)
            && says(&self.os_version, &other.os_version)
    }
}

impl From<&Platform> for PartialPlatform {
    /// An empty half may be anything.
    fn from(platform: &Platform) -> Self {
        let usual = platform.normalised();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        // `arm` alone is called `arm/v7` elsewhere; here nobody said which.
        let unsaid = platform.variant.as_deref().is_none_or(str::is_empty)
            && usual.architecture.eq_ignore_ascii_case(&platform.architecture);
        Self {
            os: some(&usual.os),
            architecture: some(&usual.architecture),
            variant: usual.variant.filter(|_| !unsaid && !usual.architecture.is_empty()),
            os_version: usual.os_version.filter(|_| !usual.os.is_empty()),
        }
    }
}

impl FromStr for PartialPlatform {
    type Err = ParsePlatformError;

    /// Reads `os/arch[/variant]` with `*` for a half that may be any; a word alone is an operating
    /// system or an architecture, and the other half may be any.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nothing = String::new;
        match text.split_once('/') {
            None if text == "*" => Ok(Self::any()),
            None => match word(text)? {
                Word::Os(platform) | Word::Architecture(platform) => Ok(Self::from(&platform)),
            },
            Some(("*", "*")) => Ok(Self::any()),
            Some(("*", rest)) => {
                let platform: Platform = format!("linux/{rest}").parse()?;
                Ok(Self::from(&Platform { os: nothing(), ..platform }))
            }
            Some((os, "*")) => {
                let platform: Platform = format!("{os}/any").parse()?;
                Ok(Self::from(&Platform { architecture: nothing(), ..platform }))
            }
            Some(_) => Ok(Self::from(&text.parse::<Platform>()?)),
        }
    }
}

impl fmt::Display for PartialPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("*");
        }
        // A platform escapes what a stranger wrote, and so would it the star.
        let whole = self.filled_from(&Platform::new("any", "any")).to_string();
        let (os, rest) = whole.split_once('/').unwrap_or((&whole, "any"));
        let os = if self.os.is_some() { os } else { "*" };
        let rest = if self.architecture.is_some() { rest } else { "*" };
        write!(f, "{os}/{rest}")
    }
}

impl Serialize for PartialPlatform {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartialPlatform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
