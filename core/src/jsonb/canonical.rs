//! The JSON text that awa's clients hash: keys sorted by their bytes, no spaces, numbers and strings as serde_json prints them.
//!
//! `jsonb` keeps no exponent and no negative zero, so the text follows the stored value: `1e5` is stored, and hashed, as the
//! integer 100000, and `100000.0` as the double that it says it is.

use super::sorted::Sorted;
use super::{Children, Number, Value};
use crate::error::Fault;
use std::io::Write;

/// A container that is being written. They are kept in a list instead of recursion, since values nest deeper than a stack allows; nothing of
/// what is in them is, since that would take several times the memory of the value.
enum Open<'a> {
    Array(Children<'a>),
    Object(Sorted<'a>),
}

/// Writes the canonical text of `value` to `out`, which takes it piece by piece and never fails; [`Fault::NumberRange`] if one of the value's
/// numbers has no double.
pub fn write_canonical(value: Value<'_>, out: &mut impl Write) -> Result<(), Fault> {
    let mut open = Vec::new();
    begin(value, &mut open, out)?;
    let mut is_first = matches!(value, Value::Array(_) | Value::Object(_));
    while let Some(container) = open.last_mut() {
        let (key, value) = match container {
            Open::Array(children) => (None, children.next().transpose()?),
            Open::Object(fields) => fields.next()?.map_or((None, None), |(key, value)| (Some(key), Some(value))),
        };
        let Some(value) = value else {
            put(if matches!(container, Open::Array(_)) { b"]" } else { b"}" }, out);
            open.pop();
            is_first = false;
            continue;
        };
        if !std::mem::replace(&mut is_first, false) {
            put(b",", out);
        }
        if let Some(key) = key {
            write_json(key, out);
            put(b":", out);
        }
        begin(value, &mut open, out)?;
        is_first = matches!(value, Value::Array(_) | Value::Object(_));
    }
    Ok(())
}

/// Writes a scalar, or the beginning of a container.
fn begin<'a>(value: Value<'a>, open: &mut Vec<Open<'a>>, out: &mut impl Write) -> Result<(), Fault> {
    match value {
        Value::Null => put(b"null", out),
        Value::Bool(value) => write_json(&value, out),
        Value::String(text) => write_json(text, out),
        Value::Number(number) => write_number(number, out)?,
        Value::Array(array) => {
            put(b"[", out);
            open.push(Open::Array(array.elements()?));
        }
        Value::Object(object) => {
            put(b"{", out);
            open.push(Open::Object(Sorted::new(object)?));
        }
    }
    Ok(())
}

fn write_number(number: Number<'_>, out: &mut impl Write) -> Result<(), Fault> {
    if let Some(integer) = number.as_json_integer() {
        put(integer.to_string().as_bytes(), out);
        return Ok(());
    }
    write_json(&number.as_f64().ok_or(Fault::NumberRange("args"))?, out);
    Ok(())
}

fn put(text: &[u8], out: &mut impl Write) {
    out.write_all(text).expect("what takes the text never fails");
}

fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut impl Write) {
    // Strings, booleans and finite doubles always have a JSON text.
    serde_json::to_writer(out, value).expect("scalars serialise, and what takes the text never fails");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::encode;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    fn canonical(value: &Json) -> String {
        let mut out = Vec::new();
        write_canonical(Value::root(&encode(value)).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_sorted_by_bytes_not_by_length() {
        assert_eq!(canonical(&json!({"b": 1, "aa": 2, "é": 3})), r#"{"aa":2,"b":1,"é":3}"#);
    }

    #[test]
    fn large_integers_become_doubles() {
        let wide = encode(&serde_json::from_str("3e300").unwrap());
        let mut out = Vec::new();
        write_canonical(Value::root(&wide).unwrap(), &mut out).unwrap();
        assert_eq!(out, b"3e+300");
    }

    #[test]
    fn deep_nesting_needs_no_stack() {
        let mut value = json!(1);
        for _ in 0..100 {
            value = json!([value]);
        }
        assert_eq!(canonical(&value), format!("{}1{}", "[".repeat(100), "]".repeat(100)));
    }

    /// Takes the text piece by piece, and keeps the size of the largest.
    struct Pieces(Vec<u8>, usize);

    impl Write for Pieces {
        fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
            self.0.extend_from_slice(piece);
            self.1 = self.1.max(piece.len());
            Ok(piece.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// However large the value, what is written at once is one of its scalars.
    #[test]
    fn large_values_are_written_in_pieces() {
        let value = json!({"n": (0..10_000).collect::<Vec<_>>(), "o": (0..10_000).map(|n| (format!("{n:x}"), json!({"a": n}))).collect::<serde_json::Map<_, _>>()});
        let mut pieces = Pieces(Vec::new(), 0);
        write_canonical(Value::root(&encode(&value)).unwrap(), &mut pieces).unwrap();
        assert_eq!(String::from_utf8(pieces.0).unwrap(), serde_json::to_string(&value).unwrap());
        assert!(pieces.1 <= 5, "{}", pieces.1);
    }

    /// Keys of all lengths, so that every length is a run of its own, and many of one length.
    #[test]
    fn runs_of_keys_are_merged() {
        let keys = (1..200).map(|n| "ab".repeat(n)).chain((0..500).map(|n| format!("{:03}", n * 7 % 500))).chain([
            "".into(),
            "é".into(),
            "zz".into(),
        ]);
        let value: Json = keys.map(|key| (key.clone(), json!({key: null}))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(canonical(&value), serde_json::to_string(&value).unwrap());
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            // Doubles that jsonb keeps apart from integers: those that print with a fraction.
            (-1e15..1e15f64).prop_map(Json::from),
            "[^\u{0}]*".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 64, 10, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..10).prop_map(Json::from),
                proptest::collection::btree_map("[^\u{0}]{0,8}", inner, 0..10)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn equals_serde_json(value in any_json()) {
            prop_assert_eq!(canonical(&value), serde_json::to_string(&value).unwrap());
        }
    }
}
