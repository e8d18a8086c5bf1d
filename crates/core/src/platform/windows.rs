//! Which Windows containers a Windows host runs.

/// The builds whose containers later hosts still run, oldest first (Server 2022, Server 2025).
const LONG_TERM: [u32; 2] = [20348, 26100];

/// The build of `10.0.20348.1`: its third number.
pub(super) fn build(version: &str) -> Option<u32> {
    version.split('.').nth(2)?.parse().ok()
}

/// Whether a container made for version `image` runs on a host of version `host`.
///
/// Up to Server 2022 the builds must be equal. From there on a host also runs containers back to
/// the long-term release before it. A side without a version makes no demand.
pub(super) fn fits(host: Option<&str>, image: Option<&str>) -> bool {
    let (Some(host), Some(image)) = (host, image) else { return true };
    let (Some(host), Some(image)) = (build(host), build(image)) else { return host == image };
    let oldest = LONG_TERM.into_iter().rfind(|release| *release < host).unwrap_or(LONG_TERM[0]);
    image == host || (host >= LONG_TERM[0] && (oldest..=host).contains(&image))
}
