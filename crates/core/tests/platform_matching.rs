//! Which platforms run what: containerd's answers, ours, and Windows.

use portolan_core::Platform;
use portolan_core::platform::{HostPlatform, Mismatch, Support, containerd};
use proptest::prelude::*;

/// What containerd's own library answers, written down by running it.
const ORACLE: &str = include_str!("../../../fixtures/containerd-platforms.tsv");

fn platform(text: &str) -> Platform {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn linux(text: &str) -> Platform {
    platform(&format!("linux/{text}"))
}

fn named(text: &str) -> HostPlatform {
    HostPlatform::named(&platform(text))
}

/// Host, what containerd on it accepts, what it rejects.
const CONTAINERD: [(&str, &str, &str); 16] = [
    ("amd64", "amd64 amd64/v1 x86_64 386 i386", "amd64/v2 amd64/v3 arm64 arm"),
    ("amd64/v2", "amd64 amd64/v1 amd64/v2 386", "amd64/v3 amd64/v4"),
    ("amd64/v4", "amd64/v4 amd64/v3 amd64/v2 amd64 386", "amd64/v5 amd64/v9"),
    ("amd64/v9", "amd64/v9 amd64/v5 amd64/v2 amd64 386", "amd64/v10"),
    ("amd64/fast", "amd64/fast 386", "amd64 amd64/v2"),
    ("386", "386", "amd64"),
    ("arm/v7", "arm arm/v5 arm/v6 arm/v7 armhf armel", "arm/v4 arm/v8 arm64"),
    ("arm/v6", "arm/v5 arm/v6 armel", "arm arm/v7"),
    ("arm/v5", "arm/v5", "arm/v4 arm/v6"),
    ("arm/v4", "arm/v4", "arm/v3 arm/v5"),
    (
        "arm64",
        "arm64 arm64/v8 Aarch64 arm/v5 arm/v6 arm/v7 arm/v8",
        "arm64/v9 arm/v9 arm/v4 arm64/v8.1",
    ),
    ("arm64/v8.1", "arm64/v8.1 arm64/v8 arm64 arm/v5 arm/v8", "arm64/v9 arm64/v8.2"),
    (
        "arm64/v9",
        "arm64/v9 arm64/v9.0 arm64/v8 arm64/v8.1 arm64/v8.5 arm/v8 arm/v5",
        "arm64/v8.6 arm64/v9.1",
    ),
    (
        "arm64/v9.6",
        "arm64/v9 arm64/v9.3 arm64/v9.6 arm64/v8 arm64/v8.9 arm/v7",
        "arm64/v8.10 arm64/v9.7",
    ),
    ("arm64/v8.10", "", "arm64/v8.10 arm64 arm/v7 arm64/v8.9"),
    ("riscv64", "riscv64", "riscv64/rva20u64 arm64"),
];

#[test]
fn containerd_accepts_what_its_tables_say() {
    for (host, accepts, rejects) in CONTAINERD {
        for image in accepts.split_whitespace() {
            assert!(
                containerd::rank(&linux(host), &linux(image)).is_some(),
                "{host} takes {image}"
            );
        }
        for image in rejects.split_whitespace() {
            assert_eq!(
                containerd::rank(&linux(host), &linux(image)),
                None,
                "{host} refuses {image}"
            );
        }
    }
    for (host, image) in
        [("riscv64/rva20u64", "riscv64"), ("ppc64le", "ppc64le/power8"), ("s390x", "s390x/z15")]
    {
        assert_eq!(containerd::rank(&linux(host), &linux(image)), None, "{host} refuses {image}");
    }
}

#[test]
fn containerds_library_agrees() {
    let rows = || ORACLE.lines().filter_map(|line| line.strip_prefix("only\t"));
    let all: Vec<Platform> =
        rows().map(|row| platform(row.split('\t').next().unwrap_or_default())).collect();
    assert!(all.len() > 250, "{}", all.len());
    for row in rows() {
        let fields: Vec<_> = row.split('\t').collect();
        let [host, best, accepts] = fields[..] else { panic!("three fields: {row}") };
        let host = platform(host);
        let accepted: Vec<_> =
            all.iter().filter(|image| containerd::rank(&host, image).is_some()).collect();
        let expected: Vec<_> = accepts.split_whitespace().map(platform).collect();
        assert_eq!(accepted, expected.iter().collect::<Vec<_>>(), "{host}");
        let chosen = containerd::choose(&host, &all).map(|n| all[n].to_string());
        assert_eq!(chosen.unwrap_or_default(), best, "{host}");
    }
}

#[test]
fn containerds_parser_agrees() {
    let rows = ORACLE.lines().filter_map(|line| line.strip_prefix("parse\t"));
    let mut seen = 0;
    for row in rows {
        let (text, expected) = row.split_once('\t').unwrap();
        let read = text.parse::<Platform>().map(|p| p.normalised().to_string());
        assert_eq!(read.unwrap_or_else(|_| "refused".to_owned()), expected, "{text:?}");
        seen += 1;
    }
    assert!(seen > 40);
}

#[test]
fn containerds_vectors_in_their_order() {
    for (host, expected) in [
        ("amd64", "amd64 386"),
        ("amd64/v3", "amd64/v3 amd64/v2 amd64 386"),
        ("386", "386"),
        ("arm", "arm/v7 arm/v6 arm/v5"),
        ("arm/v8", "arm/v8 arm/v7 arm/v6 arm/v5"),
        ("arm/v9", "arm/v9 arm/v8 arm/v7 arm/v6 arm/v5"),
        ("arm64", "arm64 arm/v8 arm/v7 arm/v6 arm/v5"),
        ("arm64/v8.2", "arm64/v8.2 arm64/v8.1 arm64 arm/v8 arm/v7 arm/v6 arm/v5"),
        (
            "arm64/v9.1",
            "arm64/v9.1 arm64/v9 arm64/v8.6 arm64/v8.5 arm64/v8.4 arm64/v8.3 arm64/v8.2 arm64/v8.1 arm64 arm/v8 arm/v7 arm/v6 arm/v5",
        ),
        ("arm64/strange", ""),
        ("s390x", "s390x"),
    ] {
        let vector: Vec<_> = containerd::fallbacks(&linux(host))
            .iter()
            .map(|p| p.to_string().replace("linux/", ""))
            .collect();
        assert_eq!(vector.join(" "), expected, "{host}");
    }
    let last = containerd::fallbacks(&linux("arm64/v9.7"));
    assert_eq!(last[8], linux("arm64/v8.9"), "v9.n stops at v8.9");
    assert!(containerd::fallbacks(&linux("amd64/v4294967295")).len() < 2000);
}

#[test]
fn containerd_chooses_by_fallback_then_features_then_order() {
    let choose = |host: &str, images: &[&str]| {
        let images: Vec<_> = images.iter().map(|i| platform(i)).collect();
        containerd::choose(&platform(host), &images)
    };
    let list = ["linux/386", "linux/amd64", "linux/amd64/v2", "linux/amd64/v3"];
    assert_eq!(choose("linux/amd64", &list), Some(1));
    assert_eq!(choose("linux/amd64/v2", &list), Some(2));
    assert_eq!(choose("linux/arm64", &list), None);
    assert_eq!(choose("linux/amd64", &["linux/amd64/v3", "linux/386"]), Some(1));
    assert_eq!(
        choose("linux(+a+b)/amd64", &["linux/amd64", "linux(+a)/amd64", "linux(+c)/amd64"]),
        Some(1)
    );
    assert_eq!(choose("linux/amd64", &["linux/amd64", "linux/amd64/v1"]), Some(0));
    assert_eq!(choose("macOS/arm64", &["darwin/arm64"]), Some(0));
}

#[test]
fn windows_builds() {
    for (host, image, fits) in [
        ("10.0.17763", "10.0.17763.1", true),
        ("10.0.17763.5329", "10.0.17763.1", true),
        ("10.0.17763", "10.0.14393", false),
        ("10.0.19042", "10.0.17763", false),
        ("10.0.20348", "10.0.20348.9", true),
        ("10.0.20348", "10.0.17763", false),
        ("10.0.20348", "10.0.22000", false),
        ("10.0.22000", "10.0.20348", true),
        ("10.0.22631", "10.0.22000", true),
        ("10.0.22000", "10.0.19042", false),
        ("10.0.26100", "10.0.20348", true),
        ("10.0.26100", "10.0.26100", true),
        ("10.0.27000", "10.0.26100", true),
        ("10.0.27000", "10.0.20348", true),
        ("10.0.27000", "10.0.19042", false),
        ("6.3.20348", "10.0.20348", false),
        ("10.1.20348", "10.0.20348", false),
        ("weird", "weird", true),
        ("weird", "10.0.20348", true),
        ("10.0.20348", "weird", false),
    ] {
        let of = |version: &str| platform(&format!("windows({version})/amd64"));
        let host_platform = HostPlatform::named(&of(host));
        assert_eq!(host_platform.satisfies(&of(image)), fits, "{image} on {host}");
        assert_eq!(containerd::matches(&of(host), &of(image)), fits, "{image} on {host}");
    }
    let host = named("windows(10.0.20348)/amd64");
    assert!(host.satisfies(&platform("windows/amd64")), "no version, no demand");
    assert!(named("windows/amd64").satisfies(&platform("windows(10.0.17763)/amd64")));
    assert!(host.satisfies(&platform("windows(10.0.20348+win32k)/amd64")), "win32k is not asked");
    assert!(!host.satisfies(&platform("windows(10.0.20348+other)/amd64")));
    let win32k = platform("windows(10.0.20348+win32k)/amd64");
    assert!(containerd::matches(&platform("windows(10.0.20348)/amd64"), &win32k));
    assert!(
        named("linux(5)/amd64").satisfies(&platform("linux(6)/amd64")),
        "only Windows compares"
    );
}

#[test]
fn ours_differs_from_containerd_where_it_should() {
    for (host, image, fits) in [
        // No variant on an image is the baseline, also where containerd wants the exact one.
        ("riscv64/rva22u64", "riscv64", true),
        ("riscv64/rva22u64", "riscv64/rva20u64", true),
        ("riscv64", "riscv64/rva20u64", true),
        ("riscv64", "riscv64/rva22u64", false),
        ("ppc64le/power10", "ppc64le/power9", true),
        ("ppc64le", "ppc64le/power8", true),
        ("ppc64le", "ppc64le/power9", false),
        ("s390x/z15", "s390x", true),
        ("s390x", "s390x/z15", false),
        ("s390x/z15", "s390x/z15", true),
        ("strange/x", "strange", true),
        ("amd64/fast", "amd64", true),
        ("amd64/fast", "amd64/v2", false),
        ("arm64/strange", "arm64/strange", true),
        ("arm64/strange", "arm64", true),
        ("arm/strange", "arm", false),
        ("arm/v8", "arm/v4", false),
        ("arm64/v9", "arm/v9", true),
        ("arm64", "arm/v9", false),
        ("arm64/v9", "arm64/v8.5", true),
        ("arm64/v9", "arm64/v8.6", false),
        ("arm64/v8.9", "arm64/v9", false),
        // 32-bit is not assumed of a name.
        ("amd64", "386", false),
        ("arm64", "arm/v7", false),
    ] {
        assert_eq!(
            HostPlatform::named(&linux(host)).satisfies(&linux(image)),
            fits,
            "{image} on {host}"
        );
    }
}

#[test]
fn the_32_bit_side_runs_only_where_the_host_says_so() {
    for (host, image) in
        [("amd64/v3", "386"), ("arm64", "arm/v7"), ("arm64", "arm/v8"), ("arm64", "arm/v5")]
    {
        let with = |compat32| HostPlatform { platform: linux(host), compat32 };
        assert!(with(Support::Yes).satisfies(&linux(image)), "{image} on {host}");
        for support in [Support::No, Support::Unknown] {
            let refusal = with(support).check(&linux(image)).unwrap_err();
            assert!(matches!(refusal, Mismatch::Compat32 { support: s, .. } if s == support));
        }
    }
    let host = HostPlatform { platform: linux("arm64"), compat32: Support::Yes };
    assert!(!host.satisfies(&linux("arm/v4")));
    assert!(!host.satisfies(&linux("386")));
    let host = HostPlatform { platform: linux("386"), compat32: Support::Yes };
    assert!(!host.satisfies(&linux("amd64")));
}

#[test]
fn refusals_read_well() {
    let says =
        |host: &HostPlatform, image: &str| host.check(&platform(image)).unwrap_err().to_string();
    let v3 = named("linux/amd64/v3");
    assert_eq!(says(&v3, "linux/amd64/v4"), "needs amd64/v4, host is v3");
    assert_eq!(
        says(&named("linux/amd64"), "linux/amd64/v2"),
        "needs amd64/v2, host is the baseline"
    );
    assert_eq!(says(&v3, "linux/arm64"), "needs arm64, host is amd64");
    assert_eq!(says(&v3, "windows/amd64"), "needs windows, host is linux");
    assert_eq!(says(&v3, "linux(+gpu)/amd64"), "needs the os features gpu, which the host lacks");
    assert_eq!(
        says(&v3, "linux/386"),
        "needs 32-bit 386, and whether this amd64 host runs that is not known"
    );
    let no = HostPlatform { platform: linux("arm64"), compat32: Support::No };
    assert_eq!(says(&no, "linux/arm/v7"), "needs 32-bit arm, which this arm64 host does not run");
    assert_eq!(
        says(&named("windows(10.0.17763)/amd64"), "windows(10.0.20348)/amd64"),
        "needs Windows 10.0.20348, host is 10.0.17763"
    );
    let evil = Platform::new("linux", "\u{1b}[2J");
    assert_eq!(v3.check(&evil).unwrap_err().to_string(), "needs %1B%5B2j, host is amd64");
    let json = serde_json::to_value(v3.check(&platform("linux/amd64/v4")).unwrap_err()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"kind": "variant", "architecture": "amd64", "needs": "v4", "has": "v3"})
    );
}

