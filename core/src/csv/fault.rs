//! What can be wrong with CSV.

use crate::column::Column;
use crate::error::excerpt;
use std::fmt::{self, Display, Formatter};

/// What is wrong with a row or a header line, apart from where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CsvFault {
    /// A quote in a field that does not start with one.
    StrayQuote,
    /// A quoted field that the input ends in.
    OpenQuote,
    /// Text between a closing quote and the end of the field.
    TextBehindQuote,
    /// A row with too few or too many fields: how many it has, and how many it must have.
    FieldCount(usize, usize),
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A NUL byte, which no text of the server can have.
    NulByte,
    /// A header field that names no column.
    UnknownColumn(String),
    /// A column that the header names twice.
    RepeatedColumn(Column),
    /// The header names `job_id`.
    JobId,
}

impl CsvFault {
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            Self::NotUtf8 | Self::NulByte => "22021",
            _ => "22P04",
        }
    }

    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::StrayQuote | Self::OpenQuote | Self::TextBehindQuote => {
                Some("A field with quotes is quoted as a whole, and each quote in it is written twice.")
            }
            Self::FieldCount(..) => Some(
                "A field with delimiters or line ends in it is quoted; an empty field counts. Without a header line, the argument \
                 columns names the fields; otherwise they are kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, \
                 unique_key, unique_states and ordering_key.",
            ),
            Self::UnknownColumn(_) => Some(
                "Columns are kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states, \
                 ordering_key and uniqueness. CSV without a header line needs header => false, and other delimiters \
                 than commas delimiter.",
            ),
            Self::JobId => Some("The ids of jobs are assigned as they are enqueued."),
            Self::NotUtf8 | Self::NulByte | Self::RepeatedColumn(_) => None,
        }
    }
}

impl Display for CsvFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::StrayQuote => f.write_str("quote in an unquoted field"),
            Self::OpenQuote => f.write_str("quoted field is not closed"),
            Self::TextBehindQuote => f.write_str("text behind the closing quote of a field"),
            Self::FieldCount(have, want) => {
                write!(f, "must have {want} field{}, and has {have}", if *want == 1 { "" } else { "s" })
            }
            Self::NotUtf8 => f.write_str("text is not valid UTF-8"),
            Self::NulByte => f.write_str("text has a NUL byte"),
            Self::UnknownColumn(name) => write!(f, "unknown column \"{}\"", excerpt(name)),
            Self::RepeatedColumn(column) => write!(f, "column {column} is named twice"),
            Self::JobId => f.write_str("column job_id cannot be given"),
        }
    }
}
