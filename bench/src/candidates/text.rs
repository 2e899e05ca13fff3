//! A parameter in the text format, as drivers that bind strings send it.

use std::error::Error;

use bytes::{Bytes, BytesMut};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// JSON or CSV that is bound as it stands.
#[derive(Debug)]
pub struct Text(pub Bytes);

impl ToSql for Text {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::TEXT | Type::JSONB)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}
