//! What Containerfiles say, and what they may not.

use portolan_build::containerfile;
use portolan_registry::ErrorClass;
use proptest::prelude::*;
use serde_json::json;

use crate::{Bench, HELLO};

#[test]
fn instructions_become_the_configuration() {
    let text = "\
# syntax=docker/dockerfile:1
ARG VERSION=1
FROM scratch AS base
ARG VERSION
ARG TARGETARCH
ENV A=one B=\"two words\" \\
    # a comment between
    C=${VERSION}-$TARGETARCH
ENV OLD style value
LABEL org.example.a=b \"org.example c\"='d e'
WORKDIR /srv
WORKDIR app
USER 1000:1000
EXPOSE 80 53/UDP
VOLUME [\"/data\"]
VOLUME /one /two
STOPSIGNAL SIGINT
CMD echo \"$A\"
ENTRYPOINT [\"/bin/app\", \"-v\"]
";
    let image = Bench::new(text).build();
    let expected = json!({
        "Env": ["A=one", "B=two words", "C=1-amd64", "OLD=style value"],
        "Labels": {"org.example.a": "b", "org.example c": "d e"},
        "WorkingDir": "/srv/app",
        "User": "1000:1000",
        "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
        "Volumes": {"/data": {}, "/one": {}, "/two": {}},
        "StopSignal": "SIGINT",
        "Cmd": ["/bin/sh", "-c", "echo \"$A\""],
        "Entrypoint": ["/bin/app", "-v"],
    });
    assert_eq!(image.config["config"], expected, "{:#}", image.config);
    assert_eq!(image.config["os"], "linux");
    assert_eq!(image.config["architecture"], "amd64");
    assert_eq!(image.config["created"], "1970-01-01T00:00:00Z");
    // A working directory that is not there is made; nothing else adds a layer.
    assert_eq!(image.paths(), ["srv/", "srv/app/"]);
}

#[test]
fn what_is_below_is_inherited_and_changed() {
    let text = "\
FROM scratch AS one
ENV A=1 P=/bin
CMD [\"old\"]
WORKDIR /w
FROM one AS two
ENV P=$P:/more A=2
ENTRYPOINT [\"/e\"]
SHELL [\"/bin/bash\", \"-c\"]
FROM two
CMD run it
";
    let config = Bench::new(text).build().config;
    assert_eq!(config["config"]["Env"], json!(["A=2", "P=/bin:/more"]));
    // Arguments of what is below were meant for another program.
    assert_eq!(config["config"]["Cmd"], json!(["/bin/bash", "-c", "run it"]));
    assert_eq!(config["config"]["Entrypoint"], json!(["/e"]));
    assert_eq!(config["config"]["WorkingDir"], "/w");
}

#[test]
fn run_is_refused_with_its_line_and_what_can_do_it() {
    let said = Bench::new("FROM scratch\n\nCOPY . /\nRUN make\n").refused();
    for part in ["Containerfile", "line 4, column 1", "RUN", "buildah"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn errors_have_line_and_column_and_a_suggestion() {
    for (text, at, what) in [
        ("", "line 1, column 1", "no FROM"),
        ("COPY a b\nFROM scratch", "line 1, column 1", "before the first FROM"),
        ("FROM scratch\nCOYP a b", "line 2, column 1", "did you mean COPY?"),
        ("FROM scratch\n  COPY --form=x a b", "line 2, column 8", "did you mean --from=?"),
        ("FROM scratch\nCOPY a", "line 2, column 5", "where to"),
        ("FROM scratch\nENV A=1 \\\n  B", "line 3, column 3", "not KEY=VALUE"),
        ("FROM scratch AS 1x", "line 1, column 17", "no name for a stage"),
        ("FROM scratch\nENV A='x", "line 2, column 1", "never closed"),
        ("FROM scratch\nEXPOSE web", "line 2, column 1", "no port"),
        ("FROM scratch\nCOPY --chmod=rwx a b", "line 2, column 1", "octal"),
        ("FROM scratch\nCOPY <<EOF /a\nx\n", "line 2, column 6", "does not end"),
        ("FROM UPPER/case", "line 1, column 1", "not a repository name"),
        ("FROM scratch\nSHELL sh -c", "line 2, column 1", "list of words"),
        ("FROM scratch\nHEALTHCHECK NONE", "line 2, column 1", "OCI image"),
        ("# escape=x\nFROM scratch", "line 1, column 1", "must be \\ or `"),
    ] {
        let said = Bench::new(text).write("a", "").refused();
        assert!(said.contains(at) && said.contains(what), "{text:?}: {said}");
    }
}

#[test]
fn arguments_that_nothing_declares_and_targets_that_are_not_there_are_told() {
    let bench = Bench::new("FROM scratch AS build\nARG VERSION\nLABEL v=$VERSION\n");
    let mut request = bench.request(&["linux/amd64"]);
    request.recipe.args.insert("VERSIONS".to_owned(), "1".to_owned());
    let told =
        |outcome: portolan_build::engine::Outcome| outcome.status.conditions[0].message.clone();
    let said = told(bench.run(&request).unwrap());
    assert!(said.contains("did you mean VERSION?"), "{said}");
    request.recipe.args = [("VERSION".to_owned(), "7".to_owned())].into();
    request.recipe.target = Some("biuld".to_owned());
    let said = told(bench.run(&request).unwrap());
    assert!(said.contains("did you mean build?"), "{said}");
    request.recipe.target = Some("BUILD".to_owned());
    assert!(bench.run(&request).unwrap().succeeded);
    assert_eq!(bench.image("1-linux-amd64").config["config"]["Labels"]["v"], "7");
}

/// Each of these would take all memory, and be deaf meanwhile.
#[test]
fn what_comes_of_variables_has_a_bound() {
    let twelve = format!("ENV A={}\n", "$A".repeat(12)).repeat(8);
    let million = format!("ENV A={}\nENV B={}\n", "x".repeat(1000), "$A".repeat(1000));
    let many = |line: &str| format!("{line}\n").repeat(20);
    let (value, stage) = ("a value has more than", "the stage has more than");
    for (text, line, what) in [
        (format!("FROM scratch\nENV A=twelve-bytes\n{twelve}"), 7, value),
        (format!("ARG A=twelve-bytes\n{}FROM scratch\n", twelve.replace("ENV", "ARG")), 6, value),
        (format!("FROM scratch\n{million}{}", many("LABEL a=$B")), 19, stage),
        (format!("FROM scratch\n{million}{}", many("WORKDIR /$B")), 11, stage),
        (format!("FROM scratch\n{million}WORKDIR /$B\n{}", many("WORKDIR a")), 18, stage),
        (format!("FROM scratch\n{million}{}", many("COPY <<E /a\n$B\nE")), 49, stage),
        (format!("FROM scratch\nENV{}\n", " k=v".repeat(10_000)), 2, stage),
        (
            format!("FROM scratch\nSHELL [\"{}\"]\n{}", "x".repeat(500_000), "CMD x\n".repeat(100)),
            35,
            stage,
        ),
    ] {
        let bench = Bench::new(&text);
        let outcome = bench.run(&bench.request(&["linux/amd64"])).unwrap();
        assert_eq!(outcome.class, Some(ErrorClass::BadInput));
        let said = &outcome.status.conditions[0].message;
        let begin = &text[..text.len().min(80)];
        assert!(
            said.contains(&format!("line {line}, ")) && said.contains(what),
            "{begin:?}: {said}"
        );
    }
}

#[test]
fn a_base_is_the_one_of_the_platform() {
    let bench = Bench::new(&format!("FROM {HELLO}\nLABEL a=b\n"));
    let outcome =
        bench.run(&bench.request(&["linux/amd64", "linux/arm64", "linux/arm/v7"])).unwrap();
    assert!(outcome.succeeded, "{:#?}", outcome.status);
    let arch = |tag: &str| bench.image(tag).config["architecture"].as_str().unwrap().to_owned();
    assert_eq!(arch("1-linux-amd64"), "amd64");
    assert_eq!(arch("1-linux-arm64"), "arm64");
    assert_eq!(bench.image("1-linux-arm-v7").config["variant"], "v7");
    let layers = |tag: &str| bench.image(tag).digests;
    assert_ne!(layers("1-linux-amd64"), layers("1-linux-arm64"), "each has its own program");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(FROM|COPY|ENV|ARG|<<|EOF|\\$|\\{|\\}|:-|\"|'|\\\\|\\[|=|--|\n| |[a-z]|\\PC){0,60}") {
        if let Ok((instructions, escape)) = containerfile::parse(text.as_bytes()) {
            let platform = portolan_core::Platform::new("linux", "amd64");
            let _ = containerfile::evaluate(&instructions, escape, &platform, &Default::default(), None);
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = containerfile::parse(&bytes);
    }
}
