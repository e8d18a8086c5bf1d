//! Result files, which Tekton reads. All results of a pod share 4096 bytes.

use std::path::{Path, PathBuf};

use portolan_core::causes;
use portolan_registry::durable;

use super::StepError;

/// The most that one result may hold: eight of them fit beside what Tekton itself says.
pub const MAX_RESULT: usize = 384;
/// So many characters of an error are told.
pub const MAX_MESSAGE: usize = 300;

/// Where the results of a step go.
#[derive(Debug, Default)]
pub struct Results(Vec<(PathBuf, String)>);

impl Results {
    /// Remembers a result, where somebody asked for it.
    pub fn add(&mut self, file: Option<&Path>, value: &str) {
        if let Some(file) = file {
            self.0.push((file.to_owned(), cut(&line(value), MAX_RESULT)));
        }
    }

    /// Writes all of them.
    pub fn write(self) -> Result<(), StepError> {
        for (file, value) in self.0 {
            replace(&file, &value).map_err(|source| {
                let what = format!("cannot write the result {}", file.display());
                StepError::local("ResultNotWritten", what, source)
            })?;
        }
        Ok(())
    }

    /// What was remembered, for tests and for people.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, value)| value.as_str())
    }
}

/// Writes a file that may be another user's, whose strategy wrote the result before: the directory is everybody's, so that
/// the file is made anew. Only then: where people say `/dev/stdout`, nothing is removed.
fn replace(file: &Path, value: &str) -> std::io::Result<()> {
    match std::fs::write(file, value) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            std::fs::remove_file(file)?;
            std::fs::write(file, value)
        }
        done => done,
    }
}

/// Leaves what went wrong where the BuildRun's status is made of.
pub fn tell_error(
    error: &StepError,
    message: Option<&Path>,
    reason: Option<&Path>,
) -> Result<(), StepError> {
    let text = both_ends(&line(&causes::chain(error)), MAX_MESSAGE);
    let mut results = Results::default();
    // Three hundred characters of another script are more bytes than one result may have.
    results.add(message, &text);
    results.add(reason, error.reason);
    results.write()
}

/// One line, without what terminals and logs would act upon.
fn line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// At most so many characters: an error begins with what was done and ends with why it failed and what to try, and
/// between them may be a long name twice.
fn both_ends(text: &str, limit: usize) -> String {
    const GAP: &str = " … ";
    let count = text.chars().count();
    if count <= limit {
        return text.to_owned();
    }
    let first = limit / 3;
    let last = limit - first - GAP.chars().count();
    let (begin, end) = (text.chars().take(first), text.chars().skip(count - last));
    begin.chain(GAP.chars()).chain(end).collect()
}

/// At most so many bytes, and whole characters.
fn cut(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// A number in a small file, such as a result of a step before.
pub(crate) fn read_number(file: &Path) -> Result<i64, StepError> {
    let reason = "TimestampNotValid";
    let bytes = durable::read_bounded(file, 64)
        .map_err(|source| {
            StepError::local(reason, format!("cannot read {}", file.display()), source)
        })?
        .ok_or_else(|| StepError::bad(reason, format!("there is no {}", file.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    text.trim().parse().map_err(|_| {
        let what = format!("{} holds {:?}, not seconds since 1970", file.display(), text.trim());
        StepError::bad(reason, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_one_line_and_cut_at_characters() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("result");
        let mut results = Results::default();
        results.add(Some(&file), &format!("a\u{1b}[31m\n{}", "ä".repeat(MAX_RESULT)));
        results.write().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.len() <= MAX_RESULT && text.starts_with("a [31m ä"), "{text}");
    }

    /// As after a strategy's root, who wrote the result: the file is nobody's to write to, the directory is everybody's.
    #[test]
    fn a_result_that_somebody_else_wrote_is_made_anew_and_whatever_is_no_file_stays() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shp-image-digest");
        std::fs::write(&file, "sha256:before").unwrap();
        let before = std::fs::metadata(&file).unwrap().ino();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
        // Root may write to any file, so there it is written over: the value counts.
        let is_root = std::fs::OpenOptions::new().write(true).open(&file).is_ok();
        replace(&file, "after").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "after");
        let after = std::fs::metadata(&file).unwrap().ino();
        assert!(is_root || before != after);
        // A directory that is nobody's to write to is an error, and nothing is lost.
        assert!(replace(&dir.path().join("none/result"), "x").is_err());
        replace(Path::new("/dev/null"), "x").unwrap();
        assert!(Path::new("/dev/null").exists());
    }

    #[test]
    fn an_error_is_told_in_three_hundred_characters_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let (message, reason) = (dir.path().join("message"), dir.path().join("reason"));
        let error =
            StepError::new("PlatformMismatch", 1, format!("begins {} ends", "x".repeat(1000)));
        tell_error(&error, Some(&message), Some(&reason)).unwrap();
        let text = std::fs::read_to_string(message).unwrap();
        assert_eq!(text.chars().count(), MAX_MESSAGE);
        assert!(text.starts_with("begins x") && text.ends_with("x ends"), "{text}");
        assert_eq!(std::fs::read_to_string(reason).unwrap(), "PlatformMismatch");
    }

    #[test]
    fn a_timestamp_is_a_number_of_sixty_four_bits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("time");
        std::fs::write(&file, "4102444800\n").unwrap();
        assert_eq!(read_number(&file).unwrap(), 4_102_444_800);
        for bad in ["", "soon", &"1".repeat(100)] {
            std::fs::write(&file, bad).unwrap();
            assert!(read_number(&file).is_err(), "{bad}");
        }
        assert!(read_number(&dir.path().join("none")).is_err());
    }
}
