//! Reads a query as far as it names things: series, what they are chosen by, and labels that answers are grouped by.
//!
//! The crate that has Prometheus' whole grammar brings a parser generator and some twenty crates with it, for tests alone; what has to
//! be known here is which names stand where. A query that is more than names, calls, groups and numbers is refused.

use std::collections::BTreeSet;

/// A label, how it is compared (`=`, `!=`, `=~`, `!~`), and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) value: String,
}

/// What a query asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) series: Vec<(String, Vec<Matcher>)>,
    pub(crate) grouped: BTreeSet<String>,
}

/// What we call: aggregations, which may be followed by a group, and functions.
const AGGREGATIONS: [&str; 5] = ["avg", "count", "max", "min", "sum"];
const FUNCTIONS: [&str; 6] =
    ["absent", "clamp_min", "deriv", "histogram_quantile", "increase", "rate"];
/// Words between two queries, and words before a list of labels.
const BETWEEN: [&str; 4] = ["and", "bool", "or", "unless"];
const GROUPS: [&str; 4] = ["by", "ignoring", "on", "without"];
const OPERATORS: [&str; 12] = ["==", "!=", ">=", "<=", "=~", "!~", ">", "<", "=", "+", "-", "*"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(String),
    Text(String),
    Operator(&'static str),
    Mark(char),
}

fn tokens(query: &str) -> Result<Vec<Token>, String> {
    let mut rest = query.trim_start();
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let taken = if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !word(c)).unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            end
        } else if first.is_ascii_digit() {
            // Times are numbers with a unit: 5m, 1h30m.
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            let end = end.unwrap_or(rest.len());
            found.push(Token::Number(rest[..end].to_owned()));
            end
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or_else(|| format!("a text without end: {rest}"))?;
            found.push(Token::Text(rest[1..=end].to_owned()));
            end + 2
        } else if let Some(operator) = OPERATORS.into_iter().find(|known| rest.starts_with(*known))
        {
            found.push(Token::Operator(operator));
            operator.len()
        } else if "(){}[],/".contains(first) {
            found.push(Token::Mark(first));
            first.len_utf8()
        } else {
            return Err(format!("{first:?} means nothing here"));
        };
        rest = rest[taken..].trim_start();
    }
    Ok(found)
}

struct Reader {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    asked: Asked,
}

/// Reads all of a query.
pub(crate) fn read(query: &str) -> Result<Asked, String> {
    let tokens = tokens(query)?.into_iter().peekable();
    let mut reader = Reader { tokens, asked: Asked::default() };
    reader.expression()?;
    match reader.tokens.next() {
        None => Ok(reader.asked),
        Some(more) => Err(format!("{more:?} is too much")),
    }
}

impl Reader {
    fn is(&mut self, mark: char) -> bool {
        self.tokens.next_if_eq(&Token::Mark(mark)).is_some()
    }

    fn must(&mut self, mark: char) -> Result<(), String> {
        match self.is(mark) {
            true => Ok(()),
            false => Err(format!("{mark} is missing before {:?}", self.tokens.peek())),
        }
    }

    fn word(&mut self, known: &[&str]) -> bool {
        let is =
            |token: &Token| matches!(token, Token::Word(word) if known.contains(&word.as_str()));
        self.tokens.next_if(is).is_some()
    }

    /// Operands with operators between them; which binds closer changes no name.
    fn expression(&mut self) -> Result<(), String> {
        self.operand()?;
        loop {
            let between =
                self.tokens.next_if(|token| matches!(token, Token::Operator(_))).is_some()
                    || self.is('/')
                    || self.word(&BETWEEN);
            if !between {
                return Ok(());
            }
            while self.word(&BETWEEN) {}
            self.group()?;
            self.operand()?;
        }
    }

    fn operand(&mut self) -> Result<(), String> {
        if self.is('(') {
            self.expression()?;
            return self.must(')');
        }
        match self.tokens.next() {
            Some(Token::Number(_)) => Ok(()),
            Some(Token::Word(word)) if AGGREGATIONS.contains(&word.as_str()) => {
                self.group()?;
                self.arguments()?;
                self.group()
            }
            Some(Token::Word(word)) if FUNCTIONS.contains(&word.as_str()) => self.arguments(),
            Some(Token::Word(word)) => self.selector(word),
            other => Err(format!("{other:?} is no beginning")),
        }
    }

    fn arguments(&mut self) -> Result<(), String> {
        self.must('(')?;
        self.expression()?;
        while self.is(',') {
            self.expression()?;
        }
        self.must(')')
    }

    fn group(&mut self) -> Result<(), String> {
        if !self.word(&GROUPS) {
            return Ok(());
        }
        self.must('(')?;
        loop {
            match self.tokens.next() {
                Some(Token::Word(label)) => self.asked.grouped.insert(label),
                other => return Err(format!("{other:?} is no label")),
            };
            if !self.is(',') {
                return self.must(')');
            }
        }
    }

    fn selector(&mut self, series: String) -> Result<(), String> {
        // A word with a list behind it is a function that is not known here.
        if self.tokens.peek() == Some(&Token::Mark('(')) {
            return Err(format!("no function {series} is known"));
        }
        let mut matchers = Vec::new();
        if self.is('{') {
            while !self.is('}') {
                matchers.push(self.matcher()?);
                if !self.is(',') {
                    self.must('}')?;
                    break;
                }
            }
        }
        if self.is('[') {
            match self.tokens.next() {
                Some(Token::Number(_)) => self.must(']')?,
                other => return Err(format!("{other:?} is no time")),
            }
        }
        self.asked.series.push((series, matchers));
        Ok(())
    }

    fn matcher(&mut self) -> Result<Matcher, String> {
        match [self.tokens.next(), self.tokens.next(), self.tokens.next()] {
            [
                Some(Token::Word(label)),
                Some(Token::Operator(operator)),
                Some(Token::Text(value)),
            ] if ["=", "!=", "=~", "!~"].contains(&operator) => {
                Ok(Matcher { label, operator: operator.to_owned(), value })
            }
            other => Err(format!("{other:?} chooses nothing")),
        }
    }
}

#[test]
fn queries_are_read_as_they_are_written() {
    let query =
        "sum by (le, x) (rate(a_bucket{b=\"c|d\", e=~\"f\"}[5m])) / on (g) h > 0.5 and absent(i)";
    let asked = read(query).unwrap();
    let matcher = |label: &str, operator: &str, value: &str| Matcher {
        label: label.into(),
        operator: operator.into(),
        value: value.into(),
    };
    let chosen = vec![matcher("b", "=", "c|d"), matcher("e", "=~", "f")];
    let series = [("a_bucket", chosen), ("h", Vec::new()), ("i", Vec::new())];
    assert_eq!(asked.series, series.map(|(name, by)| (name.to_owned(), by)));
    assert_eq!(asked.grouped, BTreeSet::from(["g", "le", "x"].map(str::to_owned)));
    for wrong in [
        "a[5m",
        "sum(a",
        "a)",
        "rate(a{b=c}[5m])",
        "nosuch(a)",
        "a{b=\"c}",
        "a b",
        "a +",
        "a[b]",
        "%",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
