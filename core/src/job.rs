//! A job as it is asked for ([`Draft`]) and as it may be stored ([`Job`]), with the limits between them.

use crate::error::Fault;
use crate::jsonb::{Container, LARGEST, Value, write_object};
use crate::unique::{UniqueKey, Uniqueness};
use std::borrow::Cow;

/// Longest `kind` and `queue`, in characters.
const NAME_LIMIT: usize = 200;
const TAG_LIMIT: usize = 20;
/// Metadata and tags share an object: the room that its keys and padding leave.
const LARGEST_PAYLOAD: usize = LARGEST - 64;

/// Names of the states a new job can have.
pub(crate) const INITIAL_STATES: [&str; 3] = ["available", "scheduled", "retryable"];

/// The states a new job can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialState {
    /// Goes into a lane at once.
    Available,
    /// Waits for its `run_at`.
    Scheduled,
    /// Waits for its `run_at`, counted as a retry.
    Retryable,
}

impl InitialState {
    fn parse(name: &str) -> Result<Self, Fault> {
        match name {
            "available" => Ok(Self::Available),
            "scheduled" => Ok(Self::Scheduled),
            "retryable" => Ok(Self::Retryable),
            _ => Err(Fault::State(name.to_owned())),
        }
    }

    /// The name in the database's enum.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Scheduled => "scheduled",
            Self::Retryable => "retryable",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Scheduled => 0,
            Self::Available => 1,
            Self::Retryable => 4,
        }
    }
}

/// When a job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAt<'a> {
    /// Text that the server has still to read.
    Text(&'a str),
    /// PostgreSQL's `timestamptz`: microseconds since 2000-01-01 UTC.
    Micros(i64),
}

/// A job as a decoder found it: nothing is checked but the types.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Draft<'a> {
    pub kind: Option<&'a str>,
    pub queue: Option<&'a str>,
    pub args: Option<Value<'a>>,
    pub state: Option<&'a str>,
    pub priority: Option<i64>,
    pub max_attempts: Option<i64>,
    pub run_at: Option<RunAt<'a>>,
    pub metadata: Option<Value<'a>>,
    pub tags: Option<Value<'a>>,
    pub unique: Option<Uniqueness<'a>>,
    pub ordering_key: Option<Cow<'a, [u8]>>,
}

/// A job that may be stored.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// 1 to 200 characters; may be empty where awa's own function takes it.
    pub kind: &'a str,
    /// At most 200 characters; the name the caller uses, without a stripe.
    pub queue: &'a str,
    /// `None` for an empty object.
    pub args: Option<Value<'a>>,
    /// Ready or deferred.
    pub state: InitialState,
    /// 1 to 4.
    pub priority: i16,
    /// 1 to 1000.
    pub max_attempts: i16,
    /// `None` for now.
    pub run_at: Option<RunAt<'a>>,
    /// An object; `None` if it is empty.
    pub metadata: Option<Container<'a>>,
    /// At most 20 strings; `None` if there are none.
    pub tags: Option<Container<'a>>,
    /// The key and the states that hold it.
    pub unique: Option<UniqueKey<'a>>,
    /// Keeps jobs with the same key in one shard.
    pub ordering_key: Option<Cow<'a, [u8]>>,
}

impl Job<'_> {
    /// awa's compact payload, the bytes of a `jsonb`: only what is not empty. Leaves `out` empty if nothing is.
    pub fn payload(&self, out: &mut Vec<u8>) {
        match (self.tags, self.metadata) {
            (None, None) => out.clear(),
            (Some(tags), None) => write_object(&[("tags", tags)], out),
            (None, Some(metadata)) => write_object(&[("metadata", metadata)], out),
            (Some(tags), Some(metadata)) => write_object(&[("tags", tags), ("metadata", metadata)], out),
        }
    }

    /// Bytes of its values of variable length as they are stored, uncompressed and without their length words: kind, the stored `queue`, args,
    /// `payload` (metadata and tags, if there are any) and unique key.
    pub fn bytes(&self, queue: &str, payload: &[u8]) -> u64 {
        let (head, args) = self.args.unwrap_or(Value::EMPTY_OBJECT).parts();
        let key = self.unique.as_ref().map_or(0, |unique| unique.key.len());
        (self.kind.len() + queue.len() + head.map_or(0, |head| head.len()) + args.len() + payload.len() + key) as u64
    }

    /// True if the job takes its key on its way in.
    pub fn claims(&self) -> bool {
        let states = self.unique.as_ref().and_then(|unique| unique.states);
        states.is_some_and(|states| states.has(self.state.bit()))
    }
}

impl<'a> Draft<'a> {
    /// Checks every limit and fills in every default.
    pub fn validate(self) -> Result<Job<'a>, Fault> {
        match self.kind {
            Some("") => Err(Fault::KindLength(0)),
            _ => self.validate_as_awa(),
        }
    }

    /// The same for awa's own function, which takes an empty kind.
    pub fn validate_as_awa(self) -> Result<Job<'a>, Fault> {
        let kind = self.kind.ok_or(Fault::MissingKind)?;
        let queue = self.queue.unwrap_or("default");
        match characters(kind) {
            0..=NAME_LIMIT => {}
            n => return Err(Fault::KindLength(n)),
        }
        match characters(queue) {
            0..=NAME_LIMIT => {}
            n => return Err(Fault::QueueLength(n)),
        }
        let state = match self.state {
            Some(name) => InitialState::parse(name)?,
            None if self.run_at.is_some() => InitialState::Scheduled,
            None => InitialState::Available,
        };
        let (metadata, tags) = (metadata(self.metadata)?, tags(self.tags)?);
        if [metadata, tags].iter().flatten().map(Container::size).sum::<usize>() > LARGEST_PAYLOAD {
            return Err(Fault::Oversize("metadata"));
        }
        let unique = self.unique.map(|unique| UniqueKey::of(unique, kind, queue, self.args)).transpose()?;
        Ok(Job {
            kind,
            queue,
            args: self.args,
            state,
            priority: within(self.priority, 1..=4, 2, Fault::Priority)?,
            max_attempts: within(self.max_attempts, 1..=1000, 25, Fault::MaxAttempts)?,
            run_at: self.run_at,
            metadata,
            tags,
            unique,
            ordering_key: self.ordering_key,
        })
    }
}

