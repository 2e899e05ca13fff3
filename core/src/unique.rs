//! Unique keys: the options a job may carry, the fingerprint that awa's clients compute, and the states that hold a claim.

use crate::error::Fault;
use crate::jsonb::{Value, write_canonical};
use std::borrow::Cow;

/// All states of a job, in the order of their bits.
pub(crate) const STATES: [&str; 8] =
    ["scheduled", "available", "running", "completed", "retryable", "failed", "cancelled", "waiting_external"];

/// What the value of `unique` may say.
pub(crate) const OPTIONS: [&str; 6] = ["by_queue", "by_args", "by_period", "states", "unique_key", "unique_states"];

/// Longest key that a caller may bring: the index takes some 2,700 bytes at most, and fingerprints have 16.
pub(crate) const KEY_LIMIT: usize = 1024;

/// The states in which a job holds its key: bit n of the mask, and character n of the text, is state n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateMask(u8);

impl StateMask {
    /// What awa's clients use unless told otherwise: scheduled to retryable.
    pub const DEFAULT: Self = Self(0b0001_1111);

    /// From eight characters `0` or `1`, the leftmost for `scheduled`.
    pub fn from_bits(text: &str) -> Result<Self, Fault> {
        let bytes = text.as_bytes();
        if bytes.len() != 8 || bytes.iter().any(|byte| !matches!(byte, b'0' | b'1')) {
            return Err(Fault::Bits(text.to_owned()));
        }
        Ok(Self((0..8).filter(|bit| bytes[*bit] == b'1').fold(0, |mask, bit| mask | 1 << bit)))
    }

    /// From a JSON array of state names.
    fn from_names(names: Value<'_>) -> Result<Self, Fault> {
        let Value::Array(names) = names else { return Err(Fault::Uniqueness("states must be an array of state names".into())) };
        names.elements()?.try_fold(Self(0), |mask, name| match name? {
            Value::String(name) => match STATES.iter().position(|state| *state == name) {
                Some(bit) => Ok(Self(mask.0 | 1 << bit)),
                None => Err(Fault::UnknownUniqueState(name.to_owned())),
            },
            _ => Err(Fault::Uniqueness("states must be an array of state names".into())),
        })
    }

    /// True if a job in the state with this bit holds its key.
    pub fn has(self, bit: u8) -> bool {
        self.0 & (1 << bit) != 0
    }

    /// The text form, as the storage keeps it.
    pub fn text(self) -> [u8; 8] {
        std::array::from_fn(|bit| if self.has(bit as u8) { b'1' } else { b'0' })
    }
}

/// What makes a job unique, as asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Uniqueness<'a> {
    /// The key is computed from the job.
    Computed(Options),
    /// The caller brings the key; without states it is stored and claims nothing.
    Given {
        /// The key's bytes.
        key: Cow<'a, [u8]>,
        /// The states that hold it.
        states: Option<StateMask>,
    },
}

/// What a computed key covers besides the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    by_queue: bool,
    by_args: bool,
    by_period: Option<i64>,
    states: StateMask,
}

impl Default for Options {
    fn default() -> Self {
        Self { by_queue: false, by_args: true, by_period: None, states: StateMask::DEFAULT }
    }
}

