//! Things of which a host may have many: devices, interfaces, disks.
//!
//! An entry is met by one of them that has all its attributes; attributes spread over two do not
//! count. `count` asks for more than one: a number is at least that many, an expression is
//! compared with how many there are.

use portolan_host::facts::{Facts, Feature, Found, Instance, Wanted};

use super::finding::{Finding, NOT_SHOWN, code, input};
use super::things::{Kind, SERIAL, Way};
use super::{Demand, Demands, Manner, hazards};
use crate::affinity::formula::Formula;
use crate::affinity::{Said, labels};
use crate::evaluate::Reason;
use crate::expression::{Input, UndecidedError};
use crate::json::{Member, Place, Spanned, Value};
use crate::text::{short, shown};
use crate::value::{At, Scalar, Test, verbatim};
use crate::verdict::Verdict;

/// Reads a list of entries, or one alone.
pub(super) fn read(kind: &'static Kind, value: &Spanned, at: &mut At<'_>) -> Demands {
    match &value.value {
        Value::Object(members) => entry(kind, value, members, at).into_iter().collect(),
        _ => {
            let wanted = "a list of objects";
            let Some(items) = at.array(value, wanted) else { return Vec::new() };
            let mut demands: Demands = Vec::new();
            for (n, item) in items.iter().enumerate() {
                demands.extend(at.below(&n.to_string(), |at| {
                    let members = at.object(item, "an object of attributes")?;
                    entry(kind, item, members, at)
                }));
            }
            demands
        }
    }
}

fn entry(
    kind: &'static Kind,
    value: &Spanned,
    members: &[Member],
    at: &mut At<'_>,
) -> Option<Box<dyn Demand>> {
    let mut known: Vec<&str> = kind.attributes.iter().map(|(name, _)| *name).collect();
    known.push("count");
    let mut wanted =
        Wanting { kind, what: String::new(), tests: Vec::new(), count: None, odd: None };
    for member in members {
        if member.key == "count" {
            wanted.count = Some(at.below("count", |at| count(&member.value, at))?);
            continue;
        }
        let attribute = kind.attributes.iter().find(|(name, _)| *name == member.key);
        let Some((name, way)) = attribute else {
            at.unknown_field(member, &known);
            wanted.odd = Some(member.key.clone());
            continue;
        };
        let test =
            at.below(name, |at| Test::read(&member.value, at, &|text| way.written(name, text)))?;
        wanted.tests.push(Attribute { name, way: *way, test });
    }
    if let (Some(class), Some(vendor)) = (wanted.only("class"), wanted.only("vendor")) {
        hazards::pci(class, vendor, value.place, at);
    }
    wanted.name_it();
    Some(Box::new(wanted))
}

/// A number of things: a number is "at least".
fn count(value: &Spanned, at: &mut At<'_>) -> Option<Count> {
    match &value.value {
        Value::Number(number) => match number.as_u64() {
            Some(least) => Some(Count::AtLeast(least)),
            None => {
                at.wrong(value.place, format!("there cannot be {number} of them"));
                None
            }
        },
        Value::Object(_) => Test::read(value, at, &verbatim).map(Count::Test),
        _ => {
            at.expected(value, "a number, or an expression");
            None
        }
    }
}

