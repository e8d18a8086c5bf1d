//! Settings.
/// How to talk to registries.
#[derive(Debug, Clone, Default)]
pub struct Settings {}
/// Trouble with `registries.toml`.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// x
    #[error("x")]
    X,
}
impl Settings {
    /// From the default places; without a file, the defaults.
    pub fn load() -> Result<Self, SettingsError> {
        Ok(Self::default())
    }
    /// From one file.
    pub fn from_file(_path: &std::path::Path) -> Result<Self, SettingsError> {
        Ok(Self::default())
    }
    /// From text.
    pub fn parse(_text: &str, _origin: &std::path::Path) -> Result<Self, SettingsError> {
        Ok(Self::default())
    }
}
