//! Sequences that hand out again what was handed out: restored, replicated or set back.

use super::Error;
use std::fmt::{Display, Formatter, Result};

/// What such a sequence does, and where that was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// A lane's enqueue sequence is behind, seen before a position was taken.
    Behind {
        /// The lane.
        lane: String,
        /// The sequence.
        sequence: Sequence,
        /// The position that it would hand out.
        next: i64,
        /// The first position that was never handed out.
        used: i64,
    },
    /// A position is in use already: the server's detail.
    PositionTaken(String),
    /// An id is in use already.
    IdTaken {
        /// The sequence.
        sequence: Sequence,
        /// The server's detail.
        detail: String,
    },
}

/// A sequence by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
}

impl Sequence {
    /// The statement that repairs it.
    pub fn repair(&self) -> String {
        let quoted = |name: &str| format!("'{}'", name.replace('\'', "''"));
        format!("SELECT awa_ingest.repair_lane_sequence({}, {})", quoted(&self.schema), quoted(&self.name))
    }
}

/// The same for all that are behind.
const REPAIR_ALL: &str = "SELECT awa_ingest.repair_lane_sequence(schema_name, sequence_name) FROM awa_ingest.lane_sequence_problems() \
                          WHERE problem = 'behind'";

impl Damage {
    /// More about the cause.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Behind { .. } => None,
            Self::PositionTaken(detail) | Self::IdTaken { detail, .. } => Some(detail.clone()),
        }
    }

    /// The statement that repairs it.
    pub fn repair(&self) -> String {
        match self {
            Self::Behind { sequence, .. } | Self::IdTaken { sequence, .. } => sequence.repair(),
            Self::PositionTaken(_) => REPAIR_ALL.into(),
        }
    }
}

impl Error {
    /// The statement that repairs what is damaged, where there is one.
    pub fn repair(&self) -> Option<String> {
        match self {
            Self::Damaged(damage) => Some(damage.repair()),
            Self::At { error, .. } => error.repair(),
            _ => None,
        }
    }
}

impl Display for Damage {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Behind { lane, next, used, .. } => write!(
                f,
                "lane {lane} is damaged: the next position of its enqueue sequence is {next}, and positions below {used} were handed out"
            ),
            Self::PositionTaken(_) => f.write_str("a lane is damaged: its enqueue sequence hands out positions again"),
            Self::IdTaken { sequence, .. } => {
                write!(f, "sequence \"{}\" is damaged: it hands out ids of jobs again", sequence.name)
            }
        }
    }
}

/// What is said of a lane that has lost a sequence.
pub(super) fn lost(f: &mut Formatter<'_>, lane: &str, side: &str) -> Result {
    write!(f, "lane {lane} has lost its {side} sequence, and a new one would begin below positions that were handed out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_that_repairs() {
        let sequence = Sequence { schema: "a'b".into(), name: "s".into() };
        assert_eq!(sequence.repair(), "SELECT awa_ingest.repair_lane_sequence('a''b', 's')");
        let error = Error::Damaged(Damage::Behind { lane: "l".into(), sequence, next: 3, used: 9 });
        assert_eq!((error.sqlstate(), error.repair().is_some(), error.hint()), ("55000", true, None));
        let told = "lane l is damaged: the next position of its enqueue sequence is 3, and positions below 9 were handed out";
        assert_eq!(error.to_string(), told);
    }
}
