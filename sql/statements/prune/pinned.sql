-- Whether another session keeps old row versions alive, so that what is folded would only pile up. Of sessions that the caller may not
-- look into, all count.
SELECT EXISTS (
    SELECT FROM pg_stat_activity AS activity
     WHERE activity.datname = current_database() AND activity.pid <> pg_backend_pid()
       AND COALESCE(activity.backend_type, 'client backend') = 'client backend'
       AND (activity.backend_xmin IS NOT NULL
            OR activity.backend_xid IS NOT NULL AND COALESCE(activity.state, 'idle in transaction') LIKE 'idle in transaction%'))
