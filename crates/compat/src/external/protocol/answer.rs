//! What a plugin found: `<plugin> check`.

use serde::Deserialize;

use super::facts::{RawFacts, Returned};
use super::{AnswerError, MAX_ITEMS, MAX_TEXT, document, fields};
use crate::evaluate::Reason;
use crate::external::object::Object;
use crate::text::shown_up_to;
use crate::verdict::Verdict;

/// What a plugin said, cleaned.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// Yes, no, or that it could not find out.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// For plugins that come after it.
    pub facts: Returned,
}

#[derive(Deserialize)]
struct Fields {
    result: Verdict,
    #[serde(default)]
    reasons: Vec<Object<RawReason>>,
    #[serde(default)]
    facts: Object<RawFacts>,
}

#[derive(Default, Deserialize)]
struct RawReason {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
    expected: Option<String>,
    actual: Option<String>,
    source: Option<String>,
    remedy: Option<String>,
    /// As the whole, where it is not said.
    result: Option<Verdict>,
}

/// Reads an answer, which must agree with the exit code: 0 is pass, 1 is fail, all others unknown.
pub fn answer(stdout: &[u8], code: i32) -> Result<Said, AnswerError> {
    let (_, value) = document(stdout)?;
    let written: Fields = fields(value)?;
    let verdict = written.result;
    let expected = match code {
        0 => Verdict::Pass,
        1 => Verdict::Fail,
        _ => Verdict::Unknown,
    };
    if verdict != expected {
        return Err(AnswerError::Disagrees { result: verdict.as_str(), code });
    }
    if written.reasons.len() > MAX_ITEMS {
        return Err(AnswerError::TooMany { what: "reasons" });
    }
    let mut reasons: Vec<_> =
        written.reasons.into_iter().map(|Object(reason)| reason.cleaned(verdict)).collect();
    if reasons.is_empty() && verdict != Verdict::Pass {
        let message = "the plugin gives no reason".to_owned();
        reasons.push(RawReason { message, ..RawReason::default() }.cleaned(verdict));
    }
    Ok(Said { verdict, reasons, facts: written.facts.0.checked()? })
}

impl RawReason {
    fn cleaned(self, whole: Verdict) -> Reason {
        let text = |text: String| shown_up_to(&text, MAX_TEXT);
        // Codes are words for programs; one that is none is a text like any other.
        let code =
            if self.code.is_empty() { "PLUGIN".to_owned() } else { shown_up_to(&self.code, 64) };
        Reason {
            verdict: self.result.unwrap_or(whole),
            code: code.into(),
            message: text(self.message),
            expected: self.expected.map(text),
            found: self.actual.map(text),
            source: self.source.map(text),
            remedy: self.remedy.map(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a plugin prints: an answer that agrees with its exit code, or an error.
        #[test]
        fn anything_printed_is_an_answer_or_an_error(
            text in r#"\{"apiVersion":"imagecompat/v1",("(result|reasons|facts|x)":("pass"|"fail"|"unknown"|\[\]|\[\{\}\]|\{\}|1|null),?){0,4}\}"#,
            noise in any::<Vec<u8>>(),
            code in 0_i32..4,
        ) {
            for bytes in [text.into_bytes(), noise] {
                if let Ok(said) = answer(&bytes, code) {
                    prop_assert_eq!(said.verdict == Verdict::Pass, code == 0);
                    prop_assert_eq!(said.verdict == Verdict::Fail, code == 1);
                }
                let _ = super::super::describe(&bytes);
            }
        }
    }

    #[test]
    fn answer_and_exit_code_must_agree() {
        let text =
            |result: &str| format!(r#"{{"apiVersion":"imagecompat/v1","result":"{result}"}}"#);
        for (result, code, good) in [
            ("pass", 0, true),
            ("fail", 1, true),
            ("unknown", 2, true),
            ("unknown", 77, true),
            ("pass", 1, false),
            ("pass", 2, false),
            ("fail", 0, false),
            ("fail", 2, false),
            ("unknown", 0, false),
            ("unknown", 1, false),
        ] {
            let got = answer(text(result).as_bytes(), code);
            match got {
                Ok(said) => assert!(good && said.verdict.as_str() == result, "{result} {code}"),
                Err(AnswerError::Disagrees { .. }) => assert!(!good, "{result} {code}"),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(matches!(answer(text("maybe").as_bytes(), 0), Err(AnswerError::Fields(_))));
    }

    #[test]
    fn reasons_are_cleaned_and_counted() {
        for (result, code, reasons) in [("unknown", 2, 1), ("fail", 1, 1), ("pass", 0, 0)] {
            let text = format!(r#"{{"apiVersion":"imagecompat/v1","result":"{result}"}}"#);
            let said = answer(text.as_bytes(), code).unwrap();
            assert_eq!(said.reasons.len(), reasons, "{result}");
        }
        let text = r#"{"apiVersion":"imagecompat/v1","result":"fail","reasons":[
            {"code":"NO\u001b[2J","message":"a\u0007b","expected":"x","actual":"y","result":"unknown"},
            {"message":"second"}]}"#;
        let said = answer(text.as_bytes(), 1).unwrap();
        assert_eq!(said.reasons[0].code, r"NO\u{1b}[2J");
        assert_eq!(said.reasons[0].message, r"a\u{7}b");
        assert_eq!(said.reasons[0].verdict, Verdict::Unknown);
        assert_eq!(said.reasons[1].code, "PLUGIN");
        assert_eq!(said.reasons[1].verdict, Verdict::Fail);
        let many = format!(
            r#"{{"apiVersion":"imagecompat/v1","result":"pass","reasons":[{}]}}"#,
            vec!["{}"; 65].join(",")
        );
        assert!(matches!(answer(many.as_bytes(), 0), Err(AnswerError::TooMany { .. })));
    }
}
