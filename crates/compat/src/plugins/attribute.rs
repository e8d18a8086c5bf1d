//! One value of the host.

use portolan_host::facts::{Facts, Wanted, is_vendor, vendor, vendors};

use super::finding::{Finding, input};
use super::{Demand, Manner};
use crate::affinity::{Said, labels};
use crate::evaluate::Reason;
use crate::expression::{Expression, Input, Kind, Op};
use crate::json::Spanned;
use crate::text::short;
use crate::value::{At, Test, verbatim};

/// How authors and hosts write a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Alike.
    Plain,
    /// Bytes, for which authors write `16Gi`.
    Bytes,
    /// The name of a processor's maker, for which there are two.
    Vendor,
    /// An architecture, for which there are two or three.
    Architecture,
}

/// An attribute of a feature.
#[derive(Debug)]
pub(super) struct Attribute {
    what: String,
    feature: &'static str,
    element: String,
    way: Way,
    test: Test,
}

impl Attribute {
    /// Reads what is asked of it.
    pub(super) fn read(
        value: &Spanned,
        what: String,
        (feature, element): (&'static str, &str),
        way: Way,
        at: &mut At<'_>,
    ) -> Option<Box<dyn Demand>> {
        let test = Test::read(value, at, &|text| way.written(text))?;
        if way == Way::Bytes && test.is_equality() {
            let message = format!(
                "{what} is never exactly that; write {{\"op\": \"Ge\", \"value\": …}} for at least"
            );
            at.unlikely(value.place, message, None);
        }
        if let (Way::Vendor, Test::OneOf(names)) = (way, &test) {
            for name in names.iter().filter(|name| !is_vendor(name.as_str())) {
                let message =
                    format!("nobody is known to make processors as {:?}", short(name.as_str()));
                let near = at.guess(name.as_str(), vendors());
                at.unlikely(value.place, message, near);
            }
        }
        Some(Box::new(Self { what, feature, element: element.to_owned(), way, test }))
    }
}

impl Demand for Attribute {
    fn needs(&self, wanted: Wanted) -> Wanted {
        wanted.element(self.feature, &self.element)
    }

    fn labels(&self) -> Said {
        let test = match (self.way, &self.test) {
            // Labels have NFD's names.
            (Way::Vendor, Test::OneOf(names)) => {
                let names = names.iter().map(|name| vendor(name.as_str()).to_owned());
                Expression::of(Op::In, names.collect(), Kind::Integer).ok()
            }
            (_, test) => test.as_expression(),
        };
        let formula = test.and_then(|test| labels::say(self.feature, &self.element, &test));
        Said::of(formula, || format!("{} {}", self.what, self.test))
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let found = facts.attribute(self.feature, &self.element);
        let finding = Finding { what: &self.what, expected: self.test.to_string() };
        let holds = match (self.way, input(&found)) {
            (Way::Vendor, input @ Input::Value(_)) => {
                self.test.holds_by(input, &|asked, found| vendor(asked) == vendor(found))
            }
            (Way::Architecture, Input::Value(value)) => self
                .test
                .holds(Input::Value(portolan_host::machine::architecture(value).unwrap_or(value))),
            (_, input) => self.test.holds(input),
        };
        reasons.push(finding.judge(&found, holds));
    }
}

impl Way {
    /// What an author wrote, as hosts write it.
    fn written(self, text: &str) -> Result<String, String> {
        match self {
            Self::Plain | Self::Vendor => verbatim(text),
            Self::Architecture => {
                Ok(portolan_host::machine::architecture(text).unwrap_or(text).to_owned())
            }
            Self::Bytes => match bytes(text) {
                Some(bytes) => Ok(bytes.to_string()),
                None => Err(format!(
                    "{:?} is no amount of memory such as 16Gi or 17179869184",
                    short(text)
                )),
            },
        }
    }
}

/// `16Gi`, `500M`, `17179869184`.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = match unit.trim() {
        "" | "B" => 1,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        "Ti" | "TiB" => 1 << 40,
        "k" | "K" | "kB" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory() {
        for (text, expected) in [
            ("17179869184", Some(17_179_869_184)),
            ("16Gi", Some(17_179_869_184)),
            ("16 GiB", Some(17_179_869_184)),
            ("1Ki", Some(1024)),
            ("500M", Some(500_000_000)),
            ("2Mi", Some(2 << 20)),
            ("1Ti", Some(1 << 40)),
            ("Gi", None),
            ("1.5Gi", None),
            ("-1", None),
            ("16gb", None),
            ("99999999999Ti", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
