//! A layer's entries with their data laid into the layer's region as it comes.

mod file;
mod stream;

use crate::build::BuildError;
use crate::disk::{WriteFailed, Writers};
use crate::layer::{Entry, EntryKind, EntryPath, LayerIndex};
use crate::limits::Exceeded;
use crate::region::{Plan, TooLarge};
use crate::tar::{Head, HeadKind, Sink};
use crate::tree::Attributes;

use file::Content;
pub(crate) use stream::Room;
use stream::Stream;

/// Why an entry could not be placed.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// The region and its arenas reach too far.
    TooLarge(TooLarge),
    /// The image holds more data than it may.
    TooMuchData { max: u64 },
    /// A small layer takes a large part of the disk.
    Ratio(Exceeded),
    /// Larger than ext4 can number.
    FileTooLarge { size: u64 },
    /// Data that do not follow each other or lie outside the file.
    Disorder { offset: u64, end: u64, size: u64 },
    /// The disk could not be extended.
    Disk(BuildError),
    /// A writing thread failed; it knows why.
    Write,
}

impl From<TooLarge> for PlaceError {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}

impl From<WriteFailed> for PlaceError {
    fn from(WriteFailed: WriteFailed) -> Self {
        Self::Write
    }
}

/// Takes a layer's entries.
pub(crate) struct Placer<'a> {
    stream: Stream<'a>,
    entries: Vec<Entry>,
    file: Option<File>,
}

struct File {
    path: EntryPath,
    attributes: Attributes,
    content: Content,
}

impl<'a> Placer<'a> {
    /// For a layer of `plan`, which is written by `writers`.
    pub(crate) fn new(
        plan: &'a Plan,
        layer: usize,
        writers: &'a Writers<'a>,
        room: &'a dyn Room,
    ) -> Self {
        let stream = Stream::new(plan, layer, writers, room);
        Self { stream, entries: Vec::new(), file: None }
    }

    /// How many entries came.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// What the layer says, and the first block behind its data; 0 when it has none.
    pub(crate) fn finish(self) -> Result<(LayerIndex, u32), PlaceError> {
        let end = self.stream.finish()?;
        Ok((LayerIndex { entries: self.entries }, end))
    }
}

