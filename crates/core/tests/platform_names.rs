//! How platforms are written, read and normalised.

use portolan_core::Platform;
use portolan_core::platform::PartialPlatform;
use portolan_core::platform::{NormaliseWarning, ParsePlatformError, containerd};
use proptest::prelude::*;

fn platform(text: &str) -> Platform {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_normalisation_table() {
    for (written, normalised) in [
        ("linux/i386", "linux/386"),
        ("linux/i386/foo", "linux/386"),
        ("linux/i486", "linux/386"),
        ("linux/i586", "linux/386"),
        ("linux/i686", "linux/386"),
        ("linux/x86_64", "linux/amd64"),
        ("linux/x86-64", "linux/amd64"),
        ("linux/amd64/v1", "linux/amd64"),
        ("linux/amd64/V2", "linux/amd64/v2"),
        ("linux/x86_64/v3", "linux/amd64/v3"),
        ("linux/aarch64", "linux/arm64"),
        ("linux/Aarch64", "linux/arm64"),
        ("linux/arm64/8", "linux/arm64"),
        ("linux/arm64/v8", "linux/arm64"),
        ("linux/arm64/v8.0", "linux/arm64"),
        ("linux/arm64/8.1", "linux/arm64/8.1"),
        ("linux/arm64/v8.1", "linux/arm64/v8.1"),
        ("linux/arm64/9", "linux/arm64/v9"),
        ("linux/arm64/9.0", "linux/arm64/v9"),
        ("linux/arm64/v9.0", "linux/arm64/v9"),
        ("linux/armhf", "linux/arm/v7"),
        ("linux/armhf/v6", "linux/arm/v7"),
        ("linux/armel", "linux/arm/v6"),
        ("linux/arm", "linux/arm/v7"),
        ("linux/arm/7", "linux/arm/v7"),
        ("linux/arm/5", "linux/arm/v5"),
        ("linux/arm/6", "linux/arm/v6"),
        ("linux/arm/8", "linux/arm/v8"),
        ("linux/armv5tel", "linux/arm/v5"),
        ("linux/armv6l", "linux/arm/v6"),
        ("linux/armv7l", "linux/arm/v7"),
        ("linux/armv8l", "linux/arm/v8"),
        ("linux/ppcle64", "linux/ppc64le"),
        ("linux/arm/v9", "linux/arm64/v9"),
        ("linux/arm/9", "linux/arm64/v9"),
        ("macOS/arm64", "darwin/arm64"),
        ("Linux/AMD64", "linux/amd64"),
        ("linux/riscv64/RVA22U64", "linux/riscv64/rva22u64"),
        ("linux/s390x", "linux/s390x"),
        ("linux/armv9z", "linux/armv9z"),
        ("plan9/foo/bar", "plan9/foo/bar"),
    ] {
        assert_eq!(platform(written).normalised().to_string(), normalised, "{written}");
    }
}

#[test]
fn odd_names_come_with_a_warning() {
    let (_, warnings) = platform("linux/PPCLE64").normalised_with_warnings();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].to_string(), r#""PPCLE64" was taken for "ppc64le"; write "ppc64le""#);
    let (_, warnings) = platform("linux/arm/v9").normalised_with_warnings();
    assert!(
        matches!(&warnings[..], [NormaliseWarning::Arm64CalledArm { found }] if found == "arm/v9")
    );
    for fine in ["linux/arm64/v9", "linux/ppc64le", "linux/x86_64", "linux/armv7l"] {
        assert_eq!(platform(fine).normalised_with_warnings().1, [], "{fine}");
    }
}

#[test]
fn levels_that_nobody_knows_come_with_a_warning() {
    for (odd, word) in [
        ("linux/amd64/v9", "amd64 has v1 to v4"),
        ("linux/x86_64/fast", "\"x86_64/fast\""),
        ("linux/arm64/v10", "v9.7"),
        ("linux/arm/v2", "v5 to v8"),
        ("linux/ppc64le/power3", "power8"),
    ] {
        let told = platform(odd).unknown_level().expect(odd).to_string();
        assert!(told.contains(word), "{told}");
    }
    for fine in ["linux/amd64", "linux/amd64/v4", "linux/arm64/9", "linux/armhf", "linux/s390x/z15"]
    {
        assert_eq!(platform(fine).unknown_level(), None, "{fine}");
    }
}

#[test]
fn containerds_own_names_lack_ours() {
    for name in ["linux/i686", "linux/armv7l", "linux/ppcle64", "linux/arm/v9"] {
        assert_eq!(containerd::normalise(&platform(name)).to_string(), name);
    }
}

