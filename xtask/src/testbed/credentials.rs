//! Who is who in the cluster: a certificate authority of its own, tokens, kubeconfigs.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::command::run;
use super::state::State;

/// Users of the API server; the groups are those that its own bootstrap roles are bound to.
const USERS: &[User] = &[
    User { file: "admin", name: "portolan-admin", groups: "system:masters" },
    User { file: "controller-manager", name: "system:kube-controller-manager", groups: "" },
    User { file: "scheduler", name: "system:kube-scheduler", groups: "" },
    User { file: "kubelet", name: "system:node:portolan-node", groups: "system:nodes" },
];

struct User {
    /// `<file>.kubeconfig` in the run folder.
    file: &'static str,
    name: &'static str,
    groups: &'static str,
}

/// Files of the run folder.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) dir: PathBuf,
}

impl Files {
    pub(crate) fn of(state: &State) -> Self {
        Self { dir: state.run_dir.join("pki") }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

pub(crate) fn kubeconfig_path(state: &State, file: &str) -> PathBuf {
    state.run_dir.join(format!("{file}.kubeconfig"))
}

/// Makes everything anew, as clusters live for a test run only.
pub(crate) fn make(state: &State) -> Result<()> {
    let files = Files::of(state);
    fs::create_dir_all(&files.dir).with_context(|| format!("create {}", files.dir.display()))?;
    certificates(state, &files)?;
    let mut tokens = String::new();
    for user in USERS {
        let token = random_token()?;
        tokens.push_str(&token_line(&token, user));
        let text = kubeconfig(state, &files.path("ca.crt"), &token);
        write_private(&kubeconfig_path(state, user.file), &text)?;
    }
    write_private(&files.dir.join("tokens.csv"), &tokens)
}

fn certificates(state: &State, files: &Files) -> Result<()> {
    let openssl = state.tool("openssl")?;
    // Without a configuration of our own, the system's adds extensions that a leaf must not have.
    let config = files.path("openssl.cnf");
    fs::write(&config, "[req]\ndistinguished_name = name\n[name]\n")?;
    let (ca, ca_key) = (files.path("ca.crt"), files.path("ca.key"));
    let new = |name: &str, subject: &str, extra: &[&str]| {
        let (crt, key) = (files.path(&format!("{name}.crt")), files.path(&format!("{name}.key")));
        let mut args = vec!["req", "-x509", "-config", &config, "-days", "365", "-noenc"];
        args.extend(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        args.extend(["-keyout", &key, "-out", &crt, "-subj", subject]);
        args.extend(extra);
        run(openssl, &args).with_context(|| format!("make the certificate {name}"))
    };
    new(
        "ca",
        "/CN=portolan-testbed",
        &[
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign",
        ],
    )?;
    let names = format!(
        "subjectAltName=IP:{},DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc",
        state.api_address
    );
    let leaf = ["-CA", &ca, "-CAkey", &ca_key, "-addext", "basicConstraints=critical,CA:FALSE"];
    let server = ["-addext", "extendedKeyUsage=serverAuth", "-addext", &names];
    new("apiserver", "/CN=kube-apiserver", &[&leaf[..], &server].concat())?;
    // By this the kubelet knows the API server that asks for logs.
    let client = ["-addext", "extendedKeyUsage=clientAuth"];
    new("kubelet-client", "/O=system:masters/CN=kube-apiserver", &[&leaf[..], &client].concat())?;
    let (key, public) = (files.path("service-account.key"), files.path("service-account.pub"));
    let curve = "ec_paramgen_curve:prime256v1";
    run(openssl, &["genpkey", "-algorithm", "EC", "-pkeyopt", curve, "-out", &key])?;
    run(openssl, &["pkey", "-in", &key, "-pubout", "-out", &public])
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    let mut source = fs::File::open("/dev/urandom").context("open /dev/urandom")?;
    source.read_exact(&mut bytes).context("read /dev/urandom")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// A line of the API server's token file.
fn token_line(token: &str, user: &User) -> String {
    format!("{token},{name},{name},\"{groups}\"\n", name = user.name, groups = user.groups)
}

/// A kubeconfig; JSON is YAML.
fn kubeconfig(state: &State, ca: &str, token: &str) -> String {
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "testbed", "cluster": {
            "server": format!("https://{}:443", state.api_address),
            "certificate-authority": ca,
        }}],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "user" } }],
        "current-context": "testbed",
    });
    format!("{file:#}\n")
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("create {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::state::NODE;

    #[test]
    fn the_kubelet_is_the_node_that_registers() {
        let kubelet = USERS.iter().find(|user| user.file == "kubelet").unwrap();
        assert_eq!(kubelet.name, format!("system:node:{NODE}"));
        assert_eq!(
            token_line("t", kubelet),
            "t,system:node:portolan-node,system:node:portolan-node,\"system:nodes\"\n"
        );
    }
}
