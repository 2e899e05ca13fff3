//! The rules that every storage keeps at any moment, whoever writes to it.

use serde_json::Value;
use tokio_postgres::Client;

use crate::rows;

/// Each rule as a query for what breaks it, where `{s}` stands for the storage's schema.
const RULES: [(&str, &str); 6] = [
    (
        "positions are unique within a lane",
        "SELECT queue, priority, enqueue_shard, lane_seq, count(*) FROM {s}.ready_entries GROUP BY 1, 2, 3, 4 HAVING count(*) > 1",
    ),
    (
        "ids are unique",
        "SELECT job_id, count(*) FROM (SELECT job_id FROM {s}.ready_entries UNION ALL SELECT job_id FROM {s}.deferred_jobs) AS job
         GROUP BY 1 HAVING count(*) > 1",
    ),
    (
        "the ring position never goes back within a lane",
        "SELECT * FROM (SELECT queue, priority, enqueue_shard, lane_seq, ready_generation AS generation,
                lag(ready_generation) OVER (PARTITION BY queue, priority, enqueue_shard ORDER BY lane_seq) AS before
                FROM {s}.ready_entries) AS s WHERE generation < before",
    ),
    (
        // awa's COPY rounds the times of rows, which have nanoseconds until then, and truncates those of segments.
        "every row is in exactly one segment, of its slot and time",
        "SELECT r.queue, r.priority, r.enqueue_shard, r.lane_seq, count(s.queue) FROM {s}.ready_entries AS r
         LEFT JOIN {s}.ready_segments AS s ON (s.ready_slot, s.ready_generation, s.queue, s.priority, s.enqueue_shard)
              = (r.ready_slot, r.ready_generation, r.queue, r.priority, r.enqueue_shard)
              AND r.lane_seq >= s.first_lane_seq AND r.lane_seq < s.next_lane_seq
              AND r.run_at BETWEEN s.first_run_at - interval '1 us' AND s.first_run_at + interval '1 us'
         GROUP BY 1, 2, 3, 4 HAVING count(s.queue) <> 1",
    ),
    (
        "segments cover rows only",
        "SELECT s.queue, s.priority, s.enqueue_shard, n FROM {s}.ready_segments AS s,
                generate_series(s.first_lane_seq, s.next_lane_seq - 1) AS n
         EXCEPT SELECT queue, priority, enqueue_shard, lane_seq FROM {s}.ready_entries",
    ),
    (
        "sequences are at or past the last position",
        "SELECT h.queue, h.priority, h.enqueue_shard, s.last_value, max(r.lane_seq) FROM {s}.queue_enqueue_heads AS h
         JOIN pg_sequences AS s ON s.schemaname = '{s}' AND s.sequencename = h.seq_name
         JOIN {s}.ready_entries AS r USING (queue, priority, enqueue_shard)
         GROUP BY 1, 2, 3, 4 HAVING s.last_value < max(r.lane_seq)",
    ),
];

/// Fails with what breaks a rule of the lanes in `schema`. Rows of awa that are worked already count, too.
pub async fn assert_lanes_intact(client: &Client, schema: &str, when: &str) {
    for (rule, query) in RULES {
        let offenders = rows(client, &format!("({})", query.replace("{s}", schema)), &[]).await;
        assert_eq!(offenders, [] as [Value; 0], "{when}: {rule}");
    }
}
