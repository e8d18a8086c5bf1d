//! How a workload is started: what the image says and what the spec says over it.

use portolan_core::manifest::ImageConfig;
use serde::Serialize;

use crate::spec::WorkloadSpec;

/// What the guest's init reads. One file in `fixtures/` holds both sides to this form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    /// In every line that the init writes for us, new at each start.
    pub token: String,
    /// Paths of modules in the initramfs, in the order to load them.
    pub modules: Vec<String>,
    /// How the machine is switched off.
    pub end: End,
    /// Whether it only tells that it boots.
    pub probe: bool,
    /// The root disk's file system, by its UUID in 32 hex digits.
    pub root_uuid: String,
    /// The scratch disk's.
    pub scratch_uuid: String,
    /// The machine's name.
    pub hostname: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Where it starts.
    pub cwd: String,
    /// Who runs it, in the image's words.
    pub user: String,
    /// The signal that asks it to end, in the image's words.
    pub stop_signal: String,
}

/// How a guest switches its machine off so that the VMM ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// ACPI or PSCI.
    PowerOff,
    /// A reset, which ends Firecracker.
    Restart,
}

/// Neither image nor spec name a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the image has neither entrypoint nor command; name a program in the spec's command")]
pub struct NoProgram;

/// Program and arguments, by the rule of Kubernetes and OCI: a command replaces the entrypoint and
/// drops the image's command, arguments replace the image's command alone.
pub fn argv(image: &ImageConfig, spec: &WorkloadSpec) -> Result<Vec<String>, NoProgram> {
    let (program, args) = match (&spec.command, &spec.args) {
        (Some(command), args) => (command, args.as_deref().unwrap_or_default()),
        (None, Some(args)) => (&image.entrypoint, args.as_slice()),
        (None, None) => (&image.entrypoint, image.cmd.as_slice()),
    };
    let argv: Vec<String> = program.iter().chain(args).cloned().collect();
    if argv.is_empty() { Err(NoProgram) } else { Ok(argv) }
}

/// The image's environment with the spec's over it.
pub fn env(image: &ImageConfig, spec: &WorkloadSpec) -> Vec<String> {
    let name_of = |line: &str| line.split_once('=').map_or(line, |(name, _)| name).to_owned();
    let kept = image.env.iter().filter(|line| !spec.env.contains_key(&name_of(line))).cloned();
    kept.chain(spec.env.iter().map(|(name, value)| format!("{name}={value}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(entrypoint: &[&str], cmd: &[&str]) -> ImageConfig {
        let json = serde_json::json!({"config": {"Entrypoint": entrypoint, "Cmd": cmd,
            "Env": ["PATH=/bin", "A=image", "PLAIN"]}});
        ImageConfig::parse(json.to_string().as_bytes()).unwrap()
    }

    fn spec(command: Option<&[&str]>, args: Option<&[&str]>) -> WorkloadSpec {
        let mut json = serde_json::json!({"image": {"repository": "r.example/a", "os": "linux",
            "arch": "amd64", "resolved_digest": null}, "env": {"A": "spec", "B": "b=c"}});
        if let Some(command) = command {
            json["command"] = serde_json::json!(command);
        }
        if let Some(args) = args {
            json["args"] = serde_json::json!(args);
        }
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn command_and_args_replace_as_in_kubernetes() {
        let both = image(&["/entry"], &["cmd"]);
        for (command, args, expected) in [
            (None, None, vec!["/entry", "cmd"]),
            (None, Some(&["a"][..]), vec!["/entry", "a"]),
            (None, Some(&[][..]), vec!["/entry"]),
            (Some(&["/c", "x"][..]), None, vec!["/c", "x"]),
            (Some(&["/c"][..]), Some(&["a"][..]), vec!["/c", "a"]),
        ] {
            assert_eq!(
                argv(&both, &spec(command, args)).unwrap(),
                expected,
                "{command:?} {args:?}"
            );
        }
        assert_eq!(argv(&image(&[], &["/only"]), &spec(None, None)).unwrap(), ["/only"]);
        assert_eq!(argv(&image(&[], &["/c"]), &spec(None, Some(&["/a"]))).unwrap(), ["/a"]);
        assert_eq!(argv(&image(&[], &[]), &spec(None, None)), Err(NoProgram));
    }

    #[test]
    fn the_specs_environment_goes_over_the_images() {
        let all = env(&image(&["/e"], &[]), &spec(None, None));
        assert_eq!(all, ["PATH=/bin", "PLAIN", "A=spec", "B=b=c"]);
    }

    #[test]
    fn init_is_told_in_the_form_it_reads() {
        let start = Start {
            token: "6d1c9c1e-58a4-4c0e-9f0b-0d1f2a3b4c5d".into(),
            modules: vec![
                "/modules/0-virtio_mmio.ko".into(),
                "/modules/1-virtio_blk.ko.zst".into(),
            ],
            end: End::Restart,
            probe: false,
            root_uuid: "00112233445566778899aabbccddeeff".into(),
            scratch_uuid: "ffeeddccbbaa99887766554433221100".into(),
            hostname: "web-1".into(),
            argv: vec!["/bin/server".into(), "--port".into(), "80".into()],
            env: vec!["PATH=/bin".into(), "GREETING=hello".into()],
            cwd: "/srv".into(),
            user: "app:staff".into(),
            stop_signal: "SIGQUIT".into(),
        };
        let written = serde_json::to_string_pretty(&start).unwrap() + "\n";
        assert_eq!(written, include_str!("../../../../fixtures/guest-config.json"));
    }
}