/// `class:vendor[:device[:subvendor:subdevice]]` of the plugin `hardware`.
pub(super) fn pattern(
    kind: &'static Kind,
    text: &str,
    place: Place,
    at: &mut At<'_>,
) -> Option<Box<dyn Demand>> {
    let names: &[&str] = match kind.feature {
        "usb.device" => &["class", "vendor", "device"],
        _ => &["class", "vendor", "device", "subsystem_vendor", "subsystem_device"],
    };
    let parts: Vec<&str> = text.split(':').collect();
    // A subsystem has two parts: one alone says nothing.
    if parts.len() < 2 || parts.len() > names.len() || parts.len() == 4 {
        let message = format!(
            "{:?} is no {}; write {}",
            short(text),
            kind.what,
            match names.len() {
                3 => "class:vendor[:device], such as 0e:046d",
                _ => "class:vendor[:device[:subvendor:subdevice]], such as 0302:10de",
            }
        );
        at.wrong(place, message);
        return None;
    }
    let mut wanted =
        Wanting { kind, what: String::new(), tests: Vec::new(), count: None, odd: None };
    for (name, part) in names.iter().zip(parts) {
        let (name, way) = kind.attributes.iter().find(|(known, _)| known == name)?;
        if part == "*" {
            continue;
        }
        match way.written(name, part) {
            Ok(written) => {
                wanted.tests.push(Attribute { name, way: *way, test: Test::equal(written) });
            }
            Err(why) => {
                at.wrong(place, why);
                return None;
            }
        }
    }
    if let (Some(class), Some(vendor)) = (wanted.only("class"), wanted.only("vendor")) {
        hazards::pci(class, vendor, place, at);
    }
    wanted.what = format!("{} {}", kind.what, shown(&text.to_ascii_lowercase()));
    Some(Box::new(wanted))
}

#[derive(Debug)]
struct Attribute {
    name: &'static str,
    way: Way,
    test: Test,
}

impl Attribute {
    fn holds(&self, feature: &Feature, instance: &Instance) -> Result<bool, UndecidedError> {
        let found = feature.of_instance(instance, self.name);
        let Found::Value { value, .. } = found else {
            return self.test.holds(match self.name {
                SERIAL => Input::Unknown("serial numbers are left out of the facts"),
                _ => input(&found),
            });
        };
        match self.way {
            Way::Plain => self.test.holds(Input::Value(value)),
            Way::Hex(_) => self.test.holds(Input::Value(&self.way.found(value))),
            // Two digits are the class above.
            Way::Class => {
                self.test.holds_by(Input::Value(&self.way.found(value)), &|asked, found| {
                    asked.len() == 2 && found.starts_with(asked)
                })
            }
        }
    }
}

#[derive(Debug)]
enum Count {
    AtLeast(u64),
    Test(Test),
}

/// One thing that must be there, perhaps several times.
#[derive(Debug)]
struct Wanting {
    kind: &'static Kind,
    what: String,
    tests: Vec<Attribute>,
    count: Option<Count>,
    /// A field that is not known.
    odd: Option<String>,
}

impl Wanting {
    fn name_it(&mut self) {
        let attributes: Vec<String> =
            self.tests.iter().map(|one| format!("{}={}", one.name, one.test)).collect();
        self.what = match attributes.is_empty() {
            true => self.kind.what.to_owned(),
            false => format!("{} with {}", self.kind.what, attributes.join(" ")),
        };
    }

    /// The only value an attribute may have.
    fn only(&self, name: &str) -> Option<&str> {
        let attribute = self.tests.iter().find(|one| one.name == name)?;
        match &attribute.test {
            Test::OneOf(scalars) => match scalars.as_slice() {
                [Scalar::Text(text)] => Some(text),
                _ => None,
            },
            Test::Expression(_) => None,
        }
    }

    fn expected(&self) -> String {
        match &self.count {
            None => "at least 1".to_owned(),
            Some(Count::AtLeast(least)) => format!("at least {least}"),
            Some(Count::Test(test)) => format!("count {test}"),
        }
    }

    /// Whether a host with so many, and perhaps so many more, is as asked for.
    fn enough(&self, surely: u64, perhaps: u64) -> Verdict {
        let one = |count: u64| match &self.count {
            None => Verdict::from(count >= 1),
            Some(Count::AtLeast(least)) => Verdict::from(count >= *least),
            Some(Count::Test(test)) => {
                test.holds(Input::Value(&count.to_string())).map_or(Verdict::Unknown, Verdict::from)
            }
        };
        let first = one(surely);
        // A list of devices is short, and only until the first that differs.
        let differs = (surely..=surely + perhaps).any(|count| one(count) != first);
        if differs { Verdict::Unknown } else { first }
    }

