//! `portolan key …`: keys that sign images.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::Context as _;
use portolan_registry::durable;
use portolan_verify::key::{MAX_KEY_BYTES, Password, PrivateKey};
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};

pub(crate) mod generate;

/// Where cosign looks for the password, too.
const PASSWORD: &str = "COSIGN_PASSWORD";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a pair of keys that portolan and cosign sign and verify with
    Generate(generate::Args),
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Generate(args) => generate::run(&args),
    }
}

/// A private key from its file; the password is asked for only where there is one.
pub(crate) fn open(path: &Path) -> Result<PrivateKey, Failure> {
    let pem = match durable::read_bounded(path, MAX_KEY_BYTES as u64) {
        // It may be a key in the clear.
        Ok(Some(pem)) => Zeroizing::new(pem),
        Ok(None) => {
            let error = anyhow::anyhow!(
                "there is no key {}; `portolan key generate` makes one",
                path.display()
            );
            return Err(Failure::new(Exit::NotFound, error));
        }
        Err(error) => return Err(Failure::usage(error)),
    };
    let shown = || format!("read the key {}", path.display());
    let encrypted = PrivateKey::is_encrypted(&pem).with_context(shown).map_err(Failure::usage)?;
    let password = match encrypted {
        true => password("Password of the key: ").map_err(Failure::usage)?,
        false => None,
    };
    PrivateKey::from_pem(&pem, password.as_ref()).with_context(shown).map_err(Failure::usage)
}

/// The password from the environment, else from whoever sits at the terminal, else none.
fn password(question: &str) -> anyhow::Result<Option<Password>> {
    if let Some(password) = std::env::var_os(PASSWORD) {
        return Ok(Some(Password::new(password.into_encoded_bytes())));
    }
    if !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let typed = rpassword::prompt_password(question).context("read the password")?;
    Ok(Some(Password::new(typed.into_bytes())))
}