#[test]
fn empty_values_are_none() {
    let text = r#"{"os":"linux","architecture":"amd64","variant":"","os.version":"","os.features":["b","","a","b"]}"#;
    let read: Platform = serde_json::from_str(text).unwrap();
    assert_eq!(read.to_string(), "linux(+a+b)/amd64");
    let normalised = read.normalised();
    assert_eq!((normalised.variant, normalised.os_version), (None, None));
    assert_eq!(normalised.os_features, ["a", "b"]);
    let null = r#"{"os":"linux","architecture":"amd64","os.features":null}"#;
    assert_eq!(serde_json::from_str::<Platform>(null).unwrap(), Platform::new("linux", "amd64"));
}

#[test]
fn the_grammar() {
    for (text, os, version, features, architecture, variant) in [
        ("linux/amd64", "linux", None, vec![], "amd64", None),
        ("linux/arm/v7", "linux", None, vec![], "arm", Some("v7")),
        ("windows(10.0.17763)/amd64", "windows", Some("10.0.17763"), vec![], "amd64", None),
        (
            "windows(10.0.17763+win32k)/amd64",
            "windows",
            Some("10.0.17763"),
            vec!["win32k"],
            "amd64",
            None,
        ),
        ("linux(+gpu+simd)/amd64", "linux", None, vec!["gpu", "simd"], "amd64", None),
        ("linux(+b+a+b)/amd64", "linux", None, vec!["a", "b"], "amd64", None),
        ("linux()/amd64", "linux", None, vec![], "amd64", None),
        ("linux(a%2Bb+c%2fd)/amd64", "linux", Some("a+b"), vec!["c/d"], "amd64", None),
        ("unknown/unknown", "unknown", None, vec![], "unknown", None),
        ("Linux/x86_64", "Linux", None, vec![], "x86_64", None),
    ] {
        let read = platform(text);
        assert_eq!(read.os, os, "{text}");
        assert_eq!(read.os_version.as_deref(), version, "{text}");
        assert_eq!(read.os_features, features, "{text}");
        assert_eq!(read.architecture, architecture, "{text}");
        assert_eq!(read.variant.as_deref(), variant, "{text}");
    }
}

#[test]
fn what_is_no_platform() {
    use ParsePlatformError as E;
    let long = "a".repeat(1025);
    for (text, expected) in [
        ("", E::Empty),
        ("linux", E::OnePart("linux".into())),
        ("arm64", E::OnePart("arm64".into())),
        ("*", E::Wildcard("*".into())),
        ("linux/*", E::Wildcard("linux/*".into())),
        ("/amd64", E::Os(String::new())),
        ("linux/", E::Part(String::new())),
        ("linux/arm/", E::Part(String::new())),
        ("/linux/arm64", E::Os(String::new())),
        ("linux//arm64", E::Part(String::new())),
        ("linux/arm/v7/foo", E::TooManyParts("linux/arm/v7/foo".into())),
        ("linux/arm 64", E::Part("arm 64".into())),
        (" linux/arm64", E::Os(" linux".into())),
        ("linux/arm64 ", E::Part("arm64 ".into())),
        ("lin.ux/arm64", E::Os("lin.ux".into())),
        ("linux(10/arm64", E::Os("linux(10".into())),
        ("linux(10)x/arm64", E::Os("linux(10)x".into())),
        ("(10)/arm64", E::Os("(10)".into())),
        ("linux(+)/arm64", E::Os("linux(+)".into())),
        ("linux(a+)/arm64", E::Os("linux(a+)".into())),
        ("linux(a b)/arm64", E::Os("linux(a b)".into())),
        ("linux((a))/arm64", E::Os("linux((a))".into())),
        ("linux(%4)/arm64", E::Escape("%4".into())),
        ("linux(%zz)/arm64", E::Escape("%zz".into())),
        ("linux(%ff)/arm64", E::Escape("%ff".into())),
        ("linux/arm64(v8)", E::Part("arm64(v8)".into())),
        ("linux/ärm", E::Part("ärm".into())),
        (long.as_str(), E::TooLong(1025)),
    ] {
        assert_eq!(text.parse::<Platform>(), Err(expected), "{text}");
    }
}

#[test]
fn half_a_platform_takes_the_rest_from_the_host() {
    let host = platform("linux/arm64/v8.2");
    for (text, expected) in [
        ("linux", Ok("linux/arm64/v8.2")),
        ("macos", Ok("darwin/arm64/v8.2")),
        ("windows(10.0.20348)", Ok("windows(10.0.20348)/arm64/v8.2")),
        ("amd64", Ok("linux/amd64")),
        ("x86_64", Ok("linux/amd64")),
        ("AARCH64", Ok("linux/arm64")),
        ("armel", Ok("linux/arm/v6")),
        ("armhf", Ok("linux/arm/v7")),
        ("386", Ok("linux/386")),
        ("s390x", Ok("linux/s390x")),
        ("linux/riscv64", Ok("linux/riscv64")),
        ("foo", Err(())),
        ("arm64(10)", Err(())),
        ("", Err(())),
        ("*", Err(())),
    ] {
        let read = Platform::parse_on(text, &host).map(|p| p.to_string()).map_err(|_| ());
        assert_eq!(read, expected.map(str::to_owned), "{text}");
    }
    for os in "aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd openbsd plan9 solaris windows zos".split(' ') {
        assert_eq!(Platform::parse_on(os, &host).unwrap().os, os);
    }
    for architecture in "386 amd64 amd64p32 arm armbe arm64 arm64be ppc64 ppc64le loong64 mips mipsle mips64 mips64le mips64p32 mips64p32le ppc riscv riscv64 s390 s390x sparc sparc64 wasm".split(' ') {
        let read = Platform::parse_on(architecture, &host).unwrap();
        assert_eq!((read.os.as_str(), read.architecture.as_str()), ("linux", architecture));
    }
}

