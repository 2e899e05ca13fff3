//! Writes the binary format, for tests and fuzzing: the extension itself gets its `jsonb` from the server.

use super::{CONTAINER, ENTRY_HAS_OFFSET, FALSE, IS_ARRAY, IS_OBJECT, IS_SCALAR, NULL, NUMERIC, STRING, TRUE};
use serde_json::Value as Json;

const STRIDE: usize = 32;

/// The bytes PostgreSQL stores for `value`, without a varlena header.
pub fn encode(value: &Json) -> Vec<u8> {
    match value {
        Json::Array(_) | Json::Object(_) => container(value),
        scalar => children(IS_ARRAY | IS_SCALAR, 1, vec![child(scalar)]),
    }
}

/// The bytes of a number, from its JSON text: also of numbers that serde_json does not hold.
pub fn encode_number(text: &str) -> Vec<u8> {
    children(IS_ARRAY | IS_SCALAR, 1, vec![(NUMERIC, numeric(text))])
}

fn container(value: &Json) -> Vec<u8> {
    match value {
        Json::Array(elements) => children(IS_ARRAY, elements.len(), elements.iter().map(child).collect()),
        Json::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(key, _)| (key.len(), *key));
            let keys = fields.iter().map(|(key, _)| (STRING, key.as_bytes().to_vec()));
            let values = fields.iter().map(|(_, value)| child(value));
            children(IS_OBJECT, fields.len(), keys.chain(values).collect())
        }
        _ => unreachable!("only arrays and objects are containers"),
    }
}

fn children(kind: u32, count: usize, children: Vec<(u32, Vec<u8>)>) -> Vec<u8> {
    let mut out = (kind | count as u32).to_ne_bytes().to_vec();
    let mut data: Vec<u8> = Vec::new();
    for (index, (kind, bytes)) in children.iter().enumerate() {
        let start = data.len();
        if matches!(*kind, NUMERIC | CONTAINER) {
            data.resize(data.len().next_multiple_of(4), 0);
        }
        data.extend_from_slice(bytes);
        let entry = if index % STRIDE == 0 { data.len() as u32 | ENTRY_HAS_OFFSET } else { (data.len() - start) as u32 };
        out.extend_from_slice(&(kind | entry).to_ne_bytes());
    }
    out.extend_from_slice(&data);
    out
}

fn child(value: &Json) -> (u32, Vec<u8>) {
    match value {
        Json::Null => (NULL, Vec::new()),
        Json::Bool(false) => (FALSE, Vec::new()),
        Json::Bool(true) => (TRUE, Vec::new()),
        Json::Number(number) => (NUMERIC, numeric(&number.to_string())),
        Json::String(text) => (STRING, text.as_bytes().to_vec()),
        Json::Array(_) | Json::Object(_) => (CONTAINER, container(value)),
    }
}

/// A `numeric` datum in its long form, from JSON text.
fn numeric(text: &str) -> Vec<u8> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i32 = exponent.parse().unwrap();
    let scale = (fraction.len() as i32 - exponent).max(0);
    let mut digits = format!("{whole}{fraction}");
    let point = whole.len() as i32 + exponent;

    // Pad so that the point falls between groups of four.
    let lead = (4 - point.rem_euclid(4)) % 4;
    digits.insert_str(0, &"0".repeat(lead as usize));
    let first_weight = (point + lead) / 4 - 1;
    digits.push_str(&"0".repeat((4 - digits.len() % 4) % 4));
    let mut groups: Vec<u16> =
        digits.as_bytes().chunks(4).map(|four| std::str::from_utf8(four).unwrap().parse().unwrap()).collect();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let weight = if groups.is_empty() { 0 } else { first_weight - leading as i32 };

    let header = (scale as u16 & 0x3FFF) | if negative && !groups.is_empty() { 0x4000 } else { 0 };
    let size = 8 + 2 * groups.len() as u32;
    let mut out = if cfg!(target_endian = "little") { size << 2 } else { size }.to_ne_bytes().to_vec();
    out.extend_from_slice(&header.to_ne_bytes());
    out.extend_from_slice(&(weight as i16).to_ne_bytes());
    groups.iter().for_each(|group| out.extend_from_slice(&group.to_ne_bytes()));
    out
}
