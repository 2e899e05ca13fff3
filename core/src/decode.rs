//! Job objects: one JSON object to one [`Draft`].

use crate::error::Fault;
use crate::job::{Draft, RunAt};
use crate::jsonb::Value;
use crate::unique::Uniqueness;
use std::borrow::Cow;

/// The keys of a job object.
pub(crate) const KEYS: [&str; 14] = [
    "kind",
    "queue",
    "args",
    "state",
    "priority",
    "max_attempts",
    "run_at",
    "metadata",
    "tags",
    "unique",
    "uniqueness",
    "unique_key",
    "unique_states",
    "ordering_key",
];

/// Reads a job object. Unknown keys are errors; null means the default, except for `args`, which may be any JSON.
pub fn object<'a>(value: Value<'a>) -> Result<Draft<'a>, Fault> {
    let Value::Object(object) = value else { return Err(Fault::NotAnObject) };
    let mut draft = Draft::default();
    let (mut key, mut states) = (None, None);
    let mut uniqueness = None;
    for field in object.fields()? {
        let (name, value) = field?;
        match name {
            "kind" => draft.kind = string("kind", value)?,
            "queue" => draft.queue = string("queue", value)?,
            "args" => draft.args = Some(value),
            "state" => draft.state = string("state", value)?,
            "priority" => draft.priority = integer("priority", value)?,
            "max_attempts" => draft.max_attempts = integer("max_attempts", value)?,
            "run_at" => draft.run_at = string("run_at", value)?.map(RunAt::Text),
            "metadata" => draft.metadata = Some(value),
            "tags" => draft.tags = Some(value),
            // One thing with two names: SQL has a keyword UNIQUE, and calls it uniqueness.
            "unique" | "uniqueness" if value.is_null() => {}
            "unique" | "uniqueness" if uniqueness.replace(value).is_none() => draft.unique = Uniqueness::from_json(value)?,
            "unique" | "uniqueness" => {
                return Err(Fault::Uniqueness("unique and uniqueness are two names of one key: give one".into()));
            }
            "unique_key" => key = string("unique_key", value)?,
            "unique_states" => states = string("unique_states", value)?,
            "ordering_key" => draft.ordering_key = string("ordering_key", value)?.map(bytes).transpose()?,
            unknown => return Err(Fault::UnknownKey(unknown.to_owned())),
        }
    }
    if let Some(given) = Uniqueness::given(key, states)?
        && draft.unique.replace(given).is_some()
    {
        return Err(Fault::Uniqueness("unique and unique_key exclude each other".into()));
    }
    Ok(draft)
}

/// Bytes as text: hex behind `\x`, else the text's own UTF-8.
pub fn bytes(text: &str) -> Result<Cow<'_, [u8]>, Fault> {
    match text.strip_prefix("\\x") {
        Some(digits) => match hex::decode(digits) {
            Ok(bytes) => Ok(Cow::Owned(bytes)),
            Err(_) => Err(Fault::Hex("ordering_key", text.to_owned())),
        },
        None => Ok(Cow::Borrowed(text.as_bytes())),
    }
}

fn string<'a>(key: &'static str, value: Value<'a>) -> Result<Option<&'a str>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(Fault::WrongType(key, "a string")),
    }
}

fn integer(key: &'static str, value: Value<'_>) -> Result<Option<i64>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) if number.is_whole() => Ok(Some(number.as_i64().unwrap_or(i64::MAX))),
        _ => Err(Fault::WrongType(key, "an integer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::encode;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    fn with<T>(value: &Json, check: impl FnOnce(Result<Draft, Fault>) -> T) -> T {
        check(object(Value::root(&encode(value)).unwrap()))
    }

    #[test]
    fn every_key_is_read() {
        let job = json!({
            "kind": "k", "queue": "q", "args": {"a": 1}, "state": "retryable", "priority": 1, "max_attempts": 3,
            "run_at": "2030-01-01", "metadata": {"m": 1}, "tags": ["t"], "unique": true, "ordering_key": "\\x00ff"
        });
        with(&job, |draft| {
            let draft = draft.unwrap();
            assert_eq!((draft.kind, draft.queue, draft.state), (Some("k"), Some("q"), Some("retryable")));
            assert_eq!((draft.priority, draft.max_attempts), (Some(1), Some(3)));
            assert_eq!(draft.run_at, Some(RunAt::Text("2030-01-01")));
            assert!(draft.args.is_some() && draft.metadata.is_some() && draft.tags.is_some() && draft.unique.is_some());
            assert_eq!(draft.ordering_key.as_deref(), Some(&[0, 255][..]));
        });
    }

    #[test]
    fn null_is_the_default_but_for_args() {
        with(&json!({"kind": "k", "queue": null, "priority": null, "unique": null, "args": null}), |draft| {
            let draft = draft.unwrap();
            assert_eq!(draft.args, Some(Value::Null));
            assert!(draft.queue.is_none() && draft.priority.is_none() && draft.unique.is_none());
        });
    }

    #[test]
    fn mistakes_are_named() {
        let fault = |job: Json| with(&job, |draft| draft.unwrap_err());
        assert_eq!(fault(json!(1)), Fault::NotAnObject);
        assert_eq!(fault(json!({"kind": "k", "prioritee": 1})), Fault::UnknownKey("prioritee".into()));
        assert_eq!(fault(json!({"kind": 1})), Fault::WrongType("kind", "a string"));
        assert_eq!(fault(json!({"kind": "k", "priority": "1"})), Fault::WrongType("priority", "an integer"));
        assert_eq!(fault(json!({"kind": "k", "priority": 1.5})), Fault::WrongType("priority", "an integer"));
        assert_eq!(fault(json!({"kind": "k", "run_at": 5})), Fault::WrongType("run_at", "a string"));
        assert_eq!(fault(json!({"kind": "k", "ordering_key": "\\xzz"})), Fault::Hex("ordering_key", "\\xzz".into()));
        assert!(matches!(fault(json!({"kind": "k", "unique": true, "unique_key": "00"})), Fault::Uniqueness(_)));
        assert!(matches!(fault(json!({"kind": "k", "uniqueness": true, "unique_key": "00"})), Fault::Uniqueness(_)));
        for both in [json!(true), json!(false), json!({})] {
            assert!(matches!(fault(json!({"kind": "k", "unique": both, "uniqueness": both})), Fault::Uniqueness(_)));
        }
    }

    #[test]
    fn unique_has_two_names() {
        for job in [json!({"kind": "k", "uniqueness": true}), json!({"kind": "k", "unique": null, "uniqueness": true})] {
            with(&job, |draft| assert_eq!(draft.unwrap().unique, Uniqueness::from_json(Value::Bool(true)).unwrap()));
        }
        for key in KEYS {
            with(&json!({key: null}), |draft| assert!(draft.is_ok(), "{key}"));
        }
    }

    proptest! {
        #[test]
        fn mutated_jobs_never_panic(at in 0usize..400, byte in any::<u8>()) {
            let mut bytes = encode(&json!({
                "kind": "k", "queue": "q", "args": {"a": [1, 2.5]}, "priority": 1, "run_at": "now", "metadata": {"m": 1},
                "tags": ["a", "b"], "unique": {"by_queue": true, "states": ["running"]}, "ordering_key": "o"
            }));
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(value) = Value::root(&bytes) {
                let _ = object(value).and_then(Draft::validate);
            }
        }
    }
}
