//! tokio-postgres, with feature `with-serde_json-1`.
use serde_json::json;
use std::{env, error::Error, pin::pin};
use tokio_postgres::{NoTls, binary_copy::BinaryCopyInWriter, types::Type};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut client, connection) = tokio_postgres::connect(&env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    let jobs = [
        ("send_email", "email", json!({"to": "Zoë", "subject": "Say \"hi\", Zoë"})),
        ("resize_image", "media", json!({"id": 7, "width": 640})),
    ];

    let transaction = client.transaction().await?;
    let sink = transaction.copy_in("COPY awa.ingest (kind, queue, args) FROM STDIN (FORMAT binary)").await?;
    let mut copy = pin!(BinaryCopyInWriter::new(sink, &[Type::TEXT, Type::TEXT, Type::JSONB]));
    for (kind, queue, args) in &jobs {
        copy.as_mut().write(&[kind, queue, args]).await?;
    }
    let enqueued = copy.finish().await?;
    transaction.commit().await?;
    println!("{enqueued} jobs enqueued");
    Ok(())
}
