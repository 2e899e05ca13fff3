#!/usr/bin/env python3
"""Makes unique_keys.json: unique keys as awa's Python client computes them.

    python3 -m venv /tmp/awa-pg && /tmp/awa-pg/bin/pip install awa-pg==0.6.9
    createdb vectors && /tmp/awa-pg/bin/python make.py postgres://postgres@127.0.0.1:5432/vectors

The database must be empty. Each vector is enqueued by the client, which computes the key in its native part, and the
key is read back from the table of claims.
"""

import json
import pathlib
import sys

import awa

UNIQUE_DEFAULT = {"by_queue": False, "by_args": True, "by_period": None}

BY_ARGS = {
    "empty object": {},
    "one integer": {"a": 1},
    "keys sorted at every depth": {"bb": 1, "a": {"z": 1, "é": 2, "Z": 3, "zz": 4}, "ab": [{"y": 1, "x": 2}]},
    "unicode keys": {"ключ": "значение", "鍵": 1, "é": "e\u0301", "😀": None},
    "null and booleans": {"n": None, "t": True, "f": False},
    "arrays": {"a": [], "b": [[], [[]], {}], "c": [1, "two", 3.5, None, True, {"k": []}]},
    "floats with a whole value": {"x": 1.0, "y": 100000.0, "z": -0.5},
    "floats without an exact decimal": {"a": 0.1, "b": 0.1 + 0.2, "c": 1 / 3},
    "small exponents": {"a": 1e-7, "b": 1e-5, "c": 0.00001234, "d": 5e-324, "e": 2.2250738585072014e-308},
    "large exponents": {"a": 1e5, "b": 1e15, "c": 3e300, "d": 1e22, "e": 1.2345678901234568e20, "f": -1e100},
    "the limits of 64 bits": {"max": 2**63 - 1, "min": -(2**63), "zero": 0},
    "integers beyond 64 bits": {"a": 2**64, "b": 2**70, "c": -(2**64)},
    "escapes": {"quote": '"', "backslash": "\\", "slash": "/", "mixed": '\\"/\\\\'},
    "short escapes": {"s": "\b\f\n\r\t"},
    "control characters": {"s": "".join(map(chr, range(1, 32))), "delete": "\x7f", "c1": "\x80\x9f"},
    "control characters in a key": {"\x01\n": 1},
    "line and paragraph separators": {"s": "a\u2028b\u2029c"},
    "emoji": {"s": "👩‍👩‍👧‍👦🏳️‍🌈\U0010ffff"},
    "the last of the first plane": {"s": "\ud7ff\ue000\ufffd\uffff"},
    "an empty key and an empty string": {"": ""},
    "a long string": {"s": "ab" * 1000},
    "deep nesting": json.loads('{"a":' * 60 + "1" + "}" * 60),
}

PARTS = [
    ("by queue", {"a": 1}, {"by_queue": True}),
    ("by queue only", {"a": 1}, {"by_queue": True, "by_args": False}),
    ("kind only", {"a": 1}, {"by_args": False}),
    ("by period", {"a": 1}, {"by_period": 60}),
    ("by a negative period", {"a": 1}, {"by_period": -1}),
    ("by the largest period", {"a": 1}, {"by_period": 2**63 - 1}),
    ("by period only", {"a": 1}, {"by_args": False, "by_period": 0}),
    ("by everything", {"b": [1.5, "é"]}, {"by_queue": True, "by_args": True, "by_period": 29_000_000}),
]


def vectors():
    """Every vector without its key."""
    for name, args in BY_ARGS.items():
        yield {"name": name, "kind": "uniq_job", "queue": "default", "args": args, "unique": UNIQUE_DEFAULT}
    for name, args, unique in PARTS:
        yield {"name": name, "kind": "uniq_job", "queue": "reports", "args": args, "unique": UNIQUE_DEFAULT | unique}
    name = "kind and queue beyond ASCII"
    unique = UNIQUE_DEFAULT | {"by_queue": True}
    yield {"name": name, "kind": "überweisung", "queue": "очередь 🚀", "args": {}, "unique": unique}


def key_of(client, vector):
    """Enqueues the vector, reads its claim, and rolls both back."""
    options = {name: value for name, value in vector["unique"].items() if value is not None}
    with client.transaction() as transaction:
        job = transaction.insert(vector["args"], kind=vector["kind"], queue=vector["queue"], unique_opts=options)
        sql = "SELECT encode(unique_key, 'hex') AS key FROM awa.job_unique_claims WHERE job_id = $1"
        key = transaction.fetch_one(sql, job.id)["key"]
        transaction.rollback()
    return key


def main(url):
    client = awa.Client(url)
    client.migrate()
    with client.transaction() as transaction:
        transaction.execute("SELECT awa.storage_auto_finalize_if_fresh('awa')")
        transaction.commit()
    made = [vector | {"key": key_of(client, vector)} for vector in vectors()]
    target = pathlib.Path(__file__).with_name("unique_keys.json")
    lines = ",\n".join(json.dumps(vector) for vector in made)
    target.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
