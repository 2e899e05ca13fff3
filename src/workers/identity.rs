//! The extension as a worker finds it.

use super::process;
use crate::spi::{self, Rows, View};
use crate::statements::{Statement, Target};
use pgrx::pg_sys::Oid;

/// What must stay as it is while a worker works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    owner: i64,
    version: String,
    is_superuser: bool,
}

impl Identity {
    /// The extension of this database, if it has it. In a transaction.
    pub fn look_up() -> Option<Self> {
        let read = |rows: &Rows| Some(Self { owner: rows.get(0, 0)?, version: rows.get(0, 1)?, is_superuser: rows.get(0, 2)? });
        spi::connect(|session| session.query(Statement::ExtensionIdentity, &Target::none(), &[], View::Latest, read))
    }

    /// Whether the extension's owner is a superuser, as he was when he created it.
    pub fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    /// Goes on as the extension's owner.
    pub fn assume(&self) {
        process::become_role(Oid::from(self.owner as u32), self.is_superuser);
    }
}
