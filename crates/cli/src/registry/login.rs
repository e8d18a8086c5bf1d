//! `portolan registry login HOST`

use std::io::{IsTerminal as _, Read as _, Write as _};

use anyhow::Context as _;
use portolan_core::Host;
use portolan_registry::client::{Credential, LoginCheck, Secret, Stored};

use crate::cli::Global;
use crate::context::{self, classed, client_failure};
use crate::exit::{Exit, Failure};
use crate::format;

/// No password or token is longer.
const MAX_PASSWORD: u64 = 64 * 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan registry login registry.example\n  \
    pass show registry | portolan registry login registry.example -u me --password-stdin\n\n\
    There is no --password: arguments are seen by everybody on the machine.")]
pub(crate) struct Args {
    /// Registry host, with its port if it has one
    #[arg(value_name = "HOST")]
    host: Host,
    /// User name (asked for when missing)
    #[arg(short, long)]
    username: Option<String>,
    /// Read the password or token from standard input
    #[arg(long)]
    password_stdin: bool,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let (username, password) = ask(args.username, args.password_stdin).map_err(Failure::usage)?;
    let credential = Credential::Basic { username: username.clone(), password: password.clone() };
    let client = context::client(global)?;
    let check = client.check_login(&args.host, &credential).await.map_err(client_failure)?;
    if check == LoginCheck::NotAsked {
        format::tell(&format!(
            "warning: {} lets everybody in, so the login could not be checked",
            args.host
        ));
    }
    let store = context::credentials();
    let stored = store
        .store(&args.host, &username, &password)
        .await
        .map_err(|error| classed(error.class(), error))?;
    let kept = match stored {
        Stored::File(path) => format!("in {} (mode 0600, not encrypted)", path.display()),
        Stored::Helper(name) => format!("by docker-credential-{name}"),
    };
    format::write(&format!("logged in to {} as {username}; kept {kept}\n", args.host))?;
    Ok(Exit::Ok)
}

fn ask(username: Option<String>, from_stdin: bool) -> anyhow::Result<(String, Secret)> {
    let terminal = std::io::stdin().is_terminal();
    let username = match username {
        Some(username) => username,
        None if terminal && !from_stdin => {
            let mut line = String::new();
            let mut err = std::io::stderr();
            err.write_all(b"Username: ").and_then(|()| err.flush()).ok();
            std::io::stdin().read_line(&mut line).context("read the user name")?;
            line.trim().to_owned()
        }
        None => anyhow::bail!("no user name: give --username"),
    };
    anyhow::ensure!(!username.is_empty(), "the user name is empty");
    anyhow::ensure!(!username.contains(':'), "a user name cannot contain a colon");
    let password = if from_stdin {
        let mut text = String::new();
        let limit = MAX_PASSWORD + 1;
        std::io::stdin().take(limit).read_to_string(&mut text).context("read the password")?;
        anyhow::ensure!(
            text.len() as u64 <= MAX_PASSWORD,
            "the password is longer than {MAX_PASSWORD} bytes"
        );
        Secret::new(text.trim_end_matches(['\r', '\n']))
    } else {
        anyhow::ensure!(terminal, "standard input is no terminal: give --password-stdin");
        Secret::new(rpassword::prompt_password("Password: ").context("read the password")?)
    };
    anyhow::ensure!(!password.is_empty(), "the password is empty");
    Ok((username, password))
}