/// Few names, so that equal and related platforms come up often.
fn some_platform() -> impl Strategy<Value = Platform> {
    let architecture = prop::sample::select(vec![
        "amd64", "x86_64", "386", "arm", "armel", "arm64", "aarch64", "ppc64le", "riscv64", "s390x",
    ]);
    let variant = prop::sample::select(vec![
        "", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v8.1", "v8.5", "v8.6", "v8.9",
        "v8.10", "v9.1", "v9.4", "power8", "power9", "power10", "rva20u64", "rva22u64", "rva23u64",
        "odd",
    ]);
    let version = prop::sample::select(vec![
        "",
        "10.0.17763",
        "10.0.20348.1",
        "10.0.20348.2",
        "10.0.22000",
        "10.0.26100",
        "10.0.27000",
        "6.3.20348",
        "x",
    ]);
    let features = prop::collection::vec(prop::sample::select(vec!["a", "b", "win32k"]), 0..3);
    let os = prop::sample::select(vec!["linux", "Linux", "windows"]);
    (os, architecture, variant, version, features).prop_map(
        |(os, architecture, variant, version, features)| Platform {
            variant: Some(variant.to_owned()).filter(|v| !v.is_empty()),
            os_version: Some(version.to_owned()).filter(|v| !v.is_empty()),
            os_features: features.into_iter().map(str::to_owned).collect(),
            ..Platform::new(os, architecture)
        },
    )
}

