-- The rescue of stale claims begins slot $1 anew.
UPDATE {storage}.claim_ring_slots
   SET rescue_cursor_claimed_at = '-infinity', rescue_cursor_job_id = 0, rescue_cursor_run_lease = 0,
       deadline_cursor_deadline_at = '-infinity', deadline_cursor_job_id = 0, deadline_cursor_run_lease = 0
 WHERE slot = $1
