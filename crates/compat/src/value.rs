//! What a document asks of one value of the host.
//!
//! | written | means |
//! |---|---|
//! | `"on"`, `6`, `true` | equal |
//! | `["a", "b"]` | equal to one of them |
//! | `{"op": "Ge", "value": ["5.10"], "type": "version"}` | an expression ([`crate::expression`]) |
//!
//! Numbers are equal as numbers. `true` is also `1`, and `false` is `0`: the kernel writes both.

use std::collections::BTreeSet;
use std::fmt;

use crate::diagnostic::{Code, Diagnostics, MAX_PATTERNS};
use crate::expression::{Expression, ExpressionError, Input, Kind, Op, UndecidedError};
use crate::json::{Member, Place, Spanned, Value};
use crate::text::{listed, short, shown};

const FIELDS: [&str; 3] = ["op", "value", "type"];

/// Where in a plugin's data we are, and where remarks go.
#[derive(Debug)]
pub struct At<'a> {
    path: String,
    found: &'a mut Diagnostics,
}

impl<'a> At<'a> {
    /// At `path`, a JSON pointer.
    pub fn new(path: String, found: &'a mut Diagnostics) -> Self {
        Self { path, found }
    }

    /// One step further while `f` runs.
    pub fn below<R>(&mut self, key: &str, f: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        self.path.push('/');
        for c in key.chars() {
            match c {
                '~' => self.path.push_str("~0"),
                '/' => self.path.push_str("~1"),
                c => self.path.push(c),
            }
        }
        let result = f(self);
        self.path.truncate(length);
        result
    }

    /// The plugin cannot read this.
    pub fn wrong(&mut self, place: Place, message: String) {
        self.found.add(Code::Data, place, &self.path, message);
    }

    /// [`At::wrong`], with what was probably meant.
    pub fn wrong_near(&mut self, place: Place, message: String, near: Option<&str>) {
        let near = near.map(str::to_owned);
        self.found.add_with(Code::Data, place, &self.path, message, near);
    }

    /// It can be read, and is hardly meant.
    pub fn unlikely(&mut self, place: Place, message: String, near: Option<&str>) {
        let near = near.map(str::to_owned);
        self.found.add_with(Code::Unlikely, place, &self.path, message, near);
    }

    /// The candidate that was probably meant.
    pub fn guess<'c>(
        &self,
        wrong: &str,
        candidates: impl IntoIterator<Item = &'c str>,
    ) -> Option<&'c str> {
        self.found.guess(wrong, candidates)
    }

    /// [`At::guess`] among names that take time to put together.
    pub(crate) fn guess_among(
        &self,
        wrong: &str,
        names: impl FnOnce() -> BTreeSet<String>,
    ) -> Option<String> {
        if !self.found.may_guess() {
            return None;
        }
        self.guess(wrong, names().iter().map(String::as_str)).map(str::to_owned)
    }

    /// A known mistake, which the document may make on purpose.
    pub fn hazard(&mut self, place: Place, message: &str, near: Option<&str>) {
        let near = near.map(str::to_owned);
        self.found.add_with(Code::Hazard, place, &self.path, message.to_owned(), near);
    }

    /// A field that this plugin does not know.
    pub fn unknown_field(&mut self, member: &Member, known: &[&str]) {
        let message = format!(
            "the field {:?} is not known to this plugin, so its answer stays unknown",
            short(&member.key)
        );
        let near = self.guess(&member.key, known.iter().copied()).map(str::to_owned);
        self.below(&member.key, |at| {
            at.found.add_with(Code::UnknownField, member.place, &at.path, message, near);
        });
    }

    /// A value of the wrong kind.
    pub fn expected(&mut self, value: &Spanned, wanted: &str) {
        self.wrong(value.place, format!("expected {wanted}, found {}", value.value.kind()));
    }

    /// The members of an object, or a remark.
    pub fn object<'v>(&mut self, value: &'v Spanned, wanted: &str) -> Option<&'v [Member]> {
        match &value.value {
            Value::Object(members) => Some(members),
            _ => {
                self.expected(value, wanted);
                None
            }
        }
    }

    /// The items of a list that asks for something, or a remark.
    pub fn array<'v>(&mut self, value: &'v Spanned, wanted: &str) -> Option<&'v [Spanned]> {
        match &value.value {
            Value::Array(items) if items.is_empty() => {
                self.wrong(value.place, "an empty list can never match".to_owned());
                None
            }
            Value::Array(items) => Some(items),
            _ => {
                self.expected(value, wanted);
                None
            }
        }
    }
}

