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

impl Error {
    /// The whole hint: the statement that repairs it, or what was probably meant and what there is.
    pub fn advice(&self) -> Option<String> {
        if let Some(statement) = self.repair() {
            return Some(format!("{statement} repairs it."));
        }
        match (self.meant(), self.hint()) {
            (Some(meant), Some(hint)) => Some(format!("Did you mean \"{meant}\"? {hint}")),
            (Some(meant), None) => Some(format!("Did you mean \"{meant}\"?")),
            (None, hint) => hint.map(str::to_owned),
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
        assert_eq!(Error::NoWorkerSlot.advice().as_deref(), Error::NoWorkerSlot.hint());
    }
}
