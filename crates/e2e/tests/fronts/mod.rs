//! Two front ends of one decision: Gatekeeper with the shipped templates, and the API server itself
//! with the shipped webhook. And images that are signed in part.
//!
//! `gatekeeper_alone` has the tests of what only Gatekeeper does.

mod gatekeeper_alone;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    KEY_PASSWORD, Namespace, Output, Testbed, Verifier, architecture, deploy, digest,
    hello_reference, ok, ours, portolan, wait_for,
};
use serde_json::{Value, json};

/// Who asks the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    Gatekeeper,
    Webhook,
}

impl Front {
    pub(crate) const ALL: [Self; 2] = [Self::Gatekeeper, Self::Webhook];

    /// A namespace in which this front end, and no other, decides.
    pub(crate) fn namespace(self) -> Result<Namespace> {
        let namespace = Namespace::new("admission")?;
        self.look_at(&namespace)?;
        Ok(namespace)
    }

    /// From now on this front end decides here: the API server hears of labels only after a while.
    pub(crate) fn look_at(self, namespace: &Namespace) -> Result<()> {
        self.installed();
        Testbed::get().kubectl(&["label", "namespace", namespace.name(), self.label()])?;
        let unsigned = pod(&image(false, &[]), json!({}));
        wait_for("the first refusal", Duration::from_secs(60), || {
            let said = namespace.try_create(unsigned.clone())?;
            self.refusal(&said).map(drop)
        })
    }

    fn label(self) -> &'static str {
        match self {
            Self::Gatekeeper => "portolan.dev/gatekeeper=enforced",
            Self::Webhook => "portolan.dev/webhook=enforced",
        }
    }

    /// How the API server names who refused.
    fn name(self) -> &'static str {
        match self {
            Self::Gatekeeper => "validation.gatekeeper.sh",
            Self::Webhook => "verify.portolan.dev",
        }
    }

    /// Installs it, once, as it is shipped.
    fn installed(self) {
        static DONE: [OnceLock<Result<(), String>>; 2] = [const { OnceLock::new() }; 2];
        let done = &DONE[usize::from(self == Self::Webhook)];
        let installed = done.get_or_init(|| self.install().map_err(|error| format!("{error:#}")));
        if let Err(error) = installed {
            panic!("install {self:?}: {error}");
        }
    }

    fn install(self) -> Result<()> {
        let testbed = Testbed::get();
        let verifier = Verifier::get();
        if self == Self::Gatekeeper {
            // The constraint's kind is there only after Gatekeeper has read the template.
            let rendered = rendered(&[]);
            return wait_for("Gatekeeper to take the template", Duration::from_secs(60), || {
                testbed.apply(&rendered)
            });
        }
        let mut webhook = testbed.read_manifest(&deploy("verifier/webhook.yaml"))?;
        let authority = std::fs::read(verifier.authority())?;
        let hook = &mut webhook["webhooks"][0];
        hook["clientConfig"]["caBundle"] = json!(base64(&authority)?);
        // Other tests share the cluster.
        let only =
            json!({ "key": "portolan.dev/webhook", "operator": "In", "values": ["enforced"] });
        let terms = hook["namespaceSelector"]["matchExpressions"].as_array_mut();
        terms.context("the shipped webhook leaves out namespaces")?.push(only);
        testbed.apply(&webhook)
    }

    /// Why this front end refused; an error if it did not, or somebody else did.
    pub(crate) fn refusal(self, said: &Output) -> Result<&str> {
        let who = format!("admission webhook {:?} denied the request", self.name());
        ensure!(
            said.code == Some(1) && said.stderr.contains(&who),
            "{self:?} did not refuse: {said}"
        );
        Ok(&said.stderr)
    }
}

/// The object that the cluster would have kept.
#[track_caller]
pub(crate) fn admitted(said: &Output) -> Value {
    assert_eq!(said.code, Some(0), "not admitted: {said}");
    portolan_e2e::json(&said.stdout)
}