impl Uniqueness<'_> {
    /// Reads the value of `unique` or `uniqueness`. `None` for null and false.
    pub fn from_json(value: Value<'_>) -> Result<Option<Uniqueness<'static>>, Fault> {
        let object = match value {
            Value::Null | Value::Bool(false) => return Ok(None),
            Value::Bool(true) => return Ok(Some(Uniqueness::Computed(Options::default()))),
            Value::Object(object) => object,
            _ => return Err(Fault::Uniqueness("must be true or an object".into())),
        };
        let mut options = Options::default();
        let (mut key, mut states, mut computed) = (None, None, false);
        for field in object.fields()? {
            let (name, value) = field?;
            computed |= name.starts_with("by_") || name == "states";
            match (name, value) {
                ("by_queue", value) => options.by_queue = boolean("by_queue", value, false)?,
                ("by_args", value) => options.by_args = boolean("by_args", value, true)?,
                ("by_period", Value::Null)
                | ("states", Value::Null)
                | ("unique_key", Value::Null)
                | ("unique_states", Value::Null) => {}
                ("by_period", Value::Number(period)) => match period.as_i64() {
                    Some(period) => options.by_period = Some(period),
                    None => return Err(Fault::Uniqueness("by_period must be an integer".into())),
                },
                ("by_period", _) => return Err(Fault::Uniqueness("by_period must be an integer".into())),
                ("states", names) => options.states = StateMask::from_names(names)?,
                ("unique_key", Value::String(hex)) => key = Some(hex),
                ("unique_states", Value::String(bits)) => states = Some(bits),
                ("unique_key" | "unique_states", _) => return Err(Fault::Uniqueness(format!("{name} must be a string"))),
                _ => return Err(Fault::UnknownUniqueOption(name.to_owned())),
            }
        }
        match Uniqueness::given(key, states)? {
            Some(_) if computed => Err(Fault::Uniqueness("unique_key excludes the options that compute one".into())),
            Some(given) => Ok(Some(given)),
            None => Ok(Some(Uniqueness::Computed(options))),
        }
    }

    /// A key that the caller brings as hex, with or without `\x`, and states as bits.
    pub fn given<'a>(key: Option<&str>, states: Option<&str>) -> Result<Option<Uniqueness<'a>>, Fault> {
        match (key, states) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Fault::StatesWithoutKey),
            (Some(text), states) => {
                let key =
                    hex::decode(text.strip_prefix("\\x").unwrap_or(text)).map_err(|_| Fault::Hex("unique_key", text.to_owned()))?;
                Uniqueness::given_bytes(Cow::Owned(key), states).map(Some)
            }
        }
    }

    /// A key that the caller brings as bytes.
    pub fn given_bytes<'a>(key: Cow<'a, [u8]>, states: Option<&str>) -> Result<Uniqueness<'a>, Fault> {
        if !(1..=KEY_LIMIT).contains(&key.len()) {
            return Err(Fault::KeyLength(key.len()));
        }
        Ok(Uniqueness::Given { key, states: states.map(StateMask::from_bits).transpose()? })
    }
}

fn boolean(name: &str, value: Value<'_>, default: bool) -> Result<bool, Fault> {
    match value {
        Value::Bool(value) => Ok(value),
        Value::Null => Ok(default),
        _ => Err(Fault::Uniqueness(format!("{name} must be true or false"))),
    }
}

/// A job's key and the states that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct UniqueKey<'a> {
    /// The key's bytes.
    pub key: Cow<'a, [u8]>,
    /// The states that hold it; `None` claims nothing.
    pub states: Option<StateMask>,
}

impl<'a> UniqueKey<'a> {
    /// The key that `uniqueness` asks for.
    pub fn of(uniqueness: Uniqueness<'a>, kind: &str, queue: &str, args: Option<Value<'_>>) -> Result<Self, Fault> {
        match uniqueness {
            Uniqueness::Given { key, states } => Ok(Self { key, states }),
            Uniqueness::Computed(options) => {
                let key = fingerprint(options, kind, queue, args)?;
                Ok(Self { key: Cow::Owned(key.to_vec()), states: Some(options.states) })
            }
        }
    }
}

/// The first 16 bytes of BLAKE3 over the parts that the options name, a zero byte before each but the first.
fn fingerprint(options: Options, kind: &str, queue: &str, args: Option<Value<'_>>) -> Result<[u8; 16], Fault> {
    let mut text = Hashed::new();
    text.put(kind.as_bytes());
    if options.by_queue {
        text.put(&[0]);
        text.put(queue.as_bytes());
    }
    if options.by_args {
        text.put(&[0]);
        match args {
            Some(args) => write_canonical(args, &mut text)?,
            None => text.put(b"{}"),
        }
    }
    if let Some(bucket) = options.by_period {
        text.put(&[0]);
        text.put(&bucket.to_le_bytes());
    }
    let hash = text.hash();
    Ok(std::array::from_fn(|at| hash.as_bytes()[at]))
}

/// Hashes text as it comes, a piece at a time: that of large args is never there as a whole.
struct Hashed {
    hasher: blake3::Hasher,
    piece: [u8; Self::PIECE],
    filled: usize,
}

impl Hashed {
    /// What BLAKE3 hashes at once. Most jobs' text is shorter.
    const PIECE: usize = 1024;