fn some_host() -> impl Strategy<Value = HostPlatform> {
    let compat32 = prop::sample::select(vec![Support::Yes, Support::No, Support::Unknown]);
    (some_platform(), compat32)
        .prop_map(|(platform, compat32)| HostPlatform { platform: platform.normalised(), compat32 })
}

/// A platform like `base` with one thing changed, so that related triples are common.
fn kin(base: Platform) -> impl Strategy<Value = Platform> {
    some_platform().prop_flat_map(move |other| {
        let (base, other) = (base.clone(), other);
        (0..4_u8).prop_map(move |which| match which {
            0 => Platform { variant: other.variant.clone(), ..base.clone() },
            1 => Platform { os_version: other.os_version.clone(), ..base.clone() },
            2 => Platform { os_features: other.os_features.clone(), ..base.clone() },
            _ => other.clone(),
        })
    })
}

fn three() -> impl Strategy<Value = (Platform, Platform, Platform)> {
    some_platform().prop_flat_map(|a| {
        (Just(a.clone()), kin(a)).prop_flat_map(|(a, b)| (Just(a), Just(b.clone()), kin(b)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn everything_satisfies_itself(platform in some_platform(), compat32 in prop::bool::ANY) {
        prop_assert!(platform.satisfies(&platform));
        let compat32 = if compat32 { Support::Yes } else { Support::No };
        let host = HostPlatform { platform: platform.clone(), compat32 };
        prop_assert!(host.satisfies(&platform));
    }

    #[test]
    fn satisfies_is_transitive((a, b, c) in three()) {
        if a.satisfies(&b) && b.satisfies(&c) {
            prop_assert!(a.satisfies(&c), "{a} {b} {c}");
        }
    }

    #[test]
    fn what_runs_on_a_host_runs_with_all_it_satisfies((a, b, c) in three(), compat32 in some_host()) {
        let host = HostPlatform { platform: a, compat32: compat32.compat32 };
        if host.satisfies(&b) && b.satisfies(&c) {
            prop_assert!(host.satisfies(&c), "{host} {b} {c}");
        }
    }

    #[test]
    fn a_host_runs_what_its_platform_satisfies(host in some_host(), image in some_platform()) {
        if host.platform.satisfies(&image) {
            prop_assert!(host.satisfies(&image));
        }
    }

    #[test]
    fn names_do_not_matter(host in some_host(), image in some_platform()) {
        prop_assert_eq!(host.check(&image), host.check(&image.normalised()));
    }

    #[test]
    fn containerd_takes_what_its_vector_lists(host in some_platform(), image in some_platform()) {
        let vector = containerd::fallbacks(&host);
        let taken = vector.iter().any(|wanted| containerd::matches(wanted, &image));
        prop_assert_eq!(containerd::rank(&host, &image).is_some(), taken);
        prop_assert_eq!(containerd::choose(&host, std::slice::from_ref(&image)).is_some(), taken);
    }

    /// On amd64 and arm64, with a host that runs 32 bits, ours takes what containerd takes.
    #[test]
    fn we_take_what_containerd_takes(host in some_platform(), image in some_platform()) {
        let host = HostPlatform { platform: host.normalised(), compat32: Support::Yes };
        if containerd::rank(&host.platform, &image).is_some() {
            prop_assert!(host.satisfies(&image), "{image} on {host}");
        }
    }
}

#[test]
fn satisfies_is_not_symmetric() {
    assert!(linux("amd64/v3").satisfies(&linux("amd64")));
    assert!(!linux("amd64").satisfies(&linux("amd64/v3")));
}
