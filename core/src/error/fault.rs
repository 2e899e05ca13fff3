//! What can be wrong with one job.

use super::{CORRUPT, Error};
use crate::csv::CsvFault;
use crate::jsonb::{Corrupt, LARGEST};
use crate::unique::KEY_LIMIT;
use std::fmt::{self, Display, Formatter};

/// What is wrong with one job, apart from where it stands in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The job is no JSON object.
    NotAnObject,
    /// No `kind`, or a NULL one.
    MissingKind,
    /// A key that no job has.
    UnknownKey(String),
    /// A value of the wrong type: the key, and what it must be.
    WrongType(&'static str, &'static str),
    /// `kind` is empty or longer than 200 characters.
    KindLength(usize),
    /// `queue` is longer than 200 characters.
    QueueLength(usize),
    /// `priority` outside 1 to 4.
    Priority(String),
    /// `max_attempts` outside 1 to 1000.
    MaxAttempts(String),
    /// More than 20 tags.
    TagCount(usize),
    /// A state that a new job cannot have.
    State(String),
    /// `metadata` is no JSON object.
    Metadata,
    /// Uniqueness options that make no sense.
    Uniqueness(String),
    /// An option of `unique` that there is not.
    UnknownUniqueOption(String),
    /// A state in `unique` that no job has.
    UnknownUniqueState(String),
    /// A given key that is empty or too long: its bytes.
    KeyLength(usize),
    /// States of a key without the key.
    StatesWithoutKey,
    /// Bytes that are not hex.
    Hex(&'static str, String),
    /// Uniqueness states that are not eight bits.
    Bits(String),
    /// A number in `args` that no double holds, so that awa's clients have no key for it.
    NumberRange(&'static str),
    /// More than `jsonb` can hold: the key.
    Oversize(&'static str),
    /// JSON that awa's workers cannot read, because it nests too deep: the key.
    Nesting(&'static str),
    /// A time that awa cannot read: which.
    UnreadableTime(&'static str),
    /// A ready job's time is so far from now that awa's claim function fails.
    FarTime,
    /// `run_at` is no timestamp: the text, and what the server said.
    Timestamp(String, String),
    /// Text that is no integer: the key, and the text.
    NotAnInteger(&'static str, String),
    /// The job's row is malformed.
    Csv(CsvFault),
    /// The caller brings an id.
    GivenId,
    /// Text is not UTF-8, which the database's encoding promises.
    Encoding,
    /// The `jsonb` bytes do not follow PostgreSQL's format.
    CorruptJsonb,
}

impl From<Corrupt> for Fault {
    fn from(corrupt: Corrupt) -> Self {
        match corrupt {
            Corrupt::Format => Self::CorruptJsonb,
            Corrupt::Text => Self::Encoding,
        }
    }
}

impl Fault {
    /// This fault in the job at `ordinal`.
    pub fn at(self, ordinal: u64) -> Error {
        Error::Job { ordinal, fault: self }
    }

    pub(super) fn sqlstate(&self) -> &'static str {
        match self {
            Self::MissingKind => "23502",
            Self::KindLength(_) | Self::QueueLength(_) | Self::Priority(_) | Self::MaxAttempts(_) | Self::TagCount(_) => "23514",
            Self::NotAnObject | Self::UnknownKey(_) | Self::WrongType(..) | Self::State(_) => "22023",
            Self::UnknownUniqueOption(_) | Self::UnknownUniqueState(_) => "22023",
            Self::Metadata | Self::Uniqueness(_) | Self::KeyLength(_) | Self::StatesWithoutKey => "22023",
            Self::Hex(..) | Self::Bits(_) | Self::NotAnInteger(..) => "22P02",
            Self::Csv(fault) => fault.sqlstate(),
            Self::NumberRange(_) => "22003",
            Self::GivenId => "428C9",
            Self::Nesting(_) | Self::Oversize(_) => "54000",
            Self::UnreadableTime(_) | Self::FarTime => "22008",
            Self::Timestamp(..) => "22007",
            Self::Encoding => "22021",
            Self::CorruptJsonb => "XX001",
        }
    }

    /// The key that it is about, where it is about one.
    pub fn column(&self) -> Option<&'static str> {
        match self {
            Self::MissingKind | Self::KindLength(_) => Some("kind"),
            Self::QueueLength(_) => Some("queue"),
            Self::Priority(_) => Some("priority"),
            Self::MaxAttempts(_) => Some("max_attempts"),
            Self::TagCount(_) => Some("tags"),
            Self::State(_) => Some("state"),
            Self::Metadata => Some("metadata"),
            Self::Uniqueness(_) | Self::UnknownUniqueOption(_) | Self::UnknownUniqueState(_) => Some("uniqueness"),
            Self::KeyLength(_) => Some("unique_key"),
            Self::Bits(_) | Self::StatesWithoutKey => Some("unique_states"),
            Self::UnreadableTime(_) | Self::FarTime | Self::Timestamp(..) => Some("run_at"),
            Self::GivenId => Some("job_id"),
            Self::NumberRange(key)
            | Self::WrongType(key, _)
            | Self::Hex(key, _)
            | Self::Nesting(key)
            | Self::Oversize(key)
            | Self::NotAnInteger(key, _) => Some(key),
            Self::NotAnObject | Self::UnknownKey(_) | Self::Encoding => None,
            Self::CorruptJsonb | Self::Csv(_) => None,
        }
    }

    pub(super) fn constraint(&self) -> Option<&'static str> {
        match self {
            Self::KindLength(_) => Some("kind_length"),
            Self::QueueLength(_) => Some("queue_name_length"),
            Self::Priority(_) => Some("priority_in_range"),
            Self::MaxAttempts(_) => Some("max_attempts_range"),
            Self::TagCount(_) => Some("tags_count"),
            _ => None,
        }
    }

    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownKey(_) => Some(
                "A job has kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique (or uniqueness), unique_key, \
                 unique_states and ordering_key.",
            ),
            Self::State(_) => Some("A new job is available, scheduled or retryable."),
            Self::UnknownUniqueState(_) => {
                Some("States are scheduled, available, running, completed, retryable, failed, cancelled and waiting_external.")
            }
            Self::UnknownUniqueOption(_) | Self::Uniqueness(_) | Self::KeyLength(_) | Self::StatesWithoutKey => Some(
                "Uniqueness is true, an object with by_queue, by_args, by_period and states, or an object with unique_key and \
                 unique_states.",
            ),
            Self::Bits(_) => Some(
                "Eight characters 0 or 1, one for each of scheduled, available, running, completed, retryable, failed, cancelled \
                 and waiting_external.",
            ),
            Self::NumberRange(_) => Some("Send such numbers as strings."),
            Self::Timestamp(..) => Some("Write it as in 2030-01-31T08:00:00Z; without a zone, the session's time zone applies."),
            Self::Csv(fault) => fault.hint(),
            Self::Hex("unique_key", _) => {
                Some("unique_key is a precomputed hash in hex, behind \\x in columns; unique and uniqueness have one computed.")
            }
            Self::UnreadableTime(_) => Some(
                "awa's workers, and its clients that list, get or cancel jobs, panic on such a time. A job for later that is never due \
                 can have a run_at in the year 9999.",
            ),
            Self::FarTime => Some(
                "One such job stops awa's workers on its queue. A job for a given time is scheduled, as it is with a run_at and no state: \
                 awa makes it available when it is due, or at once.",
            ),
            _ => None,
        }
    }
}