/// What `portolan verify template render` prints for this run's verifier.
pub(crate) fn rendered(more: &[&str]) -> Value {
    let verifier = Verifier::get();
    let authority = verifier.authority();
    let args = ["verify", "template", "render", "--ca", &authority, "-o", "json"];
    portolan_e2e::json(&ours(&[&args[..], more].concat()))
}

fn base64(bytes: &[u8]) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes)?;
    let mut command = std::process::Command::new("base64");
    Ok(ok(command.arg("-w0").arg(file.path())))
}

/// A pod of one container, with the rest of its spec.
pub(crate) fn pod(image: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "candidate" }, "spec": spec,
    });
    pod["spec"]["containers"] = json!([{ "name": "main", "image": image }]);
    pod
}

/// The machine's own architecture, another, and a third; the image has these and no more.
pub(crate) fn architectures() -> [&'static str; 3] {
    let here = architecture();
    [here, if here == "arm64" { "amd64" } else { "arm64" }, "riscv64"]
}

/// The digest of the image for an architecture; they are the same in every copy.
pub(crate) fn child(architecture: &str) -> String {
    let platform = format!("linux/{architecture}");
    ours(&["image", "resolve", original(), "--platform", &platform]).trim().to_owned()
}

/// A copy of one image whose index is signed or is not, and the images of these architectures:
/// nothing else of it. As pods name it.
pub(crate) fn image(index: bool, architectures: &[&str]) -> String {
    static MADE: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut parts = architectures.to_vec();
    parts.sort_unstable();
    let what = if index { "index" } else { "none" };
    let name = [&[what][..], &parts].concat().join("-");
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reference) = made.get(&name) {
        return reference.clone();
    }
    let copy = Copy::new(&name);
    if index {
        copy.sign(&copy.tagged());
    }
    for part in parts {
        copy.sign(&format!("{}@{}", copy.repository(), child(part)));
    }
    made.insert(name, copy.reference());
    copy.reference()
}

/// The image that all are copies of: the checked-in one has variants and more, so that "for arm64"
/// would be more than one image.
fn original() -> &'static str {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let repository = format!("{}/admission/original", Testbed::get().registry.loopback);
        let parts = architectures().map(|one| {
            let part = format!("{repository}:{one}");
            let platform = format!("linux/{one}");
            ours(&["image", "copy", &hello_reference(), &part, "--platform", &platform]);
            part
        });
        let whole = format!("{repository}:1");
        let sources = parts.each_ref().map(String::as_str);
        ours(&[&["image", "index", "create", &whole], &sources[..]].concat());
        whole
    })
}

/// An image of this run's own in the cluster's registry: one store, which the host knows by loopback
/// and pods by the bridge.
pub(crate) struct Copy {
    path: String,
}

impl Copy {
    /// With three platforms, unsigned.
    pub(crate) fn new(name: &str) -> Self {
        // A registry that was kept from an earlier run has signatures of other keys.
        let copy = Self { path: format!("admission-{}/{name}", std::process::id()) };
        ours(&["image", "copy", original(), &copy.tagged()]);
        copy
    }

    pub(crate) fn repository(&self) -> String {
        format!("{}/{}", Testbed::get().registry.loopback, self.path)
    }

    /// For commands on the host.
    pub(crate) fn tagged(&self) -> String {
        format!("{}:1", self.repository())
    }

    /// For pods.
    pub(crate) fn reference(&self) -> String {
        format!("{}/{}:1", Testbed::get().registry.cluster, self.path)
    }

    /// Of the index.
    pub(crate) fn digest(&self) -> String {
        digest(&self.tagged())
    }

    /// The index and everything in it.
    pub(crate) fn sign_all(&self) {
        self.sign_with(&self.tagged(), &["--recursive"]);
    }

    pub(crate) fn sign(&self, reference: &str) {
        self.sign_with(reference, &[]);
    }

    fn sign_with(&self, reference: &str, flags: &[&str]) {
        let key = Verifier::get().key();
        ok(portolan()
            .args(["sign", reference, "--key", &key])
            .args(flags)
            .env("COSIGN_PASSWORD", KEY_PASSWORD));
    }
}
