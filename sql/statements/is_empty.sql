-- Whether a partitioned table has partitions, and all of them are empty files.
SELECT COALESCE(sum(pg_relation_size(part.inhrelid)) = 0, false) FROM pg_inherits AS part WHERE part.inhparent = $1
