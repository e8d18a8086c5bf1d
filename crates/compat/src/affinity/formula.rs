//! Conditions on the labels of a node, put together as a scheduler takes them: alternatives, each
//! of conditions that must all hold.
//!
//! What labels cannot say is left out, which lets more nodes through and never fewer; whoever
//! leaves it out says so.

use std::collections::BTreeSet;

/// More alternatives than this help no scheduler.
pub const MAX_ALTERNATIVES: usize = 256;
/// Nor do more conditions in one of them.
const MAX_CONDITIONS: usize = 512;
/// Pairs of alternatives that are put together at once, before those that say nothing new go.
const MAX_PAIRS: usize = 16 * MAX_ALTERNATIVES;
/// Comparisons for one formula where nobody counts for several. A second's work, and a thousand
/// times what requirements in use take.
const MAX_STEPS: u64 = 20_000_000;

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// The label.
    pub key: String,
    /// What is asked of it.
    pub operator: Operator,
    /// With what; one for `Gt` and `Lt`, none for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The operators of node affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Operator {
    /// One of these.
    In,
    /// None of these; holds where the label is missing, too.
    NotIn,
    /// There.
    Exists,
    /// Not there.
    DoesNotExist,
    /// An integer that is greater.
    Gt,
    /// An integer that is less.
    Lt,
}

/// Alternatives of conditions. No alternative holds never; one without conditions holds always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formula(Vec<BTreeSet<Condition>>);

/// More than [`MAX_ALTERNATIVES`], or more conditions than anybody puts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// What putting formulas together may still cost. Requirements are a stranger's, and a page of them
/// can mean more alternatives than there is time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work(u64);

impl Default for Work {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

impl Work {
    fn spend(&mut self, steps: usize) -> Result<(), TooMany> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(TooMany)?;
        Ok(())
    }
}

impl Condition {
    /// A condition.
    pub fn new(key: &str, operator: Operator, values: &[&str]) -> Self {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Self { key: key.to_owned(), operator, values }
    }

    /// What holds exactly where this does not.
    fn negated(&self) -> Vec<Self> {
        let with = |operator| Self { operator, ..self.clone() };
        let missing =
            || Self { key: self.key.clone(), operator: Operator::DoesNotExist, values: Vec::new() };
        // The bound moves by one, because both operators leave it out.
        let beside = |operator, step: i64| {
            let number: Option<i64> = self.values.first().and_then(|text| text.parse().ok());
            let value = number.and_then(|number| number.checked_add(step));
            let value = value.map(|value| value.to_string()).into_iter().collect();
            Self { key: self.key.clone(), operator, values: value }
        };
        match self.operator {
            Operator::In => vec![with(Operator::NotIn)],
            Operator::NotIn => vec![with(Operator::In)],
            Operator::Exists => vec![with(Operator::DoesNotExist)],
            Operator::DoesNotExist => vec![with(Operator::Exists)],
            Operator::Gt => vec![beside(Operator::Lt, 1), missing()],
            Operator::Lt => vec![beside(Operator::Gt, -1), missing()],
        }
    }
}

impl From<Condition> for Formula {
    fn from(condition: Condition) -> Self {
        Self(vec![BTreeSet::from([condition])])
    }
}

impl Formula {
    /// Holds always.
    pub fn always() -> Self {
        Self(vec![BTreeSet::new()])
    }

    /// Holds never.
    pub fn never() -> Self {
        Self(Vec::new())
    }

    /// Whether it holds for every node.
    pub fn is_always(&self) -> bool {
        self.0.iter().any(BTreeSet::is_empty)
    }

    /// The alternatives.
    pub fn alternatives(&self) -> &[BTreeSet<Condition>] {
        &self.0
    }

    /// Both.
    pub fn and(&self, other: &Self) -> Result<Self, TooMany> {
        self.and_within(other, &mut Work::default())
    }

