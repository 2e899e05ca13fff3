//! Writes the few values that the extension makes itself: arrays of strings, and objects of containers that it has.

use super::{CONTAINER, Container, ENTRY_HAS_OFFSET, IS_ARRAY, IS_OBJECT, LARGEST, STRING};

/// Every 32nd entry holds an offset, the first one among them; what is written here has no second.
pub const MOST_STRINGS: usize = 32;

/// Replaces `out` by the bytes of an array of strings, without a varlena header.
///
/// # Panics
/// With more than [`MOST_STRINGS`] strings, or more than [`LARGEST`] bytes of them.
pub fn write_strings(strings: &[&str], out: &mut Vec<u8>) {
    assert!(strings.len() <= MOST_STRINGS, "{} strings", strings.len());
    assert!(strings.iter().map(|string| string.len()).sum::<usize>() <= LARGEST, "strings of more than {LARGEST} bytes");
    out.clear();
    word(IS_ARRAY | strings.len() as u32, out);
    for (index, string) in strings.iter().enumerate() {
        entry(index, STRING, string.len(), out);
    }
    strings.iter().for_each(|string| out.extend_from_slice(string.as_bytes()));
}

/// Replaces `out` by the bytes of an object, without a varlena header. The keys come in the order of their lengths, and of their bytes
/// where these are equal.
///
/// # Panics
/// With more fields than half of [`MOST_STRINGS`], or more than [`LARGEST`] bytes of them.
pub fn write_object(fields: &[(&str, Container<'_>)], out: &mut Vec<u8>) {
    assert!(2 * fields.len() <= MOST_STRINGS, "{} fields", fields.len());
    out.clear();
    word(IS_OBJECT | fields.len() as u32, out);
    for (index, (key, _)) in fields.iter().enumerate() {
        entry(index, STRING, key.len(), out);
    }
    // A container's length includes what brings it to a multiple of four.
    let mut end: usize = fields.iter().map(|(key, _)| key.len()).sum();
    for (_, value) in fields {
        let start = end;
        end = end.next_multiple_of(4) + value.bytes.len();
        assert!(end <= LARGEST, "fields of more than {LARGEST} bytes");
        word(CONTAINER | (end - start) as u32, out);
    }
    let data = out.len();
    fields.iter().for_each(|(key, _)| out.extend_from_slice(key.as_bytes()));
    for (_, value) in fields {
        out.resize(data + (out.len() - data).next_multiple_of(4), 0);
        out.extend_from_slice(value.bytes);
    }
}

fn entry(index: usize, kind: u32, length: usize, out: &mut Vec<u8>) {
    let offset = if index == 0 { ENTRY_HAS_OFFSET } else { 0 };
    word(kind | offset | length as u32, out);
}

fn word(word: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&word.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::{Value, encode};
    use serde_json::json;

    #[test]
    fn arrays_equal_what_the_server_writes() {
        let many: Vec<String> = (0..MOST_STRINGS).map(|n| "x".repeat(n)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for strings in [&[][..], &["a"], &["", "é", "NULL", "\"\\"], &many] {
            let mut out = vec![1, 2, 3];
            write_strings(strings, &mut out);
            assert_eq!(out, encode(&json!(strings)));
        }
    }

    #[test]
    fn objects_equal_what_the_server_writes() {
        let tags = [json!([]), json!(["a"]), json!(["abc", "d", ""])];
        let metadata = [json!({}), json!({"a": 1.5, "bc": [true, null, "x"]}), json!({"abc": {"": "ü"}})];
        for (tags, metadata) in tags.iter().zip(&metadata) {
            let (tags_bytes, metadata_bytes) = (encode(tags), encode(metadata));
            let container = |bytes| match Value::root(bytes).unwrap() {
                Value::Array(container) | Value::Object(container) => container,
                other => panic!("{other:?}"),
            };
            let (tag_list, object) = (container(&tags_bytes), container(&metadata_bytes));
            let mut out = vec![1, 2, 3];
            write_object(&[("tags", tag_list), ("metadata", object)], &mut out);
            assert_eq!(out, encode(&json!({"tags": tags, "metadata": metadata})));
            write_object(&[("abc", object), ("de f", object), ("longer", tag_list)], &mut out);
            assert_eq!(out, encode(&json!({"abc": metadata, "de f": metadata, "longer": tags})));
        }
        let mut out = Vec::new();
        write_object(&[], &mut out);
        assert_eq!(out, encode(&json!({})));
    }
}
