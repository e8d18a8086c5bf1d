//! Shims that come together begin together. Whoever applies several does it one by one, and a node that began with the first
//! would have its runtime started again for each: so what was never tried waits a moment for what comes with it.

/// So long after the last that came, in milliseconds.
const MOMENT: i64 = 150;
/// And not longer after the first of them.
const LONGEST: i64 = 1000;

/// Since when Shims come, and until when more are waited for.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// A Shim that came since the last look.
    news: Option<String>,
    /// When the first of them came, until others have begun.
    since: Option<i64>,
    until: i64,
}

impl Gather {
    /// A Shim is new, or says something else.
    pub(super) fn hear(&mut self, shim: &str) {
        self.news = Some(shim.to_owned());
    }

    /// Takes in what came: until when it is waited for more, and for whom.
    pub(super) fn heard(&mut self, now: i64) -> Option<(i64, String)> {
        let shim = self.news.take()?;
        let since = *self.since.get_or_insert(now);
        self.until = (now + MOMENT).min(since + LONGEST);
        Some((self.until, shim))
    }

    /// Whether more is waited for. If not, who comes next is the first again.
    pub(super) fn holds(&mut self, now: i64) -> bool {
        self.since = self.since.filter(|since| self.is_within(*since, now));
        self.since.is_some()
    }

    /// What began later than now was begun before the clock was set back.
    fn is_within(&self, since: i64, now: i64) -> bool {
        since <= now && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shims::plan::Planner;

    impl Planner {
        /// When what came together begins, where that is not yet.
        pub(crate) fn gathers(&self, now: i64) -> Option<i64> {
            let since = self.gather.since;
            since.filter(|since| self.gather.is_within(*since, now)).map(|_| self.gather.until)
        }
    }

    #[test]
    fn more_is_waited_for_a_moment_after_the_last_and_not_for_ever() {
        let mut gather = Gather::default();
        assert!(gather.heard(5).is_none() && !gather.holds(5));
        gather.hear("a");
        assert_eq!(gather.heard(1000), Some((1150, "a".into())));
        assert!(gather.holds(1149) && !gather.holds(1150) && !gather.holds(1100), "it is over");
        gather.hear("a");
        gather.heard(2000);
        assert!(!gather.holds(500), "the clock was set back");
        // Others come all the time, and at every look.
        let mut held = 0;
        for at in 0..100 {
            gather.hear("b");
            gather.heard(3000 + at * 100);
            held += usize::from(gather.holds(3000 + at * 100));
        }
        assert!((85..=95).contains(&held), "one look of eleven lets them begin: {held}");
    }
}
