//! The configuration of a kernel: `CONFIG_X=value` and `# CONFIG_X is not set`.

use std::borrow::Cow;
use std::io::Read;

use memchr::{memchr, memmem, memrchr};

/// No kernel's configuration is longer, and a small file may inflate to anything.
pub(super) const LIMIT: u64 = 4 << 20;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The text of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config(String);

/// What the configuration says of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting<'a> {
    /// `y`, `m`, a number or a text, as written.
    Value(&'a str),
    /// Explicitly off.
    NotSet,
    /// Not mentioned: this kernel does not know the option, or its needs are not met.
    Absent,
}

/// What is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is compressed and cannot be inflated.
    #[error("it cannot be inflated")]
    Inflate(#[source] std::io::Error),
    /// It inflates to more than any configuration.
    #[error("it is longer than {LIMIT} bytes")]
    TooLong,
    /// There is no option in it.
    #[error("there is no option in it")]
    NoOption,
}

impl Config {
    /// Takes the text of a configuration.
    pub fn parse(text: String) -> Self {
        Self(text)
    }

    /// Reads a configuration, compressed with gzip or not. Bytes that are no text are replaced.
    pub fn read(bytes: &[u8]) -> Result<Self, ConfigError> {
        let bytes = if bytes.starts_with(&GZIP) {
            // Most are packed to a fifth.
            let mut inflated = Vec::with_capacity(bytes.len().saturating_mul(6).min(1 << 20));
            let reader = flate2::read::GzDecoder::new(bytes);
            let read = reader.take(LIMIT + 1).read_to_end(&mut inflated);
            read.map_err(ConfigError::Inflate)?;
            inflated
        } else {
            bytes.to_vec()
        };
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        if text.len() as u64 > LIMIT {
            return Err(ConfigError::TooLong);
        }
        let config = Self(text);
        if config.options().next().is_none() {
            return Err(ConfigError::NoOption);
        }
        Ok(config)
    }

    /// The options in their order, without `CONFIG_`, and what is said of them: a value as
    /// written, or that it is not set.
    pub fn options(&self) -> impl Iterator<Item = (&str, Setting<'_>)> {
        let mut rest = self.0.as_str();
        let lines = std::iter::from_fn(move || {
            let end = memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |end| end + 1);
            let line;
            (line, rest) = rest.split_at(end);
            (!line.is_empty()).then(|| line.trim_end_matches(['\n', '\r']))
        });
        lines.filter_map(option)
    }

    /// What it says of `option`, written without `CONFIG_`. The last word counts, as where the
    /// kernel is built.
    ///
    /// Looks for the name and reads that line alone: of thousands of options few are asked for.
    pub fn get(&self, option: &str) -> Setting<'_> {
        let bytes = self.0.as_bytes();
        let mut said = Setting::Absent;
        let mut from = 0;
        // At the end, where an empty name is found, there is none.
        while let Some(at) = memmem::find(&bytes[from..], option.as_bytes())
            && from + at < bytes.len()
        {
            let start = memrchr(b'\n', &bytes[..from + at]).map_or(0, |end| end + 1);
            let end = memchr(b'\n', &bytes[from + at..]).map_or(bytes.len(), |end| from + at + end);
            if let Some((_, setting)) =
                self::option(&self.0[start..end]).filter(|(name, _)| *name == option)
            {
                said = setting;
            }
            from = (end + 1).min(bytes.len());
        }
        said
    }

    /// Whether a yes-or-no option is on. One that is not mentioned is off: it cannot be on.
    pub fn is_on(&self, option: &str) -> bool {
        matches!(self.get(option), Setting::Value("y"))
    }
}

fn option(line: &str) -> Option<(&str, Setting<'_>)> {
    let (name, setting) = if let Some(rest) = line.strip_prefix("CONFIG_") {
        let (name, value) = rest.split_once('=')?;
        (name, Setting::Value(value.trim()))
    } else {
        let rest = line.strip_prefix("# CONFIG_")?.trim_end();
        (rest.strip_suffix(" is not set")?, Setting::NotSet)
    };
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain.then_some((name, setting))
}