#[test]
fn a_strangers_platform_cannot_write_on_the_terminal() {
    let text = r#"{"os":"li\u001b[31mnux","architecture":"a/b","variant":"\n"}"#;
    let shown = serde_json::from_str::<Platform>(text).unwrap().to_string();
    assert_eq!(shown, "li%1B%5B31mnux/a%2Fb/%0A");
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(
            "linux windows macos amd64 x86_64 arm arm64 aarch64 armhf armel i386 i686 armv7l ppcle64 v1 v2 v8 v8.0 8 9 v9 v9.0 7 riscv64 rva20u64"
                .split(' ')
                .collect::<Vec<_>>()
        )
        .prop_map(str::to_owned),
        "[A-Za-z0-9_-]{1,8}",
    ]
}

prop_compose! {
    fn any_platform()(
        os in word(),
        architecture in "[A-Za-z0-9_.-]{1,8}|x86_64|arm|armhf|aarch64|i686|ppcle64",
        variant in prop::option::of(word()),
        os_version in prop::option::of("\\PC{1,12}"),
        os_features in prop::collection::btree_set("\\PC{1,8}", 0..3),
    ) -> Platform {
        let os = os.replace('.', "-");
        Platform { os, architecture, variant, os_version, os_features: os_features.into_iter().collect() }
    }
}

proptest! {
    #[test]
    fn parse_undoes_print(platform in any_platform()) {
        prop_assert_eq!(platform.to_string().parse::<Platform>(), Ok(platform));
    }

    #[test]
    fn normalising_twice_is_normalising_once(platform in any_platform()) {
        let (once, _) = platform.normalised_with_warnings();
        prop_assert_eq!(once.normalised_with_warnings(), (once.clone(), vec![]));
        let theirs = containerd::normalise(&platform);
        prop_assert_eq!(containerd::normalise(&theirs), theirs);
    }

    #[test]
    fn no_text_makes_parsing_panic(text in "\\PC{0,40}") {
        if let Ok(platform) = text.parse::<Platform>() {
            prop_assert_eq!(platform.to_string().parse::<Platform>(), Ok(platform));
        }
        let _ = Platform::parse_on(&text, &Platform::new("linux", "amd64"));
    }
}

#[test]
fn half_a_name_means_every_platform_that_has_it() {
    for (text, shown, os, architecture) in [
        ("linux/arm64", "linux/arm64", Some("linux"), Some("arm64")),
        ("Linux/x86_64", "linux/amd64", Some("linux"), Some("amd64")),
        ("linux/arm64/v8", "linux/arm64", Some("linux"), Some("arm64")),
        ("linux/arm", "linux/arm", Some("linux"), Some("arm")),
        ("linux/armhf", "linux/arm/v7", Some("linux"), Some("arm")),
        ("*/aarch64", "*/arm64", None, Some("arm64")),
        ("arm64", "*/arm64", None, Some("arm64")),
        ("windows", "windows/*", Some("windows"), None),
        ("windows(10.0.20348)/*", "windows(10.0.20348)/*", Some("windows"), None),
        ("linux/*", "linux/*", Some("linux"), None),
        ("*", "*", None, None),
        ("*/*", "*", None, None),
    ] {
        let partial: PartialPlatform = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(partial.to_string(), shown, "{text}");
        assert_eq!((partial.os(), partial.architecture()), (os, architecture), "{text}");
        assert_eq!(shown.parse::<PartialPlatform>().unwrap(), partial, "{text}");
    }
    for text in ["", "*/", "/*", "nonsense", "*/*/v7", "l*/amd64", "linux/a*", "*/a/b/c"] {
        assert!(text.parse::<PartialPlatform>().is_err(), "{text}");
    }
}

#[test]
fn the_wider_covers_the_narrower() {
    let of = |text: &str| text.parse::<PartialPlatform>().unwrap();
    assert!(of("*").covers(&of("linux/arm64")) && of("linux/*").covers(&of("linux/arm64")));
    assert!(of("linux/arm").covers(&of("linux/arm/v6")));
    assert!(!of("linux/arm/v6").covers(&of("linux/arm")));
    assert!(!of("linux/arm64").covers(&of("linux/*")) && !of("*/arm64").covers(&of("linux/*")));
}
