//! What lists have in common: ages, headers, empty ones.

use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::cluster::tidy;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

// How a list is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Listing {
    /// Leave the header out
    #[arg(long)]
    no_header: bool,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

impl Listing {
    /// Prints objects, with `row` for people.
    pub(crate) fn print<K>(
        &self,
        objects: Vec<K>,
        header: &[&str],
        what: &str,
        row: impl Fn(&K) -> Vec<String>,
    ) -> Result<Exit, Failure>
    where
        K: kube::Resource + Serialize,
    {
        let objects: Vec<K> = objects.into_iter().map(tidy).collect();
        if self.format == Format::Table && objects.is_empty() {
            format::tell(&format!("there are no {what}"));
            return Ok(Exit::Ok);
        }
        self.format.print(&objects, |objects| {
            let shown = objects.iter().map(|object| shown(row(object)));
            let text = format::table(header, shown.collect());
            match self.no_header {
                false => text,
                true => text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default(),
            }
        })?;
        Ok(Exit::Ok)
    }
}

/// Cells are strangers' words.
fn shown(row: Vec<String>) -> Vec<String> {
    row.iter().map(|cell| format::safe(cell)).collect()
}

/// Now, for ages.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// How long ago, in one or two words, as `kubectl` has it.
pub(crate) fn age(since: Option<&Time>, now: i64) -> String {
    since.map(|since| span(now - since.0.as_second())).unwrap_or_default()
}

/// So many seconds in one or two words.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (49 * 3600, "2d"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }
}
