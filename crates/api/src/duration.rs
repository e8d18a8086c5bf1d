//! Times as Go writes them, `90s` or `1h30m`, read so that no text is more than a program can hold: the parser that
//! they have from Kubernetes' own library ends the program where one is.

use kube_core::Duration;
use serde::{Deserialize as _, Deserializer, de};

/// What Go can say: its durations are nanoseconds in 64 bits. 292 years, in seconds.
const LONGEST: f64 = 9_223_372_036.0;

/// Reads one.
///
/// # Errors
/// What is wrong with it, in words that go on after the text itself.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut seconds = 0.0;
    let mut rest = unsigned;
    while !rest.is_empty() && rest != "0" {
        let letters = rest.find(char::is_alphabetic).ok_or(NONE)?;
        let (number, from_unit) = rest.split_at(letters);
        let end = from_unit.find(|c: char| !c.is_alphabetic()).unwrap_or(from_unit.len());
        let (unit, after) = from_unit.split_at(end);
        // Signs within are no part of what Go writes.
        let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let number: f64 = number.parse().ok().filter(|_| plain).ok_or(NONE)?;
        seconds += number * unit_seconds(unit).ok_or(NONE)?;
        rest = after;
    }
    if seconds > LONGEST {
        return Err("is longer than 292 years, the longest that can be said");
    }
    text.parse().map_err(|_| NONE)
}

const NONE: &str = "is no duration such as 90s, 10m or 1h30m";

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

/// Reads one that need not be there, in a resource.
pub(crate) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let read = |text: String| {
        parse(&text).map_err(|why| {
            let shown: String = text.chars().take(80).collect();
            de::Error::custom(format!("{shown:?} {why}"))
        })
    };
    text.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use std::time;

    use super::*;
    use crate::build::{Build, BuildRun};

    #[test]
    fn what_go_writes_is_read() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1h0m0.5s", 3_600_500),
            ("3600000000000ns", 3_600_000),
            ("1.5ms", 1),
            (".5h", 1_800_000),
            ("2562047h47m16s", 9_223_372_036_000),
        ] {
            let read = parse(text).map(time::Duration::from).map(|one| one.as_millis());
            assert_eq!(read, Ok(millis), "{text}");
        }
        assert!(parse("-5m").unwrap().is_negative());
    }

    #[test]
    fn what_no_program_can_hold_and_what_go_does_not_write_is_refused() {
        for text in ["5124095576030431h", "99999999999999999999h", "2562048h", "9223372036s1s"] {
            assert!(parse(text).unwrap_err().contains("292 years"), "{text}");
        }
        for text in
            ["5", "h", "1x", "1h-5m", "--5m", "1h+1m", "NaNs", "infs", "1e9h", "1..5s", "1h5"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    /// A resource of anybody's with such a time is one that cannot be read, and not the end of who reads it.
    #[test]
    fn resources_with_such_times_cannot_be_read() {
        let timeout = "99999999999999999999h";
        let output = serde_json::json!({"image": "r.example/a"});
        let build = |spec: serde_json::Value| {
            serde_json::json!({
                "apiVersion": "shipwright.io/v1beta1", "kind": "Build", "metadata": {"name": "a"}, "spec": spec,
            })
        };
        let strategy = serde_json::json!({"name": "s"});
        for more in [
            serde_json::json!({"timeout": timeout}),
            serde_json::json!({"retention": {"ttlAfterFailed": timeout}}),
            serde_json::json!({"retention": {"ttlAfterSucceeded": timeout}}),
            serde_json::json!({"source": {"type": "Local", "local": {"timeout": timeout}}}),
        ] {
            let mut spec = serde_json::json!({"strategy": strategy, "output": output});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let error = serde_json::from_value::<Build>(build(spec)).unwrap_err().to_string();
            assert!(error.contains("292 years"), "{more}: {error}");
        }
        for more in [
            serde_json::json!({"timeout": timeout}),
            serde_json::json!({"retention": {"ttlAfterFailed": timeout}}),
            serde_json::json!({"retention": {"ttlAfterSucceeded": timeout}}),
        ] {
            let mut spec = serde_json::json!({"build": {"name": "a"}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let run = serde_json::json!({
                "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": "a"}, "spec": spec,
            });
            let error = serde_json::from_value::<BuildRun>(run).unwrap_err().to_string();
            assert!(error.contains("292 years"), "{more}: {error}");
        }
    }
}
