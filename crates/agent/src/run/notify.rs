//! Telling systemd that the agent is ready (`Type=notify`).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// Says so once the API's socket answers; without a service manager, nothing happens.
pub(super) fn ready(socket: &Path) {
    let Some(target) = std::env::var_os("NOTIFY_SOCKET").filter(|value| !value.is_empty()) else {
        return;
    };
    let socket = socket.to_owned();
    tokio::spawn(async move {
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let told = address(target.as_bytes()).and_then(|address| {
            UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
        });
        if let Err(error) = told {
            tracing::warn!(%error, "the service manager cannot be told");
        }
    });
}

/// A path, or with `@` before it a name that is in no file system.
fn address(text: &[u8]) -> std::io::Result<SocketAddr> {
    match text.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_addresses_are_understood() {
        let path = address(b"/run/systemd/notify").unwrap();
        assert_eq!(path.as_pathname(), Some(Path::new("/run/systemd/notify")));
        let name = address(b"@portolan").unwrap();
        assert_eq!(name.as_abstract_name(), Some(b"portolan".as_slice()));
    }
}