    /// Both, at the cost of `work`.
    pub fn and_within(&self, other: &Self, work: &mut Work) -> Result<Self, TooMany> {
        if self.0.len().saturating_mul(other.0.len()) > MAX_PAIRS {
            return Err(TooMany);
        }
        let mut both = Vec::new();
        for (a, b) in self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a, b))) {
            work.spend(a.len() + b.len())?;
            both.push(a.union(b).cloned().collect());
        }
        Self(both).simplified(work)
    }

    /// Either.
    pub fn or(self, other: Self) -> Result<Self, TooMany> {
        self.or_within(other, &mut Work::default())
    }

    /// Either, at the cost of `work`.
    pub fn or_within(mut self, other: Self, work: &mut Work) -> Result<Self, TooMany> {
        self.0.extend(other.0);
        self.simplified(work)
    }

    /// The contrary, at the cost of `work`.
    pub fn negated_within(&self, work: &mut Work) -> Result<Self, TooMany> {
        let mut all = Self::always();
        for alternative in &self.0 {
            let one_fails = alternative.iter().flat_map(Condition::negated);
            let one_fails = Self(one_fails.map(|one| BTreeSet::from([one])).collect());
            all = all.and_within(&one_fails, work)?;
        }
        Ok(all)
    }

    /// Without alternatives that no node meets, and without those that another one covers.
    fn simplified(self, work: &mut Work) -> Result<Self, TooMany> {
        let mut kept: Vec<BTreeSet<Condition>> = Vec::new();
        for alternative in self.0 {
            work.spend(kept.len() + alternative.len() + 1)?;
            if alternative.len() > MAX_CONDITIONS {
                return Err(TooMany);
            }
            let covered = kept.iter().any(|other| other.is_subset(&alternative));
            if covered || is_impossible(&alternative) {
                continue;
            }
            kept.retain(|other| !alternative.is_subset(other));
            kept.push(alternative);
            if kept.len() > MAX_ALTERNATIVES {
                return Err(TooMany);
            }
        }
        Ok(Self(kept))
    }
}

/// Whether two of the conditions shut each other out, as far as that is plain to see.
fn is_impossible(conditions: &BTreeSet<Condition>) -> bool {
    // Sorted by label first, so those of one label lie beside each other.
    let sorted: Vec<&Condition> = conditions.iter().collect();
    sorted.chunk_by(|a, b| a.key == b.key).any(is_impossible_for_one_label)
}

fn is_impossible_for_one_label(conditions: &[&Condition]) -> bool {
    conditions.iter().any(|one| {
        let same = conditions.iter();
        match one.operator {
            Operator::DoesNotExist => same.clone().any(|other| {
                matches!(
                    other.operator,
                    Operator::In | Operator::Exists | Operator::Gt | Operator::Lt
                )
            }),
            Operator::In => one.values.iter().all(|value| {
                same.clone().any(|other| match other.operator {
                    Operator::In => !other.values.contains(value),
                    Operator::NotIn => other.values.contains(value),
                    Operator::Gt => compared(value, &other.values, |a, b| a <= b),
                    Operator::Lt => compared(value, &other.values, |a, b| a >= b),
                    Operator::Exists | Operator::DoesNotExist => false,
                })
            }),
            // No integer is between the two.
            Operator::Gt => same.clone().any(|other| {
                other.operator == Operator::Lt
                    && one.values.first().is_some_and(|above| {
                        compared(above, &other.values, |above, below| {
                            below <= above.saturating_add(1)
                        })
                    })
            }),
            _ => false,
        }
    })
}