impl Sink for Placer<'_> {
    type Error = PlaceError;

    fn begin(&mut self, Head { path, kind, attributes, .. }: Head) -> Result<(), PlaceError> {
        let kind = match kind {
            HeadKind::File { size } => {
                let content = Content::new(size)?;
                self.file = Some(File { path, attributes, content });
                return Ok(());
            }
            HeadKind::Directory => EntryKind::Directory,
            HeadKind::Symlink(target) => EntryKind::Symlink(target),
            HeadKind::Hardlink(target) => EntryKind::Hardlink(target),
            HeadKind::CharDevice(device) => EntryKind::CharDevice(device),
            HeadKind::BlockDevice(device) => EntryKind::BlockDevice(device),
            HeadKind::Fifo => EntryKind::Fifo,
            HeadKind::Whiteout => EntryKind::Whiteout,
            HeadKind::Opaque => EntryKind::Opaque,
        };
        self.entries.push(Entry { path, attributes, kind });
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        match &mut self.file {
            Some(file) => file.content.data(offset, bytes, &mut self.stream),
            None => Err(PlaceError::Disorder { offset, end: offset + bytes.len() as u64, size: 0 }),
        }
    }

    fn end(&mut self) -> Result<(), PlaceError> {
        if let Some(File { path, attributes, content }) = self.file.take() {
            let kind = EntryKind::File(content.finish(&mut self.stream)?);
            self.entries.push(Entry { path, attributes, kind });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::FileExt as _;

    use proptest::prelude::*;

    use super::*;
    use crate::checksum;
    use crate::disk::Disk;
    use crate::tree::{BLOCK, FileData};

    /// Room without end.
    struct Endless<'a>(&'a Disk);

    impl Room for Endless<'_> {
        fn reach(&self, end: u32) -> Result<(), PlaceError> {
            self.0.reach(u64::from(end) * BLOCK as u64).map_err(PlaceError::Disk)
        }

        fn take(&self, _layer: usize, _bytes: u64, _all: u64) -> Result<(), PlaceError> {
            Ok(())
        }
    }

    fn head(size: u64) -> Head {
        let path = EntryPath(Box::from(*b"f"));
        let attributes = Attributes::default();
        Head { path, absolute: false, kind: HeadKind::File { size }, attributes }
    }

    /// Pieces of files, at their offsets.
    type Pieces<'a> = Vec<(u64, Vec<(u64, &'a [u8])>)>;

    /// Places files of these sizes, and reads them back by their runs.
    fn placed(files: &Pieces<'_>, compressed: u64) -> (Vec<FileData>, Vec<Vec<u8>>, u32) {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::create(dir.path(), false).unwrap();
        let plan = Plan::new(1024, &[0, compressed], 1 << 40).unwrap();
        let writers = Writers::new(&disk, 3);
        let room = Endless(&disk);
        let (index, end) = std::thread::scope(|scope| {
            scope.spawn(|| writers.run());
            let mut placer = Placer::new(&plan, 1, &writers, &room);
            for (size, pieces) in files {
                placer.begin(head(*size)).unwrap();
                for (offset, bytes) in pieces {
                    placer.data(*offset, bytes).unwrap();
                }
                placer.end().unwrap();
            }
            let finished = placer.finish();
            writers.close();
            finished.unwrap()
        });
        assert!(writers.failure().is_none());
        let (temp, sum, _) = disk.finish().unwrap();
        assert_eq!(checksum::of_file(temp.path()).unwrap(), sum);
        let data: Vec<FileData> = index
            .entries
            .into_iter()
            .map(|entry| match entry.kind {
                EntryKind::File(data) => data,
                other => panic!("{other:?}"),
            })
            .collect();
        let contents = data.iter().map(|data| read_back(temp.file(), data)).collect();
        (data, contents, end)
    }

    fn read_back(disk: &std::fs::File, data: &FileData) -> Vec<u8> {
        let blocks = usize::try_from(data.size).unwrap().div_ceil(BLOCK);
        let mut content = vec![0; blocks * BLOCK];
        for run in &data.runs {
            let start = run.logical as usize * BLOCK;
            let part = &mut content[start..start + run.blocks as usize * BLOCK];
            disk.read_exact_at(part, u64::from(run.physical) * BLOCK as u64).unwrap();
        }
        let rest = content.split_off(usize::try_from(data.size).unwrap());
        assert!(rest.iter().all(|byte| *byte == 0), "the tail of the last block is zeros");
        content
    }

    fn noise(length: usize, seed: u8) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&[seed]).finalize_xof().read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_file_that_passes_the_end_of_its_region_goes_on_in_an_arena() {
        let content = noise(9 << 20, 1);
        let small = noise(5000, 2);
        let files =
            vec![(5000, vec![(0, &small[..])]), (content.len() as u64, vec![(0, &content[..])])];
        // A region of 4 MiB behind the first layer's; arenas behind both.
        let (data, contents, end) = placed(&files, 1);
        assert_eq!(contents, [small, content]);
        let plan = Plan::new(1024, &[0, 1], 1 << 40).unwrap();
        let (region, arena) = (plan.area(1, 0).unwrap(), plan.area(1, 1).unwrap());
        let runs: Vec<_> = data[1].runs.iter().map(|r| (r.physical, r.blocks)).collect();
        let here = region.blocks - 2;
        assert_eq!(runs, [(region.base + 2, here), (arena.base, 2304 - here)]);
        assert_eq!(end, arena.base + 2304 - here);
    }

    #[test]
    fn whole_groups_of_zeros_are_holes_and_nothing_shorter() {
        let group = file::GROUP;
        let mut content = vec![0; 6 * group + 100];
        content[2 * group + 7] = 1;
        content[5 * group - 1] = 1;
        let (data, contents, _) =
            placed(&vec![(content.len() as u64, vec![(0, &content[..])])], 1 << 20);
        assert_eq!(contents, [content]);
        let runs: Vec<_> = data[0].runs.iter().map(|r| (r.logical, r.blocks)).collect();
        assert_eq!(runs, [(16, 8), (32, 8), (48, 1)], "the short tail is written");
        let (data, contents, end) = placed(&vec![(0, vec![]), (1 << 25, vec![])], 0);
        assert!(data.iter().all(|data| data.runs.is_empty()) && contents[1].len() == 1 << 25);
        assert_eq!(end, 0, "nothing was written");
    }

    #[test]
    fn data_must_follow_each_other_and_lie_inside_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::create(dir.path(), false).unwrap();
        let plan = Plan::new(0, &[1], 1 << 30).unwrap();
        let writers = Writers::new(&disk, 3);
        let room = Endless(&disk);
        let mut placer = Placer::new(&plan, 0, &writers, &room);
        assert!(matches!(placer.data(0, b"x"), Err(PlaceError::Disorder { .. })));
        placer.begin(head(10)).unwrap();
        placer.data(4, b"four").unwrap();
        for (offset, bytes) in [(3, &b"x"[..]), (9, b"xy"), (u64::MAX, b"x")] {
            let result = placer.data(offset, bytes);
            assert!(matches!(result, Err(PlaceError::Disorder { .. })), "{offset}");
        }
        let huge = placer.begin(head(u64::MAX));
        assert!(matches!(huge, Err(PlaceError::FileTooLarge { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn content_comes_back_and_its_place_does_not_depend_on_cuts(
            stretches in prop::collection::vec((0_usize..100_000, any::<bool>()), 0..8),
            cuts in prop::collection::vec(1_usize..70_000, 1..20),
            sparse in any::<bool>(),
        ) {
            let mut content = Vec::new();
            for (number, (length, zero)) in stretches.iter().enumerate() {
                let seed = u8::try_from(number).unwrap();
                content.extend(if *zero { vec![0; *length] } else { noise(*length, seed) });
            }
            let size = content.len() as u64;
            let mut pieces = Vec::new();
            let (mut at, mut cut) = (0, cuts.iter().cycle());
            while at < content.len() {
                let next = (at + cut.next().unwrap()).min(content.len());
                let piece = &content[at..next];
                // A tar with a map of holes leaves out what is zeros.
                if !(sparse && checksum::is_zero(piece)) {
                    pieces.push((at as u64, piece));
                }
                at = next;
            }
            let whole = placed(&vec![(size, vec![(0, &content[..])]), (3, vec![(0, b"end")])], 1 << 18);
            let cut = placed(&vec![(size, pieces), (3, vec![(0, b"end")])], 1 << 18);
            prop_assert_eq!(&whole.0, &cut.0);
            prop_assert!(whole.1[0] == content && cut.1[0] == content);
            prop_assert_eq!(&cut.1[1], b"end");
            for pair in whole.0[0].runs.windows(2) {
                prop_assert!(pair[0].logical + pair[0].blocks <= pair[1].logical);
            }
        }
    }
}
