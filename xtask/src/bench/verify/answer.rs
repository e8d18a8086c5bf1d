//! Whether an HTTP answer is whole: by its length, or by its last chunk.

use anyhow::{Context as _, Result, bail};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Whole,
    /// More is to come.
    Part,
}

/// Looks at what came so far of one answer.
pub(super) fn complete(bytes: &[u8]) -> Result<Progress> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(Progress::Part);
    };
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    let head = std::str::from_utf8(head).context("the head of the answer is no text")?;
    for line in head.lines().skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            let length: usize = value.trim().parse().context("a length of an answer")?;
            return Ok(if body.len() >= length { Progress::Whole } else { Progress::Part });
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            // A chunk of JSON cannot end like this: it would have to end in the middle of a text.
            let done = body.ends_with(b"\r\n0\r\n\r\n");
            return Ok(if done { Progress::Whole } else { Progress::Part });
        }
    }
    bail!("an answer without a length: {head}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_all_of_it_came() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        ] {
            for cut in 0..answer.len() {
                assert_eq!(complete(&answer.as_bytes()[..cut]).unwrap(), Progress::Part, "{cut}");
            }
            assert_eq!(complete(answer.as_bytes()).unwrap(), Progress::Whole);
        }
        assert!(complete(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
