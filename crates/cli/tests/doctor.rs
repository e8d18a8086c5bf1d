//! `portolan doctor` on machines that are folders, and in clusters of a few answers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use support::{Said, run};

/// What an API server says to a path; everything else is 404, as of a kind that is not known.
type Answers = BTreeMap<&'static str, (u16, Value)>;

/// A server of these answers, and a kubeconfig for it.
fn cluster(home: &Path, answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answers = answers.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
                    let path = target.split('?').next().unwrap_or_default().to_owned();
                    let mut length = 0;
                    loop {
                        let mut header = String::new();
                        reader.read_line(&mut header).unwrap();
                        let header = header.trim().to_ascii_lowercase();
                        if header.is_empty() {
                            break;
                        }
                        if let Some(value) = header.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                    }
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).unwrap();
                    let none = (
                        404,
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "the server could not find the requested resource", "reason": "NotFound", "code": 404}),
                    );
                    let (code, value) = answers.get(path.as_str()).cloned().unwrap_or(none);
                    let text = value.to_string();
                    let head = format!(
                        "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                        text.len()
                    );
                    if stream.write_all(head.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let file = home.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "team"}}],
        "users": [{"name": "x", "user": {}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

const REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

fn list(kind: &str, items: Vec<Value>) -> (u16, Value) {
    (
        200,
        json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {}, "items": items}),
    )
}

fn healthy() -> Answers {
    let version = json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    });
    let allowed = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "metadata": {}, "spec": {}, "status": {"allowed": true}});
    Answers::from([
        ("/version", (200, version)),
        (DEFINITIONS, list("CustomResourceDefinition", vec![])),
        (DEPLOYMENTS, list("Deployment", vec![])),
        ("/api/v1/nodes", list("Node", vec![])),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            list("ValidatingWebhookConfiguration", vec![]),
        ),
        (REVIEW, (201, allowed)),
    ])
}

/// What `portolan install` prints, as a cluster that has taken it would list it.
fn installed(home: &Path) -> (Vec<Value>, Vec<Value>) {
    let all = run(home, &["install", "-o", "json"]).json();
    let of = |kind: &str| {
        let all = all["items"].as_array().unwrap().iter().filter(|one| one["kind"] == kind);
        all.cloned().collect::<Vec<_>>()
    };
    let mut definitions = of("CustomResourceDefinition");
    for one in &mut definitions {
        one["status"] = json!({"conditions": [{"type": "Established", "status": "True"}], "storedVersions": []});
    }
    let mut deployments = of("Deployment");
    for one in &mut deployments {
        one["status"] = json!({"readyReplicas": one["spec"]["replicas"], "observedGeneration": 1});
    }
    (definitions, deployments)
}

fn doctor(home: &Path, kubeconfig: &str) -> Said {
    run(home, &["doctor", "--only", "cluster", "--kubeconfig", kubeconfig, "-o", "json"])
}

fn state<'a>(findings: &'a Value, check: &str) -> Vec<&'a str> {
    let all = findings.as_array().unwrap().iter().filter(|one| one["check"] == check);
    all.map(|one| one["state"].as_str().unwrap()).collect()
}

fn read(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{} {}", said.out, said.err))
}

#[test]
fn doctor_says_of_an_empty_cluster_what_is_missing_and_that_nothing_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let said = doctor(home.path(), &cluster(home.path(), healthy()));
    let findings = read(&said);
    assert_eq!(said.code, 0, "{findings:#}");
    assert_eq!(state(&findings, "kubernetes"), ["ok"]);
    for check in ["definitions", "tekton", "gatekeeper", "programs"] {
        assert_eq!(state(&findings, check), ["missing"], "{findings:#}");
    }
    assert_eq!(state(&findings, "rights"), ["ok"]);
}

