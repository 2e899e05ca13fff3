//! Writes the one kind of value that the extension makes itself: an array of a few strings.

use super::{ENTRY_HAS_OFFSET, IS_ARRAY, STRING};

/// Every 32nd entry holds an offset, the first one among them.
pub const MOST_STRINGS: usize = 32;

/// Replaces `out` by the bytes of an array of strings, without a varlena header.
///
/// # Panics
/// With more than [`MOST_STRINGS`] strings.
pub fn write_strings(strings: &[&str], out: &mut Vec<u8>) {
    assert!(strings.len() <= MOST_STRINGS, "{} strings", strings.len());
    out.clear();
    out.extend_from_slice(&(IS_ARRAY | strings.len() as u32).to_ne_bytes());
    for (index, string) in strings.iter().enumerate() {
        let offset = if index == 0 { ENTRY_HAS_OFFSET } else { 0 };
        out.extend_from_slice(&(STRING | offset | string.len() as u32).to_ne_bytes());
    }
    strings.iter().for_each(|string| out.extend_from_slice(string.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::encode;
    use serde_json::json;

    #[test]
    fn equals_what_the_server_writes() {
        let many: Vec<String> = (0..MOST_STRINGS).map(|n| "x".repeat(n)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for strings in [&[][..], &["a"], &["", "é", "NULL", "\"\\"], &many] {
            let mut out = vec![1, 2, 3];
            write_strings(strings, &mut out);
            assert_eq!(out, encode(&json!(strings)));
        }
    }
}
