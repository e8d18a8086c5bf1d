//! The table of real parts: what each is, which version, how one comes by it, and who needs it.
//!
//! A new part is a new row (and, for a Go program, a folder `xtask/testbed/<module>` that pins it
//! with go.mod and go.sum). Nothing else in the testbed names a version.

/// Which chore needs a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Use {
    /// `cargo xtask test`: only what a package manager installs in a minute
    Test,
    /// `cargo xtask e2e`: the cluster, the registries and the peers to agree with
    E2e,
    /// `cargo xtask bench`: the peers to measure against
    Bench,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Part {
    /// The name tests ask for, and the name of the file or folder in the cache.
    pub(crate) name: &'static str,
    /// What is built; for a distribution's package, the version this was made to work with.
    pub(crate) version: &'static str,
    pub(crate) make: Make,
    pub(crate) uses: &'static [Use],
}

/// How one comes by a part.
#[derive(Debug)]
pub(crate) enum Make {
    /// A Debian package. The versions differ from machine to machine, so `accepts` says which do.
    Apt {
        package: &'static str,
        /// Where the package puts it, when that is not a folder of PATH.
        at: Option<&'static str>,
        accepts: Accepts,
    },
    /// `go build package` inside `xtask/testbed/<module>`.
    Go {
        module: &'static str,
        package: &'static str,
        /// `-X` settings for the linker.
        set: &'static [&'static str],
        accepts: Accepts,
    },
    /// `go build package` inside a copy of the source of the Go module `of`, whose own go.sum
    /// pins the rest.
    GoSource { module: &'static str, of: &'static str, package: &'static str },
    /// A folder of a Go module's source, copied.
    GoFolder { module: &'static str, of: &'static str, folder: &'static str },
    /// The kernel that a Debian metapackage stands for, unpacked and not installed: a folder with
    /// `vmlinuz`, `config` and `modules/`.
    Kernel { package: &'static str },
    /// A container image of programs that are installed here, with their libraries.
    Gathered {
        /// Parts; each is at its own path in the image.
        programs: &'static [&'static str],
        /// Folders of this machine.
        folders: &'static [&'static str],
        /// Files that are written for it: path and text.
        texts: &'static [(&'static str, &'static str)],
        links: &'static [(&'static str, &'static str)],
    },
    /// A container image of one layer, as an OCI layout, made of other parts.
    Image {
        /// Part and its absolute path in the image.
        files: &'static [(&'static str, &'static str)],
        /// Names for one file: path of the link and what it points at.
        links: &'static [(&'static str, &'static str)],
        entrypoint: &'static [&'static str],
    },
}

/// When a program that is already installed is as good as ours.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Accepts {
    /// Never: tests compare with exactly this version.
    OnlyOurs,
    /// Whatever is there.
    Any,
    /// When it needs no loader, so that it runs in an image of its own.
    Static,
    /// When the output of `program ask` has a word with one of these beginnings.
    Versions { ask: &'static [&'static str], starts: &'static [&'static str] },
}

use Use::{Bench, E2e, Test};

/// Without these the binaries call themselves v0.0.0 and clients that check refuse them.
const KUBERNETES_SET: &[&str] = &[
    "k8s.io/component-base/version.gitVersion=v1.36.3",
    "k8s.io/component-base/version.gitMajor=1",
    "k8s.io/component-base/version.gitMinor=36",
];

const fn kubernetes(name: &'static str, package: &'static str, accepts: Accepts) -> Part {
    Part {
        name,
        version: "v1.36.3",
        make: Make::Go { module: "kubernetes", package, set: KUBERNETES_SET, accepts },
        uses: &[E2e],
    }
}

/// The node and control plane must be of the release that tests name.
const THIS_MINOR: Accepts = Accepts::Versions { ask: &["--version"], starts: &["v1.36."] };

const fn tekton(name: &'static str, package: &'static str) -> Part {
    Part {
        name,
        version: "v1.15.0",
        make: Make::Go { module: "tekton", package, set: &[], accepts: Accepts::OnlyOurs },
        uses: &[E2e],
    }
}

/// What asks the verifier. Its own offline tool, gator, knows no external data, so it is no part.
const GATEKEEPER: &str = "v3.23.1";

const fn tekton_image(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    entrypoint: &'static [&'static str],
) -> Part {
    Part {
        name,
        version: "v1.15.0",
        make: Make::Image { files, links: &[], entrypoint },
        uses: &[E2e],
    }
}

