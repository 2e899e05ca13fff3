-- What a web shop puts on its queues in a busy hour: 50,000 jobs, the same ones in every run.
\echo 'Making a sample of 50,000 jobs ...'

CREATE SCHEMA sample;
SET search_path = sample, pg_catalog;
SELECT setseed(0.15) \gset

-- People who signed up: their welcome mails are enqueued one by one, as a web request would.
CREATE TABLE signups AS
SELECT n AS user_id, format('user%s@example.org', n) AS address, 'sign-up-' || md5(n::text) AS trace
FROM generate_series(1, 1000) AS n;

-- Mails of all sorts: password resets first, newsletters last, some tagged and traced.
CREATE TABLE mails AS
SELECT jsonb_build_object(
           'kind', 'send_email',
           'queue', 'email',
           'priority', CASE template WHEN 'password_reset' THEN 1 WHEN 'newsletter' THEN 3 ELSE 2 END,
           'args', jsonb_build_object(
               'to', format('user%s@example.org', n % 9000), 'template', template, 'locale', locale),
           'tags', CASE template WHEN 'newsletter' THEN '["bulk", "marketing"]'::jsonb ELSE '[]' END,
           'metadata', CASE template WHEN 'receipt' THEN jsonb_build_object('trace', md5(n::text)) ELSE '{}' END) AS job
FROM (SELECT n,
             (ARRAY['password_reset', 'receipt', 'receipt', 'newsletter', 'newsletter'])[1 + floor(random() * 5)] AS template,
             (ARRAY['en', 'de', 'fr', 'ja'])[1 + floor(random() * 4)] AS locale
      FROM generate_series(1, 20000) AS n) AS mail;

-- Charges, each invoice once: the shop's retries repeat one in twenty.
CREATE TABLE charges AS
SELECT jsonb_build_object(
           'kind', 'charge_invoice',
           'queue', 'billing',
           'priority', 1,
           'max_attempts', 5,
           'args', jsonb_build_object('invoice', invoice, 'cents', 500 + invoice * 37 % 90000, 'currency', 'EUR'),
           'unique', true) AS job
FROM (SELECT CASE WHEN n % 20 = 0 THEN n - 7 ELSE n END AS invoice FROM generate_series(1, 8000) AS n) AS charge;

-- Products to put into the search index again: one waiting job a product is enough.
CREATE TABLE reindexing AS
SELECT jsonb_build_object(
           'kind', 'reindex_product',
           'queue', 'search',
           'args', jsonb_build_object('product', 1 + floor(random() * 4000)),
           'unique', '{"by_args": true, "states": ["scheduled", "available", "retryable"]}'::jsonb) AS job
FROM generate_series(1, 7000) AS n;

-- Reports that are due through the coming night.
CREATE TABLE reports AS
SELECT jsonb_build_object(
           'kind', 'build_report',
           'queue', 'reports',
           'priority', 4,
           'run_at', now() + interval '1 hour' + n * interval '7 seconds',
           'args', jsonb_build_object('report', 'daily_sales', 'shop', n)) AS job
FROM generate_series(1, 4000) AS n;

-- All of these in one array, shuffled, as an application would send it.
CREATE TABLE batch AS
SELECT jsonb_agg(job ORDER BY random()) AS jobs
FROM (TABLE mails UNION ALL TABLE charges UNION ALL TABLE reindexing UNION ALL TABLE reports) AS job;

-- Webhooks from a driver that binds arrays; one customer's calls stay in order.
CREATE TABLE webhooks AS
SELECT array_agg(jsonb_build_object('url', format('https://hooks.example.org/c/%s', n % 700), 'event', 'order.paid', 'order', n)
                 ORDER BY n) AS args,
       array_agg(convert_to(format('customer-%s', n % 700), 'UTF8') ORDER BY n) AS ordering_keys
FROM generate_series(1, 10000) AS n;

-- What each way of enqueueing did.
CREATE TABLE steps (way text, started timestamptz, jobs bigint, enqueued bigint, ended timestamptz DEFAULT clock_timestamp());
