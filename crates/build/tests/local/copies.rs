//! COPY and ADD.

use crate::{Bench, HELLO, set_mode};

#[test]
fn files_go_where_docker_puts_them() {
    for (copy, expected) in [
        ("COPY a.txt /x", vec!["x"]),
        ("COPY a.txt /x/", vec!["x/", "x/a.txt"]),
        ("COPY a.txt .", vec!["a.txt"]),
        ("COPY a.txt b.txt /x/", vec!["x/", "x/a.txt", "x/b.txt"]),
        ("COPY *.txt /x/", vec!["x/", "x/a.txt", "x/b.txt"]),
        ("COPY [\"with space\", \"/s\"]", vec!["s"]),
        ("COPY dir /x", vec!["x/", "x/c", "x/sub/", "x/sub/d"]),
        ("COPY dir/ /", vec!["c", "sub/", "sub/d"]),
        ("COPY dir/s?b /x", vec!["x/", "x/d"]),
        ("COPY --exclude=sub dir /x/y", vec!["x/", "x/y/", "x/y/c"]),
        ("COPY link /l", vec!["l"]),
        ("WORKDIR /w\nCOPY a.txt b/c", vec!["w/", "w/b/", "w/b/c"]),
        ("COPY a.txt /x/\nCOPY b.txt /x", vec!["x/", "x/a.txt", "x/b.txt"]),
        ("COPY <<one <<'two' /d/\na\none\nb\ntwo", vec!["d/", "d/one", "d/two"]),
    ] {
        let bench = Bench::new(&format!("FROM scratch\n{copy}\n"))
            .write("a.txt", "a")
            .write("b.txt", "b")
            .write("with space", "s")
            .write("dir/c", "c")
            .write("dir/sub/d", "d");
        std::os::unix::fs::symlink("a.txt", bench.source().join("link")).unwrap();
        let image = bench.build();
        assert_eq!(image.paths(), expected, "{copy}");
        // A link that is named itself is followed, as docker does.
        if copy.starts_with("COPY link") {
            assert_eq!(image.name("l").content, "a");
        }
    }
}

#[test]
fn links_modes_and_owners() {
    let bench = Bench::new(
        "FROM scratch\nCOPY tree /t\nCOPY --chown=1000:2000 --chmod=4711 tree/run /own\nCOPY --chown=7 tree/run /seven\n",
    )
    .write("tree/run", "#!")
    .write("tree/plain", "");
    let tree = bench.source().join("tree");
    set_mode(&tree.join("run"), 0o770);
    set_mode(&tree.join("plain"), 0o600);
    std::os::unix::fs::symlink("../../elsewhere", tree.join("link")).unwrap();
    let image = bench.build();
    assert_eq!(image.name("t/run").mode, 0o755, "as git keeps it");
    assert_eq!(image.name("t/plain").mode, 0o644);
    assert_eq!(image.name("t/link").content, "../../elsewhere");
    let own = image.name("own");
    assert_eq!((own.mode, own.owner), (0o4711, (1000, 2000)));
    assert_eq!(image.name("seven").owner, (7, 7));
}

#[test]
fn names_of_owners_are_looked_up_in_the_image() {
    let text = "FROM scratch\nCOPY passwd group /etc/\nCOPY --chown=app file /a\nCOPY --chown=app:staff file /b\n";
    let bench = Bench::new(text)
        .write("passwd", "root:x:0:0::/:\napp:x:501:502::/:\n")
        .write("group", "staff:x:50:\n")
        .write("file", "");
    let image = bench.build();
    assert_eq!(image.name("a").owner, (501, 502));
    assert_eq!(image.name("b").owner, (501, 50));
    let said =
        Bench::new("FROM scratch\nCOPY --chown=nobody file /a\n").write("file", "").refused();
    assert!(said.contains("no such user") && said.contains("line 2"), "{said}");
}

#[test]
fn what_an_ignore_file_names_is_not_there() {
    let build = |name: &str, patterns: &str| {
        let bench = Bench::new("FROM scratch\nCOPY . /\n")
            .write(name, patterns)
            .write("keep", "")
            .write("target/debug/x", "")
            .write("logs/a.log", "")
            .write("logs/b.log", "");
        let image = bench.build();
        image.paths().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let docker = build(".dockerignore", "target\n**/*.log\n!logs/b.log\n.*\nContainerfile\n");
    assert_eq!(docker, ["keep", "logs/", "logs/b.log"]);
    let container = build(".containerignore", "*\n!keep\n");
    assert_eq!(container, ["keep"]);
    for patterns in ["secret", "*\n!other"] {
        let said = Bench::new("FROM scratch\nCOPY secret /\n")
            .write(".dockerignore", patterns)
            .write("secret", "")
            .refused();
        assert!(said.contains("ignore file"), "{said}");
    }
}

#[test]
fn stages_and_images_are_copied_from() {
    let text = format!(
        "FROM scratch AS one\nCOPY a /deep/er/a\nFROM scratch\nCOPY --from=one /deep /d\nCOPY --from=0 /deep/er/a /zero\nCOPY --from={HELLO} / /hello\n"
    );
    let bench = Bench::new(&text).write("a", "from the first stage");
    set_mode(&bench.source().join("a"), 0o755);
    let image = bench.build();
    assert_eq!(image.name("d/er/a").content, "from the first stage");
    assert_eq!(image.name("zero").mode, 0o755);
    assert!(image.paths().iter().any(|path| path.starts_with("hello/")), "{:?}", image.paths());
}

#[test]
fn a_stage_that_nothing_needs_is_not_built() {
    let text = "FROM nowhere.invalid/base AS unused\nFROM scratch\nCOPY a /a\n";
    assert_eq!(Bench::new(text).write("a", "").build().paths(), ["a"]);
}

#[test]
fn what_is_there_below_is_kept_as_it_is() {
    // The base has the directory; a second entry for it would change its mode and time.
    let text = "FROM scratch AS base\nCOPY --chmod=1777 dir /\nFROM base\nCOPY a /tmp/\nCOPY a /tmp\nCOPY a /new/\n";
    let bench = Bench::new(text).write("dir/tmp/x", "").write("a", "");
    let image = bench.build();
    assert_eq!(image.paths(), ["tmp/", "tmp/x", "tmp/a", "tmp/a", "new/", "new/a"]);
    assert_eq!(image.name("tmp/").mode, 0o1777);
}

#[test]
fn what_cannot_be_copied_is_told_with_its_line() {
    for (copy, what) in [
        ("COPY missing /", "no \"missing\""),
        ("COPY ../outside /", "leads out"),
        ("COPY escape /", "leads out"),
        ("COPY no*match /", "matches nothing"),
        ("COPY a b /x", "write /x/"),
        ("COPY dir /x\nCOPY a /x/c/y", "nothing can be below it"),
        ("ADD https://example.org/a /", "fetch it before"),
        ("ADD packed.tar.gz /", "unpack it before"),
        ("COPY --from=nostage.invalid/x /a /", "nostage.invalid"),
    ] {
        let bench = Bench::new(&format!("FROM scratch\n{copy}\n"))
            .write("a", "")
            .write("b", "")
            .write("dir/c", "")
            .write("packed.tar.gz", "\u{1f}x");
        std::fs::write(bench.source().join("packed.tar.gz"), b"\x1f\x8b\x08\0").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", bench.source().join("escape")).unwrap();
        let said = bench.refused();
        assert!(said.contains(what), "{copy}: {said}");
    }
    let plain = Bench::new("FROM scratch\nADD a /\n").write("a", "x").build();
    assert_eq!(plain.paths(), ["a"]);
}
