//! Which storage takes the jobs: looked up on every call, so that migrating, rolling back, restoring or dropping awa's schema is
//! followed at once. The only thing remembered is that a schema's tables were found to have the known shape, until the server says
//! that one of them changed.
#![allow(unsafe_code)]

use crate::authority;
use crate::server;
use crate::spi::{Rows, Session, View, argument, renew_catalogs};
use crate::statements::{AWAS_POSITION, Statement, Target};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::rc::Rc;

/// The version of awa's schema that this extension knows.
pub const KNOWN_VERSION: i32 = 40;

/// Tables whose change makes the shape worth another look: those in the storage schema by engine, and those in schema awa.
const QUEUE_TABLES: [&CStr; 7] = [
    c"ready_entries",
    c"ready_segments",
    c"deferred_jobs",
    c"queue_lanes",
    c"queue_enqueue_heads",
    c"queue_claim_heads",
    c"queue_ring_state",
];
const CANONICAL_TABLES: [&CStr; 2] = [c"jobs_hot", c"scheduled_jobs"];
const SHARED_TABLES: [&CStr; 2] = [c"job_unique_claims", c"queue_meta"];

/// What is read before anything else is known. With a type of somebody's own, reading alone would run his code.
const STATE_COLUMNS: [(&str, &CStr, Oid); 8] = [
    ("storage_transition_state", c"singleton", pg_sys::BOOLOID),
    ("storage_transition_state", c"current_engine", pg_sys::TEXTOID),
    ("storage_transition_state", c"prepared_engine", pg_sys::TEXTOID),
    ("storage_transition_state", c"state", pg_sys::TEXTOID),
    ("storage_transition_state", c"details", pg_sys::JSONBOID),
    ("runtime_storage_backends", c"backend", pg_sys::TEXTOID),
    ("runtime_storage_backends", c"schema_name", pg_sys::TEXTOID),
    ("schema_version", c"version", pg_sys::INT4OID),
];

/// Whose storage it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// awa's, worked by awa's workers.
    Attached,
    /// The extension's own.
    Embedded,
}

/// How a storage keeps jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Lanes, ring and segments.
    QueueStorage,
    /// awa's older tables `jobs_hot` and `scheduled_jobs`, with triggers that do the rest.
    Canonical,
}

/// What is asked about awa's version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// It must be the known one.
    Checked,
    /// The same, but for callers who may not read it: awa's own function does not ask for that right.
    IfReadable,
}

/// The storage of one call.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Whose it is.
    pub mode: Mode,
    /// How it keeps jobs.
    pub engine: Engine,
    /// Name of the schema with lanes and jobs.
    pub schema: Rc<str>,
    /// The same schema's oid.
    pub schema_oid: Oid,
    /// The same schema and that of claims and queue settings, for statements.
    pub target: Target,
}

/// What schema awa says about itself.
pub struct AwaEngine {
    /// The active engine.
    pub name: String,
    /// The queue storage schema, where there can be one.
    pub schema: Option<String>,
    /// Version of awa's schema.
    pub version: Option<i32>,
}

impl Storage {
    /// The storage that takes jobs in `view`.
    pub fn resolve(session: &Session, view: View, version: Version) -> Result<Self> {
        // That there is no awa here may be remembered from the beginning of a long transaction or COPY.
        renew_catalogs();
        match Presence::now()? {
            None => Self::embedded(),
            Some(presence) => {
                authority::check_state(presence)?;
                Self::of_awa(session, presence, view, version)
            }
        }
    }

    /// The storage of the awa that was found.
    pub fn of_awa(session: &Session, presence: Presence, view: View, version: Version) -> Result<Self> {
        let engine = AwaEngine::read(session, presence, view, version)?;
        if engine.version != Some(KNOWN_VERSION) {
            let found = engine.version.map_or("none".into(), |version| version.to_string());
            return Err(Error::UnknownStorage(format!("schema version {found}")));
        }
        let (engine, schema): (_, Rc<str>) = match (&*engine.name, engine.schema) {
            ("queue_storage", Some(schema)) if is_awa_name(&schema) => (Engine::QueueStorage, schema.into()),
            ("queue_storage", schema) => return Err(Error::UnknownStorage(format!("schema name {schema:?}"))),
            ("canonical", _) => (Engine::Canonical, "awa".into()),
            (other, _) => return Err(Error::UnknownStorage(format!("engine \"{other}\""))),
        };
        let storage = Self::new(Mode::Attached, engine, schema, "awa")?;
        storage.check_shape(session)?;
        Ok(storage)
    }

