//! The one error type of the extension: what was wrong, with which job, under which SQLSTATE, and what to do about it.

mod advice;
mod damage;
mod fault;
mod place;

pub use advice::TABLE_OPTIONS;
pub use damage::{Damage, Sequence};
pub use fault::Fault;
pub(crate) use fault::excerpt;
pub use place::Place;

use crate::csv::CsvFault;
use crate::jsonb::Corrupt;
use std::fmt::{self, Display, Formatter};

/// Result of anything that can fail for the user.
pub type Result<T> = std::result::Result<T, Error>;

/// Name of the unique index that awa's clients look for when a key is taken.
pub const UNIQUE_CONSTRAINT: &str = "idx_awa_jobs_unique";

/// The function of awa that clients of every language enqueue by.
const COMPAT: &str = "awa.insert_job_compat";

const CORRUPT: &str = "jsonb value does not follow PostgreSQL's format";

/// Everything the extension reports to its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// One job of the request is wrong.
    Job {
        /// Its place in the request, from 1.
        ordinal: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// An error with its place in the CSV; [`Error::at`] makes it.
    At {
        /// Where.
        place: Place,
        /// What.
        error: Box<Error>,
    },
    /// The header line of CSV is malformed.
    CsvHeader {
        /// The field in it, from 1.
        field: usize,
        /// What is wrong with it.
        fault: CsvFault,
    },
    /// A key is claimed already, by a stored job or by an earlier one in the request.
    UniqueConflict {
        /// Place of the refused job in the request.
        ordinal: u64,
        /// The key in hex.
        key: String,
        /// The job that holds the key, where it is known.
        holder: Option<i64>,
        /// That job's place, if it is in the same request.
        twin: Option<i64>,
    },
    /// The request is no JSON array.
    NotAnArray,
    /// `on_conflict` is neither `error` nor `skip`.
    OnConflict(String),
    /// The arrays of `enqueue_columns` do not fit together: name, its length, length of the request.
    ArrayLength(&'static str, usize, usize),
    /// An array of `enqueue_columns` has more than one dimension.
    ArrayDimensions(&'static str),
    /// The awa schema has a shape that this version does not know.
    UnknownStorage(String),
    /// A function for databases with awa was called in one without.
    NoAwa,
    /// The jobs are awa's, and so is removing them.
    AwasJobs,
    /// `awa.insert_job_compat` is not the function that can be replaced: what is different.
    UnknownFunction(String),
    /// The caller must own `awa.insert_job_compat`: its owner.
    NotOwner(String),
    /// The function is replaced, and there is no original to go back to.
    NothingSaved,
    /// Awa has a shape that the function in its place does not know.
    Misfit(String),
    /// States are no eight bits: how many.
    BitLength(usize),
    /// `awa.jobs` has other columns: which.
    UnknownRow(String),
    /// The session's last jobs went into the embedded storage, and are asked for as rows of `awa.jobs`.
    NotInAwa,
    /// Dropping the extension would take `awa.insert_job_compat` away from awa's clients.
    StillAttached,
    /// A lane was asked for while the canonical engine is active.
    NoLanes,
    /// While jobs streamed in, another storage became the active one.
    StorageChanged,
    /// Before the commit another storage is the active one than that which the transaction enqueued into.
    StorageLeft,
    /// Since the transaction enqueued, the ring has turned to where its jobs are: slot and generation of these, and the ring's generation.
    RingTurned {
        /// The slot.
        slot: i32,
        /// The generation that the jobs were written under.
        generation: i64,
        /// The generation that the ring is at.
        now: i64,
    },
    /// A foreign table was read, or its rows changed: its name.
    WriteOnlyTable(String),
    /// A column of a foreign table has a name that no job has.
    UnknownColumn(String),
    /// A column of a foreign table has a type that its jobs cannot be read from: column, and the types it may have.
    ColumnType(String, &'static str),
    /// A generated column of a foreign table that has no value when its row is written.
    VirtualColumn(String),
    /// An option that foreign tables do not have.
    UnknownOption(String),
    /// An option of a foreign table has a bad value.
    Option(&'static str, Fault),
    /// What became of the last call's jobs was too much to remember.
    OutcomeForgotten,
    /// A lane's bookkeeping is damaged: lane, and what is wrong.
    DamagedLane(String, String),
    /// A trigger enqueues into the lane that the session is making, so that it would be made without end: lane.
    LaneInTheMaking(String),
    /// A sequence hands out again what was handed out.
    Damaged(Damage),
    /// A lane in use has lost a sequence, and a new one would begin too low: lane, and `enqueue` or `claim`.
    LostSequence(String, &'static str),
    /// A lane's sequence for which there is no safe repair: its name, and what is wrong.
    BeyondRepair(String, String),
    /// Repairing a lane's sequence takes more rights than the caller has: its name.
    NotOwnerOfSequence(String),
    /// Unique keys can be neither taken nor seen to be taken.
    ClaimsHidden,
    /// A trigger or rule left out rows: of which table, and how many.
    RowsLeftOut(String, u64),
    /// The parts of a storage do not belong together: which belongs to whom.
    MixedOwners(String),
    /// There is no such maintenance task.
    UnknownTask(String),
    /// A task that must see what others commit meanwhile was asked for in a transaction that does not: its name.
    KeptSnapshot(&'static str),
    /// A table that maintenance does not analyze: its name.
    NotMaintained(String),
    /// The session's user may not have tables analyzed.
    MayNotMaintain,
    /// A worker was asked for on a standby.
    Standby,
    /// The server has no process left for a worker.
    NoWorkerSlot,
    /// No worker serves this database: why, and what to do.
    NotServed(&'static str, &'static str),
    /// An argument of an administrative function is out of range.
    InvalidArgument(String),
    /// The argument `columns` of `awa.enqueue_csv` names a column that no job has.
    UnknownCsvColumn(String),
    /// An argument whose type the call decides has one that it cannot be read from: argument, and the types it may have.
    ArgumentType(&'static str, &'static str),
    /// A request is larger than a `jsonb` can be: what the server said.
    RequestTooLarge(String),
    /// Text is not UTF-8, which the database's encoding promises.
    Encoding,
    /// Dropping the extension would drop jobs that nobody has worked.
    UndeliveredJobs,
    /// The `jsonb` bytes do not follow PostgreSQL's format.
    CorruptJsonb,
}

impl Error {
    /// This error with its place in the CSV.
    pub fn at(self, place: Place) -> Self {
        Self::At { place, error: Box::new(self) }
    }

    /// The five characters of the SQLSTATE.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Job { fault, .. } => fault.sqlstate(),
            Self::At { error, .. } => error.sqlstate(),
            Self::CsvHeader { fault, .. } => fault.sqlstate(),
            Self::UniqueConflict { .. } => "23505",
            Self::NotAnArray | Self::OnConflict(_) | Self::InvalidArgument(_) => "22023",
            Self::ArrayLength(..) | Self::ArrayDimensions(_) => "22023",
            Self::UnknownStorage(_) | Self::DamagedLane(..) | Self::LaneInTheMaking(_) => "55000",
            Self::ClaimsHidden | Self::RowsLeftOut(..) | Self::MixedOwners(_) => "55000",
            Self::LostSequence(..) | Self::BeyondRepair(..) | Self::Damaged(_) => "55000",
            Self::NoLanes
            | Self::NoAwa
            | Self::AwasJobs
            | Self::UnknownFunction(_)
            | Self::NothingSaved
            | Self::UnknownRow(_)
            | Self::NotInAwa => "55000",
            Self::NotOwner(_) | Self::NotOwnerOfSequence(_) | Self::MayNotMaintain => "42501",
            Self::UnknownTask(_) | Self::NotMaintained(_) | Self::UnknownCsvColumn(_) => "22023",
            Self::KeptSnapshot(_) => "0A000",
            Self::Standby => "25006",
            Self::NoWorkerSlot => "53400",
            Self::NotServed(..) => "55000",
            Self::BitLength(_) => "22026",
            Self::Misfit(_) => "55000",
            Self::WriteOnlyTable(_) | Self::VirtualColumn(_) => "0A000",
            Self::StorageChanged | Self::StorageLeft | Self::RingTurned { .. } => "40001",
            Self::UnknownColumn(_) => "42703",
            Self::ColumnType(..) | Self::ArgumentType(..) => "42804",
            Self::RequestTooLarge(_) => "54000",
            Self::UnknownOption(_) => "HV00D",
            Self::Option(_, fault) => fault.sqlstate(),
            Self::OutcomeForgotten => "54000",
            Self::Encoding => "22021",
            Self::UndeliveredJobs | Self::StillAttached => "2BP01",
            Self::CorruptJsonb => "XX001",
        }
    }

    /// The job that it is about, by its place in the request, if it is about one.
    pub fn ordinal(&self) -> Option<u64> {
        match self {
            Self::Job { ordinal, .. } | Self::UniqueConflict { ordinal, .. } => Some(*ordinal),
            _ => None,
        }
    }

    /// The constraint that a client finds in the error, if any.
    pub fn constraint(&self) -> Option<&'static str> {
        match self {
            Self::Job { fault, .. } | Self::Option(_, fault) => fault.constraint(),
            Self::At { error, .. } => error.constraint(),
            Self::UniqueConflict { .. } => Some(UNIQUE_CONSTRAINT),
            _ => None,
        }
    }

    /// The column that a client finds in the error, if any.
    pub fn column(&self) -> Option<&'static str> {
        match self {
            Self::Job { fault, .. } => fault.column(),
            Self::At { place, error } => place.column.or_else(|| error.column()),
            _ => None,
        }
    }

    /// Where in the input it went wrong, if that has lines.
    pub fn context(&self) -> Option<String> {
        match self {
            Self::At { place, .. } => Some(place.to_string()),
            _ => None,
        }
    }

    /// More about the cause.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::UniqueConflict { key, holder, twin, .. } => Some(match (twin, holder) {
                (Some(twin), _) => format!("Key (unique_key)=(\\x{key}) is that of job {twin} of the same request, too."),
                (None, Some(id)) => format!("Key (unique_key)=(\\x{key}) is held by the job with id {id}."),
                (None, None) => format!("Key (unique_key)=(\\x{key}) is claimed already."),
            }),
            Self::Job { fault: Fault::Timestamp(_, reason), .. } => Some(reason.clone()),
            Self::MixedOwners(what) => Some(what.clone()),
            Self::Damaged(damage) => damage.detail(),
            Self::At { error, .. } => error.detail(),
            Self::RingTurned { slot, generation, now } => Some(format!(
                "Its jobs are of generation {generation} in slot {slot}; the ring is at generation {now}, and a prune of the slot would take them."
            )),
            _ => None,
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job { ordinal, fault } => write!(f, "job {ordinal}: {fault}"),
            Self::At { error, .. } => error.fmt(f),
            Self::CsvHeader { field, fault } => write!(f, "field {field} of the header: {fault}"),
            Self::UniqueConflict { ordinal, .. } => {
                write!(f, "job {ordinal}: duplicate key value violates unique constraint \"{UNIQUE_CONSTRAINT}\"")
            }
            Self::NotAnArray => f.write_str("jobs must be a JSON array"),
            Self::OnConflict(value) => write!(f, "unknown on_conflict \"{value}\""),
            Self::ArrayLength(name, have, want) => {
                write!(f, "array \"{name}\" has {have} elements where the request has {want} jobs")
            }
            Self::ArrayDimensions(name) => write!(f, "array \"{name}\" has more than one dimension"),
            Self::UnknownStorage(what) | Self::Misfit(what) => {
                write!(f, "the queue storage has a shape that awa_ingest does not know: {what}")
            }
            Self::StorageChanged => f.write_str("another queue storage became active while jobs streamed in"),
            Self::StorageLeft => f.write_str("another queue storage became active before the transaction that enqueued committed"),
            Self::RingTurned { .. } => {
                f.write_str("the ring of the queue storage made a whole turn since the transaction enqueued")
            }
            Self::WriteOnlyTable(name) => write!(f, "foreign table \"{name}\" is write-only: it takes INSERT and COPY FROM"),
            Self::UnknownColumn(name) => write!(f, "jobs have no column \"{name}\""),
            Self::ColumnType(name, types) => write!(f, "column \"{name}\" must be of type {types}"),
            Self::UnknownCsvColumn(name) => write!(f, "columns has an unknown column \"{}\"", excerpt(name)),
            Self::ArgumentType(name, types) => write!(f, "argument \"{name}\" must be of type {types}"),
            Self::RequestTooLarge(what) => f.write_str(what),
            Self::VirtualColumn(name) => write!(f, "column \"{name}\" is generated when it is read, and jobs are only written"),
            Self::UnknownOption(name) => write!(f, "unknown option \"{name}\""),
            Self::Option(name, fault) => write!(f, "option \"{name}\": {fault}"),
            Self::OutcomeForgotten => f.write_str("the ids of the last COPY or INSERT are too scattered to be remembered"),
            Self::NoLanes => f.write_str("awa's canonical engine is active, and has no lanes"),
            Self::AwasJobs => f.write_str("jobs of this database are in awa's storage, and discard is for the extension's own"),
            Self::NoAwa => f.write_str("awa is not installed in this database"),
            Self::UnknownFunction(what) => write!(f, "{COMPAT} is not the function that awa_ingest knows: {what}"),
            Self::NotOwner(owner) => write!(f, "must be owner of function {COMPAT}, who is \"{owner}\""),
            Self::NothingSaved => write!(f, "the original of {COMPAT} was not saved"),
            Self::BitLength(length) => write!(f, "unique_states must have 8 bits, and has {length}"),
            Self::UnknownRow(what) => write!(f, "the row type awa.jobs is not the one that awa_ingest knows: {what}"),
            Self::NotInAwa => {
                f.write_str("the last COPY or INSERT went into the embedded storage, whose jobs awa.jobs does not show")
            }
            Self::StillAttached => write!(f, "cannot drop extension awa_ingest: it stands in for {COMPAT}"),
            Self::Damaged(damage) => damage.fmt(f),
            Self::DamagedLane(lane, what) => write!(f, "lane {lane} is damaged: {what}"),
            Self::LaneInTheMaking(lane) => write!(f, "a trigger enqueues into lane {lane} while it is being made"),
            Self::LostSequence(lane, side) => damage::lost(f, lane, side),
            Self::NotOwnerOfSequence(name) => write!(f, "must be owner of sequence {name}"),
            Self::BeyondRepair(name, what) => write!(f, "sequence \"{name}\" has no safe repair: {what}"),
            Self::ClaimsHidden => f.write_str("unique keys can be neither claimed nor seen to be claimed"),
            Self::RowsLeftOut(table, count) => write!(f, "{count} rows were left out of table {table}"),
            Self::MixedOwners(_) => {
                f.write_str("the schemas, plain tables and functions that a storage consists of must be there, and have one owner")
            }
            Self::UnknownTask(name) => write!(f, "unknown maintenance task \"{name}\""),
            Self::KeptSnapshot(task) => write!(f, "{task} needs a transaction that sees what others commit meanwhile"),
            Self::NotMaintained(name) => write!(f, "table \"{name}\" is not one that maintenance analyzes"),
            Self::MayNotMaintain => {
                f.write_str("permission denied: analyzing needs INSERT, UPDATE and DELETE on the storage's head tables")
            }
            Self::Standby => f.write_str("workers do nothing on a standby"),
            Self::NoWorkerSlot => f.write_str("the server has no free slot for a background worker"),
            Self::NotServed(why, _) => write!(f, "no worker can be kept in this database: {why}"),
            Self::InvalidArgument(what) => f.write_str(what),
            Self::Encoding => f.write_str("text is not valid UTF-8"),
            Self::UndeliveredJobs => f.write_str("cannot drop extension awa_ingest: its embedded storage has undelivered jobs"),
            Self::CorruptJsonb => f.write_str(CORRUPT),
        }
    }
}

impl std::error::Error for Error {}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        match corrupt {
            Corrupt::Format => Self::CorruptJsonb,
            Corrupt::Text => Self::Encoding,
        }
    }
}