#[test]
fn doctor_says_what_is_wrong_with_an_installation() {
    let home = tempfile::tempdir().unwrap();
    let (definitions, deployments) = installed(home.path());
    let nobody = {
        let all = run(home.path(), &["install", "-o", "json"]).json();
        let all = all["items"].as_array().unwrap();
        all.iter().find(|one| one["kind"] == "Provider").unwrap().clone()
    };
    let mut answers = healthy();
    answers.insert(DEFINITIONS, list("CustomResourceDefinition", definitions.clone()));
    answers.insert(DEPLOYMENTS, list("Deployment", deployments.clone()));
    answers.insert("/apis/tekton.dev/v1/taskruns", list("TaskRun", vec![]));
    answers.insert("/apis/externaldata.gatekeeper.sh/v1beta1/providers", list("Provider", vec![]));
    let well = doctor(home.path(), &cluster(home.path(), answers.clone()));
    let findings = read(&well);
    assert_eq!(well.code, 0, "{findings:#}");
    assert_eq!(state(&findings, "programs"), ["ok", "ok"]);
    assert_eq!(state(&findings, "definitions"), ["ok"]);

    let mut old = definitions;
    old[0]["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
    old.pop();
    let mut down = deployments;
    down[0]["status"]["readyReplicas"] = json!(0);
    answers.insert(DEFINITIONS, list("CustomResourceDefinition", old));
    answers.insert(DEPLOYMENTS, list("Deployment", down));
    answers.remove("/apis/tekton.dev/v1/taskruns");
    answers.insert(
        "/apis/externaldata.gatekeeper.sh/v1beta1/providers",
        list("Provider", vec![nobody]),
    );
    let ill = doctor(home.path(), &cluster(home.path(), answers));
    let findings = read(&ill);
    assert_eq!(ill.code, 1, "{findings:#}");
    assert_eq!(state(&findings, "definitions"), ["ok", "wrong", "wrong"], "{findings:#}");
    for check in ["tekton", "trust"] {
        assert_eq!(state(&findings, check), ["wrong"], "{findings:#}");
    }
    assert!(state(&findings, "programs").contains(&"wrong"));
    let all = findings.as_array().unwrap();
    assert!(all.iter().filter(|one| one["state"] == "wrong").all(|one| one["advice"].is_string()));
}

#[test]
fn doctor_cannot_tell_of_a_cluster_that_is_silent_or_closed() {
    let home = tempfile::tempdir().unwrap();
    let file = cluster(home.path(), Answers::new());
    let text = std::fs::read_to_string(&file).unwrap();
    // Nobody listens on the port of a listener that is gone.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server =
        serde_json::from_str::<Value>(&text).unwrap()["clusters"][0]["cluster"]["server"].clone();
    std::fs::write(&file, text.replace(server.as_str().unwrap(), &format!("http://{free}")))
        .unwrap();
    let said = doctor(home.path(), &file);
    assert_eq!(said.code, 3, "{} {}", said.out, said.err);
    assert_eq!(state(&read(&said), "cluster"), ["unknown"]);
    // One that answers and lets us see nothing.
    let forbidden = (
        403,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "you may not", "reason": "Forbidden", "code": 403}),
    );
    let mut answers = healthy();
    answers.insert(DEFINITIONS, forbidden.clone());
    answers.insert(DEPLOYMENTS, forbidden);
    let said = doctor(home.path(), &cluster(home.path(), answers));
    assert_eq!(said.code, 3, "{} {}", said.out, said.err);
    // And none at all, which nobody asked for.
    let said = run(home.path(), &["doctor", "-o", "json", "--host", home.path().to_str().unwrap()]);
    assert_eq!(state(&read(&said), "cluster"), ["missing"]);
}

#[test]
fn doctor_looks_at_a_machine_without_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root");
    std::fs::create_dir_all(root.join("etc/containerd")).unwrap();
    let machine = |home: &Path, root: &Path| {
        run(home, &["doctor", "--only", "machine", "--host", root.to_str().unwrap(), "-o", "json"])
    };
    let said = machine(home.path(), &root);
    let findings = read(&said);
    for check in ["kvm", "vmm", "guest kernel", "emulation", "agent", "containerd"] {
        assert_eq!(state(&findings, check), ["missing"], "{findings:#}");
    }
    assert_eq!(state(&findings, "logins"), ["ok"]);
    // Files of this person that cannot be used.
    let docker = home.path().join(".docker");
    std::fs::create_dir_all(&docker).unwrap();
    std::fs::write(docker.join("config.json"), r#"{"credsStore": "not-installed-here"}"#).unwrap();
    std::fs::create_dir_all(home.path().join(".config/portolan")).unwrap();
    std::fs::write(home.path().join(".config/portolan/registries.toml"), "nonsense = [").unwrap();
    let said = machine(home.path(), &root);
    let findings = read(&said);
    assert_eq!(said.code, 1, "{findings:#}");
    assert_eq!(state(&findings, "registries"), ["wrong"]);
    assert_eq!(state(&findings, "logins"), ["wrong"]);
    assert!(said.out.contains("docker-credential-not-installed-here"), "{}", said.out);
    let table =
        run(home.path(), &["doctor", "--only", "machine", "--host", root.to_str().unwrap()]);
    assert!(table.out.starts_with("WHERE") && table.out.contains("-> "), "{}", table.out);
}
