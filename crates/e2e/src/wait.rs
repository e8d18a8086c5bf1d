//! Waiting with a deadline and a reason.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Tries until `attempt` succeeds. Its error says what is not yet so; the last one becomes the
/// cause of the failure when the time is up.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!("waited {limit:?} in vain for {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reason_is_told() {
        let error = wait_for("rain", Duration::from_millis(1), || -> Result<()> {
            anyhow::bail!("the sky is blue")
        });
        let text = format!("{:#}", error.unwrap_err());
        assert_eq!(text, "waited 1ms in vain for rain: the sky is blue");
    }
}
