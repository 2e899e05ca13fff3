//! `awa_ingest.attach()` and `detach()`: this extension's function in the place of awa's `insert_job_compat`, and back.

use crate::authority;
use crate::entry::Call;
use crate::lanes;
use crate::spi::{self, Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{AwaEngine, KNOWN_VERSION};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::Datum;

const REPLACE: &str = include_str!("../sql/attach/replace.sql");
const CREATE: &str = include_str!("../sql/attach/create.sql");
const DROP: &str = include_str!("../sql/attach/drop.sql");

const NAME: &str = "awa.insert_job_compat";

/// What awa's migrations lock: none runs beside this.
const MIGRATIONS: i64 = 0x4157_415f_4d49_4752;

/// `awa.insert_job_compat` as it stands.
pub struct Function {
    /// Its owner.
    pub owner: String,
    /// Whether the caller is one.
    pub is_callers: bool,
    /// What it is.
    pub body: Body,
    /// What is different from the function, or the row type, that this extension knows.
    pub difference: Option<String>,
    definition: String,
    name: String,
}

/// What a function runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// This extension's code.
    Ours,
    /// That of awa 0.6.9.
    Awas,
    /// Anything else.
    Other,
}

impl Function {
    /// Looks it up, in a database with awa.
    pub fn look_up(session: &Session) -> Option<Self> {
        session.query(Statement::CompatFunction, &Target::none(), &[], View::Latest, |rows| {
            Some(Self {
                owner: rows.get(0, 0)?,
                is_callers: rows.get(0, 1)?,
                body: match rows.get::<String>(0, 2)?.as_str() {
                    "ours" => Body::Ours,
                    "awas" => Body::Awas,
                    _ => Body::Other,
                },
                difference: rows.get(0, 3),
                definition: rows.get(0, 4)?,
                name: rows.get(0, 5)?,
            })
        })
    }

    fn check_owner(&self) -> Result<()> {
        if self.is_callers { Ok(()) } else { Err(Error::NotOwner(self.owner.clone())) }
    }
}

/// The definition that was saved when the function was replaced. Read as the extension's owner, whose table it is.
pub fn original(session: &Session) -> Result<Option<String>> {
    check_originals(session)?;
    authority::act_as_extension(session, || session.query(Statement::Original, &Target::none(), &[], View::Latest, Rows::first))
}

/// What is read there is run as the extension's owner: nobody else may own the table.
fn check_originals(session: &Session) -> Result<()> {
    match authority::of_own(&["originals"])? == authority::of_extension(session)? {
        true => Ok(()),
        false => Err(Error::MixedOwners("Table awa_ingest.originals does not belong to the extension's owner.".into())),
    }
}

/// Functions of the extension's schema that [`CREATE`] makes belong to the extension's owner: another role's would be replaced, and
/// stay its own.
fn check_created(session: &Session) -> Result<()> {
    match session.query(Statement::ForeignFunction, &Target::none(), &[], View::Latest, Rows::first::<String>) {
        None => Ok(()),
        Some(function) => Err(Error::MixedOwners(format!("Function {function} does not belong to the extension's owner."))),
    }
}

/// `awa_ingest.attach`: replaces the body of `awa.insert_job_compat`, and creates the functions that return rows of `awa.jobs`. Does nothing
/// new where that is done.
///
/// Raises 55000 without awa, and for an awa or a function that this version does not know; 42501 unless the caller owns the function.
pub fn attach(_call: &Call) -> Result<Option<Datum>> {
    spi::connect(|session| {
        lanes::lock_number(MIGRATIONS);
        let awa = authority::engine(session, View::Latest)?.ok_or(Error::NoAwa)?;
        if awa.version != Some(KNOWN_VERSION) {
            return Err(Error::UnknownFunction(format!("awa's schema has version {}", awa.version.unwrap_or_default())));
        }
        let function = Function::look_up(session).ok_or_else(|| Error::UnknownFunction("it does not exist".into()))?;
        function.check_owner()?;
        match (function.difference, function.body) {
            (Some(difference), _) => return Err(Error::UnknownFunction(difference)),
            (None, Body::Other) => return Err(Error::UnknownFunction("its body is another".into())),
            _ => {}
        }
        // Its owner may not create functions in C, and need not: this one is trusted, and all that it is made of was just looked at.
        check_originals(session)?;
        authority::act_as_extension(session, || {
            if function.body == Body::Awas {
                session.run(Statement::SaveOriginal, &Target::none(), &[argument(function.definition)]);
            }
            session.run_once(REPLACE);
            session.run_once(CREATE);
        })?;
        check_created(session)?;
        Ok(None)
    })
}

/// Where there is no function, its original may still be wanted.
fn check_owner_of_awa(session: &Session) -> Result<()> {
    match session.query(Statement::OwnsAwa, &Target::none(), &[], View::Latest, Rows::first) {
        Some(false) => Err(Error::NotOwner("the owner of schema awa".into())),
        _ => Ok(()),
    }
}

/// `awa_ingest.detach`: gives awa its own function back, and drops what `attach` created. A function that was overwritten since is left as it
/// is. Does nothing where nothing is attached.
///
/// Raises 42501 unless the caller owns the function, and 55000 if its original was not saved.
pub fn detach(_call: &Call) -> Result<Option<Datum>> {
    spi::connect(|session| {
        lanes::lock_number(MIGRATIONS);
        let function = if AwaEngine::is_there() { Function::look_up(session) } else { None };
        let original = original(session)?;
        match &function {
            Some(function) => function.check_owner()?,
            None if original.is_some() => check_owner_of_awa(session)?,
            None => {}
        }
        let ours = function.filter(|function| function.body == Body::Ours);
        if let Some(renamed) = ours.as_ref().filter(|function| function.name != NAME) {
            return Err(Error::UnknownFunction(format!("it is named {}", renamed.name)));
        }
        let replaced = ours.is_some();
        if replaced && original.is_none() {
            return Err(Error::NothingSaved);
        }
        authority::act_as_extension(session, || {
            if let Some(original) = original.filter(|_| replaced) {
                session.run_once(&original);
            }
            session.run_once(DROP);
            session.run(Statement::ForgetOriginal, &Target::none(), &[]);
        })?;
        Ok(None)
    })
}
