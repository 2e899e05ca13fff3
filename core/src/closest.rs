//! "Did you mean": the known name that is closest to an unknown one.

/// Longer names are no slips of a key.
const LONGEST: usize = 40;
/// Beginnings that are shorter say nothing.
const SHORTEST_BEGINNING: usize = 3;

/// The name that `unknown` most likely stands for, if it is close to one: but for case and separators, by a beginning that both share, or by
/// at most one slip for every three characters.
pub fn closest(unknown: &str, known: &[&'static str]) -> Option<&'static str> {
    let unknown = plain(unknown)?;
    let distances = known.iter().filter_map(|name| {
        let plain = plain(name)?;
        let slips = distance(&unknown, &plain);
        let is_close = slips <= (plain.len().max(unknown.len()) / 3).max(1) && slips < plain.len();
        let length = unknown.len().min(plain.len());
        let is_beginning = length >= SHORTEST_BEGINNING && unknown[..length] == plain[..length];
        (is_close || is_beginning).then_some((slips, *name))
    });
    distances.min_by_key(|(slips, _)| *slips).map(|(_, name)| name)
}

/// Letters and digits in lower case, `None` if there are none or too many.
fn plain(name: &str) -> Option<Vec<char>> {
    let plain: Vec<char> = name.chars().take(LONGEST + 1).filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    (1..=LONGEST).contains(&plain.len()).then_some(plain)
}

/// How many slips are between the two: a character too many, one too few, another one, or two in the wrong order.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let mut slips = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                slips = slips.min(before[j - 1] + 1);
            }
            row.push(slips);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEYS: &[&str] = &["kind", "queue", "args", "state", "priority", "max_attempts", "run_at", "metadata", "tags", "unique"];

    #[test]
    fn slips_are_recognised() {
        let pairs = [
            ("prioritee", Some("priority")),
            ("Priority", Some("priority")),
            ("pirority", Some("priority")),
            ("prio", Some("priority")),
            ("maxAttempts", Some("max_attempts")),
            ("max-attempts", Some("max_attempts")),
            ("max_attempt", Some("max_attempts")),
            ("runat", Some("run_at")),
            ("arg", Some("args")),
            ("arguments", None),
            ("tag", Some("tags")),
            ("meta", Some("metadata")),
            ("uniqueness", Some("unique")),
            ("queue_name", Some("queue")),
            ("\u{feff}kind", Some("kind")),
            (" kind ", Some("kind")),
            ("payload", None),
            ("x", None),
            ("", None),
            ("!?", None),
        ];
        for (unknown, meant) in pairs {
            assert_eq!(closest(unknown, KEYS), meant, "{unknown}");
        }
        assert_eq!(closest(&"k".repeat(1000), KEYS), None);
    }

    proptest! {
        #[test]
        fn any_text_is_compared(unknown in any::<String>()) {
            closest(&unknown, KEYS);
        }

        #[test]
        fn a_distance_has_no_direction(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
        }
    }
}
