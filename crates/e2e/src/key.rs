//! A key that images of a test are signed with, and a policy that asks for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{ok, portolan};

/// Of every key that tests make.
pub const KEY_PASSWORD: &str = "a password of the test";

/// Every image, whoever runs it, must be signed by the key beside it.
const POLICY: &str = "\
version: 1
signers:
  release: { keys: { files: [release.pub] } }
default:
  require: { allOf: [release] }
";

/// A pair of keys in a folder, with a policy: what `portolan install --policy`, a ConfigMap of a Release and
/// an agent take alike.
#[derive(Debug)]
pub struct SigningKey {
    dir: PathBuf,
}

impl SigningKey {
    /// Makes `release.key`, `release.pub` and `policy.yaml` in the folder.
    ///
    /// # Panics
    /// When that does not work.
    #[track_caller]
    pub fn generate(dir: &Path) -> Self {
        let key = Self { dir: dir.to_owned() };
        std::fs::create_dir_all(dir).expect("the folder of the key");
        let prefix = key.file("release");
        ok(secret(portolan().args(["key", "generate", "--output", &prefix])));
        std::fs::write(key.policy(), POLICY).expect("the policy is written");
        key
    }

    /// Signs the image; with `--recursive` in `more`, each platform's too.
    ///
    /// # Panics
    /// When that does not work.
    #[track_caller]
    pub fn sign(&self, image: &str, more: &[&str]) {
        let key = self.file("release.key");
        ok(secret(portolan().args(["sign", image, "--key", &key]).args(more)));
    }

    pub fn public(&self) -> String {
        self.file("release.pub")
    }

    pub fn policy(&self) -> String {
        self.file("policy.yaml")
    }

    /// The folder, which has nothing else.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

fn secret(command: &mut Command) -> &mut Command {
    command.env("COSIGN_PASSWORD", KEY_PASSWORD)
}
