//! The two files of a console as one text. The shim writes to the newer one; when that is full it
//! becomes the older one, and the older one goes. A new start begins with neither.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use portolan_registry::durable;

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// How far back lines are counted: a console without line ends is not read whole.
const MAX_TAIL: u64 = 16 * 1024 * 1024;
/// How often the names are looked up again when they changed between two looks.
const TRIES: usize = 8;

/// The text from some place on, for whoever reads it in an order.
#[derive(Debug)]
pub struct Files {
    /// The older and the newer.
    paths: [PathBuf; 2],
    /// What is still to be read, the older first.
    open: VecDeque<Open>,
    /// What was read to its end last. Kept open: so no other file gets its number meanwhile.
    done: Option<Open>,
    follow: bool,
}

type Identity = (u64, u64);

#[derive(Debug)]
struct Open {
    file: File,
    identity: Identity,
    offset: u64,
    /// How long it was when it was opened.
    size: u64,
}

impl Open {
    /// None when there is no such file.
    fn new(path: &Path) -> io::Result<Option<Self>> {
        let (file, size) = match durable::open_file(path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        Ok(Some(Self { identity: (found.dev(), found.ino()), file, offset: 0, size }))
    }

    /// The next bytes; whoever does not follow reads no further than the file went at first, or a
    /// guest that never stops writing would keep him.
    fn read(&mut self, follow: bool) -> io::Result<Bytes> {
        let room = if follow { u64::MAX } else { self.size.saturating_sub(self.offset) };
        let mut buffer = vec![0; CHUNK.min(usize::try_from(room).unwrap_or(CHUNK))];
        let count = self.file.read_at(&mut buffer, self.offset)?;
        buffer.truncate(count);
        self.offset += count as u64;
        Ok(buffer.into())
    }
}

/// Both files as they are at one moment.
fn open_both(paths: &[PathBuf; 2]) -> io::Result<(Option<Open>, Option<Open>)> {
    for _ in 0..TRIES {
        let (new, old) = (Open::new(&paths[1])?, Open::new(&paths[0])?);
        match (&old, &new) {
            // It got its other name between the two.
            (Some(old), Some(new)) if old.identity == new.identity => {}
            _ => return Ok((old, new)),
        }
    }
    Err(io::Error::other("the console changes faster than it can be opened"))
}

impl Files {
    /// From the beginning, or only the last `tail` lines; to the end as it is now, or on and on.
    pub fn open(paths: [PathBuf; 2], tail: Option<u64>, follow: bool) -> io::Result<Self> {
        let (mut old, mut new) = open_both(&paths)?;
        if let Some(lines) = tail {
            skip_to_tail(&mut old, &mut new, lines)?;
        }
        let open = old.into_iter().chain(new).collect();
        Ok(Self { paths, open, done: None, follow })
    }

    /// The next bytes; none where there are none yet, or none any more.
    pub fn read(&mut self) -> io::Result<Bytes> {
        loop {
            let lone = self.open.len() == 1;
            let Some(front) = self.open.front_mut() else {
                if !self.follow || !self.look()? {
                    return Ok(Bytes::new());
                }
                continue;
            };
            let bytes = front.read(self.follow)?;
            if !bytes.is_empty() {
                return Ok(bytes);
            }
            if lone {
                if !self.follow || !is_replaced(&self.paths[1], front.identity) {
                    return Ok(bytes);
                }
                // What was written between the last look and the change of names.
                let bytes = front.read(true)?;
                if !bytes.is_empty() {
                    return Ok(bytes);
                }
            }
            self.done = self.open.pop_front();
        }
    }

    /// Looks for what came after what was read; false when there is nothing.
    fn look(&mut self) -> io::Result<bool> {
        let (old, new) = open_both(&self.paths)?;
        // Where the names changed twice meanwhile, the older one has not been seen either.
        let done = self.done.as_ref().map(|done| done.identity);
        let fresh = |file: &Open| Some(file.identity) != done;
        self.open = old.filter(fresh).into_iter().chain(new.filter(fresh)).collect();
        Ok(!self.open.is_empty())
    }
}

/// Whether a name leads to another file by now.
fn is_replaced(path: &Path, known: Identity) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) != known)
}

/// Moves to where the last `lines` lines begin, in whichever of the two that is.
fn skip_to_tail(old: &mut Option<Open>, new: &mut Option<Open>, lines: u64) -> io::Result<()> {
    let mut left = lines;
    let mut last = true;
    let mut far = MAX_TAIL;
    for file in [new, old].into_iter().flatten() {
        file.offset = match left {
            0 => file.size,
            _ => line_start(file, &mut left, last, far)?,
        };
        far = far.saturating_sub(file.size);
        last = last && file.size == 0;
    }
    Ok(())
}

