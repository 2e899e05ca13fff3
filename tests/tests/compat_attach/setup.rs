//! What the tests of this program share.

use awa_ingest_tests::{Db, rows};
use serde_json::{Value, json};
use tokio_postgres::{Client, Error};

/// The function, as `regprocedure` takes it.
pub const FUNCTION: &str =
    "awa.insert_job_compat(text, text, jsonb, awa.job_state, smallint, smallint, timestamptz, jsonb, text[], bytea, bit, bytea)";

/// The functions that an attached database has besides.
const COMPANIONS: &str = "(SELECT proname FROM pg_proc WHERE pronamespace = 'awa_ingest'::regnamespace
    AND proname IN ('insert_jobs_compat_batch', 'insert_many_skip_unique_conflicts', 'last_ingest_jobs'))";

/// Gives `awa.jobs`, and so the function's result, a column more.
pub const ANOTHER_ROW_TYPE: &str = r"DO $do$ BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW awa.jobs AS ' ||
        regexp_replace(pg_get_viewdef('awa.jobs'::regclass), '\s+FROM (awa\.)?jobs_compat', E',\n 1 AS more FROM awa.jobs_compat');
    END $do$";

/// awa with queue storage active and the replacement in place.
pub async fn attached() -> Db {
    let db = Db::awa().await;
    run(&db.connect().await, "SELECT awa_ingest.attach()").await;
    db
}

/// Runs statements that must succeed.
#[track_caller]
pub fn run<'a>(client: &'a Client, statements: &'a str) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let done = client.batch_execute(statements).await;
        done.unwrap_or_else(|error| panic!("{caller}: {statements}: {error:?}"));
    }
}

/// The row that a call with `arguments` returns.
pub async fn try_insert(client: &Client, arguments: &str) -> Result<Value, Error> {
    let call = format!("SELECT to_jsonb(job) FROM awa.insert_job_compat({arguments}) AS job");
    Ok(client.query_one(&call, &[]).await?.get(0))
}

/// The row that a call with `arguments`, which must succeed, returns.
pub async fn insert(client: &Client, arguments: &str) -> Value {
    try_insert(client, arguments).await.unwrap_or_else(|error| panic!("{arguments}: {error:?}"))
}

/// What `awa_ingest.status()` says of the function. A problem is told where there is one, and only there.
pub async fn status(client: &Client) -> Option<String> {
    let sql = "SELECT insert_job_compat, insert_job_compat_problem FROM awa_ingest.status()";
    let row = client.query_one(sql, &[]).await.expect(sql);
    let (status, problem): (Option<String>, Option<String>) = (row.get(0), row.get(1));
    let fine = matches!(status.as_deref(), None | Some("original" | "replaced"));
    assert_eq!(problem.is_none_or(|problem| problem.is_empty()), fine, "{status:?}");
    status
}

/// Fails if `awa_ingest.status()` says anything else of the function.
pub async fn assert_status(client: &Client, expected: &str, when: &str) {
    assert_eq!(status(client).await.as_deref(), Some(expected), "{when}");
}

/// The function as SQL text.
pub async fn definition(client: &Client) -> String {
    let sql = format!("SELECT pg_get_functiondef('{FUNCTION}'::regprocedure)");
    client.query_one(&sql, &[]).await.expect(&sql).get(0)
}

/// Everything about the function that is not its body.
pub async fn identity(client: &Client) -> Value {
    let sql = format!(
        "(SELECT oid, proname, proowner::regrole::text AS owner, proacl::text AS acl, pronamespace, obj_description(oid, 'pg_proc') AS comment,
             pg_get_function_arguments(oid) AS arguments, pg_get_function_identity_arguments(oid) AS identity,
             pg_get_function_result(oid) AS result, provolatile, proisstrict, prosecdef, proleakproof, proparallel, prokind, proretset
           FROM pg_proc WHERE oid = '{FUNCTION}'::regprocedure)"
    );
    rows(client, &sql, &[]).await.remove(0)
}

/// How many of the functions are there that only an attached database has.
pub async fn companions(client: &Client) -> usize {
    rows(client, COMPANIONS, &[]).await.len()
}

/// The SQL with which awa's storage looks like `state`, on the schema `awa`.
pub fn engine(state: &str) -> String {
    let engines = match state {
        "canonical" => "'canonical', NULL",
        "prepared" | "mixed_transition" => "'canonical', 'queue_storage'",
        "active" => "'queue_storage', NULL",
        other => panic!("{other} is no state"),
    };
    format!("UPDATE awa.storage_transition_state SET (current_engine, prepared_engine, state) = ({engines}, '{state}')")
}

/// Fails unless rows and segments of the ready jobs of `schema` name the same lane positions, each once.
pub async fn assert_lanes_are_whole(client: &Client, schema: &str, when: &str) {
    let odd = format!(
        "(SELECT queue, priority, enqueue_shard, lane_seq, count(*) FROM (
              SELECT queue, priority, enqueue_shard, lane_seq, ready_slot, ready_generation FROM {schema}.ready_entries
              UNION ALL SELECT queue, priority, enqueue_shard, generate_series(first_lane_seq, next_lane_seq - 1), ready_slot, ready_generation
                FROM {schema}.ready_segments) AS position
           GROUP BY queue, priority, enqueue_shard, lane_seq HAVING count(*) <> 2 OR count(DISTINCT (ready_slot, ready_generation)) <> 1)"
    );
    assert_eq!(rows(client, &odd, &[]).await, Vec::<Value>::new(), "{when}");
}

/// The arguments of the ready jobs of awa's own schema, in the order in which the lanes take them.
pub async fn ready_args(client: &Client) -> Value {
    let sql = "SELECT coalesce(jsonb_agg(args ORDER BY queue, priority, enqueue_shard, lane_seq), '[]') FROM awa.ready_entries";
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// The numbers from `first` to `last`, as JSON.
pub fn numbers(first: i64, last: i64) -> Value {
    json!((first..=last).collect::<Vec<_>>())
}
