//! What of a directory is left out: `.containerignore`, or else `.dockerignore`.

use globset::{GlobBuilder, GlobMatcher};

/// The largest such file, and the most patterns in it.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024;
const MAX_PATTERNS: usize = 10_000;

/// Patterns in order; the last one that matches decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ignore(Vec<(bool, GlobMatcher)>);

impl Ignore {
    /// Reads a file of patterns.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let patterns =
            lines.map(|(at, line)| pattern(line).map_err(|why| format!("line {}: {why}", at + 1)));
        let patterns: Vec<_> = patterns.take(MAX_PATTERNS + 1).collect::<Result<_, _>>()?;
        if patterns.len() > MAX_PATTERNS {
            return Err(format!("more than {MAX_PATTERNS} patterns"));
        }
        Ok(Self(patterns))
    }

    /// Patterns that somebody wrote one by one.
    pub(crate) fn of(patterns: &[String]) -> Result<Self, String> {
        Ok(Self(patterns.iter().map(|text| pattern(text)).collect::<Result<_, _>>()?))
    }

    /// Whether a path, from the root without a slash, is left out. What is below something that
    /// is left out is left out too, unless a later pattern takes it back.
    pub(crate) fn excludes(&self, path: &str) -> bool {
        let mut excluded = false;
        for (keep, matcher) in &self.0 {
            let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
            if parents.chain([path]).any(|part| matcher.is_match(part)) {
                excluded = !keep;
            }
        }
        excluded
    }

    /// Whether something below a directory might be kept although it is left out itself.
    pub(crate) fn has_exceptions(&self) -> bool {
        self.0.iter().any(|(keep, _)| *keep)
    }
}

fn pattern(line: &str) -> Result<(bool, GlobMatcher), String> {
    let text = line.trim();
    let (keep, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let parts: Vec<&str> = text.split('/').filter(|part| !["", "."].contains(part)).collect();
    Ok((keep, glob(&parts.join("/"))?))
}

/// A pattern as Go's `filepath.Match` has it, with `**` for any number of directories.
pub(crate) fn glob(text: &str) -> Result<GlobMatcher, String> {
    let mut builder = GlobBuilder::new(text);
    builder.literal_separator(true).backslash_escape(true).empty_alternates(true);
    let glob =
        builder.build().map_err(|error| format!("the pattern {text:?}: {}", error.kind()))?;
    Ok(glob.compile_matcher())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let ignore = Ignore::parse(
            "# a comment\n*.log\n/target/\n**/cache\n!keep.log\ndocs\n!docs/README.md\n",
        )
        .unwrap();
        for (path, excluded) in [
            ("a.log", true),
            ("sub/a.log", false),
            ("keep.log", false),
            ("target", true),
            ("target/debug/x", true),
            ("a/b/cache/x", true),
            ("cache", true),
            ("docs/guide.md", true),
            ("docs/README.md", false),
            ("src/main.rs", false),
        ] {
            assert_eq!(ignore.excludes(path), excluded, "{path}");
        }
        assert!(ignore.has_exceptions());
        assert!(Ignore::parse("ok\n[").unwrap_err().starts_with("line 2"));
    }
}
