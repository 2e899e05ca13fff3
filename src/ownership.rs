//! Whose the parts of a storage are: found by name in the system catalogs, locked by oid, and looked up by name once more.
//!
//! A table, a function or a schema is its owner's code. Nothing here runs any of it.
#![allow(unsafe_code)]

use crate::spi::{self, Rows, Session, View, argument, renew_catalogs};
use crate::statements::{Statement, Target};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum, LOCKMODE, Oid};
use std::ffi::{CStr, CString};

/// A part of a storage, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'p> {
    /// A schema.
    Schema(&'p str),
    /// A plain or partitioned table of a schema, and the tables that are part of it.
    Table(&'p str, &'p str),
    /// The same of a table that will be written to: its triggers are looked at, too, and nobody can add one.
    Written(&'p str, &'p str),
    /// A function of a schema with exactly these argument types.
    Function(&'p str, &'p str, &'p [Oid]),
}

/// A part as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    /// The catalog that it is in.
    class: Oid,
    oid: Oid,
    owner: Oid,
    /// What an error calls it.
    name: String,
    /// Whether it is a child of a table. Children are not locked: only their owner and that of the table can
    /// change what they are.
    is_child: bool,
    is_written: bool,
}

/// Often enough for a few migrations in a row.
const TRIES: usize = 10;

const LOCK: LOCKMODE = pg_sys::AccessShareLock as LOCKMODE;

/// What every writer takes. CREATE TRIGGER waits for it.
const WRITER: LOCKMODE = pg_sys::RowExclusiveLock as LOCKMODE;