    /// Whose storage takes jobs, without a look at its shape.
    pub fn mode_now() -> Mode {
        renew_catalogs();
        if AwaEngine::is_there() { Mode::Attached } else { Mode::Embedded }
    }

    /// Whether both are the same schema.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.mode, self.engine, self.schema_oid) == (other.mode, other.engine, other.schema_oid)
    }

    /// The extension's own.
    pub fn embedded() -> Result<Self> {
        Self::new(Mode::Embedded, Engine::QueueStorage, "awa_ingest".into(), "awa_ingest")
    }

    fn new(mode: Mode, engine: Engine, schema: Rc<str>, shared: &'static str) -> Result<Self> {
        let schema_oid =
            namespace(&schema).ok_or_else(|| Error::UnknownStorage(format!("queue storage schema \"{schema}\" does not exist")))?;
        let target = Target { storage: quote(&schema).into(), shared, slot: None, ring: "", position: AWAS_POSITION };
        Ok(Self { mode, engine, schema, schema_oid, target })
    }

    /// The oid of a relation in the storage schema.
    pub fn relation(&self, name: &str) -> Option<Oid> {
        relation(name, self.schema_oid)
    }

    /// Whether the storage schema has a plain or partitioned table of that name.
    pub fn has_table(&self, name: &str) -> bool {
        // SAFETY: any oid may be asked for.
        let kind = |oid| unsafe { pg_sys::get_rel_relkind(oid) } as u8;
        self.relation(name).is_some_and(|oid| [pg_sys::RELKIND_RELATION, pg_sys::RELKIND_PARTITIONED_TABLE].contains(&kind(oid)))
    }

    /// The sequence that job ids come from.
    pub fn ids(&self) -> Result<Oid> {
        let name = match self.engine {
            Engine::QueueStorage => "job_id_seq",
            Engine::Canonical => "jobs_id_seq",
        };
        self.relation(name).ok_or_else(|| Error::UnknownStorage(format!("sequence {name} is missing")))
    }

    fn check_shape(&self, session: &Session) -> Result<()> {
        let tables = self.tables();
        if VERIFIED.with_borrow(|verified| verified.contains(&tables)) {
            return Ok(());
        }
        let arguments = [argument(&*self.schema), argument(self.engine == Engine::QueueStorage)];
        match session.query(Statement::Shape, &self.target, &arguments, View::Latest, Rows::first) {
            Some(difference) => Err(Error::UnknownStorage(difference)),
            None => {
                VERIFIED.with_borrow_mut(|verified| verified.push(tables));
                Ok(())
            }
        }
    }

    /// Oids of the tables whose shape matters; an invalid one stands for a table that is missing.
    fn tables(&self) -> Vec<Oid> {
        let awa = namespace("awa").unwrap_or(Oid::INVALID);
        let tables: &[&CStr] = match self.engine {
            Engine::QueueStorage => &QUEUE_TABLES,
            Engine::Canonical => &CANONICAL_TABLES,
        };
        let storage = tables.iter().map(|name| (*name, self.schema_oid));
        storage.chain(SHARED_TABLES.map(|name| (name, awa))).map(|(name, schema)| relation_c(name, schema)).collect()
    }
}

impl AwaEngine {
    /// Whether awa is installed, in whatever state.
    pub fn is_there() -> bool {
        awa_schema().is_some()
    }

    /// Asks schema awa, if awa is installed there.
    pub fn look_up(session: &Session, view: View, version: Version) -> Result<Option<Self>> {
        renew_catalogs();
        let Some(presence) = Presence::now()? else { return Ok(None) };
        authority::check_state(presence)?;
        Self::read(session, presence, view, version).map(Some)
    }

    /// Asks the awa that was found.
    pub fn read(session: &Session, presence: Presence, view: View, version: Version) -> Result<Self> {
        // An awa too old to have queue storage is told from its version alone, and never the known one.
        let has_queue_storage = presence.has_queue_storage;
        let reads_version = version == Version::Checked || may_read("schema_version", presence.schema);
        let statement = match has_queue_storage {
            true if reads_version => Statement::Engine,
            true => Statement::EngineAlone,
            false => Statement::Version,
        };
        let version = |rows: &Rows| if reads_version || !has_queue_storage { rows.get(0, 2) } else { Some(KNOWN_VERSION) };
        let engine = |rows: &Rows| {
            let hidden = rows.get(0, 3) == Some(true);
            rows.first().filter(|_| !hidden).map(|name| Self { name, schema: rows.get(0, 1), version: version(rows) })
        };
        let engine = session.query(statement, &Target::none(), &[], view, engine);
        match engine {
            None => Err(Error::UnknownStorage("row security hides the row of storage_transition_state".into())),
            Some(engine) if !has_queue_storage && engine.version == Some(KNOWN_VERSION) => {
                Err(Error::UnknownStorage("there is no table runtime_storage_backends".into()))
            }
            Some(engine) => Ok(engine),
        }
    }
}