const fn registry_tool(
    name: &'static str,
    version: &'static str,
    package: &'static str,
    uses: &'static [Use],
) -> Part {
    Part {
        name,
        version,
        make: Make::Go { module: name, package, set: &[], accepts: Accepts::OnlyOurs },
        uses,
    }
}

const fn debian(
    name: &'static str,
    package: &'static str,
    version: &'static str,
    accepts: Accepts,
    uses: &'static [Use],
) -> Part {
    Part { name, version, make: Make::Apt { package, at: None, accepts }, uses }
}

/// The tools of the ext4 developers: what they find wrong is wrong.
const fn e2fsprogs(name: &'static str) -> Part {
    debian(name, "e2fsprogs", "1.47.0", Accepts::Any, &[Test, E2e, Bench])
}

/// Every part. Order matters only in that an image comes after its files.
pub(crate) const PARTS: &[Part] = &[
    // Registries and the tools that speak to them.
    debian(
        "docker-registry",
        "docker-registry",
        "2.8.2",
        // Version 3 is another server; 2.8 is the one without a referrers API.
        Accepts::Versions { ask: &["--version"], starts: &["2.", "v2."] },
        &[Test, E2e, Bench],
    ),
    debian("skopeo", "skopeo", "1.9.3", Accepts::Any, &[Test, E2e, Bench]),
    registry_tool(
        "crane",
        "v0.22.1",
        "github.com/google/go-containerregistry/cmd/crane",
        &[E2e, Bench],
    ),
    registry_tool("oras", "v1.3.1", "oras.land/oras/cmd/oras", &[E2e]),
    registry_tool("regctl", "v0.11.7", "github.com/regclient/regclient/cmd/regctl", &[E2e]),
    registry_tool("olareg", "v0.1.2", "github.com/olareg/olareg/cmd/olareg", &[E2e, Bench]),
    // What signs images everywhere else: the version in use and the one before, whose signatures
    // have another form.
    registry_tool("cosign", "v3.1.3", "github.com/sigstore/cosign/v3/cmd/cosign", &[E2e]),
    registry_tool("cosign2", "v2.6.5", "github.com/sigstore/cosign/v2/cmd/cosign", &[E2e, Bench]),
    // What renders charts, to agree with.
    registry_tool("helm", "v3.19.4", "helm.sh/helm/v3/cmd/helm", &[E2e]),
    // What answers Gatekeeper elsewhere, to measure against.
    Part {
        name: "ratify",
        version: "v1.4.6",
        make: Make::GoSource {
            module: "ratify",
            of: "github.com/ratify-project/ratify",
            package: "./cmd/ratify",
        },
        uses: &[Bench],
    },
    // What brings shims to nodes elsewhere, to measure against.
    Part {
        name: "runtime-class-manager",
        version: "v0.2.0",
        make: Make::GoSource {
            module: "runtime-class-manager",
            of: "github.com/spinkube/runtime-class-manager",
            package: "./cmd/rcm",
        },
        uses: &[Bench],
    },
    Part {
        name: "runtime-class-manager-crds",
        version: "v0.2.0",
        make: Make::GoFolder {
            module: "runtime-class-manager",
            of: "github.com/spinkube/runtime-class-manager",
            folder: "config/crd/bases",
        },
        uses: &[Bench],
    },
    // Who signs images, to agree with.
    registry_tool("notation", "v1.3.2", "github.com/notaryproject/notation/cmd/notation", &[E2e]),
    // What tells whether a host fits an image, to agree with and to measure against.
    registry_tool("nfd", "v0.18.3", "sigs.k8s.io/node-feature-discovery/cmd/nfd", &[E2e, Bench]),
    // Root disks: the file system's own tools, the peers, and a machine to boot them in.
    e2fsprogs("e2fsck"),
    e2fsprogs("debugfs"),
    e2fsprogs("dumpe2fs"),
    e2fsprogs("resize2fs"),
    e2fsprogs("mke2fs"),
    debian("veritysetup", "cryptsetup-bin", "2.6.1", Accepts::Any, &[Test, E2e]),
    debian("umoci", "umoci", "0.4.7", Accepts::Any, &[Test, E2e, Bench]),
    debian("qemu-system-x86_64", "qemu-system-x86", "7.2", Accepts::Any, &[E2e]),
    Part {
        name: "guest-kernel",
        version: "6.1",
        make: Make::Kernel { package: "linux-image-cloud-amd64" },
        uses: &[E2e],
    },
    debian("debootstrap", "debootstrap", "1.0.128", Accepts::Any, &[Bench]),
    registry_tool("tar2ext4", "v0.15.0", "github.com/Microsoft/hcsshim/cmd/tar2ext4", &[Bench]),
    Part {
        name: "flatten",
        version: "v0.22.1",
        make: Make::Go { module: "flatten", package: ".", set: &[], accepts: Accepts::OnlyOurs },
        uses: &[Bench],
    },
    // The machine under the cluster.
    debian("musl-gcc", "musl-tools", "1.2.3", Accepts::Any, &[E2e]),
    debian("openssl", "openssl", "3.0", Accepts::Any, &[E2e]),
    debian("ip", "iproute2", "6.1", Accepts::Any, &[E2e]),
    debian(
        "etcd",
        "etcd-server",
        "3.4.23",
        Accepts::Versions { ask: &["--version"], starts: &["3.4.", "3.5.", "3.6."] },
        &[E2e],
    ),
    debian(
        "containerd",
        "containerd",
        "1.6.20",
        // The testbed writes version 2 of the configuration format, which is that of 1.x.
        Accepts::Versions { ask: &["--version"], starts: &["1.6.", "1.7.", "v1.7."] },
        &[E2e],
    ),
    // The next one, whose configuration is another, and a client that asks as a kubelet does.
    Part {
        name: "containerd2",
        version: "v2.4.2",
        make: Make::Go {
            module: "containerd2",
            package: "github.com/containerd/containerd/v2/cmd/containerd",
            set: &[],
            accepts: Accepts::OnlyOurs,
        },
        uses: &[E2e],
    },
    Part {
        name: "containerd2-shim",
        version: "v2.4.2",
        make: Make::Go {
            module: "containerd2",
            package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            set: &[],
            accepts: Accepts::OnlyOurs,
        },
        uses: &[E2e],
    },
    registry_tool("crictl", "v1.36.0", "sigs.k8s.io/cri-tools/cmd/crictl", &[E2e]),
    debian("runc", "runc", "1.1.5", Accepts::Any, &[E2e]),
    Part {
        name: "cni-bridge",
        version: "1.1.1",
        make: Make::Apt {
            package: "containernetworking-plugins",
            at: Some("/usr/lib/cni/bridge"),
            accepts: Accepts::Any,
        },
        uses: &[E2e],
    },
    debian("busybox", "busybox-static", "1.35.0", Accepts::Static, &[E2e]),
    // Kubernetes.
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", THIS_MINOR),
    kubernetes(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        THIS_MINOR,
    ),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", THIS_MINOR),
    kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet", THIS_MINOR),
    kubernetes(
        "kubectl",
        "k8s.io/kubernetes/cmd/kubectl",
        // One minor release of skew is what Kubernetes supports.
        Accepts::Versions {
            ask: &["version", "--client"],
            starts: &["v1.35.", "v1.36.", "v1.37."],
        },
    ),
    // Tekton.
    tekton("tekton-controller", "github.com/tektoncd/pipeline/cmd/controller"),
    tekton("tekton-webhook", "github.com/tektoncd/pipeline/cmd/webhook"),
    tekton("tekton-entrypoint", "github.com/tektoncd/pipeline/cmd/entrypoint"),
    tekton("tekton-nop", "github.com/tektoncd/pipeline/cmd/nop"),
    tekton("tekton-workingdirinit", "github.com/tektoncd/pipeline/cmd/workingdirinit"),
    tekton("tekton-sidecarlogresults", "github.com/tektoncd/pipeline/cmd/sidecarlogresults"),
    Part {
        name: "tekton-config",
        version: "v1.15.0",
        make: Make::GoFolder {
            module: "tekton",
            of: "github.com/tektoncd/pipeline",
            folder: "config",
        },
        uses: &[E2e],
    },
    // Gatekeeper.
    Part {
        name: "gatekeeper-manager",
        version: GATEKEEPER,
        make: Make::Go {
            module: "gatekeeper",
            package: "github.com/open-policy-agent/gatekeeper/v3",
            set: &[],
            accepts: Accepts::OnlyOurs,
        },
        uses: &[E2e],
    },
    Part {
        name: "gatekeeper-deploy",
        version: GATEKEEPER,
        make: Make::GoFolder {
            module: "gatekeeper",
            of: "github.com/open-policy-agent/gatekeeper/v3",
            folder: "deploy",
        },
        uses: &[E2e],
    },
    // Images of the cluster. The paths are those that the manifests and Tekton's controller ask for.
    Part {
        name: "gatekeeper-image",
        version: GATEKEEPER,
        make: Make::Image {
            files: &[("gatekeeper-manager", "/manager")],
            links: &[],
            entrypoint: &["/manager"],
        },
        uses: &[E2e],
    },
    Part {
        name: "pause",
        version: "1",
        make: Make::Go { module: "pause", package: ".", set: &[], accepts: Accepts::OnlyOurs },
        uses: &[E2e],
    },
    Part {
        name: "pause-image",
        version: "1",
        make: Make::Image { files: &[("pause", "/pause")], links: &[], entrypoint: &["/pause"] },
        uses: &[E2e],
    },
    Part {
        name: "busybox-image",
        version: "1.35.0",
        make: Make::Image {
            files: &[("busybox", "/bin/busybox")],
            links: BUSYBOX_LINKS,
            entrypoint: &[],
        },
        uses: &[E2e],
    },
    // What the step image stands on, so that sources come from git.
    debian("git", "git", "2.39", Accepts::Any, &[Test, E2e]),
    debian("git-lfs", "git-lfs", "3.3", Accepts::Any, &[Test, E2e]),
    debian("ssh", "openssh-client", "9.2", Accepts::Any, &[Test, E2e]),
    Part {
        name: "sshd",
        version: "9.2",
        make: Make::Apt {
            package: "openssh-server",
            at: Some("/usr/sbin/sshd"),
            accepts: Accepts::Any,
        },
        uses: &[Test],
    },
    Part {
        name: "git-tools-image",
        version: "1",
        make: Make::Gathered {
            programs: &["git", "git-lfs", "ssh", "busybox"],
            folders: &["/usr/lib/git-core", "/usr/share/git-core"],
            texts: &[],
            links: GIT_TOOLS_LINKS,
        },
        uses: &[E2e],
    },
    // What runs programs of arm64, so that RUN can.
    debian("qemu-aarch64-static", "qemu-user-static", "7.2", Accepts::Any, &[E2e]),
    // What runs RUN: for the strategy of that name, and beside the embedded assembler.
    debian("buildah", "buildah", "1.28", Accepts::Any, &[E2e, Bench]),
    Part {
        name: "buildah-image",
        version: "1",
        make: Make::Gathered {
            programs: &["buildah", "busybox"],
            folders: &[],
            texts: BUILDAH_TEXTS,
            links: BUILDAH_LINKS,
        },
        uses: &[E2e],
    },
    tekton_image(
        "tekton-controller-image",
        &[("tekton-controller", "/ko-app/controller")],
        &["/ko-app/controller"],
    ),
    tekton_image(
        "tekton-webhook-image",
        &[("tekton-webhook", "/ko-app/webhook")],
        &["/ko-app/webhook"],
    ),
    tekton_image(
        "tekton-entrypoint-image",
        &[("tekton-entrypoint", "/ko-app/entrypoint")],
        &["/ko-app/entrypoint"],
    ),
    tekton_image("tekton-nop-image", &[("tekton-nop", "/ko-app/nop")], &["/ko-app/nop"]),
    tekton_image(
        "tekton-workingdirinit-image",
        &[("tekton-workingdirinit", "/ko-app/workingdirinit")],
        &["/ko-app/workingdirinit"],
    ),
    tekton_image(
        "tekton-sidecarlogresults-image",
        &[("tekton-sidecarlogresults", "/ko-app/sidecarlogresults")],
        &["/ko-app/sidecarlogresults"],
    ),
];

