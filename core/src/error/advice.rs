//! Hints that depend on what was given: the name that an unknown one most likely stands for.

use super::{Error, Fault};
use crate::closest::closest;
use crate::column::Column;
use crate::csv::CsvFault;
use crate::decode::KEYS;
use crate::job::INITIAL_STATES;
use crate::unique;

/// Options of a foreign table.
pub const TABLE_OPTIONS: [&str; 8] =
    ["kind", "queue", "priority", "max_attempts", "uniqueness", "tags", "on_conflict", "batch_size"];

const EMPTY_FIELD: &str = "An empty field is an empty string; null_string => '' makes it NULL, which stands for the default.";

/// Digits with a fraction of zero, as spreadsheets and data frames write integers.
fn is_whole(text: &str) -> bool {
    text.trim_ascii().parse::<f64>().is_ok_and(|number| number.fract() == 0.0)
}

impl Error {
    /// The whole hint: the statement that repairs it, or what was probably meant and what there is.
    pub fn advice(&self) -> Option<String> {
        if let Some(statement) = self.repair() {
            return Some(format!("{statement} repairs it."));
        }
        if let Some(hint) = self.csv_field() {
            return Some(hint.into());
        }
        match (self.meant(), self.hint()) {
            (Some(meant), Some(hint)) => Some(format!("Did you mean \"{meant}\"? {hint}")),
            (Some(meant), None) => Some(format!("Did you mean \"{meant}\"?")),
            (None, hint) => hint.map(str::to_owned),
        }
    }

    /// About fields of CSV that other programs write in their way.
    fn csv_field(&self) -> Option<&'static str> {
        let Self::At { error, .. } = self else { return None };
        let Self::Job { fault, .. } = &**error else { return None };
        match fault {
            Fault::NotAnInteger(_, text)
            | Fault::Timestamp(text, _)
            | Fault::State(text)
            | Fault::Hex(_, text)
            | Fault::Bits(text)
                if text.is_empty() =>
            {
                Some(EMPTY_FIELD)
            }
            Fault::EmptyField(_) | Fault::QueueLength(0) => Some(EMPTY_FIELD),
            Fault::NotAnInteger(_, text) if is_whole(text) => Some("Write integers without a fraction: 1, not 1.0."),
            _ => None,
        }
    }

    fn meant(&self) -> Option<&'static str> {
        match self {
            Self::At { error, .. } => error.meant(),
            Self::Job { fault, .. } | Self::Option(_, fault) => fault.meant(),
            Self::CsvHeader { fault: CsvFault::UnknownColumn(name), .. } => column(name),
            Self::UnknownCsvColumn(name) | Self::UnknownColumn(name) => column(name),
            Self::UnknownOption(name) => closest(name, &TABLE_OPTIONS),
            Self::OnConflict(name) => closest(name, &["error", "skip"]),
            Self::UnknownTask(name) => closest(name, &["statistics", "prune", "lanes"]),
            _ => None,
        }
    }
}

/// A column that job objects call by another name comes first.
fn column(name: &str) -> Option<&'static str> {
    let other_name = name.eq_ignore_ascii_case("unique").then_some(Column::Uniqueness.name());
    other_name.or_else(|| closest(name, &Column::ALL.map(Column::name)))
}

impl Fault {
    fn meant(&self) -> Option<&'static str> {
        match self {
            Self::UnknownKey(name) => closest(name, &KEYS),
            Self::State(name) => closest(name, &INITIAL_STATES),
            Self::UnknownUniqueOption(name) => closest(name, &unique::OPTIONS),
            Self::UnknownUniqueState(name) => closest(name, &unique::STATES),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;

    #[test]
    fn what_was_meant_comes_first() {
        let advice = |error: Error| error.advice().unwrap();
        assert!(advice(Fault::UnknownKey("prioritee".into()).at(3)).starts_with("Did you mean \"priority\"? A job has kind"));
        assert!(advice(Fault::State("scheduld".into()).at(1)).starts_with("Did you mean \"scheduled\"? "));
        assert!(advice(Fault::UnknownUniqueOption("by_query".into()).at(1)).starts_with("Did you mean \"by_queue\"? "));
        assert!(advice(Fault::UnknownUniqueState("canceled".into()).at(1)).starts_with("Did you mean \"cancelled\"? "));
        assert!(advice(Error::UnknownColumn("unique".into())).starts_with("Did you mean \"uniqueness\"? "));
        assert!(advice(Error::UnknownOption("onconflict".into())).starts_with("Did you mean \"on_conflict\"? "));
        assert!(advice(Error::OnConflict("skipp".into())).starts_with("Did you mean \"skip\"? "));
        let header = |name: &str| Error::CsvHeader { field: 1, fault: CsvFault::UnknownColumn(name.into()) };
        assert!(advice(header("Kind")).starts_with("Did you mean \"kind\"? "));
        assert!(!advice(header("colour")).starts_with("Did you mean"));
        let field = |fault: Fault| Error::At { place: Place { line: 2, column: None }, error: Box::new(fault.at(1)) };
        assert!(advice(field(Fault::NotAnInteger("priority", String::new()))).contains("null_string => ''"));
        assert!(advice(field(Fault::NotAnInteger("priority", "1.0".into()))).contains("1, not 1.0"));
        assert_eq!(field(Fault::NotAnInteger("priority", "one".into())).advice(), None);
        assert_eq!(Error::NoWorkerSlot.advice().as_deref(), Error::NoWorkerSlot.hint());
    }
}
