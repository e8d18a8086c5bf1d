//! Which Windows containers a Windows host runs.

/// The builds whose containers later hosts still run, oldest first (Server 2022, Server 2025).
const LONG_TERM: [u16; 2] = [20348, 26100];

/// Major, minor and build of `10.0.20348.1`; what follows does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u8, u8, u16);

impl Version {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        Some(Self(
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        ))
    }

    /// The build number.
    pub(super) fn build(self) -> u16 {
        self.2
    }
}

/// Whether some runtime might take it that a container made for version `image` runs on a host of
/// version `host`. A version that cannot be read counts: runtimes compare only how it begins, or cut
/// its numbers to size, and `10.0.203480` or `10.0.85884` is then the same as `10.0.20348`.
pub(crate) fn may_fit(host: Option<&str>, image: Option<&str>) -> bool {
    fits(host, image) || image.is_some_and(|image| Version::parse(image).is_none())
}

/// Whether a container made for version `image` runs on a host of version `host`.
///
/// Before Server 2022 the builds must be equal. From there on a host runs containers back to the
/// long-term release before the one it belongs to. An image without a version makes no demand,
/// and a host whose version is not known takes every one, as runtimes do.
pub(crate) fn fits(host: Option<&str>, image: Option<&str>) -> bool {
    let (Some(host), Some(image)) = (host.and_then(Version::parse), image) else { return true };
    let Some(image) = Version::parse(image) else { return false };
    if (host.0, host.1) != (image.0, image.1) {
        return false;
    }
    match LONG_TERM.into_iter().rposition(|release| release <= host.build()) {
        None => host.build() == image.build(),
        Some(own) => (LONG_TERM[own.saturating_sub(1)]..=host.build()).contains(&image.build()),
    }
}