/// A text, a number, or yes or no.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A number, as JSON writes it.
    Number(String),
    /// Yes or no.
    Bool(bool),
}

impl Scalar {
    /// None for what is neither.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Number(number) => Some(Self::Number(number.to_string())),
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// As a text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) => text,
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
        }
    }

    fn equals(&self, found: &str) -> bool {
        match self {
            Self::Text(text) => text == found,
            Self::Number(text) => {
                text == found
                    || matches!((number(text), number(found)), (Some(a), Some(b)) if a == b)
            }
            Self::Bool(true) => matches!(found, "true" | "1"),
            Self::Bool(false) => matches!(found, "false" | "0"),
        }
    }
}

/// Hosts' numbers are integers; JSON may write 6 as 6.0.
fn number(text: &str) -> Option<i64> {
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

/// What is asked of a value.
#[derive(Debug, Clone)]
pub enum Test {
    /// To be equal to one of these.
    OneOf(Vec<Scalar>),
    /// To make this hold.
    Expression(Expression),
}

/// Brings what an author wrote into the host's way of writing, or says what is wrong with it.
pub type Normalise<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Takes everything as it is.
pub fn verbatim(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

impl Test {
    /// Reads any of the three forms. Remarks are made; none if it cannot be used.
    pub fn read(value: &Spanned, at: &mut At<'_>, normalise: Normalise<'_>) -> Option<Self> {
        match &value.value {
            Value::Object(members) => {
                let (op, values, kind) = read_expression(value, members, at)?;
                let texts = op == "InRegexp";
                if texts && !at.found.may_build(values.len()) {
                    let message = format!("more than {MAX_PATTERNS} patterns in one document");
                    at.found.add(Code::Limit, value.place, &at.path, message);
                    return None;
                }
                let mut written = Vec::with_capacity(values.len());
                for one in values {
                    let text = if texts { Ok(one) } else { normalise(&one) };
                    written.push(text.map_err(|why| at.wrong(value.place, why)).ok()?);
                }
                Self::expression(value.place, &op, written, &kind, at)
            }
            Value::Array(_) => {
                let items = at.array(value, "a list of values")?;
                let mut scalars = Vec::with_capacity(items.len());
                for (n, item) in items.iter().enumerate() {
                    scalars.push(at.below(&n.to_string(), |at| scalar(item, at, normalise))?);
                }
                Some(Self::OneOf(scalars))
            }
            _ => Some(Self::OneOf(vec![scalar(value, at, normalise)?])),
        }
    }

    /// One text to be equal to.
    pub fn equal(text: impl Into<String>) -> Self {
        Self::OneOf(vec![Scalar::Text(text.into())])
    }

    fn expression(
        place: Place,
        op: &str,
        values: Vec<String>,
        kind: &str,
        at: &mut At<'_>,
    ) -> Option<Self> {
        match Expression::new(op, values, kind) {
            Ok(expression) => Some(Self::Expression(expression)),
            Err(error) => {
                let near = match &error {
                    ExpressionError::Operator { near, .. } => *near,
                    _ => None,
                };
                at.wrong_near(place, error.to_string(), near);
                None
            }
        }
    }

    /// Whether it holds for what a host has.
    pub fn holds(&self, input: Input<'_>) -> Result<bool, UndecidedError> {
        match (self, input) {
            (Self::Expression(expression), input) => expression.holds(input),
            (_, Input::Unknown(why)) => Err(UndecidedError::Unread { why: why.to_owned() }),
            (Self::OneOf(scalars), Input::Value(value)) => {
                Ok(scalars.iter().any(|scalar| scalar.equals(value)))
            }
            // A flag has no value but being there.
            (Self::OneOf(scalars), Input::Flag) => Ok(scalars.contains(&Scalar::Bool(true))),
            (Self::OneOf(_), Input::Absent) => Ok(false),
        }
    }

    /// [`Test::holds`] where values are equal in a way of their own.
    pub fn holds_by(
        &self,
        input: Input<'_>,
        equal: &dyn Fn(&str, &str) -> bool,
    ) -> Result<bool, UndecidedError> {
        match (self, input) {
            (Self::OneOf(scalars), Input::Value(value)) => {
                Ok(scalars.iter().any(|one| one.equals(value) || equal(one.as_str(), value)))
            }
            _ => self.holds(input),
        }
    }

    /// The same as an expression; none where it asks for an empty list.
    pub(crate) fn as_expression(&self) -> Option<Expression> {
        match self {
            Self::Expression(expression) => Some(expression.clone()),
            Self::OneOf(any) => {
                let values = any.iter().map(|one| one.as_str().to_owned()).collect();
                Expression::of(Op::In, values, Kind::Integer).ok()
            }
        }
    }

    /// Whether it asks for equality, which few numbers of a host ever are.
    pub fn is_equality(&self) -> bool {
        matches!(self, Self::OneOf(_))
    }
}

/// As reports say it: `m or y`, `Ge 5.10 (version)`.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneOf(scalars) => {
                f.write_str(&listed(scalars.iter().map(|one| shown(one.as_str())), " or "))
            }
            Self::Expression(expression) => {
                let op = match expression.op() {
                    Op::Any => "anything",
                    op => op.as_str(),
                };
                f.write_str(op)?;
                if !expression.values().is_empty() {
                    let values = expression.values().iter().map(|value| shown(value));
                    write!(f, " {}", listed(values, ", "))?;
                }
                match expression.kind() {
                    Kind::Version => f.write_str(" (version)"),
                    Kind::Integer => Ok(()),
                }
            }
        }
    }
}

