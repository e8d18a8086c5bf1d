//! Expressions over one value: NFD's operators, answered with three values.
//!
//! What is wrong with an expression itself is found when it is made ([`Expression::new`]), so that
//! a linter sees it without a host. NFD finds it while it evaluates, and gives up as a whole; here
//! a host's value that cannot be compared leaves one answer open ([`UndecidedError`]).

use regex::Regex;

use crate::text::short;
use crate::verdict::Verdict;
use crate::version::Version;
use portolan_core::suggest::nearest;

/// A pattern may take this much memory, in bytes. Those that authors write take a few thousand;
/// `(a{100}){100}` is refused before it is built.
const MAX_PATTERN: usize = 256 * 1024;
/// And has at most as many bytes: to read one takes a hundred times its length, before anybody
/// knows how large it would become.
const MAX_PATTERN_TEXT: usize = 4096;

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $values:ident;)*) => {
        /// What is asked of the value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Op { $($(#[$doc])* $name,)* }

        impl Op {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As written in documents.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How many values it takes.
            pub fn takes(self) -> Takes {
                match self { $(Self::$name => Takes::$values,)* }
            }
        }
    };
}

operators! {
    /// Always.
    Any = "", None;
    /// It is there.
    Exists = "Exists", None;
    /// It is not there.
    DoesNotExist = "DoesNotExist", None;
    /// It is one of these.
    In = "In", Some;
    /// It is there, and none of these.
    NotIn = "NotIn", Some;
    /// One of these patterns is found in it.
    InRegexp = "InRegexp", Some;
    /// It is greater.
    Gt = "Gt", One;
    /// It is greater or equal.
    Ge = "Ge", One;
    /// It is less.
    Lt = "Lt", One;
    /// It is less or equal.
    Le = "Le", One;
    /// It is between them, and neither.
    GtLt = "GtLt", Two;
    /// It is between them, or one of them.
    GeLe = "GeLe", Two;
    /// It is `true`.
    IsTrue = "IsTrue", None;
    /// It is `false`.
    IsFalse = "IsFalse", None;
}

/// How many values an operator takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// None.
    None,
    /// At least one.
    Some,
    /// Exactly one.
    One,
    /// Exactly two.
    Two,
}

/// As what values are compared by `Gt` and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// As integers.
    #[default]
    Integer,
    /// As one to three numbers with dots.
    Version,
}

/// An operator and its values, known to fit together.
#[derive(Debug, Clone)]
pub struct Expression {
    op: Op,
    kind: Kind,
    values: Vec<String>,
    operands: Operands,
}

/// The values as the operator uses them.
#[derive(Debug, Clone)]
enum Operands {
    Text,
    Patterns(Vec<Regex>),
    Integers(Vec<i64>),
    Versions(Vec<Version>),
}

/// Why an expression means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// No such operator.
    #[error("there is no operator {op:?}")]
    Operator {
        /// As written.
        op: String,
        /// What was probably meant.
        near: Option<&'static str>,
    },
    /// No such type.
    #[error("there is no type {kind:?}; leave it out for integers, or write \"version\"")]
    Kind {
        /// As written.
        kind: String,
    },
    /// Too many values or too few.
    #[error("{op} takes {}, not {got}", match takes { Takes::None => "no value", Takes::Some => "at least one value", Takes::One => "one value", Takes::Two => "two values" })]
    Count {
        /// The operator.
        op: &'static str,
        /// What it takes.
        takes: Takes,
        /// How many there are.
        got: usize,
    },
    /// Not an integer.
    #[error("{value:?} is no integer; for versions add \"type\": \"version\"")]
    Integer {
        /// As written.
        value: String,
    },
    /// Not a version.
    #[error("{value:?} is no version such as 5, 5.10 or 5.10.0")]
    Version {
        /// As written.
        value: String,
    },
    /// Not a pattern.
    #[error("{value:?} is no pattern: {reason}")]
    Pattern {
        /// As written.
        value: String,
        /// In the words of the library that reads it.
        reason: String,
    },
    /// The second value is not greater than the first.
    #[error("nothing is between {lower:?} and {upper:?}; the lower one comes first")]
    Range {
        /// The first.
        lower: String,
        /// The second.
        upper: String,
    },
}

/// What a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    /// This value.
    Value(&'a str),
    /// It is there and has no value: a flag.
    Flag,
    /// It is known not to be there.
    Absent,
    /// It could not be found out.
    Unknown(&'a str),
}

/// Why a host's value says neither yes nor no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UndecidedError {
    /// It could not be read.
    #[error("{why}")]
    Unread {
        /// Why.
        why: String,
    },
    /// It is no integer.
    #[error("{value:?} is no integer")]
    Integer {
        /// The host's.
        value: String,
    },
    /// It is no version.
    #[error("{value:?} is no version")]
    Version {
        /// The host's.
        value: String,
    },
}

impl Expression {
    /// Puts an expression together from what a document says. No type is an empty one.
    pub fn new(op: &str, values: Vec<String>, kind: &str) -> Result<Self, ExpressionError> {
        let op = Op::ALL.iter().copied().find(|known| known.as_str() == op).ok_or_else(|| {
            let names = Op::ALL.iter().map(|known| known.as_str());
            ExpressionError::Operator { op: short(op), near: nearest(op, names) }
        })?;
        let kind = match kind {
            "" => Kind::Integer,
            "version" => Kind::Version,
            other => return Err(ExpressionError::Kind { kind: short(other) }),
        };
        Self::of(op, values, kind)
    }