/// The one owner of all parts. Until the transaction ends nobody can drop, rename or give away a table or function among them, nor
/// drop a schema, so that the names lead to what was looked at. Renaming a schema or giving it away takes no lock: that owner and
/// superusers can.
///
/// Raises 55000 where owners differ or a part is missing. Waits for a transaction that has one of them locked.
pub fn settle(parts: &[Part<'_>]) -> Result<Oid> {
    renew_catalogs();
    let mut found = find(parts)?;
    for _ in 0..TRIES {
        // Before anything is locked: nobody waits for what belongs to others.
        let owner = one_owner(&found)?;
        found.iter().filter(|part| !part.is_child).for_each(lock);
        renew_catalogs();
        let now = find(parts)?;
        if now == found {
            check_triggers(&found, owner)?;
            return Ok(owner);
        }
        found = now;
    }
    Err(Error::MixedOwners("Tables of the storage are being replaced.".into()))
}

/// A trigger runs with the rights of who writes, and the right to make one can be granted.
fn check_triggers(found: &[Found], owner: Oid) -> Result<()> {
    let written: Vec<Oid> = found.iter().filter(|part| part.is_written).map(|part| part.oid).collect();
    if written.is_empty() {
        return Ok(());
    }
    let arguments = [argument(written), argument(owner)];
    let ask = |session: &Session| session.query(Statement::ForeignTrigger, &Target::none(), &arguments, View::Latest, Rows::first);
    spi::connect(ask).map_or(Ok(()), |what| Err(Error::MixedOwners(what)))
}

/// The one owner of all parts at this moment.
pub fn look(parts: &[Part<'_>]) -> Result<Oid> {
    renew_catalogs();
    one_owner(&find(parts)?)
}

/// Refuses a relation that is not the role's (55000).
pub fn check(relation: Oid, owner: Oid) -> Result<()> {
    match Table::of(relation) {
        Some(table) if table.owner != owner => Err(Error::MixedOwners(format!(
            "{} belongs to role \"{}\", and the storage to role \"{}\".",
            table.name,
            role_name(table.owner),
            role_name(owner)
        ))),
        _ => Ok(()),
    }
}

fn one_owner(found: &[Found]) -> Result<Oid> {
    let first = found.first().ok_or_else(|| Error::MixedOwners("There is nothing to own.".into()))?;
    match found.iter().find(|part| part.owner != first.owner) {
        None => Ok(first.owner),
        Some(other) => Err(Error::MixedOwners(format!(
            "{} belongs to role \"{}\", and {} to role \"{}\".",
            first.name,
            role_name(first.owner),
            other.name,
            role_name(other.owner)
        ))),
    }
}

fn find(parts: &[Part<'_>]) -> Result<Vec<Found>> {
    let mut found = Vec::with_capacity(parts.len());
    for part in parts {
        match *part {
            Part::Schema(name) => found.push(schema(name)?),
            Part::Table(schema, name) => find_table(schema, name, false, &mut found)?,
            Part::Written(schema, name) => find_table(schema, name, true, &mut found)?,
            Part::Function(schema, name, arguments) => found.push(function(schema, name, arguments)?),
        }
    }
    Ok(found)
}

fn missing(name: &str) -> Error {
    Error::MixedOwners(format!("{name} does not exist."))
}

fn schema(name: &str) -> Result<Found> {
    let label = format!("Schema {name}");
    let oid = namespace(name).ok_or_else(|| missing(&label))?;
    let owner = read(pg_sys::SysCacheIdentifier::NAMESPACEOID, oid, |row: &pg_sys::FormData_pg_namespace| row.nspowner);
    Ok(Found {
        class: pg_sys::NamespaceRelationId,
        oid,
        owner: owner.ok_or_else(|| missing(&label))?,
        name: label,
        is_child: false,
        is_written: false,
    })
}

fn find_table(schema: &str, name: &str, is_written: bool, found: &mut Vec<Found>) -> Result<()> {
    let label = format!("Table {schema}.{name}");
    let oid = namespace(schema).and_then(|schema| relation(schema, name)).ok_or_else(|| missing(&label))?;
    let table = Table::of(oid).ok_or_else(|| missing(&label))?;
    if !table.is_plain {
        return Err(Error::MixedOwners(format!("{label} is no plain table without rules.")));
    }
    found.push(Found { class: pg_sys::RelationRelationId, oid, owner: table.owner, name: label, is_child: false, is_written });
    for child in children(oid) {
        // One that is gone by now is no child any more.
        let Some(table) = Table::of(child) else { continue };
        let label = format!("Table {}, a part of {schema}.{name},", table.name);
        found.push(Found {
            class: pg_sys::RelationRelationId,
            oid: child,
            owner: table.owner,
            name: label,
            is_child: true,
            is_written,
        });
    }
    Ok(())
}

fn function(schema: &str, name: &str, arguments: &[Oid]) -> Result<Found> {
    let label = format!("Function {schema}.{name}");
    let missing = || missing(&label);
    let namespace = namespace(schema).ok_or_else(missing)?;
    let c_name = c_string(name)?;
    // SAFETY: the keys are a C string, a vector of types and an oid, as the cache wants them; the entry is read before it is released.
    let found = unsafe {
        let types = pg_sys::buildoidvector(arguments.as_ptr(), arguments.len() as i32);
        let keys = [Datum::from(c_name.as_ptr()), Datum::from(types), Datum::from(namespace)];
        let tuple = pg_sys::SearchSysCache3(pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32, keys[0], keys[1], keys[2]);
        (!tuple.is_null()).then(|| {
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
            let found = (row.oid, row.proowner);
            pg_sys::ReleaseSysCache(tuple);
            found
        })
    };
    let (oid, owner) = found.ok_or_else(missing)?;
    Ok(Found { class: pg_sys::ProcedureRelationId, oid, owner, name: label, is_child: false, is_written: false })
}

struct Table {
    owner: Oid,
    name: String,
    /// A plain or partitioned table, which runs no code of a rule.
    is_plain: bool,
}

impl Table {
    fn of(oid: Oid) -> Option<Self> {
        read(pg_sys::SysCacheIdentifier::RELOID, oid, |row: &pg_sys::FormData_pg_class| {
            let kinds = [pg_sys::RELKIND_RELATION, pg_sys::RELKIND_PARTITIONED_TABLE];
            // SAFETY: a name ends with a NUL.
            let name = unsafe { CStr::from_ptr(row.relname.data.as_ptr()) }.to_string_lossy().into_owned();
            Self { owner: row.relowner, name, is_plain: kinds.contains(&(row.relkind as u8)) && !row.relhasrules }
        })
    }
}

/// Partitions and tables that inherit, at any depth.
fn children(table: Oid) -> Vec<Oid> {
    // SAFETY: any oid may be asked for, and without locks; the list is of oids, the table itself first.
    unsafe {
        let list = pg_sys::find_all_inheritors(table, pg_sys::NoLock as LOCKMODE, std::ptr::null_mut());
        let count = if list.is_null() { 0 } else { (*list).length as usize };
        let oids = (0..count).map(|place| (*(*list).elements.add(place)).oid_value).filter(|oid| *oid != table).collect();
        pg_sys::list_free(list);
        oids
    }
}

fn lock(part: &Found) {
    // SAFETY: the lock manager takes any oid; the locks go with the transaction.
    unsafe {
        match part.class {
            pg_sys::RelationRelationId if part.is_written => pg_sys::LockRelationOid(part.oid, WRITER),
            pg_sys::RelationRelationId => pg_sys::LockRelationOid(part.oid, LOCK),
            class => pg_sys::LockDatabaseObject(class, part.oid, 0, LOCK),
        }
    }
}

/// What `take` makes of a catalog's row.
fn read<Row, T>(cache: pg_sys::SysCacheIdentifier::Type, oid: Oid, take: impl FnOnce(&Row) -> T) -> Option<T> {
    // SAFETY: the cache is one by oid, and its rows begin with the struct; the entry is read before it is released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache as i32, Datum::from(oid));
        (!tuple.is_null()).then(|| {
            let taken = take(&*pg_sys::GETSTRUCT(tuple).cast::<Row>());
            pg_sys::ReleaseSysCache(tuple);
            taken
        })
    }
}

fn namespace(name: &str) -> Option<Oid> {
    let name = c_string(name).ok()?;
    // SAFETY: a C string that outlives the call.
    valid(unsafe { pg_sys::get_namespace_oid(name.as_ptr(), true) })
}

fn relation(schema: Oid, name: &str) -> Option<Oid> {
    let name = c_string(name).ok()?;
    // SAFETY: a C string that outlives the call.
    valid(unsafe { pg_sys::get_relname_relid(name.as_ptr(), schema) })
}

fn role_name(role: Oid) -> String {
    // SAFETY: any oid may be asked for; the name is a C string.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() { role.to_u32().to_string() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    }
}

fn valid(oid: Oid) -> Option<Oid> {
    (oid != Oid::INVALID).then_some(oid)
}

fn c_string(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| missing(name))
}