/// A value without the quotes that a text has around it, and without what escapes those inside.
pub fn unquoted(value: &str) -> Cow<'_, str> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else { return Cow::Borrowed(value) };
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// Where distributions keep the configuration of the release of that name. Not in the list:
/// `/usr/src/linux/.config` and `/boot/config`, which are of whatever was built last.
pub(super) fn paths(release: &str) -> [String; 10] {
    [
        format!("/boot/config-{release}"),
        format!("/usr/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/config"),
        format!("/usr/lib/ostree-boot/config-{release}"),
        format!("/usr/lib/kernel/config-{release}"),
        format!("/usr/src/linux-{release}/.config"),
        format!("/usr/src/linux-rt-{release}/.config"),
        format!("/usr/src/linux-headers-{release}/.config"),
        format!("/usr/src/linux-rt-headers-{release}/.config"),
        format!("/lib/modules/{release}/build/.config"),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    proptest::proptest! {
        #[test]
        fn looking_for_one_is_reading_all(
            lines in proptest::collection::vec("(# )?(CONFIG_)?[AB]{0,2}( is not set|=[yAB]?|)\r?", 0..12),
            end in "\n?",
            wanted in "[AB\n]{0,2}",
        ) {
            let config = Config::parse(lines.join("\n") + &end);
            let all = config.options().filter(|(name, _)| *name == wanted).last();
            proptest::prop_assert_eq!(
                config.get(&wanted),
                all.map_or(Setting::Absent, |(_, setting)| setting)
            );
            let lines = config.0.lines().filter_map(option);
            proptest::prop_assert!(config.options().eq(lines));
        }
    }

    #[test]
    fn values_are_unquoted_once() {
        for (written, value) in [
            ("y", "y"),
            ("0x1000", "0x1000"),
            ("\"\"", ""),
            ("\"elf64\"", "elf64"),
            (r#""a \"b\" \\ c""#, r#"a "b" \ c"#),
            ("\"open", "\"open"),
            ("\"", "\""),
            (r#""ends \""#, "ends "),
        ] {
            assert_eq!(unquoted(written), value, "{written}");
        }
    }

    #[test]
    fn the_forms_of_a_line() {
        let config = Config::parse(
            "#\n# Linux/x86 6.1.0 Kernel Configuration\n#\nCONFIG_A=y\nCONFIG_AB=m\n\
             # CONFIG_B is not set\nCONFIG_C=\"x=y\"\nCONFIG_=y\nCONFIG_D\n CONFIG_E=y\n\
             # CONFIG_F is not set yet\nCONFIG_G-H=y\nCONFIG_A=n\r\n"
                .to_owned(),
        );
        let options: Vec<_> = config.options().collect();
        assert_eq!(
            options,
            [
                ("A", Setting::Value("y")),
                ("AB", Setting::Value("m")),
                ("B", Setting::NotSet),
                ("C", Setting::Value("\"x=y\"")),
                ("A", Setting::Value("n")),
            ]
        );
        assert_eq!(config.get("A"), Setting::Value("n"));
        assert_eq!(config.get("B"), Setting::NotSet);
        assert_eq!(config.get("D"), Setting::Absent);
    }

    #[test]
    fn a_bomb_is_not_inflated() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let line = b"CONFIG_A=y\n".repeat(1000);
        for _ in 0..1000 {
            gzip.write_all(&line).unwrap();
        }
        let bomb = gzip.finish().unwrap();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        assert!(matches!(Config::read(&bomb), Err(ConfigError::TooLong)));
        assert!(matches!(Config::read(&bomb[..50]), Err(ConfigError::Inflate(_))));
        assert!(matches!(Config::read(b"nothing"), Err(ConfigError::NoOption)));
        assert!(Config::read(b"\xff\nCONFIG_A=y\n").is_ok());
    }
}