    /// [`Expression::new`] with names that are known already.
    pub fn of(op: Op, values: Vec<String>, kind: Kind) -> Result<Self, ExpressionError> {
        let fits = match op.takes() {
            Takes::None => values.is_empty(),
            Takes::Some => !values.is_empty(),
            Takes::One => values.len() == 1,
            Takes::Two => values.len() == 2,
        };
        if !fits {
            let got = values.len();
            return Err(ExpressionError::Count { op: op.as_str(), takes: op.takes(), got });
        }
        let operands = match (op, kind) {
            (Op::InRegexp, _) => Operands::Patterns(
                values.iter().map(|text| pattern(text)).collect::<Result<_, _>>()?,
            ),
            (Op::Gt | Op::Ge | Op::Lt | Op::Le | Op::GtLt | Op::GeLe, Kind::Integer) => {
                let numbers: Vec<i64> =
                    values.iter().map(|text| integer(text)).collect::<Result<_, _>>()?;
                in_order(&values, numbers.first() < numbers.last())?;
                Operands::Integers(numbers)
            }
            (Op::Gt | Op::Ge | Op::Lt | Op::Le | Op::GtLt | Op::GeLe, Kind::Version) => {
                let versions: Vec<Version> =
                    values.iter().map(|text| version(text)).collect::<Result<_, _>>()?;
                in_order(&values, versions.first() < versions.last())?;
                Operands::Versions(versions)
            }
            _ => Operands::Text,
        };
        Ok(Self { op, kind, values, operands })
    }

    /// Its operator.
    pub fn op(&self) -> Op {
        self.op
    }

    /// Its values, as written.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// As what they are compared.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it holds for what a host has.
    ///
    /// Of a flag only `Exists`, `DoesNotExist` and the empty operator can hold: it has no value.
    /// Nothing but `DoesNotExist` holds for what is not there, not even `NotIn`.
    pub fn holds(&self, input: Input<'_>) -> Result<bool, UndecidedError> {
        match (self.op, input) {
            (Op::Any, _) => Ok(true),
            (_, Input::Unknown(why)) => Err(UndecidedError::Unread { why: why.to_owned() }),
            (Op::Exists, input) => Ok(input != Input::Absent),
            (Op::DoesNotExist, input) => Ok(input == Input::Absent),
            (_, Input::Absent | Input::Flag) => Ok(false),
            (_, Input::Value(value)) => self.holds_for(value),
        }
    }

    /// [`Expression::holds`] as a verdict.
    pub fn verdict(&self, input: Input<'_>) -> Verdict {
        self.holds(input).map_or(Verdict::Unknown, Verdict::from)
    }

    fn holds_for(&self, value: &str) -> Result<bool, UndecidedError> {
        match (self.op, &self.operands) {
            (Op::IsTrue, _) => Ok(value == "true"),
            (Op::IsFalse, _) => Ok(value == "false"),
            (Op::NotIn, _) => Ok(!self.values.iter().any(|one| one == value)),
            (_, Operands::Text) => Ok(self.values.iter().any(|one| one == value)),
            (_, Operands::Patterns(patterns)) => Ok(patterns.iter().any(|one| one.is_match(value))),
            (op, Operands::Integers(numbers)) => {
                let number: i64 =
                    value.parse().map_err(|_| UndecidedError::Integer { value: short(value) })?;
                Ok(compared(op, number, numbers))
            }
            (op, Operands::Versions(versions)) => match Version::leading(value) {
                Some(version) => Ok(compared(op, version, versions)),
                // A number below zero was read well enough; it is just no version of anything.
                None if value.parse::<i64>().is_ok() => Ok(false),
                None => Err(UndecidedError::Version { value: short(value) }),
            },
        }
    }
}

/// `value` beside one or two others.
fn compared<T: Ord + Copy>(op: Op, value: T, others: &[T]) -> bool {
    let (Some(first), Some(last)) = (others.first(), others.last()) else { return false };
    match op {
        Op::Gt => value > *first,
        Op::Ge => value >= *first,
        Op::Lt => value < *first,
        Op::Le => value <= *first,
        Op::GtLt => value > *first && value < *last,
        Op::GeLe => (*first..=*last).contains(&value),
        _ => false,
    }
}

fn in_order(values: &[String], rising: bool) -> Result<(), ExpressionError> {
    match values {
        [lower, upper] if !rising => {
            Err(ExpressionError::Range { lower: short(lower), upper: short(upper) })
        }
        _ => Ok(()),
    }
}

fn integer(text: &str) -> Result<i64, ExpressionError> {
    text.parse().map_err(|_| ExpressionError::Integer { value: short(text) })
}

fn version(text: &str) -> Result<Version, ExpressionError> {
    // What comes before the release is left out, as on the host's side.
    let numbers = text.find(['-', '+']).map_or(text, |end| &text[..end]);
    Version::exact(numbers.strip_prefix('v').unwrap_or(numbers))
        .ok_or_else(|| ExpressionError::Version { value: short(text) })
}

fn pattern(text: &str) -> Result<Regex, ExpressionError> {
    if text.len() > MAX_PATTERN_TEXT {
        let reason = format!("it is longer than {MAX_PATTERN_TEXT} bytes");
        return Err(ExpressionError::Pattern { value: short(text), reason });
    }
    regex::RegexBuilder::new(&regexp::ascii_classes(text)).size_limit(MAX_PATTERN).build().map_err(
        |error| {
            let reason = match error {
                regex::Error::CompiledTooBig(_) => "it would take too much memory".to_owned(),
                // The library draws a picture of several lines; its last one says what is wrong.
                other => other.to_string().lines().last().unwrap_or_default().trim().to_owned(),
            };
            ExpressionError::Pattern { value: short(text), reason: short(&reason) }
        },
    )
}

mod regexp;
#[cfg(test)]
mod tests;