    fn new() -> Self {
        Self { hasher: blake3::Hasher::new(), piece: [0; Self::PIECE], filled: 0 }
    }

    fn put(&mut self, text: &[u8]) {
        if text.len() > Self::PIECE - self.filled {
            self.hasher.update(&self.piece[..self.filled]);
            self.filled = 0;
        }
        if text.len() > Self::PIECE {
            self.hasher.update(text);
        } else {
            self.piece[self.filled..self.filled + text.len()].copy_from_slice(text);
            self.filled += text.len();
        }
    }

    fn hash(mut self) -> blake3::Hash {
        self.hasher.update(&self.piece[..self.filled]);
        self.hasher.finalize()
    }
}

impl std::io::Write for Hashed {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.put(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::encode;
    use serde_json::json;

    fn key_of(args: serde_json::Value) -> String {
        let bytes = encode(&args);
        let args = Value::root(&bytes).unwrap();
        hex::encode(fingerprint(Options::default(), "uniq_job", "default", Some(args)).unwrap())
    }

    /// Checked against awa-pg 0.6.9 (protocol.md); the full set of vectors runs against the server.
    #[test]
    fn fingerprints_equal_awas() {
        assert_eq!(key_of(json!({})), "7509c596a107a8f22eb43a552d86abb3");
        assert_eq!(key_of(json!({"a": 1})), "c6ba25c5175e7cf25dbd76561f4f562c");
        assert_eq!(key_of(json!({"x": 1.0, "y": 100000.0, "z": 0.1})), "ed50e2521b9a72ae5d5e66ca725c202d");
    }

    /// The key is that of the whole text, however it comes in pieces.
    #[test]
    fn large_args_are_hashed_in_pieces() {
        for size in [0, 1, 900, 1013, 1014, 1015, 1016, 1024, 2000, 5000, 100_000] {
            for args in [
                json!("x".repeat(size)),
                json!((0..size).collect::<Vec<_>>()),
                json!({"a": "y".repeat(size), "b": [1.5, "z".repeat(size)]}),
            ] {
                let whole = [b"uniq_job\0", serde_json::to_string(&args).unwrap().as_bytes()].concat();
                assert_eq!(key_of(args), hex::encode(&blake3::hash(&whole).as_bytes()[..16]), "{size}");
            }
        }
    }

    #[test]
    fn absent_args_are_an_empty_object() {
        let absent = fingerprint(Options::default(), "uniq_job", "default", None).unwrap();
        assert_eq!(hex::encode(absent), key_of(json!({})));
    }

    #[test]
    fn masks_read_left_to_right() {
        let mask = StateMask::from_bits("10000001").unwrap();
        assert!(mask.has(0) && mask.has(7) && !mask.has(1));
        assert_eq!(&mask.text(), b"10000001");
        assert_eq!(&StateMask::DEFAULT.text(), b"11111000");
        assert!(StateMask::from_bits("1000000").is_err());
        assert!(StateMask::from_bits("1000000x").is_err());
    }

    #[test]
    fn options_are_checked() {
        let parse = |value: serde_json::Value| {
            let bytes = encode(&value);
            Uniqueness::from_json(Value::root(&bytes).unwrap()).map(|found| found.is_some())
        };
        assert_eq!(parse(json!(true)), Ok(true));
        assert_eq!(parse(json!(false)), Ok(false));
        assert_eq!(parse(json!({"by_queue": true, "by_period": 3, "states": ["running"]})), Ok(true));
        assert_eq!(parse(json!({"unique_key": "\\xabcd", "unique_states": "01000000"})), Ok(true));
        assert!(matches!(parse(json!({"by_query": true})), Err(Fault::UnknownUniqueOption(_))));
        assert!(matches!(parse(json!({"by_period": 1.5})), Err(Fault::Uniqueness(_))));
        assert!(matches!(parse(json!({"states": ["done"]})), Err(Fault::UnknownUniqueState(_))));
        assert!(matches!(parse(json!({"unique_key": "xyz"})), Err(Fault::Hex(..))));
        assert!(matches!(parse(json!({"unique_key": "ab", "by_args": true})), Err(Fault::Uniqueness(_))));
        assert_eq!(parse(json!({"unique_states": "01000000"})), Err(Fault::StatesWithoutKey));
    }
}
