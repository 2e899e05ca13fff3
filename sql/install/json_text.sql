-- A type for arguments that hold JSON. Drivers send JSON as json, text or varchar, which PostgreSQL does not cast to jsonb by itself. It
-- casts them to this type, so that one function takes them all. Stored as text and read when the job is enqueued.
-- Its category is that of jsonb, user-defined, and not that of strings: an untyped literal or parameter then never prefers it to jsonb.
CREATE TYPE awa_ingest.json_text;

CREATE FUNCTION awa_ingest.json_text_in(cstring) RETURNS awa_ingest.json_text
LANGUAGE internal IMMUTABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'textin';
COMMENT ON FUNCTION awa_ingest.json_text_in(cstring) IS 'Input of type awa_ingest.json_text';
CREATE FUNCTION awa_ingest.json_text_out(awa_ingest.json_text) RETURNS cstring
LANGUAGE internal IMMUTABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'textout';
COMMENT ON FUNCTION awa_ingest.json_text_out(awa_ingest.json_text) IS 'Output of type awa_ingest.json_text';
CREATE FUNCTION awa_ingest.json_text_receive(internal) RETURNS awa_ingest.json_text
LANGUAGE internal IMMUTABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'textrecv';
COMMENT ON FUNCTION awa_ingest.json_text_receive(internal) IS 'Binary input of type awa_ingest.json_text';
CREATE FUNCTION awa_ingest.json_text_send(awa_ingest.json_text) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS 'textsend';
COMMENT ON FUNCTION awa_ingest.json_text_send(awa_ingest.json_text) IS 'Binary output of type awa_ingest.json_text';

CREATE TYPE awa_ingest.json_text (
    INPUT = awa_ingest.json_text_in,
    OUTPUT = awa_ingest.json_text_out,
    RECEIVE = awa_ingest.json_text_receive,
    SEND = awa_ingest.json_text_send,
    LIKE = text,
    CATEGORY = 'U'
);
COMMENT ON TYPE awa_ingest.json_text IS 'JSON in any type: arguments of this type take json, jsonb, text and varchar';
REVOKE ALL ON TYPE awa_ingest.json_text FROM PUBLIC;

CREATE CAST (text AS awa_ingest.json_text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (varchar AS awa_ingest.json_text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (json AS awa_ingest.json_text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (jsonb AS awa_ingest.json_text) WITH INOUT AS IMPLICIT;

REVOKE ALL ON FUNCTION awa_ingest.json_text_in(cstring) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.json_text_out(awa_ingest.json_text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.json_text_receive(internal) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.json_text_send(awa_ingest.json_text) FROM PUBLIC;
