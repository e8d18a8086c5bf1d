//! Waits between tries that come to nothing.

use std::time::Duration;

/// `first` after one failure, twice as long after each further one, never longer than `longest`.
pub(crate) fn backoff(first: Duration, longest: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(doubled).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_longest() {
        let [first, longest] = [1, 60].map(Duration::from_secs);
        let wait = |failures| backoff(first, longest, failures).as_secs();
        assert_eq!([0, 1, 2, 3, 6, 7, 1000, u32::MAX].map(wait), [1, 1, 2, 4, 32, 60, 60, 60]);
    }
}
