-- The main job, in the three ways that SQL offers. Each statement stands for one request of an application.
SET search_path = sample, pg_catalog;

\echo 'One job a call, 1,000 calls:         SELECT awa.enqueue(...)'
SELECT clock_timestamp() AS started \gset
SELECT count(awa.enqueue('send_email', jsonb_build_object('to', address, 'template', 'welcome'),
                         queue => 'email', priority => 1::smallint,
                         metadata => jsonb_build_object('trace', trace), tags => ARRAY['sign-up'])) AS enqueued
FROM signups \gset
INSERT INTO steps VALUES ('awa.enqueue', :'started', 1000, :enqueued);

\echo 'A JSON array of 39,000 jobs:         SELECT * FROM awa.enqueue_batch(..., on_conflict => ''skip'')'
SELECT clock_timestamp() AS started \gset
SELECT count(*) AS jobs, count(job_id) AS enqueued
FROM awa.enqueue_batch((SELECT jobs FROM batch), on_conflict => 'skip') \gset
INSERT INTO steps VALUES ('awa.enqueue_batch', :'started', :jobs, :enqueued);

\echo 'Arrays of 10,000 values:             SELECT * FROM awa.enqueue_columns(...)'
SELECT clock_timestamp() AS started \gset
SELECT count(*) AS jobs, count(job_id) AS enqueued
FROM awa.enqueue_columns(kind => ARRAY['deliver_webhook'], queue => ARRAY['webhooks'],
                         args => (SELECT args FROM webhooks),
                         ordering_key => (SELECT ordering_keys FROM webhooks)) \gset
INSERT INTO steps VALUES ('awa.enqueue_columns', :'started', :jobs, :enqueued);
