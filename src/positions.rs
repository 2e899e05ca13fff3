//! Where the sequences of a storage stand, as a relation for statements: those run with the rights of the storage's owner, who need
//! not have a right to this extension's functions.

use crate::sequence;
use crate::settings;
use crate::spi::{Rows, Session, View, argument};
use crate::spool::{Column, Store};
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Datum, Oid};

const COLUMNS: [Column; 2] = [(c"sequence", pg_sys::OIDOID), (c"next", pg_sys::INT8OID)];

/// Reads the next value of each sequence that the caller may read, and shows them as `awa_ingest_positions` until the session closes.
pub fn show(session: &Session, storage: &Storage) {
    let mut positions = Store::new(c"awa_ingest_positions", &COLUMNS, settings::segment_memory());
    let read = |rows: &Rows| {
        for sequence in rows.map(|row| rows.get::<i64>(row, 0).unwrap_or_default()) {
            let sequence = Oid::from(sequence as u32);
            positions.put([Some(Datum::from(sequence)), sequence::readable_position(sequence).into_datum()]);
        }
    };
    session.query(Statement::StorageSequences, &Target::none(), &[argument(storage.schema_oid)], View::Latest, read);
    positions.show(session);
}
