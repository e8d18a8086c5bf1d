//! What kind of trouble an error is, the same for client, layout and copy: the command line
//! chooses its exit code by it, a caller whether trying elsewhere makes sense.

/// What kind of trouble an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The image, tag, blob or directory is not there.
    NotFound,
    /// Someone refused: no credentials, wrong ones, or not enough rights.
    Denied,
    /// What was given or received breaks a rule: digest, size, JSON, settings.
    BadInput,
    /// The network or the server failed; the same call may work later.
    Transport,
    /// This machine failed: disk full, read-only, no permission.
    Local,
}
