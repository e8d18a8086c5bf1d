//! What containerd would do: the same names, the same fallbacks, the same order.
//!
//! This is a mode of its own beside [`super::Platform::satisfies`], for two uses: to say what a
//! runtime on a node will take, and to know every entry that verification must cover. It keeps
//! containerd's choices also where ours differ: 386 and 32-bit ARM are accepted without asking
//! the host, an unknown arm64 variant accepts nothing at all, and architectures without a
//! fallback (riscv64, ppc64le, s390x, …) accept only the exact variant.

use super::satisfies::missing_features;
use super::{Platform, windows};

/// containerd's normalisation. Ours ([`Platform::normalised`]) knows more names and ends here.
#[must_use]
pub fn normalise(platform: &Platform) -> Platform {
    let os = match platform.os.to_ascii_lowercase().as_str() {
        "macos" => "darwin".to_owned(),
        os => os.to_owned(),
    };
    let architecture = platform.architecture.to_ascii_lowercase();
    let variant = platform.variant.as_deref().unwrap_or_default().to_ascii_lowercase();
    let (architecture, variant) = normalise_architecture(&architecture, &variant);
    let mut os_features: Vec<_> =
        platform.os_features.iter().filter(|feature| !feature.is_empty()).cloned().collect();
    os_features.sort_unstable();
    os_features.dedup();
    Platform {
        os,
        architecture: architecture.to_owned(),
        variant: Some(variant.to_owned()).filter(|variant| !variant.is_empty()),
        os_version: platform.os_version.clone().filter(|version| !version.is_empty()),
        os_features,
    }
}

fn normalise_architecture<'a>(architecture: &'a str, variant: &'a str) -> (&'a str, &'a str) {
    match (architecture, variant) {
        ("i386", _) => ("386", ""),
        ("x86_64" | "x86-64" | "amd64", "v1") => ("amd64", ""),
        ("x86_64" | "x86-64" | "amd64", variant) => ("amd64", variant),
        ("aarch64" | "arm64", "8" | "v8" | "v8.0") => ("arm64", ""),
        ("aarch64" | "arm64", "9" | "9.0" | "v9.0") => ("arm64", "v9"),
        ("aarch64" | "arm64", variant) => ("arm64", variant),
        ("armhf", _) => ("arm", "v7"),
        ("armel", _) => ("arm", "v6"),
        ("arm", "" | "7") => ("arm", "v7"),
        ("arm", "5") => ("arm", "v5"),
        ("arm", "6") => ("arm", "v6"),
        ("arm", "8") => ("arm", "v8"),
        other => other,
    }
}

/// Every platform that containerd on `host` accepts, best first.
///
/// | host | accepts, in this order |
/// |---|---|
/// | amd64/vN, N ≥ 2 | vN … v2, amd64, 386 |
/// | amd64, or a variant without a number | itself, 386 |
/// | arm/vN, N > 5 | vN … v5 |
/// | arm64/v8.n | v8.n … v8, then arm/v8 … v5 |
/// | arm64/v9.n | v9.n … v9, v8.min(n+5, 9) … v8, then arm/v8 … v5 |
/// | arm64 with a variant of no such form | nothing |
/// | anything else | itself |
pub fn fallbacks(host: &Platform) -> Vec<Platform> {
    let host = normalise(host);
    let with = |architecture: &str, variant: &str| {
        normalise(&Platform {
            architecture: architecture.to_owned(),
            variant: Some(variant.to_owned()),
            ..host.clone()
        })
    };
    let variant = host.variant.as_deref().unwrap_or_default();
    match host.architecture.as_str() {
        "amd64" => {
            let lower = number(variant).unwrap_or(1);
            let levels = (1..lower).rev().map(|n| with("amd64", &format!("v{n}")));
            let own = std::iter::once(host.clone());
            own.chain(levels).chain(std::iter::once(with("386", ""))).collect()
        }
        "arm" => {
            let lower = (5..number(variant).unwrap_or(5)).rev();
            let own = std::iter::once(host.clone());
            own.chain(lower.map(|n| with("arm", &format!("v{n}")))).collect()
        }
        "arm64" => {
            let Some(levels) = arm64_levels(variant) else { return Vec::new() };
            let wide = levels
                .into_iter()
                .map(|(major, minor)| with("arm64", &arm64_variant(major, minor)));
            wide.chain((5..=8).rev().map(|n| with("arm", &format!("v{n}")))).collect()
        }
        _ => vec![host],
    }
}

/// The number of `vN`. Bounded, because the fallbacks below it are written out one by one.
fn number(variant: &str) -> Option<u32> {
    variant.strip_prefix('v').unwrap_or(variant).parse().ok().filter(|n| *n <= 1000)
}

/// An arm64 variant and all below it; none where the variant has no place in the order.
fn arm64_levels(variant: &str) -> Option<Vec<(u8, u8)>> {
    let (major, minor) = super::level::arm64_version(variant)?;
    let down = |major: u8, minor: u8| (0..=minor).rev().map(move |minor| (major, minor));
    Some(match major {
        9 => down(9, minor).chain(down(8, (minor + 5).min(9))).collect(),
        _ => down(8, minor).collect(),
    })
}

fn arm64_variant(major: u8, minor: u8) -> String {
    if minor == 0 { format!("v{major}") } else { format!("v{major}.{minor}") }
}

/// Whether an image for `image` is what a matcher for exactly `wanted` takes: operating system,
/// architecture and variant equal, the image's features all there, and on Windows a build that
/// fits.
pub fn matches(wanted: &Platform, image: &Platform) -> bool {
    let (wanted, image) = (normalise(wanted), normalise(image));
    wanted.os == image.os
        && wanted.architecture == image.architecture
        && wanted.variant == image.variant
        && missing_features(&wanted, &image).is_empty()
        && (wanted.os != "windows"
            || windows::fits(wanted.os_version.as_deref(), image.os_version.as_deref()))
}

/// Where `image` stands among the fallbacks of `host`, 0 being best; none where containerd would
/// not take it.
pub fn rank(host: &Platform, image: &Platform) -> Option<usize> {
    fallbacks(host).iter().position(|wanted| matches(wanted, image))
}

/// Which of `images` containerd on `host` takes: the best fallback, then the one with more
/// features, then the one listed first.
pub fn choose(host: &Platform, images: &[Platform]) -> Option<usize> {
    let vector = fallbacks(host);
    let rank = |image: &Platform| vector.iter().position(|wanted| matches(wanted, image));
    images
        .iter()
        .enumerate()
        .filter_map(|(position, image)| {
            let features = std::cmp::Reverse(normalise(image).os_features.len());
            rank(image).map(|rank| (rank, features, position))
        })
        .min()
        .map(|(_, _, position)| position)
}