fn scalar(value: &Spanned, at: &mut At<'_>, normalise: Normalise<'_>) -> Option<Scalar> {
    let Some(scalar) = Scalar::of(&value.value) else {
        at.expected(value, "a string, a number or a boolean");
        return None;
    };
    // Yes and no are not written in anybody's way.
    if let Scalar::Bool(_) = scalar {
        return Some(scalar);
    }
    match normalise(scalar.as_str()) {
        Ok(text) if text == scalar.as_str() => Some(scalar),
        Ok(text) => Some(Scalar::Text(text)),
        Err(why) => {
            at.wrong(value.place, why);
            None
        }
    }
}

/// Operator, values and type as written.
fn read_expression(
    value: &Spanned,
    members: &[Member],
    at: &mut At<'_>,
) -> Option<(String, Vec<String>, String)> {
    if let Some(member) = members.iter().find(|member| !FIELDS.contains(&member.key.as_str())) {
        let message = format!(
            "the field {:?} is not part of an expression; it has op, value and type",
            short(&member.key)
        );
        let near = at.guess(&member.key, FIELDS);
        at.below(&member.key, |at| at.wrong_near(member.place, message, near));
        return None;
    }
    let text = |key: &str, at: &mut At<'_>| match value.get(key).map(|field| &field.value) {
        None => Some(String::new()),
        Some(Spanned { value: Value::String(text), .. }) => Some(text.clone()),
        Some(other) => {
            at.below(key, |at| at.expected(other, "a string"));
            None
        }
    };
    if value.get("op").is_none() {
        at.wrong(value.place, "an expression needs an operator: op".to_owned());
        return None;
    }
    let (op, kind) = (text("op", at)?, text("type", at)?);
    let values = match value.get("value").map(|field| &field.value) {
        None => Vec::new(),
        Some(Spanned { value: Value::Array(items), .. }) => {
            let mut values = Vec::with_capacity(items.len());
            for (n, item) in items.iter().enumerate() {
                let one = at.below("value", |at| {
                    at.below(&n.to_string(), |at| scalar(item, at, &verbatim))
                })?;
                values.push(one.as_str().to_owned());
            }
            values
        }
        // One value may stand without its brackets.
        Some(one) => {
            vec![at.below("value", |at| scalar(one, at, &verbatim))?.as_str().to_owned()]
        }
    };
    Some((op, values, kind))
}
