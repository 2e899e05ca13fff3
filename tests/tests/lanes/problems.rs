//! What `awa_ingest.lane_sequence_problems` lists, for the tests of several topics.

use awa_ingest_tests::{Db, Storage, within};
use tokio_postgres::Client;

/// A row of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub schema: String,
    pub sequence: String,
    pub problem: String,
    pub detail: String,
    pub able: Vec<String>,
    pub statements: Vec<String>,
}

/// All rows.
pub async fn problems(client: &Client) -> Vec<Problem> {
    let sql = "SELECT schema_name, sequence_name, problem, detail, able_roles, statements FROM awa_ingest.lane_sequence_problems()";
    let rows = client.query(sql, &[]).await.expect("lane_sequence_problems");
    rows.iter()
        .map(|row| Problem {
            schema: row.get(0),
            sequence: row.get(1),
            problem: row.get(2),
            detail: row.get(3),
            able: row.get(4),
            statements: row.get(5),
        })
        .collect()
}

/// The only row.
pub async fn problem(client: &Client) -> Problem {
    let mut problems = problems(client).await;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}

/// Runs the statements as printed, as each role that can, undoing what all but the last did; and then nothing is listed any more.
pub async fn fix_as_printed(db: &Db, problem: &Problem) {
    let superuser = db.connect().await;
    for (number, role) in problem.able.iter().enumerate() {
        let client = db.connect_as(role).await;
        client.batch_execute("BEGIN").await.unwrap();
        for statement in &problem.statements {
            client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement} as {role}: {error:?}"));
        }
        let end = if number + 1 < problem.able.len() { "ROLLBACK" } else { "COMMIT" };
        client.batch_execute(end).await.unwrap();
    }
    let left = problems(&superuser).await;
    assert!(!left.iter().any(|other| other.sequence == problem.sequence), "{left:#?}");
}

/// `awa_ingest.repair_lane_sequence`.
pub async fn repair(client: &Client, schema: &str, sequence: &str) -> Result<String, tokio_postgres::Error> {
    let sql = "SELECT awa_ingest.repair_lane_sequence($1, $2)";
    Ok(within("a repair", client.query_one(sql, &[&schema, &sequence])).await?.get(0))
}

/// The sequence of a lane, by what awa calls it.
pub async fn sequence(client: &Client, side: &str, queue: &str) -> String {
    let sql = "SELECT format('queue_%s_seq_%s', $1::text, md5($2 || ':2:0'))";
    client.query_one(sql, &[&side, &queue]).await.unwrap().get(0)
}

/// Makes the lane of `queue` with priority 2.
pub async fn provision(client: &Client, queue: &str) -> Result<u64, tokio_postgres::Error> {
    client.execute("SELECT awa_ingest.provision_lane($1, 2::smallint, 0::smallint)", &[&queue]).await
}

/// One job for `queue`.
pub async fn enqueue(client: &Client, queue: &str) -> Result<u64, tokio_postgres::Error> {
    client.execute("SELECT awa.enqueue('k', queue => $1)", &[&queue]).await
}

/// Storages of a superuser, and one of an ordinary role; with the owner's name.
pub async fn databases() -> Vec<(Storage, Db, String)> {
    let (db, owner) = Db::awa_of_a_role().await;
    vec![
        (Storage::Embedded, Storage::Embedded.db().await, "postgres".to_owned()),
        (Storage::Attached, Storage::Attached.db().await, "postgres".to_owned()),
        (Storage::Attached, db, owner),
    ]
}
