//! "Did you mean …?"

/// The candidate nearest to `wrong`, if one is near enough to be meant.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong; more is another word.
    let limit = (wrong.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .filter(|candidate| *candidate != wrong)
        .filter_map(|candidate| Some((distance(wrong, candidate, limit)?, candidate)))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, drop, change or swap with the next to make one of the other, in any case;
/// none if more than `limit`. Long names are cut: the answer is only a hint.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let letters =
        |text: &str| text.chars().take(64).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        // Steps are never taken back: two rows beyond the limit, and all that follow are.
        let beyond = |row: &[usize]| row.iter().all(|steps| *steps > limit);
        if beyond(&last) && beyond(&row) {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    Some(last[b.len()]).filter(|steps| *steps <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_understood_and_other_words_are_not() {
        let names = ["kernelVersion", "kernelModules", "cpu", "gpu", "vfio"];
        for (wrong, expected) in [
            ("kernelversion", Some("kernelVersion")),
            ("kernelModule", Some("kernelModules")),
            ("vifo", Some("vfio")),
            ("cpuu", Some("cpu")),
            ("network", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names), expected, "{wrong}");
        }
    }
}
