//! sqlx, with features `postgres` and `runtime-tokio`, and csv.
use serde_json::json;
use sqlx::{Connection, PgConnection};
use std::{env, error::Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut connection = PgConnection::connect(&env::var("DATABASE_URL")?).await?;
    let mut lines = csv::Writer::from_writer(Vec::new());
    lines.serialize(("send_email", "email", json!({"to": "Zoë", "subject": "Say \"hi\", Zoë"}).to_string()))?;
    lines.serialize(("resize_image", "media", json!({"id": 7, "width": 640}).to_string()))?;

    let mut transaction = connection.begin().await?;
    let mut copy = transaction.copy_in_raw("COPY awa.ingest (kind, queue, args) FROM STDIN (FORMAT csv)").await?;
    copy.send(lines.into_inner()?).await?;
    let enqueued = copy.finish().await?;
    transaction.commit().await?;
    println!("{enqueued} jobs enqueued");
    Ok(())
}