/// The awa that the catalogs show: what there is of it is decided once, and only that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Presence {
    schema: Oid,
    /// Whether there is the table that says which schema is the storage.
    pub has_queue_storage: bool,
}

impl Presence {
    /// The awa that is there, if its tables can be read without a risk.
    pub fn now() -> Result<Option<Self>> {
        let Some(schema) = awa_schema() else { return Ok(None) };
        if let Some(table) = ["storage_transition_state", "schema_version"].iter().find(|table| !is_table(table, schema)) {
            return Err(Error::UnknownStorage(format!("there is no table {table}")));
        }
        if let Some((table, column, _)) = STATE_COLUMNS.iter().find(|column| !has_column(column, schema)) {
            let column = column.to_string_lossy();
            return Err(Error::UnknownStorage(format!("table {table} has no column {column} of the known type")));
        }
        Ok(Some(Self { schema, has_queue_storage: is_table("runtime_storage_backends", schema) }))
    }
}

thread_local! {
    /// Tables of storages whose shape is known to be right, as [`Storage::tables`] gives them.
    static VERIFIED: RefCell<Vec<Vec<Oid>>> = const { RefCell::new(Vec::new()) };
}

/// Has the server tell when a table changes.
pub fn watch_catalog() {
    // SAFETY: the callback has the wanted signature, raises nothing, and stays loaded as long as the process.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(forget_shape), Datum::from(0)) }
}

/// An invalid oid means that any table may have changed.
#[pg_guard]
unsafe extern "C-unwind" fn forget_shape(_argument: Datum, relation: Oid) {
    VERIFIED.with_borrow_mut(|verified| verified.retain(|tables| relation != Oid::INVALID && !tables.contains(&relation)));
}

/// Schema awa, if awa is installed there.
fn awa_schema() -> Option<Oid> {
    namespace("awa").filter(|awa| relation("storage_transition_state", *awa).is_some())
}

/// The oid of a table of schema awa.
pub fn awa_table(name: &str) -> Option<Oid> {
    relation(name, namespace("awa")?)
}

/// The oid of a schema.
pub fn namespace(name: &str) -> Option<Oid> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string that outlives the call.
    valid(unsafe { pg_sys::get_namespace_oid(name.as_ptr(), true) })
}

/// The oid of a relation in a schema.
pub fn relation(name: &str, schema: Oid) -> Option<Oid> {
    let name = CString::new(name).ok()?;
    valid(relation_c(&name, schema))
}

fn relation_c(name: &CStr, schema: Oid) -> Oid {
    // SAFETY: a C string that outlives the call.
    unsafe { pg_sys::get_relname_relid(name.as_ptr(), schema) }
}

/// Whether a table has the column, if the table is there.
fn has_column((table, column, kind): &(&str, &CStr, Oid), schema: Oid) -> bool {
    // SAFETY: any oid may be asked for, and the name is a C string.
    relation(table, schema).is_none_or(|table| unsafe {
        let number = pg_sys::get_attnum(table, column.as_ptr());
        number > 0 && pg_sys::get_atttype(table, number) == *kind
    })
}

fn is_table(name: &str, schema: Oid) -> bool {
    // SAFETY: any oid may be asked for.
    relation(name, schema).is_some_and(|oid| unsafe { pg_sys::get_rel_relkind(oid) } as u8 == pg_sys::RELKIND_RELATION)
}

fn may_read(table: &str, schema: Oid) -> bool {
    relation(table, schema).is_some_and(server::may_select)
}

/// What awa's installer takes as the name of a storage schema.
fn is_awa_name(schema: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    schema.bytes().next().is_some_and(letter) && schema.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

fn valid(oid: Oid) -> Option<Oid> {
    (oid != Oid::INVALID).then_some(oid)
}

/// An identifier, quoted where SQL needs it. Locks are named by it, so it is asked for where SPI is connected: quote_all_identifiers
/// is off there.
pub fn quote(name: &str) -> String {
    // SAFETY: a variable of the process.
    debug_assert!(unsafe { !pg_sys::quote_all_identifiers });
    pgrx::spi::quote_identifier(name)
}
