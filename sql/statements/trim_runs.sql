-- Keeps the newest $1, and deletes a thousand of the others at most. Rows that another transaction is deleting are left to it: nobody
-- waits here.
DELETE FROM awa_ingest.maintenance_records
 WHERE id IN (SELECT old.id
                FROM awa_ingest.maintenance_records AS old
               WHERE old.id <= (SELECT last.id FROM awa_ingest.maintenance_records AS last ORDER BY last.id DESC OFFSET $1 LIMIT 1)
               ORDER BY old.id
               LIMIT 1000
                 FOR UPDATE SKIP LOCKED)