fn compared(value: &str, bound: &[String], test: impl Fn(i64, i64) -> bool) -> bool {
    let bound = bound.first().and_then(|text| text.parse().ok());
    matches!((value.parse(), bound), (Ok(value), Some(bound)) if test(value, bound))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// As the scheduler of Kubernetes reads it.
    fn holds(condition: &Condition, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&condition.key);
        let listed = value.is_some_and(|value| condition.values.contains(value));
        let number = |text: &String| text.parse::<i64>().ok();
        let ordered = |test: &dyn Fn(i64, i64) -> bool| {
            let bound = condition.values.first().and_then(number);
            matches!((value.and_then(number), bound), (Some(value), Some(bound)) if test(value, bound))
        };
        match condition.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => ordered(&|value, bound| value > bound),
            Operator::Lt => ordered(&|value, bound| value < bound),
        }
    }

    fn meets(formula: &Formula, labels: &BTreeMap<String, String>) -> bool {
        formula.alternatives().iter().any(|all| all.iter().all(|one| holds(one, labels)))
    }

    fn conditions() -> impl Strategy<Value = Condition> {
        let keys = prop_oneof![Just("a"), Just("b")];
        let numbers = prop::collection::vec(0i64..4, 1..3);
        (keys, 0usize..6, numbers).prop_map(|(key, op, numbers)| {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let all: Vec<&str> = numbers.iter().map(String::as_str).collect();
            let (operator, values) = match op {
                0 => (Operator::In, &all[..]),
                1 => (Operator::NotIn, &all[..]),
                2 => (Operator::Exists, &[][..]),
                3 => (Operator::DoesNotExist, &[][..]),
                4 => (Operator::Gt, &all[..1]),
                _ => (Operator::Lt, &all[..1]),
            };
            Condition::new(key, operator, values)
        })
    }

    fn formulas() -> impl Strategy<Value = Formula> {
        let alternative = prop::collection::btree_set(conditions(), 0..3);
        prop::collection::vec(alternative, 0..3).prop_map(Formula)
    }

    /// Labels that are integers: nodes with texts in them meet neither `Gt` nor `Lt`, nor their
    /// contraries.
    fn nodes() -> impl Strategy<Value = BTreeMap<String, String>> {
        let value = (-1i64..6).prop_map(|number| number.to_string());
        prop::collection::btree_map(
            prop_oneof![Just("a".to_owned()), Just("b".to_owned())],
            value,
            0..3,
        )
    }

    proptest! {
        #[test]
        fn a_scheduler_reads_what_was_meant(a in formulas(), b in formulas(), node in nodes()) {
            let (first, second) = (meets(&a, &node), meets(&b, &node));
            prop_assert_eq!(meets(&a.and(&b).unwrap(), &node), first && second);
            prop_assert_eq!(meets(&a.clone().or(b).unwrap(), &node), first || second);
            let work = &mut Work::default();
            prop_assert_eq!(meets(&a.negated_within(work).unwrap(), &node), !first);
            prop_assert_eq!(meets(&a.clone().simplified(work).unwrap(), &node), first);
        }
    }

    #[test]
    fn always_and_never() {
        assert!(Formula::always().is_always());
        let work = &mut Work::default();
        assert_eq!(Formula::always().negated_within(work).unwrap(), Formula::never());
        assert_eq!(Formula::never().negated_within(work).unwrap(), Formula::always());
    }

    #[test]
    fn too_many_alternatives_are_an_answer_and_no_wait() {
        let choice = |n: usize| {
            let [a, b] = ["x", "y"].map(|side| {
                Formula::from(Condition::new(&format!("{side}{n}"), Operator::Exists, &[]))
            });
            a.or(b).unwrap()
        };
        let mut all = Formula::always();
        let mut failed = false;
        for n in 0..20 {
            match all.and(&choice(n)) {
                Ok(both) => all = both,
                Err(TooMany) => {
                    failed = true;
                    break;
                }
            }
        }
        assert!(failed && all.alternatives().len() <= MAX_ALTERNATIVES);
    }

    #[test]
    fn conditions_and_work_have_an_end_as_well() {
        let one = |n: usize| {
            Formula::from(Condition::new(&format!("label{n:04}"), Operator::Exists, &[]))
        };
        let all = (0..MAX_CONDITIONS).try_fold(Formula::always(), |all, n| all.and(&one(n)));
        let all = all.unwrap();
        assert_eq!(all.and(&one(MAX_CONDITIONS)), Err(TooMany));
        let work = &mut Work(MAX_CONDITIONS as u64 + 1);
        assert_eq!(all.and_within(&Formula::always(), work), Err(TooMany));
        assert_eq!(one(1).and_within(&one(2), &mut Work(10)).unwrap().alternatives().len(), 1);
    }
}
