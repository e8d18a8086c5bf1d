//! When to try again, and after how long.

use std::time::Duration;

use super::error::Failure;
use super::settings::Limits;

/// No wait of our own choosing is longer.
const LONGEST: Duration = Duration::from_secs(15);
/// A server that asks for a longer wait than this by Retry-After is not waited for that long: the
/// person in front of the terminal rather hears that it is busy.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// A server that hangs costs a whole deadline each time, so it gets one more chance, not many.
const MAX_HANGS: u32 = 1;

/// Whether a status means that the same request may succeed later.
pub(super) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504) || (520..=529).contains(&status)
}

/// How long to wait before repetition number `attempt` (the first is 1), or none when that would be
/// one too many or end after the deadline.
///
/// Without a word from the server the wait doubles each time and is spread over its upper half by
/// `jitter` (0 to 1), so that many clients that failed together do not return together. A server's
/// Retry-After is obeyed up to [`LONGEST_ASKED`], and never shortened.
pub(super) fn delay(
    attempt: u32,
    asked: Option<Duration>,
    elapsed: Duration,
    limits: &Limits,
    jitter: f64,
) -> Option<Duration> {
    if attempt > limits.retries {
        return None;
    }
    let wait = match asked {
        Some(asked) if asked > LONGEST_ASKED => return None,
        Some(asked) => asked + limits.first_wait.mul_f64(jitter),
        None => {
            let doubled = 1 << attempt.saturating_sub(1).min(16);
            let doubled = limits.first_wait.saturating_mul(doubled).min(LONGEST);
            doubled.mul_f64(0.5 + jitter / 2.0)
        }
    };
    (elapsed + wait <= limits.retry_deadline).then_some(wait)
}

/// A number from 0 to 1 that differs each time. Without a random source waits are not spread, which
/// harms nobody.
pub fn jitter() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX)
}

/// Counts the repetitions of one call.
#[derive(Debug)]
pub(super) struct Retries {
    limits: Limits,
    started: tokio::time::Instant,
    attempts: u32,
    /// How many of the attempts ended because nothing moved.
    hangs: u32,
}

impl Retries {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), started: tokio::time::Instant::now(), attempts: 1, hangs: 0 }
    }

    /// How often it was tried by now.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Waits before the next attempt; false when none is left or would help.
    pub(super) async fn wait(&mut self, failure: &Failure) -> bool {
        if failure.is_hang() {
            self.hangs += 1;
        }
        if self.hangs > MAX_HANGS {
            return false;
        }
        let (asked, elapsed) = (failure.retry_after(), self.started.elapsed());
        let Some(wait) = delay(self.attempts, asked, elapsed, &self.limits, jitter()) else {
            return false;
        };
        tracing::debug!(
            attempt = self.attempts,
            wait_ms = wait.as_secs_f64() * 1000.0,
            "trying again"
        );
        tokio::time::sleep(wait).await;
        self.attempts += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { retries: 4, retry_deadline: Duration::from_secs(100), ..Limits::default() }
    }

    #[test]
    fn statuses() {
        for (status, expected) in [
            (200, false),
            (401, false),
            (404, false),
            (408, true),
            (429, true),
            (500, true),
            (501, false),
            (503, true),
            (505, false),
            (522, true),
        ] {
            assert_eq!(is_transient(status), expected, "{status}");
        }
    }

    #[test]
    fn waits() {
        let ms = Duration::from_millis;
        let none = Duration::ZERO;
        let at =
            |attempt, asked, elapsed, jitter| delay(attempt, asked, elapsed, &limits(), jitter);
        assert_eq!(at(1, None, none, 0.0), Some(ms(125)));
        assert_eq!(at(1, None, none, 1.0), Some(ms(250)));
        assert_eq!(at(2, None, none, 1.0), Some(ms(500)));
        assert_eq!(at(4, None, none, 1.0), Some(ms(2000)));
        assert_eq!(at(5, None, none, 0.0), None, "one too many");
        assert_eq!(at(1, Some(ms(7000)), none, 0.0), Some(ms(7000)), "as asked");
        assert_eq!(at(1, Some(ms(7000)), none, 1.0), Some(ms(7250)), "never earlier than asked");
        assert_eq!(at(1, Some(Duration::from_secs(3600)), none, 0.0), None, "nobody waits an hour");
        assert_eq!(at(1, Some(Duration::MAX), none, 0.0), None);
        assert_eq!(at(1, Some(ms(7000)), Duration::from_secs(99), 0.0), None, "the deadline");
    }

    #[test]
    fn long_series_stay_bounded() {
        let limits =
            Limits { retries: 20, retry_deadline: Duration::from_secs(3600), ..Limits::default() };
        assert_eq!(delay(20, None, Duration::ZERO, &limits, 1.0), Some(LONGEST));
    }

    #[test]
    fn jitter_is_between_zero_and_one() {
        for _ in 0..100 {
            assert!((0.0..=1.0).contains(&jitter()));
        }
    }
}
