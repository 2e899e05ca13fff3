//! The JSON text that awa's clients hash: keys sorted by their bytes, no spaces, numbers and strings as serde_json prints them.
//!
//! `jsonb` keeps no exponent and no negative zero, so the text follows the stored value: `1e5` is stored, and hashed, as the
//! integer 100000, and `100000.0` as the double that it says it is.

use super::{Container, Corrupt, Number, Value};
use crate::error::Fault;

/// What is still to be written, innermost last: a loop instead of recursion, since values nest deeper than a stack allows.
enum Pending<'a> {
    Text(&'static [u8]),
    Key(&'a str),
    Value(Value<'a>),
}

/// Appends the canonical text of `value`; [`Fault::NumberRange`] if one of its numbers has no double.
pub fn write_canonical(value: Value<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut pending = vec![Pending::Value(value)];
    while let Some(next) = pending.pop() {
        match next {
            Pending::Text(text) => out.extend_from_slice(text),
            Pending::Key(key) => write_json(key, out),
            Pending::Value(Value::Null) => out.extend_from_slice(b"null"),
            Pending::Value(Value::Bool(value)) => write_json(&value, out),
            Pending::Value(Value::String(text)) => write_json(text, out),
            Pending::Value(Value::Array(array)) => push_array(array, &mut pending)?,
            Pending::Value(Value::Object(object)) => push_object(object, &mut pending)?,
            Pending::Value(Value::Number(number)) => write_number(number, out)?,
        }
    }
    Ok(())
}

fn push_array<'a>(array: Container<'a>, pending: &mut Vec<Pending<'a>>) -> Result<(), Corrupt> {
    let start = pending.len();
    pending.push(Pending::Text(b"["));
    for (index, element) in array.elements()?.enumerate() {
        if index > 0 {
            pending.push(Pending::Text(b","));
        }
        pending.push(Pending::Value(element?));
    }
    pending.push(Pending::Text(b"]"));
    pending[start..].reverse();
    Ok(())
}

fn push_object<'a>(object: Container<'a>, pending: &mut Vec<Pending<'a>>) -> Result<(), Corrupt> {
    // Stored order is by length first.
    let mut fields = object.fields()?.collect::<Result<Vec<_>, _>>()?;
    fields.sort_unstable_by_key(|(key, _)| *key);
    let start = pending.len();
    pending.push(Pending::Text(b"{"));
    for (index, (key, value)) in fields.into_iter().enumerate() {
        if index > 0 {
            pending.push(Pending::Text(b","));
        }
        pending.push(Pending::Key(key));
        pending.push(Pending::Text(b":"));
        pending.push(Pending::Value(value));
    }
    pending.push(Pending::Text(b"}"));
    pending[start..].reverse();
    Ok(())
}

fn write_number(number: Number<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    if let Some(integer) = number.as_json_integer() {
        out.extend_from_slice(integer.to_string().as_bytes());
        return Ok(());
    }
    write_json(&number.as_f64().ok_or(Fault::NumberRange("args"))?, out);
    Ok(())
}

fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Strings, booleans and finite doubles always have a JSON text, and a Vec always has room.
    serde_json::to_writer(out, value).expect("scalars serialise");
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
