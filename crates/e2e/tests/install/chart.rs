//! The Helm chart: it gives what `portolan install` prints, and what values say reaches settings that are there, or Helm
//! refuses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{Output, json as parsed, ok, ours, portolan, run, tool};
use serde_json::{Value, json};

/// Everything by what it is called.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = |object: Value| {
        let metadata = &object["metadata"];
        let name =
            [&object["apiVersion"], &object["kind"], &metadata["namespace"], &metadata["name"]];
        (name.map(ToString::to_string).join(" "), object)
    };
    objects.into_iter().map(named).collect()
}

pub(crate) const CLIENT_CA: &str = r#"client_ca = "/etc/portolan/gatekeeper/ca.crt""#;

/// `verify.gatekeeperCa=FILE`
pub(crate) fn authority(dir: &Path) -> Result<String> {
    let file = dir.join("ca.crt");
    let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    std::fs::write(&file, pem)?;
    Ok(format!("verify.gatekeeperCa={}", file.display()))
}

fn helm(chart: &Path) -> Command {
    let mut helm = Command::new(tool("helm"));
    helm.args(["template", "portolan"]).arg(chart);
    helm.args(["--include-crds", "--kube-version", "1.36.0"]);
    // What a cluster knows once Gatekeeper has read the template.
    helm.args(["--api-versions", "constraints.gatekeeper.sh/v1beta1/PortolanVerifiedImages"]);
    helm
}

pub(crate) fn chart(values: &[&str]) -> BTreeMap<String, Value> {
    let text = ok(helm(&portolan_e2e::deploy("chart/portolan")).args(values));
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let documents = documents.map(|one| serde::Deserialize::deserialize(one).expect("YAML"));
    by_name(documents.filter(|one: &Value| !one.is_null()).collect())
}

fn installs(flags: &[&str]) -> BTreeMap<String, Value> {
    let list = parsed(&ours(&[&["install", "-o", "json"][..], flags].concat()));
    by_name(list["items"].as_array().expect("a list").clone())
}

#[test]
fn the_chart_gives_what_install_prints() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = authority(dir.path()).expect("a file");
    let (_, file) = authority.split_once('=').expect("a value");
    for (values, flags) in [
        (vec![], vec![]),
        (
            vec![
                "--set",
                "image=registry.example/p:2,namespace=images,shimNamespace=shims,agentNamespace=nodes",
            ],
            vec![
                "--image",
                "registry.example/p:2",
                "--namespace",
                "images",
                "--shim-namespace",
                "shims",
                "--agent-namespace",
                "nodes",
            ],
        ),
        (
            vec!["--set", "verify.gate=webhook,controller.replicas=1,verifier.replicas=1"],
            vec!["--gate", "webhook", "--replicas", "1"],
        ),
        (
            vec!["--set", "agent.taint=true,agent.labels=true,agent.root=/mnt/images"],
            vec!["--agent-taint", "--agent-labels", "--agent-root", "/mnt/images"],
        ),
        (vec!["--set", "verify.pin=true,verify.action=deny"], vec!["--pin", "--action", "deny"]),
        (vec!["--set-file", &authority], vec!["--gatekeeper-ca", file]),
    ] {
        let (chart, printed) = (chart(&values), installs(&flags));
        let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&printed), "{values:?}");
        for (name, object) in &printed {
            assert_eq!(chart[name], *object, "{values:?}: {name}");
        }
    }
    // Helm makes all definitions, whichever components are chosen.
    let is_definition = |name: &String| name.contains("CustomResourceDefinition");
    for component in ["build", "shims", "verify", "agent", "releases"] {
        let value = format!("components={{{component}}}");
        let mut chart = chart(&["--set", &value]);
        let mut printed = installs(&["--components", component]);
        chart.retain(|name, _| !is_definition(name));
        printed.retain(|name, _| !is_definition(name));
        assert_eq!(chart, printed, "{component}");
    }
}

