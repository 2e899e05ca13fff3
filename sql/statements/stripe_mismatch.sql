-- Whether queue $1 has lanes of its own, and whether it has striped lanes: one of them contradicts the setting.
SELECT EXISTS (SELECT FROM {storage}.queue_lanes AS lane WHERE lane.queue = $1),
       EXISTS (SELECT FROM generate_series(0, 63) AS n
                WHERE EXISTS (SELECT FROM {storage}.queue_lanes AS lane WHERE lane.queue = $1 || '#' || n))
