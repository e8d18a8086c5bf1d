//! Layers with the statistics of the real ones, for a machine that may not mount or has no
//! mirror: as many files, of such sizes, packing as well. What is hard to unpack is not in them.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::images::{LAYERS, SINGLE, Stats};
use crate::testbed::image::{Contents, layer};

/// Files and megabytes of each layer of the image of six.
const SIX: [(usize, usize); 6] =
    [(6_600, 120), (9_000, 210), (8_000, 280), (2_100, 300), (38_000, 260), (12_000, 110)];
const ONE: (usize, usize) = (8_200, 168);
/// Five of six files are small, as in the real images.
const SMALL: usize = 1_500;

pub(crate) fn make(dir: &Path) -> Result<()> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut stats = Stats { suite: "none (synthetic)".to_owned(), ..Stats::default() };
    for (number, (files, megabytes)) in SIX.into_iter().enumerate() {
        let mut contents = contents(&format!("/l{number}"), files, megabytes, &mut noise);
        stats.paths += contents.files.len() as u64;
        stats.surviving_bytes +=
            contents.files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        if let Some(below) = number.checked_sub(1) {
            // Each layer takes some of the one below away.
            for file in (0..files.min(SIX[below].0)).step_by(100) {
                let path = format!("/l{below}/d{}/.wh.f{file}", file / 50);
                contents.files.push((path, Vec::new()));
            }
        }
        fs::write(dir.join(LAYERS[number]), layer(&contents)?)?;
    }
    fs::write(dir.join(SINGLE), layer(&contents("/l", ONE.0, ONE.1, &mut noise))?)?;
    fs::write(dir.join("stats.json"), serde_json::to_vec(&stats)?)?;
    Ok(())
}

fn contents(prefix: &str, files: usize, megabytes: usize, noise: &mut Noise) -> Contents {
    let large = (megabytes * 1_000_000).saturating_sub(files * SMALL) / files.div_ceil(6).max(1);
    let files = (0..files).map(|number| {
        let size = if number % 6 == 0 { large } else { SMALL };
        (format!("{prefix}/d{}/f{number}", number / 50), noise.file(size))
    });
    Contents { files: files.collect(), ..Default::default() }
}

/// xorshift64: the same on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Packs to a bit more than a third, as programs and texts do: short runs of noise, and
    /// words that come again.
    fn file(&mut self, size: usize) -> Vec<u8> {
        const WORDS: [&[u8]; 8] = [
            b"usr/lib/x86_64-linux-gnu/",
            b"return NULL;\n",
            b"\x48\x89\xe5\x41\x57\x41\x56",
            b"share/doc/",
            b"copyright notice",
            b"\0\0\0\0\0\0\0\0",
            b"function (error, result) {\n",
            b"import ",
        ];
        let mut bytes = Vec::with_capacity(size + 64);
        while bytes.len() < size {
            let random = self.next();
            bytes.extend_from_slice(&random.to_le_bytes()[..4]);
            let word = usize::try_from(random >> 61).unwrap_or(0);
            bytes.extend_from_slice(WORDS[word % WORDS.len()]);
        }
        bytes.truncate(size);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn it_has_the_size_and_packs_like_real_files() {
        let made = contents("/l", 600, 12, &mut Noise(1));
        let bytes: Vec<u8> = made.files.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert!((11_000_000..13_000_000).contains(&bytes.len()), "{}", bytes.len());
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        gzip.write_all(&bytes).unwrap();
        let packed = gzip.finish().unwrap().len();
        assert!((30..50).contains(&(100 * packed / bytes.len())), "{packed} of {}", bytes.len());
    }
}
