//! Platforms and class, one of which somebody may leave to the Build.

use portolan_api::build::{MultiArch, OutputSettings};
use portolan_api::platform::Platform as ApiPlatform;
use portolan_core::Platform;

use super::{DEFAULT_CLASS, RequestError};

/// Puts what was asked for into `output`, with the missing half from `before`.
///
/// Without a class, what `before` builds on nodes of its own kind stays so; else its class or
/// `default` is meant.
pub(super) fn set(
    output: &mut OutputSettings,
    platforms: &[Platform],
    class: Option<&str>,
    before: &OutputSettings,
) -> Result<(), RequestError> {
    if platforms.is_empty() && class.is_none() {
        return Ok(());
    }
    let asked = listed(platforms)?;
    let native = before.multi_arch.is_none() && !before.platforms.is_empty();
    output.multi_arch = None;
    output.platforms = Vec::new();
    if native && class.is_none() {
        output.platforms = asked;
        return Ok(());
    }
    let known = before.multi_arch.as_ref();
    let class = class.or_else(|| known.map(|known| known.image_platform_class.as_str()));
    let class = class.unwrap_or(DEFAULT_CLASS).to_owned();
    let platforms = match (asked.is_empty(), known) {
        (false, _) => asked,
        (true, Some(known)) => known.platforms.clone(),
        (true, None) => before.platforms.clone(),
    };
    if platforms.is_empty() {
        return Err(RequestError::NoPlatforms(class));
    }
    output.multi_arch = Some(MultiArch { image_platform_class: class, platforms });
    Ok(())
}

/// Each once, in its usual spelling, with nothing that a resource cannot say.
fn listed(platforms: &[Platform]) -> Result<Vec<ApiPlatform>, RequestError> {
    let mut all: Vec<ApiPlatform> = Vec::new();
    for platform in platforms {
        let plain = platform.normalised();
        if plain.os_version.is_some() || !plain.os_features.is_empty() {
            return Err(RequestError::TooMuch(platform.to_string()));
        }
        let plain = ApiPlatform::from(&plain);
        if all.contains(&plain) {
            return Err(RequestError::Twice { what: "--platform", name: plain.to_string() });
        }
        all.push(plain);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(class: Option<&str>, platforms: &[&str]) -> OutputSettings {
        let platforms: Vec<ApiPlatform> =
            platforms.iter().map(|p| ApiPlatform::from(&p.parse::<Platform>().unwrap())).collect();
        match class {
            Some(class) => OutputSettings {
                multi_arch: Some(MultiArch { image_platform_class: class.to_owned(), platforms }),
                ..OutputSettings::default()
            },
            None => OutputSettings { platforms, ..OutputSettings::default() },
        }
    }

    fn asked(
        platforms: &[&str],
        class: Option<&str>,
        before: &OutputSettings,
    ) -> Result<OutputSettings, RequestError> {
        let platforms: Vec<Platform> = platforms.iter().map(|p| p.parse().unwrap()).collect();
        let mut output = OutputSettings::default();
        set(&mut output, &platforms, class, before)?;
        Ok(output)
    }

    #[test]
    fn the_missing_half_comes_from_the_build_or_is_default() {
        let none = settings(None, &[]);
        let classed = settings(Some("all"), &["linux/s390x"]);
        let native = settings(None, &["linux/s390x"]);
        let amd = &["linux/amd64"][..];
        for (platforms, class, before, expected) in [
            (&[][..], None, &classed, none.clone()),
            (amd, None, &none, settings(Some("default"), amd)),
            (amd, Some("fast"), &none, settings(Some("fast"), amd)),
            (amd, None, &classed, settings(Some("all"), amd)),
            (amd, Some("fast"), &classed, settings(Some("fast"), amd)),
            (&[], Some("fast"), &classed, settings(Some("fast"), &["linux/s390x"])),
            (&[], Some("fast"), &native, settings(Some("fast"), &["linux/s390x"])),
            (amd, None, &native, settings(None, amd)),
            (amd, Some("fast"), &native, settings(Some("fast"), amd)),
        ] {
            let found = asked(platforms, class, before).unwrap();
            assert_eq!(found, expected, "{platforms:?} {class:?} {before:?}");
        }
        let error = asked(&[], Some("fast"), &none).unwrap_err();
        assert_eq!(error, RequestError::NoPlatforms("fast".to_owned()));
    }

    #[test]
    fn platforms_are_named_once_and_in_their_usual_spelling() {
        let none = OutputSettings::default();
        let found = asked(&["linux/x86_64", "linux/aarch64", "linux/amd64/v3"], None, &none);
        let expected = settings(Some("default"), &["linux/amd64", "linux/arm64", "linux/amd64/v3"]);
        assert_eq!(found.unwrap(), expected);
        for twice in [["linux/amd64", "linux/amd64"], ["linux/arm64", "linux/arm64/v8"]] {
            let error = asked(&twice, None, &none).unwrap_err();
            assert!(error.to_string().contains("twice"), "{error}");
        }
        let error = asked(&["windows(10.0.17763)/amd64"], None, &none).unwrap_err();
        assert!(matches!(error, RequestError::TooMuch(_)), "{error}");
    }
}
