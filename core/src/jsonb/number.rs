//! Numbers in `jsonb` are whole `numeric` datums (`src/backend/utils/adt/numeric.c`): a varlena header, a header of two or four
//! bytes with sign, weight and display scale, then base-10000 digits.

use super::{Corrupt, Result};

const LONG_NEGATIVE: u16 = 0x4000;
const SHORT: u16 = 0x8000;
const SPECIAL: u16 = 0xC000;
const SHORT_NEGATIVE: u16 = 0x2000;
const LONG_SCALE: u16 = 0x3FFF;

/// A JSON number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number<'a> {
    datum: &'a [u8],
    digits: &'a [u8],
    negative: bool,
    /// Power of 10000 of the first digit.
    weight: i32,
    /// Decimal places that the number was written with.
    scale: u16,
}

impl<'a> Number<'a> {
    pub(super) fn new(datum: &'a [u8]) -> Result<Self> {
        let body = datum.get(header_length(datum)?..).ok_or(Corrupt::Format)?;
        let header = half(body, 0)?;
        let number = if header & SPECIAL == SPECIAL {
            // NaN and the infinities, which JSON does not have.
            return Err(Corrupt::Format);
        } else if header & SHORT != 0 {
            let weight = i32::from(header & 0x3F) - if header & 0x40 != 0 { 0x40 } else { 0 };
            Self { datum, digits: &body[2..], negative: header & SHORT_NEGATIVE != 0, weight, scale: (header >> 7) & 0x3F }
        } else {
            let weight = i32::from(half(body, 2)? as i16);
            Self { datum, digits: &body[4..], negative: header & LONG_NEGATIVE != 0, weight, scale: header & LONG_SCALE }
        };
        if number.digits.len() % 2 != 0 || number.groups().any(|group| group > 9999) {
            return Err(Corrupt::Format);
        }
        Ok(number)
    }

    pub(super) fn datum(&self) -> &'a [u8] {
        self.datum
    }

    /// The value if it is a whole number in range, however it was written.
    pub fn as_i64(&self) -> Option<i64> {
        self.whole().and_then(|value| i64::try_from(value).ok())
    }

    /// True for an integer of any size.
    pub fn is_whole(&self) -> bool {
        // Digits behind the point have negative powers; trailing zero groups are never stored.
        self.weight + 1 >= self.digits.len() as i32 / 2
    }

    /// Whether serde_json, as awa's workers use it, reads the number. It gives up a little below the largest double, so that for
    /// numbers of that size it is asked; others are far from the border.
    pub fn is_readable(&self) -> bool {
        match self.weight {
            ..=75 => true,
            76..=77 => serde_json::from_str::<f64>(&self.plain()).is_ok(),
            _ => false,
        }
    }

    /// The decimal text, without sign or exponent.
    fn plain(&self) -> String {
        let mut groups = self.groups();
        let whole: String = (0..=self.weight).map(|_| format!("{:04}", groups.next().unwrap_or(0))).collect();
        let fraction: String = groups.map(|group| format!("{group:04}")).collect();
        format!("{}.{fraction}0", whole.trim_start_matches('0'))
    }

    /// The value if it was written as an integer that JSON libraries keep exact (from the smallest i64 to the largest u64).
    pub(super) fn as_json_integer(&self) -> Option<i128> {
        if self.scale > 0 {
            return None;
        }
        self.whole().filter(|value| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value))
    }

    /// The nearest double, if the number is within its range.
    pub(super) fn as_f64(&self) -> Option<f64> {
        self.scientific().parse().ok().filter(|value: &f64| value.is_finite())
    }

    fn groups(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.digits.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]]))
    }

    fn whole(&self) -> Option<i128> {
        let count = self.digits.len() as i32 / 2;
        if count == 0 {
            return Some(0);
        }
        if !self.is_whole() || self.weight > 5 {
            return None;
        }
        let value = self.groups().fold(0i128, |sum, group| sum * 10_000 + i128::from(group));
        let value = value * 10_000i128.pow((self.weight + 1 - count) as u32);
        Some(if self.negative { -value } else { value })
    }

    /// All digits as one integer with an exponent, which Rust parses to the nearest double.
    fn scientific(&self) -> String {
        let mut text = String::with_capacity(self.digits.len() * 2 + 10);
        if self.negative {
            text.push('-');
        }
        text.push('0');
        self.groups().for_each(|group| text.push_str(&format!("{group:04}")));
        let count = self.digits.len() as i32 / 2;
        text.push_str(&format!("e{}", 4 * (self.weight + 1 - count)));
        text
    }
}

/// The number's decimal text, for messages.
impl std::fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.whole(), self.as_f64()) {
            (Some(whole), _) => write!(f, "{whole}"),
            (None, Some(double)) => write!(f, "{double}"),
            (None, None) => f.write_str("too large"),
        }
    }
}

/// Length of the varlena header: one byte for short datums, else four. Which bit tells depends on the byte order.
fn header_length(datum: &[u8]) -> Result<usize> {
    let first = *datum.first().ok_or(Corrupt::Format)?;
    let short = if cfg!(target_endian = "little") { first & 1 == 1 } else { first & 0x80 != 0 };
    Ok(if short { 1 } else { 4 })
}

fn half(bytes: &[u8], at: usize) -> Result<u16> {
    let pair = bytes.get(at..at + 2).ok_or(Corrupt::Format)?;
    Ok(u16::from_ne_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
mod tests {
    use crate::jsonb::{Value, encode};
    use serde_json::json;

    fn with<T>(value: serde_json::Value, check: impl Fn(super::Number) -> T) -> T {
        match Value::root(&encode(&value)).unwrap() {
            Value::Number(number) => check(number),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn integers_stay_exact() {
        for value in [0, 1, -1, 9999, 10_000, 123_456_789, i64::MAX, i64::MIN] {
            assert_eq!(with(json!(value), |n| n.as_i64()), Some(value));
            assert_eq!(with(json!(value), |n| n.as_json_integer()), Some(i128::from(value)));
        }
        assert_eq!(with(json!(u64::MAX), |n| n.as_i64()), None);
        assert_eq!(with(json!(u64::MAX), |n| n.as_json_integer()), Some(i128::from(u64::MAX)));
    }

    #[test]
    fn a_written_fraction_is_a_double() {
        assert_eq!(with(json!(2.0), |n| n.as_json_integer()), None);
        assert_eq!(with(json!(2.0), |n| n.as_i64()), Some(2));
        assert_eq!(with(json!(2.5), |n| n.as_i64()), None);
        for value in [0.1, -12345.678, 1e-7, 5e-324, 1.7976931348623157e308, 0.000123] {
            assert_eq!(with(json!(value), |n| n.as_f64()), Some(value));
        }
    }

    #[test]
    fn the_largest_numbers_are_readable_where_serde_json_reads_them() {
        for exponent in [300, 304, 307, 308, 309, 312, 400] {
            for digits in ["1", "17976931348623157", "1797693134862315", "9.5"] {
                let text = format!("{digits}e{}", exponent + 1 - digits.split('.').next().unwrap().len() as i32);
                let bytes = crate::jsonb::encode_number(&text);
                let Value::Number(number) = Value::root(&bytes).unwrap() else { panic!("a number") };
                let read = serde_json::from_str::<f64>(&number.plain()).is_ok();
                assert_eq!(number.is_readable(), read, "{text}");
            }
        }
    }
}