    /// What labels say of it: of few kinds, and only of what makes their names.
    fn label(&self) -> Option<Formula> {
        if self.count.is_some() || self.odd.is_some() {
            return None;
        }
        let one = |name: &str| match self.tests.iter().find(|test| test.name == name)?.test {
            Test::OneOf(ref any) if any.len() == 1 => Some(any[0].as_str()),
            _ => None,
        };
        match (self.kind.feature, self.tests.len()) {
            ("pci.device", 2) => labels::pci(one("class")?, one("vendor")?),
            ("usb.device", 3) => labels::usb(one("class")?, one("vendor")?, one("device")?),
            ("storage.block", 1) => match one("rotational")? {
                "0" | "false" => Some(labels::solid_disk()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether one of them is as asked for: what it certainly has not decides, and not what
    /// could not be found out beside it.
    fn fits(&self, feature: &Feature, instance: &Instance) -> Result<bool, UndecidedError> {
        let mut open = None;
        for test in &self.tests {
            match test.holds(feature, instance) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => open = open.or(Some(error)),
            }
        }
        open.map_or(Ok(true), Err)
    }

    /// The instances that come nearest, for those who have to find out why not.
    fn nearest(&self, feature: &Feature, instances: &[Instance]) -> String {
        let met = |instance: &Instance| {
            self.tests.iter().filter(|test| test.holds(feature, instance).unwrap_or(false)).count()
        };
        let best = instances.iter().map(met).max().unwrap_or(0);
        if best == 0 {
            return format!("{} of them, none alike", instances.len());
        }
        let near = instances.iter().filter(|instance| met(instance) == best);
        let words: Vec<String> = near
            .take(3)
            .map(|instance| {
                let own = self.tests.iter().map(|test| {
                    let value = match test.name {
                        SERIAL => NOT_SHOWN,
                        name => instance.get(name).map_or("(none)", String::as_str),
                    };
                    format!("{}={}", test.name, shown(value))
                });
                own.collect::<Vec<_>>().join(" ")
            })
            .collect();
        words.join("; ")
    }
}

impl Demand for Wanting {
    fn needs(&self, wanted: Wanted) -> Wanted {
        wanted.feature(self.kind.feature)
    }

    fn labels(&self) -> Said {
        Said::of(self.label(), || format!("{}, {}", self.what, self.expected()))
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        if let Some(odd) = &self.odd {
            let message = format!("the attribute {} is not known to this plugin", shown(odd));
            return reasons.push(super::finding::not_understood(message));
        }
        let finding = Finding { what: &self.what, expected: self.expected() };
        let feature = match facts.feature(self.kind.feature) {
            Ok(feature) => feature,
            Err(unknown) => return reasons.push(finding.unread(unknown.why)),
        };
        let instances = feature.instances.as_deref().unwrap_or_default();
        // What could not be read of them may be just the one.
        let unread = feature.unread_things();
        let mut why = unread.first().map(|why| (*why).to_owned());
        let (mut surely, mut perhaps) = (0, unread.len() as u64);
        for instance in instances {
            match self.fits(feature, instance) {
                Ok(fits) => surely += u64::from(fits),
                Err(error) => {
                    perhaps += 1;
                    if let UndecidedError::Unread { why: own } = error {
                        why.get_or_insert(own);
                    }
                }
            }
        }
        let source = feature.source.as_str();
        let verdict = self.enough(surely, perhaps);
        let (code, message) = match verdict {
            Verdict::Pass => (code::MET, format!("{}: {surely} found", self.what)),
            Verdict::Unknown => match why {
                Some(why) => return reasons.push(finding.unread(&why)),
                None => (code::UNDECIDED, format!("{}: {perhaps} cannot be compared", self.what)),
            },
            Verdict::Fail if surely == 0 => (code::ABSENT, format!("no {}", self.what)),
            Verdict::Fail => (code::DIFFERENT, format!("{}: {surely} found", self.what)),
        };
        let mut reason = finding.reason(verdict, code, &Found::Present { source });
        reason.message = message;
        reason.found = Some(match verdict {
            Verdict::Fail if surely == 0 && instances.is_empty() => "none at all".to_owned(),
            Verdict::Fail if surely == 0 => self.nearest(feature, instances),
            _ => surely.to_string(),
        });
        reasons.push(reason);
    }
}
