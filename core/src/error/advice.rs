//! Hints: what the user can do, and the name that an unknown one most likely stands for.

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

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Job { fault, .. } | Self::Option(_, fault) => fault.hint(),
            Self::At { error, .. } => error.hint(),
            Self::CsvHeader { fault, .. } => fault.hint(),
            Self::UniqueConflict { .. } => {
                Some("Functions with on_conflict => 'skip', and the foreign table awa.ingest_skip_conflicts, leave such jobs out.")
            }
            Self::NotAnArray => Some("Pass a JSON array of job objects; awa.enqueue takes a single job."),
            Self::OnConflict(_) => Some("on_conflict is 'error' or 'skip'."),
            Self::RequestTooLarge(_) => Some(
                "COPY awa.ingest FROM takes jobs of any number, and awa.enqueue_csv up to 1 GB of text; or send several batches.",
            ),
            Self::ArrayLength(..) => Some("An array is NULL, has one element for all jobs, or one element a job."),
            Self::UnknownStorage(_) => {
                Some("This version of awa_ingest knows awa 0.6.9 (schema version 40). Run awa's migrations, or upgrade awa_ingest.")
            }
            Self::AwasJobs => Some("Cancel jobs of awa through one of its clients."),
            Self::NoAwa => Some("Install awa 0.6.9 and run its migrations first."),
            Self::UnknownFunction(_) => Some(
                "This version of awa_ingest replaces the function of awa 0.6.9 (schema version 40) only. Run awa's migrations, or upgrade \
                 awa_ingest.",
            ),
            Self::NothingSaved => Some("Run awa's migrations again to have its own function back."),
            Self::Misfit(_) | Self::UnknownRow(_) => {
                Some("Call awa_ingest.detach() to have awa's own function back, and upgrade awa_ingest.")
            }
            Self::StillAttached => Some("SELECT awa_ingest.detach() gives awa its own function back."),
            Self::StorageChanged => Some("Send the jobs again."),
            Self::StorageLeft => Some("Run the transaction again: its jobs then go where they are worked."),
            Self::RingTurned { .. } => Some("Run the transaction again, and enqueue nearer to its end where it takes so long."),
            Self::WriteOnlyTable(_) => Some(
                "Jobs are in awa.jobs, or without awa in awa_ingest.ready_entries and deferred_jobs; awa.last_ingest() has the ids of this \
                      session's last COPY or INSERT.",
            ),
            Self::UnknownCsvColumn(_) => Some(
                "Columns are kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states, \
                 ordering_key and uniqueness.",
            ),
            Self::UnknownColumn(_) => Some(
                "Columns are kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states, \
                 ordering_key, uniqueness and job_id.",
            ),
            Self::VirtualColumn(_) => Some("Declare it STORED."),
            Self::UnknownOption(_) => {
                Some("Options are kind, queue, priority, max_attempts, on_conflict, uniqueness, tags and batch_size.")
            }
            Self::OutcomeForgotten => Some("Raise awa_ingest.batch_memory, or use RETURNING job_id."),
            Self::DamagedLane(..) => {
                Some("Repair the lane before enqueueing to it: awa_ingest.provision_lane makes what is missing.")
            }
            Self::LaneInTheMaking(_) => Some(
                "Have the event trigger leave out commands in the storage's schema, or disable it and make the lane with \
                 awa_ingest.provision_lane.",
            ),
            Self::LostSequence(..) => Some("awa_ingest.lane_sequence_problems() says how it can be repaired."),
            Self::NotOwnerOfSequence(_) => {
                Some("able_roles of awa_ingest.lane_sequence_problems() are the roles that can repair it.")
            }
            Self::BeyondRepair(..) => Some("Put it right by hand, while the queue has neither producers nor workers."),
            Self::ClaimsHidden => Some("Look for row security and triggers on job_unique_claims."),
            Self::RowsLeftOut(..) => Some("Look for triggers and rules on the table that skip rows."),
            Self::MixedOwners(_) => Some(
                "What is read and written here is read and written with the rights of that owner: give schema, tables and functions one \
                 owner, with ALTER … OWNER TO.",
            ),
            Self::UnknownTask(_) => Some("Tasks are statistics, prune and lanes."),
            Self::KeptSnapshot(_) => Some("Call it at READ COMMITTED."),
            Self::NotMaintained(_) => Some("Known are the partitioned tables of the storage in use, and its head tables."),
            Self::MayNotMaintain => Some("awa_ingest.grant_operator(role) gives a role what it needs."),
            Self::Standby => Some("Workers start by themselves when the server is promoted, if the library is preloaded."),
            Self::NoWorkerSlot => Some("Raise max_worker_processes."),
            Self::NotServed(_, hint) => Some(hint),
            Self::UndeliveredJobs => Some(
                "Work the jobs first, move them into awa's storage with awa_ingest.adopt(), discard them with awa_ingest.discard_queue(), or SET \
                 awa_ingest.allow_drop = on to lose them. For pg_restore --clean, which drops what it restores, set \
                 PGOPTIONS='-c awa_ingest.allow_drop=on'.",
            ),
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
