//! A client that takes its time holds up nobody: no lane, no key and no table is locked while rows stream in.

use awa_ingest_tests::copy::{copy_csv, last_ingest, last_summary};
use awa_ingest_tests::{Db, OpenCopy, Session, Storage, failure, rows, stored_kinds, within};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// A COPY into known and new lanes with keys, of which the server has taken 301 rows.
async fn streaming(db: &Db, observer: &Client, table: &str) -> (Session, OpenCopy) {
    copy_csv(observer, "awa.ingest", "kind, queue", "first,known\n").await.expect("a known lane");
    let session = Session::open(db).await;
    let mut copy = session.copy(&format!("COPY {table} (kind, queue, args, uniqueness) FROM STDIN WITH (FORMAT csv)")).await;
    copy.send("slow,known,0,true\n").await.expect("sending");
    let lines: String = (1..=300).map(|n| format!("slow,{},{n},true\n", ["known", "new"][n % 2])).collect();
    copy.send(lines).await.expect("sending");
    copy.wait_until_taken(observer).await;
    (session, copy)
}

/// The locks that a session holds on the storage's tables, and advisory ones. The sequence of ids keeps nobody waiting.
async fn locks(observer: &Client, pid: i32, storage: Storage) -> Vec<Value> {
    let held = format!(
        "(SELECT locktype, relation::regclass::text, mode FROM pg_locks LEFT JOIN pg_class ON pg_class.oid = relation
          WHERE pid = {pid} AND granted AND (locktype = 'advisory' OR mode NOT IN ('AccessShareLock', 'ExclusiveLock')
             AND relnamespace = '{}'::regnamespace AND relkind NOT IN ('f', 'S')))",
        storage.schema()
    );
    rows(observer, &held, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streaming_copy_holds_no_lane_and_no_key() {
    for storage in Storage::BOTH {
        for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
            let db = storage.db().await;
            let observer = db.connect().await;
            observer.batch_execute("SET lock_timeout = '5s'").await.unwrap();
            let (session, copy) = streaming(&db, &observer, table).await;
            assert_eq!(locks(&observer, session.pid, storage).await, Vec::<Value>::new(), "{table}, {storage:?}");
            assert!(rows(&observer, &storage.table("job_unique_claims"), &[]).await.is_empty());

            // The same lanes, one of them new to both, and the same key.
            let others = "other,known,0,__AWA_NULL__\nother,new,0,__AWA_NULL__\nslow,known,200,true\n";
            within("another client", copy_csv(&observer, "awa.ingest", "kind, queue, args, uniqueness", others))
                .await
                .expect("COPY");
            let holder = last_ingest(&observer).await[2].job_id;

            let finished = within("the slow client", copy.finish()).await;
            if table == "awa.ingest" {
                let refused = failure(finished);
                assert_eq!((refused.constraint.as_str(), refused.ordinal()), ("idx_awa_jobs_unique", Some(201)), "{refused:?}");
                assert_eq!(stored_kinds(&observer, storage).await.len(), 4);
                assert_eq!(last_summary(&session.client).await, None);
            } else {
                assert_eq!(finished.expect("it skips"), 301);
                let skipped: Vec<_> = last_ingest(&session.client).await.into_iter().filter(|row| row.job_id.is_none()).collect();
                assert_eq!(skipped.iter().map(|row| (row.ord, row.conflicts_with)).collect::<Vec<_>>(), [(201, holder)]);
                assert_eq!(stored_kinds(&observer, storage).await.len(), 304, "{storage:?}");
            }
        }
    }
}

/// Jobs are written in the order in which the statements end, whatever the order in which their rows came.
#[tokio::test(flavor = "multi_thread")]
async fn who_ends_first_is_first_in_the_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        let (slow, fast) = (Session::open(&db).await, Session::open(&db).await);
        let statement = "COPY awa.ingest (kind) FROM STDIN";
        let (mut first, mut second) = (slow.copy(statement).await, fast.copy(statement).await);
        first.send("slow\nslow\n").await.unwrap();
        first.wait_until_taken(&observer).await;
        second.send("fast\nfast\n").await.unwrap();
        second.wait_until_taken(&observer).await;
        within("the fast client", second.finish()).await.expect("COPY");
        within("the slow client", first.finish()).await.expect("COPY");
        let lane = format!("(SELECT lane_seq, kind FROM {})", storage.table("ready_entries"));
        let expected = [(1, "fast"), (2, "fast"), (3, "slow"), (4, "slow")].map(|(n, kind)| json!({"kind": kind, "lane_seq": n}));
        awa_ingest_tests::assert_same_rows(&format!("{storage:?}"), &expected, &rows(&observer, &lane, &[]).await);
        assert_eq!(stored_kinds(&observer, storage).await, ["slow", "slow", "fast", "fast"], "ids are given as rows come");
    }
}

/// The ring may turn while rows stream in: they go where it stands at the end.
#[tokio::test(flavor = "multi_thread")]
async fn the_ring_turns_meanwhile() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        let (session, copy) = streaming(&db, &observer, "awa.ingest").await;
        let turn = format!("UPDATE {} SET current_slot = 1, generation = 1", storage.table("queue_ring_state"));
        observer.batch_execute(&turn).await.expect(&turn);
        assert_eq!(copy.finish().await.expect("COPY"), 301);
        let slots =
            format!("(SELECT ready_slot, ready_generation, count(*) FROM {} GROUP BY 1, 2)", storage.table("ready_entries"));
        let expected = [
            json!({"ready_slot": 0, "ready_generation": 0, "count": 1}),
            json!({"ready_slot": 1, "ready_generation": 1, "count": 301}),
        ];
        awa_ingest_tests::assert_same_rows(&format!("{storage:?}"), &expected, &rows(&observer, &slots, &[]).await);
        let summary = last_summary(&session.client).await.expect("a COPY");
        assert_eq!((summary.enqueued, summary.lanes), (301, 2));
    }
}