/// Enough of a bad value to find it by: values may be megabytes.
pub(crate) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 100;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("must be a JSON object"),
            Self::MissingKind => f.write_str("kind is missing or null"),
            Self::UnknownKey(key) => write!(f, "unknown key \"{}\"", excerpt(key)),
            Self::WrongType(key, want) => write!(f, "{key} must be {want}"),
            Self::KindLength(n) => write!(f, "kind must have 1 to 200 characters, and has {n}"),
            Self::QueueLength(n) => write!(f, "queue must have at most 200 characters, and has {n}"),
            Self::Priority(value) => write!(f, "priority must be between 1 and 4, and is {value}"),
            Self::MaxAttempts(value) => write!(f, "max_attempts must be between 1 and 1000, and is {value}"),
            Self::TagCount(n) => write!(f, "tags must be at most 20, and are {n}"),
            Self::State(state) => write!(f, "unsupported initial state \"{}\"", excerpt(state)),
            Self::Metadata => f.write_str("metadata must be a JSON object"),
            Self::Uniqueness(what) => write!(f, "bad uniqueness: {what}"),
            Self::UnknownUniqueOption(name) => write!(f, "bad uniqueness: unknown option \"{}\"", excerpt(name)),
            Self::UnknownUniqueState(name) => write!(f, "bad uniqueness: unknown state \"{}\"", excerpt(name)),
            Self::KeyLength(n) => write!(f, "bad uniqueness: unique_key must have 1 to {KEY_LIMIT} bytes, and has {n}"),
            Self::StatesWithoutKey => f.write_str("bad uniqueness: unique_states without unique_key"),
            Self::Hex(key, text) => write!(f, "{key} is not hexadecimal: \"{}\"", excerpt(text)),
            Self::Bits(text) => write!(f, "unique_states must be eight bits, not \"{}\"", excerpt(text)),
            Self::NumberRange(key) => {
                write!(f, "a number in {key} is beyond double precision, which awa's clients and workers cannot read")
            }
            Self::Oversize(key) => write!(f, "{key} exceeds the {LARGEST} bytes that jsonb can hold"),
            Self::Nesting(key) => write!(f, "{key} nests deeper than awa's workers can read"),
            Self::UnreadableTime(which) => write!(f, "run_at {which}, which awa cannot read"),
            Self::FarTime => f.write_str("run_at of an available job is more than 22 days from now"),
            Self::Timestamp(text, _) => write!(f, "run_at is not a timestamp: \"{}\"", excerpt(text)),
            Self::GivenId => f.write_str("job_id is assigned by the queue and cannot be written"),
            Self::NotAnInteger(key, text) => write!(f, "{key} is not an integer: \"{}\"", excerpt(text)),
            Self::Csv(fault) => fault.fmt(f),
            Self::CorruptJsonb => f.write_str(CORRUPT),
            Self::Encoding => f.write_str("text is not valid UTF-8"),
        }
    }
}
