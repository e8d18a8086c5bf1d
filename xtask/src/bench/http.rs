//! The plain way: one connection per blob, read, hash, throw away. The bar for every client, and
//! the same client for both servers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use portolan_core::{Descriptor, Hasher};

/// Fetches all blobs at once and checks each digest; the time it took.
pub(crate) fn fetch_all(
    server: SocketAddr,
    repository: &str,
    blobs: &[Descriptor],
    hash: bool,
) -> Result<Duration> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let fetches: Vec<_> = blobs
            .iter()
            .map(|blob| scope.spawn(move || fetch(server, repository, blob, hash)))
            .collect();
        fetches.into_iter().try_for_each(|fetch| fetch.join().expect("a fetch does not panic"))
    })?;
    Ok(start.elapsed())
}

fn fetch(server: SocketAddr, repository: &str, blob: &Descriptor, hash: bool) -> Result<()> {
    let digest = blob.digest;
    let mut stream = TcpStream::connect(server).context("connect")?;
    write!(
        stream,
        "GET /v2/{repository}/blobs/{digest} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    )?;
    let mut reader = BufReader::with_capacity(256 * 1024, stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if !line.contains(" 200 ") {
        bail!("{digest}: {}", line.trim());
    }
    while !line.trim().is_empty() {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let mut hasher = Hasher::new(digest.algorithm());
    let mut left = blob.size;
    let mut buffer = vec![0; 256 * 1024];
    while left > 0 {
        let got = reader.read(&mut buffer)?;
        if got == 0 {
            bail!("{digest}: cut with {left} bytes left");
        }
        if hash {
            hasher.update(&buffer[..got]);
        }
        left = left.saturating_sub(got as u64);
    }
    if hash && hasher.finish() != digest {
        bail!("{digest}: wrong bytes");
    }
    Ok(())
}
