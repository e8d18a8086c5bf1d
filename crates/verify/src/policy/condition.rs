//! What a place in a predicate must be.

use serde_json::Value;

use super::document;

/// A condition on one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pointer: String,
    tests: Vec<Test>,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Equals(Value),
    In(Vec<Value>),
    Contains(Value),
    Exists(bool),
    AtLeast(f64),
    AtMost(f64),
}

impl Condition {
    /// From the file; or what is wrong with it.
    pub(super) fn new(written: document::Condition) -> Result<Self, &'static str> {
        let document::Condition { pointer, equals, one_of, contains, exists, at_least, at_most } =
            written;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err("`pointer` is empty or begins with /, such as /buildDefinition/buildType");
        }
        if [at_least, at_most].into_iter().flatten().any(f64::is_nan) {
            return Err("`atLeast` and `atMost` are numbers");
        }
        let tests: Vec<_> = [
            equals.map(Test::Equals),
            one_of.map(Test::In),
            contains.map(Test::Contains),
            exists.map(Test::Exists),
            at_least.map(Test::AtLeast),
            at_most.map(Test::AtMost),
        ]
        .into_iter()
        .flatten()
        .collect();
        if tests.is_empty() {
            return Err(
                "it asks for nothing; add `equals`, `in`, `contains`, `exists`, `atLeast` or `atMost`",
            );
        }
        Ok(Self { pointer, tests })
    }

    /// What of it does not hold; none where all does.
    pub fn broken(&self, predicate: &Value) -> Option<String> {
        let found = predicate.pointer(&self.pointer);
        let test = self.tests.iter().find(|test| !test.holds(found))?;
        let shown = found.map_or_else(|| "nothing".to_owned(), short);
        let place = if self.pointer.is_empty() { "the predicate" } else { &self.pointer };
        Some(format!("{place} is {shown}, and must {}", test.demand()))
    }
}

impl Test {
    fn holds(&self, found: Option<&Value>) -> bool {
        match self {
            Self::Equals(wanted) => found.is_some_and(|found| same(found, wanted)),
            Self::In(wanted) => found.is_some_and(|f| wanted.iter().any(|one| same(f, one))),
            Self::Contains(wanted) => found
                .and_then(Value::as_array)
                .is_some_and(|list| list.iter().any(|one| same(one, wanted))),
            Self::Exists(wanted) => found.is_some() == *wanted,
            Self::AtLeast(bound) => found.and_then(Value::as_f64).is_some_and(|n| n >= *bound),
            Self::AtMost(bound) => found.and_then(Value::as_f64).is_some_and(|n| n <= *bound),
        }
    }

    fn demand(&self) -> String {
        match self {
            Self::Equals(wanted) => format!("be {}", short(wanted)),
            Self::In(wanted) => {
                let all: Vec<_> = wanted.iter().take(8).map(short).collect();
                format!("be one of {}", all.join(", "))
            }
            Self::Contains(wanted) => format!("be a list that has {}", short(wanted)),
            Self::Exists(true) => "be there".to_owned(),
            Self::Exists(false) => "not be there".to_owned(),
            Self::AtLeast(bound) => format!("be a number of at least {bound}"),
            Self::AtMost(bound) => format!("be a number of at most {bound}"),
        }
    }
}

/// 1 and 1.0 are the same number, which YAML and JSON writers do not agree on.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || (x.is_f64() != y.is_f64() && x.as_f64() == y.as_f64())
        }
        _ => a == b,
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(written: Value) -> Result<Condition, &'static str> {
        Condition::new(serde_json::from_value(written).unwrap())
    }

    #[test]
    fn conditions_hold_or_say_what_does_not() {
        let predicate = json!({
            "builder": {"id": "https://ci.example/7"}, "level": 3, "tags": ["a", "b"], "none": null,
        });
        for (written, broken) in [
            (json!({"pointer": "/builder/id", "equals": "https://ci.example/7"}), None),
            (json!({"pointer": "/builder/id", "equals": "other"}), Some("must be \"other\"")),
            (json!({"pointer": "/builder/no", "equals": "x"}), Some("is nothing")),
            (json!({"pointer": "/level", "in": [1, 3.0]}), None),
            (json!({"pointer": "/level", "in": []}), Some("one of")),
            (json!({"pointer": "/level", "atLeast": 3, "atMost": 3}), None),
            (json!({"pointer": "/level", "atLeast": 4}), Some("at least 4")),
            (json!({"pointer": "/builder", "atMost": 4}), Some("a number of at most 4")),
            (json!({"pointer": "/tags", "contains": "b"}), None),
            (json!({"pointer": "/tags", "contains": "c"}), Some("a list that has")),
            (json!({"pointer": "/tags/1", "equals": "b"}), None),
            (json!({"pointer": "/none", "exists": true, "equals": null}), None),
            (json!({"pointer": "/none", "exists": false}), Some("must not be there")),
            (json!({"pointer": "/nowhere", "exists": false}), None),
            (json!({"pointer": "/nowhere", "exists": true}), Some("must be there")),
        ] {
            let text = written.to_string();
            let found = condition(written).unwrap().broken(&predicate);
            match (&found, broken) {
                (None, None) => {}
                (Some(found), Some(part)) => assert!(found.contains(part), "{text}: {found}"),
                _ => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_condition_that_asks_for_nothing_is_wrong() {
        assert!(condition(json!({"pointer": "/a"})).is_err());
        assert!(condition(json!({"pointer": "a", "exists": true})).is_err());
    }
}