/// Where the last `left` lines of a file begin; its beginning, or as far back as is looked, where it
/// has fewer, and then `left` is how many are still wanted. `last`: no text comes after it.
fn line_start(file: &Open, left: &mut u64, last: bool, far: u64) -> io::Result<u64> {
    let floor = file.size.saturating_sub(far);
    let mut buffer = vec![0; CHUNK];
    let mut end = file.size;
    while end > floor {
        let start = end.saturating_sub(CHUNK as u64).max(floor);
        let length = usize::try_from(end - start).unwrap_or(CHUNK);
        file.file.read_exact_at(&mut buffer[..length], start)?;
        for (index, byte) in buffer[..length].iter().enumerate().rev() {
            let at = start + index as u64;
            // The end of the last line begins no line after it.
            if *byte == b'\n' && !(last && at + 1 == file.size) {
                *left -= 1;
                if *left == 0 {
                    return Ok(at + 1);
                }
            }
        }
        end = start;
    }
    if floor > 0 {
        // Further back nobody looks.
        *left = 0;
    }
    Ok(floor)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A console of these two halves; none where there is no such file.
    fn console(old: Option<&str>, new: Option<&str>) -> (tempfile::TempDir, [PathBuf; 2]) {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("c.1"), dir.path().join("c")];
        for (path, text) in paths.iter().zip([old, new]) {
            if let Some(text) = text {
                std::fs::write(path, text).unwrap();
            }
        }
        (dir, paths)
    }

    fn all(files: &mut Files) -> String {
        let mut text = Vec::new();
        loop {
            let bytes = files.read().unwrap();
            if bytes.is_empty() {
                return String::from_utf8(text).unwrap();
            }
            text.extend_from_slice(&bytes);
        }
    }

    fn tail(old: Option<&str>, new: Option<&str>, lines: Option<u64>) -> String {
        let (_dir, paths) = console(old, new);
        all(&mut Files::open(paths, lines, false).unwrap())
    }

    #[test]
    fn both_halves_are_one_text() {
        assert_eq!(tail(Some("one\ntw"), Some("o\nthree\n"), None), "one\ntwo\nthree\n");
        assert_eq!(tail(None, Some("one\n"), None), "one\n");
        assert_eq!(tail(Some("one\n"), None, None), "one\n");
        assert_eq!(tail(None, None, None), "");
    }

    #[test]
    fn a_tail_is_whole_lines_from_the_end_of_both() {
        let text = "one\ntwo\nthree\nfour";
        for (lines, expected) in [(0, ""), (1, "four"), (2, "three\nfour"), (4, text), (100, text)]
        {
            // Wherever the border between the two is.
            for border in 0..=text.len() {
                let (old, new) = text.split_at(border);
                let told = tail(Some(old), Some(new), Some(lines));
                assert_eq!(told, expected, "{lines} lines, border at {border}");
            }
        }
        assert_eq!(tail(Some("a\n"), Some("b\n"), Some(1)), "b\n", "a line end is no line");
        assert_eq!(tail(Some("a\nb\n"), Some(""), Some(1)), "b\n");
    }

    #[test]
    fn a_tail_reaches_over_more_than_is_read_at_once() {
        let long = format!("{}\nlast\n", "x".repeat(CHUNK * 2));
        assert_eq!(tail(None, Some(&long), Some(1)), "last\n");
        assert_eq!(tail(None, Some(&long), Some(2)), long);
    }

    #[test]
    fn a_console_without_lines_is_not_read_whole() {
        let (_dir, paths) = console(Some("old\n"), Some(""));
        File::options().write(true).open(&paths[1]).unwrap().set_len(MAX_TAIL * 4).unwrap();
        let files = Files::open(paths, Some(10), false).unwrap();
        let offsets: Vec<u64> = files.open.iter().map(|file| file.offset).collect();
        assert_eq!(offsets, [4, MAX_TAIL * 3]);
    }

    #[test]
    fn who_does_not_follow_is_not_kept_by_a_guest_that_goes_on() {
        let (_dir, paths) = console(None, Some("one\n"));
        let mut files = Files::open(paths.clone(), None, false).unwrap();
        let mut guest = File::options().append(true).open(&paths[1]).unwrap();
        guest.write_all(b"two\n").unwrap();
        assert_eq!(all(&mut files), "one\n");
    }

    #[test]
    fn nothing_is_lost_when_the_names_change_under_a_reader() {
        let (_dir, paths) = console(None, Some("one\n"));
        let mut files = Files::open(paths.clone(), None, true).unwrap();
        assert_eq!(all(&mut files), "one\n");
        // Written after the last look and before the names changed, and what came after.
        let append = |text: &str| {
            let file = File::options().append(true).create(true).open(&paths[1]);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        let turn = || std::fs::rename(&paths[1], &paths[0]).unwrap();
        append("two\n");
        turn();
        append("three\n");
        assert_eq!(all(&mut files), "two\nthree\n");
        // Twice between two looks.
        append("four\n");
        turn();
        append("five\n");
        turn();
        append("six\n");
        assert_eq!(all(&mut files), "four\nfive\nsix\n");
    }

    #[test]
    fn a_new_start_is_read_from_its_beginning() {
        let (_dir, paths) = console(None, Some("first run, long\n"));
        let mut files = Files::open(paths.clone(), None, true).unwrap();
        assert_eq!(all(&mut files), "first run, long\n");
        std::fs::remove_file(&paths[1]).unwrap();
        assert_eq!(all(&mut files), "");
        std::fs::write(&paths[1], "second\n").unwrap();
        assert_eq!(all(&mut files), "second\n");
    }
}