/// The applets that test pods call; busybox goes by the name it was started under.
const BUSYBOX_LINKS: &[(&str, &str)] = &[
    ("/bin/sh", "busybox"),
    ("/bin/cat", "busybox"),
    ("/bin/cp", "busybox"),
    ("/bin/date", "busybox"),
    ("/bin/echo", "busybox"),
    ("/bin/env", "busybox"),
    ("/bin/false", "busybox"),
    ("/bin/grep", "busybox"),
    ("/bin/hostname", "busybox"),
    ("/bin/httpd", "busybox"),
    ("/bin/id", "busybox"),
    ("/bin/ls", "busybox"),
    ("/bin/mkdir", "busybox"),
    ("/bin/mv", "busybox"),
    ("/bin/nc", "busybox"),
    ("/bin/ps", "busybox"),
    ("/bin/rm", "busybox"),
    ("/bin/sed", "busybox"),
    ("/bin/sha256sum", "busybox"),
    ("/bin/sleep", "busybox"),
    ("/bin/tar", "busybox"),
    ("/bin/test", "busybox"),
    ("/bin/touch", "busybox"),
    ("/bin/true", "busybox"),
    ("/bin/uname", "busybox"),
    ("/bin/wget", "busybox"),
];

/// What scripts of git call, and what a developer's upload does.
const GIT_TOOLS_LINKS: &[(&str, &str)] = &[
    ("/usr/bin/sh", "busybox"),
    ("/usr/bin/basename", "busybox"),
    ("/usr/bin/cat", "busybox"),
    ("/usr/bin/cut", "busybox"),
    ("/usr/bin/dirname", "busybox"),
    ("/usr/bin/env", "busybox"),
    ("/usr/bin/false", "busybox"),
    ("/usr/bin/ls", "busybox"),
    ("/usr/bin/mkdir", "busybox"),
    ("/usr/bin/rm", "busybox"),
    ("/usr/bin/sed", "busybox"),
    ("/usr/bin/tar", "busybox"),
    ("/usr/bin/test", "busybox"),
    ("/usr/bin/tr", "busybox"),
    ("/usr/bin/uname", "busybox"),
    ("/usr/bin/wc", "busybox"),
    ("/bin/sh", "../usr/bin/busybox"),
    ("/bin/false", "../usr/bin/busybox"),
];