/// What both take for the folder of agents, and what neither does.
#[test]
fn the_chart_and_install_refuse_the_same_folders_of_nodes() -> Result<()> {
    let helpers = Helpers::new(r#"root: {{ include "portolan.root" . }}"#)?;
    // One of each kind: every other row of the table is the function's own test, and each of these is two programs.
    let folders = "/var/lib/x //mnt/./a/ /home/a/b /library / /a/../b x /etc/x /var//lib/ /var/run/x /opt /./dev";
    let (mut taken, mut refused) = (0, 0);
    for folder in folders.split_whitespace() {
        let printed = run(portolan().args(["install", "--agent-root", folder]))?;
        let rendered = helpers.rendered(&json!({"agent": {"root": folder}}))?;
        assert_eq!(printed.code == Some(0), rendered.code == Some(0), "{folder}: {rendered}");
        match printed.code {
            Some(0) => taken += 1,
            _ => {
                refused += 1;
                ensure!(
                    rendered.stderr.contains("a folder of nodes for agents alone"),
                    "{rendered}"
                );
            }
        }
    }
    assert_eq!((taken, refused), (4, 8));
    Ok(())
}

/// The chart with nothing but its helpers and one template that asks them.
struct Helpers(tempfile::TempDir);

impl Helpers {
    fn new(template: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let shipped = portolan_e2e::deploy("chart/portolan");
        std::fs::create_dir(dir.path().join("templates"))?;
        for file in ["Chart.yaml", "values.yaml", "templates/_helpers.tpl"] {
            std::fs::copy(shipped.join(file), dir.path().join(file))?;
        }
        std::fs::write(dir.path().join("templates/asks.yaml"), template)?;
        Ok(Self(dir))
    }

    fn rendered(&self, values: &Value) -> Result<Output> {
        let path = self.0.path().join("said.json");
        std::fs::write(&path, values.to_string())?;
        run(helm(self.0.path()).arg("--values").arg(path))
    }

    /// A file of settings as a cluster might have it, the way values make it; or why they cannot.
    fn edited(&self, file: &str, text: &str, values: &Value) -> Result<Result<String, String>> {
        let mut values = values.clone();
        values["file"] = json!(file);
        values["program"] = json!(format!("portolan-{}", file.trim_end_matches(".toml")));
        values["text"] = json!(text);
        let said = self.rendered(&values)?;
        if said.code != Some(0) {
            return Ok(Err(said.stderr));
        }
        let made: Value = serde_yaml_ng::from_str(&said.stdout)?;
        Ok(Ok(made["text"].as_str().context("a text")?.to_owned()))
    }
}

const EDITED: &str = r#"text: {{ include "portolan.edited" (list .Values .Values.file .Values.text (include (print "portolan.shipped." .Values.program "." .Values.file) .) .Values.theirs) | toJson }}"#;

#[test]
fn values_reach_settings_however_these_are_written_or_nothing_is_rendered() -> Result<()> {
    let settings = Helpers::new(EDITED)?;
    let agent = |taint: bool| json!({"agent": {"taint": taint, "labels": false}, "theirs": false});
    for (taint, text, expected) in [
        (
            true,
            "[report.node]\ntaint = false\nlabels = false\n",
            Some("[report.node]\ntaint = true\nlabels = false\n"),
        ),
        (
            true,
            "[report.node] # [x]\r\n  taint=false # [y]\r\n",
            Some("[report.node] # [x]\r\n  taint = true # [y]\r\n"),
        ),
        (
            true,
            "[report.node]\nlabels = false\n",
            Some("[report.node]\ntaint = true\nlabels = false\n"),
        ),
        (true, "report.node.taint = true\n", Some("report.node.taint = true\n")),
        (true, "[report]\nnode.taint = false\n", None),
        (true, "[report.node]\n# taint = true\n\"taint\" = false\n", None),
        (true, "root = \"/x\"\n", None),
        (false, "[report.node]\ntaint = true\n", Some("[report.node]\ntaint = false\n")),
        (false, "root = \"/x\"\n", Some("root = \"/x\"\n")),
        (false, "report.node = {taint = true}\n", None),
    ] {
        match (settings.edited("agent.toml", text, &agent(taint))?, expected) {
            (Ok(made), Some(expected)) => assert_eq!(made, expected, "{text}"),
            (Err(said), None) => assert!(said.contains("another thing than agent.taint"), "{said}"),
            (made, _) => panic!("{text}: {made:?}"),
        }
    }
    let verifier =
        |ca: &str, theirs: bool| json!({"verify": {"gatekeeperCa": ca}, "theirs": theirs});
    // `@` is the line.
    for (values, text, expected) in [
        (verifier("PEM", false), "[tls]\na = 1\n", Some("[tls]\n@\na = 1\n")),
        (verifier("PEM", false), "[tls]", Some("[tls]\n@")),
        (verifier("PEM", false), " [ tls ] # ours\r\n", Some(" [ tls ] # ours\r\n@\n")),
        (verifier("PEM", false), "[tls]\n# [1]\n  @\n", Some("[tls]\n# [1]\n  @\n")),
        (
            verifier("PEM", false),
            "[tls]\n# @\n[admission]\n@\n",
            Some("[tls]\n@\n# @\n[admission]\n@\n"),
        ),
        (verifier("PEM", false), "tls.@\n", Some("tls.@\n")),
        (verifier("PEM", false), "tls = {}\n", None),
        (verifier("PEM", false), "# [tls]\n", None),
        (
            verifier("", false),
            "[tls] # [1]\r\n  @ # ours\r\na = 1\n",
            Some("[tls] # [1]\r\n  a = 1\n"),
        ),
        (
            verifier("", false),
            "[tls]\nclient_ca = \"/own\"\n",
            Some("[tls]\nclient_ca = \"/own\"\n"),
        ),
        (verifier("", false), "[tls]\n[admission]\n@\n", Some("[tls]\n[admission]\n@\n")),
        // Somebody else's authority stays, and so must the question for it.
        (verifier("", true), "[tls]\n@\n", Some("[tls]\n@\n")),
    ] {
        let text = text.replace('@', CLIENT_CA);
        match (settings.edited("verifier.toml", &text, &values)?, expected) {
            (Ok(made), Some(expected)) => assert_eq!(made, expected.replace('@', CLIENT_CA)),
            (Err(said), None) => assert!(said.contains("has no line [tls]"), "{said}"),
            (made, _) => panic!("{text}: {made:?}"),
        }
    }
    Ok(())
}
