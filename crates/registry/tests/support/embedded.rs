//! The embedded registry on a socket.

use portolan_registry::server::{Config, Server};

/// The embedded registry on a free port; it ends when dropped.
pub struct Embedded {
    host: String,
    task: tokio::task::JoinHandle<()>,
    _root: tempfile::TempDir,
}

impl Embedded {
    pub async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(Config::new(root.path(), listen)).await.unwrap();
        let host = server.local_addr().to_string();
        let task = tokio::spawn(async move {
            server.serve(std::future::pending()).await.unwrap();
        });
        Self { host, task, _root: root }
    }

    pub fn host(&self) -> String {
        self.host.clone()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.task.abort();
    }
}