const BUILDAH_LINKS: &[(&str, &str)] = &[
    ("/usr/bin/sh", "busybox"),
    ("/usr/bin/cat", "busybox"),
    ("/usr/bin/echo", "busybox"),
    ("/usr/bin/env", "busybox"),
    ("/usr/bin/ls", "busybox"),
    ("/usr/bin/mkdir", "busybox"),
    ("/usr/bin/printf", "busybox"),
    ("/usr/bin/sed", "busybox"),
    ("/usr/bin/test", "busybox"),
    ("/usr/bin/tr", "busybox"),
    ("/usr/bin/uname", "busybox"),
    ("/bin/sh", "../usr/bin/busybox"),
];

/// Every image is taken, as everywhere in the testbed: who signed what is the verifier's concern.
const BUILDAH_TEXTS: &[(&str, &str)] = &[
    ("/etc/containers/policy.json", "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}\n"),
    ("/etc/containers/registries.conf", "unqualified-search-registries = []\n"),
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("/etc/group", "root:x:0:\n"),
];

/// The row with that name.
pub(crate) fn part(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == name)
}

/// The rows asked for, and before each image the rows it is made of, in the order of the table.
pub(crate) fn closure(wanted: impl Fn(&Part) -> bool) -> Vec<&'static Part> {
    let mut names: Vec<&str> = PARTS.iter().filter(|p| wanted(p)).map(|p| p.name).collect();
    for part in PARTS.iter().filter(|p| wanted(p)) {
        match part.make {
            Make::Image { files, .. } => names.extend(files.iter().map(|(input, _)| *input)),
            Make::Gathered { programs, .. } => names.extend(programs),
            _ => {}
        }
    }
    PARTS.iter().filter(|p| names.contains(&p.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_row_is_needed_by_someone() {
        let names: BTreeSet<_> = PARTS.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), PARTS.len());
        assert!(PARTS.iter().all(|p| !p.uses.is_empty()));
    }

    #[test]
    fn an_image_comes_after_the_files_it_is_made_of() {
        for (at, row) in PARTS.iter().enumerate() {
            if let Make::Image { files, .. } = row.make {
                for (input, _) in files {
                    let input_at = PARTS.iter().position(|p| p.name == *input);
                    assert!(input_at.is_some_and(|i| i < at), "{}: {input}", row.name);
                }
            }
        }
    }

    #[test]
    fn every_go_row_is_pinned_by_a_module_that_names_its_package_and_version() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed");
        for row in PARTS {
            let (Make::Go { module, package: pinned, .. }
            | Make::GoSource { module, of: pinned, .. }
            | Make::GoFolder { module, of: pinned, .. }) = row.make
            else {
                continue;
            };
            let file = root.join(module).join("go.mod");
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(!text.is_empty(), "{} is missing", file.display());
            if pinned != "." {
                assert!(text.contains(pinned), "{}: no {pinned}", file.display());
                assert!(text.contains(row.version), "{}: no {}", file.display(), row.version);
            }
        }
    }

    #[test]
    fn only_packages_are_asked_of_the_quick_test_run() {
        for row in PARTS.iter().filter(|p| p.uses.contains(&Test)) {
            assert!(matches!(row.make, Make::Apt { .. }), "{} takes too long", row.name);
        }
    }

    #[test]
    fn asking_for_an_image_brings_its_files() {
        let rows = closure(|p| p.name == "pause-image");
        assert_eq!(rows.iter().map(|p| p.name).collect::<Vec<_>>(), ["pause", "pause-image"]);
    }
}