/// Counts bytes first: most names are short enough whatever their characters are.
fn characters(name: &str) -> usize {
    if name.len() <= NAME_LIMIT { name.len() } else { name.chars().count() }
}

fn within(
    value: Option<i64>,
    range: std::ops::RangeInclusive<i16>,
    default: i16,
    fault: fn(String) -> Fault,
) -> Result<i16, Fault> {
    match value {
        None => Ok(default),
        Some(value) => i16::try_from(value).ok().filter(|n| range.contains(n)).ok_or_else(|| fault(value.to_string())),
    }
}

fn metadata(value: Option<Value<'_>>) -> Result<Option<Container<'_>>, Fault> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object).filter(|object| !object.is_empty())),
        Some(_) => Err(Fault::Metadata),
    }
}

fn tags(value: Option<Value<'_>>) -> Result<Option<Container<'_>>, Fault> {
    const WANT: Fault = Fault::WrongType("tags", "an array of strings");
    let array = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(array)) => array,
        Some(_) => return Err(WANT),
    };
    if array.len() > TAG_LIMIT {
        return Err(Fault::TagCount(array.len()));
    }
    for tag in array.elements()? {
        if !matches!(tag?, Value::String(_)) {
            return Err(WANT);
        }
    }
    Ok(Some(array).filter(|array| !array.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::encode;
    use serde_json::json;

    fn draft(kind: &str) -> Draft<'_> {
        Draft { kind: Some(kind), ..Draft::default() }
    }

    #[test]
    fn defaults() {
        let job = draft("k").validate().unwrap();
        assert_eq!((job.queue, job.priority, job.max_attempts), ("default", 2, 25));
        assert_eq!(job.state, InitialState::Available);
        assert!(job.args.is_none() && job.tags.is_none() && job.metadata.is_none() && job.unique.is_none());
        assert!(!job.claims());
    }

    #[test]
    fn a_time_makes_a_job_scheduled_unless_told_otherwise() {
        let timed = Draft { run_at: Some(RunAt::Micros(1)), ..draft("k") };
        assert_eq!(timed.clone().validate().unwrap().state, InitialState::Scheduled);
        let ready = Draft { state: Some("available"), ..timed };
        assert_eq!(ready.validate().unwrap().state, InitialState::Available);
        assert_eq!(Draft { state: Some("running"), ..draft("k") }.validate().unwrap_err(), Fault::State("running".into()));
    }

    #[test]
    fn names_are_counted_in_characters() {
        assert!(draft(&"é".repeat(200)).validate().is_ok());
        assert_eq!(draft(&"é".repeat(201)).validate().unwrap_err(), Fault::KindLength(201));
        assert_eq!(draft("").validate().unwrap_err(), Fault::KindLength(0));
        assert_eq!(Draft::default().validate().unwrap_err(), Fault::MissingKind);
        let long = "q".repeat(201);
        assert_eq!(Draft { queue: Some(&long), ..draft("k") }.validate().unwrap_err(), Fault::QueueLength(201));
    }

    #[test]
    fn numbers_have_bounds() {
        for (value, good) in [(0, false), (1, true), (4, true), (5, false), (1 << 40, false)] {
            assert_eq!(Draft { priority: Some(value), ..draft("k") }.validate().is_ok(), good, "{value}");
        }
        for (value, good) in [(0, false), (1, true), (1000, true), (1001, false)] {
            assert_eq!(Draft { max_attempts: Some(value), ..draft("k") }.validate().is_ok(), good, "{value}");
        }
    }

    #[test]
    fn tags_and_metadata_are_checked_and_compacted() {
        let check = |value: serde_json::Value| {
            let bytes = encode(&value);
            let value = Value::root(&bytes).unwrap();
            (tags(Some(value)).map(|tags| tags.is_some()), metadata(Some(value)).map(|metadata| metadata.is_some()))
        };
        assert_eq!(check(json!([])), (Ok(false), Err(Fault::Metadata)));
        assert_eq!(check(json!(["a"])).0, Ok(true));
        assert_eq!(check(json!([1])).0, Err(Fault::WrongType("tags", "an array of strings")));
        assert_eq!(check(json!(vec!["t"; 20])).0, Ok(true));
        assert_eq!(check(json!(vec!["t"; 21])).0, Err(Fault::TagCount(21)));
        assert_eq!(check(json!({})).1, Ok(false));
        assert_eq!(check(json!({"a": 1})).1, Ok(true));
    }

    #[test]
    fn a_job_claims_when_its_own_state_is_in_the_mask() {
        let unique = |states: &str| Uniqueness::given(Some("00ff"), Some(states)).unwrap();
        assert!(Draft { unique: unique("01000000"), ..draft("k") }.validate().unwrap().claims());
        assert!(!Draft { unique: unique("10000000"), ..draft("k") }.validate().unwrap().claims());
        let deferred = Draft { unique: unique("10000000"), run_at: Some(RunAt::Micros(0)), ..draft("k") };
        assert!(deferred.validate().unwrap().claims());
        let stateless = Uniqueness::given(Some("00ff"), None).unwrap();
        assert!(!Draft { unique: stateless, ..draft("k") }.validate().unwrap().claims());
    }
}
