//! Jobs that can be stored, but were most likely meant otherwise: nobody would notice them in a queue that no worker knows. They are counted
//! while a statement's jobs arrive, and reported once, by the first of each kind.

use crate::decode::KEYS;
use crate::error::excerpt;
use crate::job::Job;
use crate::jsonb::{Container, Value};

/// What a statement's jobs give reason to doubt.
#[derive(Debug, Clone, Default)]
pub struct Doubts {
    found: [Option<Found>; KINDS],
}

#[derive(Debug, Clone)]
struct Found {
    /// The first job's place in the request.
    ordinal: u64,
    /// The name that is odd.
    name: String,
    /// How many further jobs.
    more: u64,
}

const KINDS: usize = 6;
const ODD_KIND: usize = 0;
const ODD_QUEUE: usize = 1;
const EMPTY_QUEUE: usize = 2;
const ENCODED_TWICE: usize = 3;
const JOB_AS_ARGS: usize = 4;
const JSON_AS_KIND: usize = 5;

impl Doubts {
    /// Looks at the job at this place in the request.
    pub fn look(&mut self, ordinal: u64, job: &Job<'_>) {
        if is_odd(job.kind) {
            self.add(ODD_KIND, ordinal, job.kind);
        }
        if holds_json(job.kind) {
            self.add(JSON_AS_KIND, ordinal, job.kind);
        }
        if job.queue.is_empty() {
            self.add(EMPTY_QUEUE, ordinal, "");
        } else if is_odd(job.queue) {
            self.add(ODD_QUEUE, ordinal, job.queue);
        }
        match job.args {
            Some(Value::String(text)) if holds_json(text) => self.add(ENCODED_TWICE, ordinal, ""),
            Some(value) if is_job(value) => self.add(JOB_AS_ARGS, ordinal, ""),
            _ => {}
        }
    }

    fn add(&mut self, kind: usize, ordinal: u64, name: &str) {
        match &mut self.found[kind] {
            Some(found) => found.more += 1,
            none => *none = Some(Found { ordinal, name: excerpt(name), more: 0 }),
        }
    }

    /// A message and a hint for each kind of doubt.
    pub fn reports(&self) -> impl Iterator<Item = (String, &'static str)> + '_ {
        let found = self.found.iter().enumerate().filter_map(|(kind, found)| Some((kind, found.as_ref()?)));
        found.map(|(kind, Found { ordinal, name, more })| {
            let (what, hint) = match kind {
                ODD_KIND => {
                    (format!("kind {name:?} has blanks or invisible characters that a worker's kind does not have"), BLANKS)
                }
                ODD_QUEUE => {
                    (format!("queue {name:?} has blanks or invisible characters, and is another queue than without them"), BLANKS)
                }
                EMPTY_QUEUE => ("the name of the queue is empty".into(), "NULL stands for the queue named default."),
                ENCODED_TWICE => (
                    "args is a string that holds JSON: it was encoded twice".into(),
                    "Bind an object as it is, or its JSON text, but not the JSON text of that text.",
                ),
                JSON_AS_KIND => (
                    format!("kind {name:?} is JSON"),
                    "awa.enqueue takes kind and args one by one; awa.enqueue_batch takes an array of whole job objects.",
                ),
                _ => (
                    "args looks like a whole job".into(),
                    "args are the arguments alone; awa.enqueue_batch takes an array of whole job objects.",
                ),
            };
            let more = match more {
                0 => String::new(),
                1 => " (and so in 1 more job)".into(),
                more => format!(" (and so in {more} more jobs)"),
            };
            (format!("job {ordinal}: {what}{more}"), hint)
        })
    }
}

const BLANKS: &str = "Files and shells leave line ends and blanks behind; btrim() takes them off.";

/// Blanks around a name, or characters in it that nobody sees.
fn is_odd(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte <= b' ' || *byte == 0x7f);
    if edge(bytes.first()) || edge(bytes.last()) {
        return true;
    }
    if bytes.is_ascii() {
        return false;
    }
    // Joiners and marks of direction belong to some scripts, but not to the edge of a name.
    let at_edge = |c: char| c.is_whitespace() || c.is_control() || ('\u{200b}'..='\u{200f}').contains(&c);
    let anywhere = |c: char| matches!(c, '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}');
    name.starts_with(at_edge) || name.ends_with(at_edge) || name.contains(anywhere)
}

/// An object or array as text. Other JSON may be meant as text.
fn holds_json(text: &str) -> bool {
    let text = text.trim();
    let pairs = [('{', '}'), ('[', ']')];
    pairs.iter().any(|(open, close)| text.starts_with(*open) && text.ends_with(*close))
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// A job object, or an array that begins with one: has `kind` and more, and nothing that jobs do not have.
fn is_job(value: Value<'_>) -> bool {
    match value {
        Value::Object(object) => is_job_object(object),
        Value::Array(array) => {
            let first = array.elements().ok().and_then(|mut elements| elements.next());
            matches!(first, Some(Ok(Value::Object(object))) if is_job_object(object))
        }
        _ => false,
    }
}

fn is_job_object(object: Container<'_>) -> bool {
    if !(2..=KEYS.len()).contains(&object.len()) {
        return false;
    }
    let Ok(mut fields) = object.fields() else { return false };
    let mut has_kind = false;
    fields.all(|field| match field {
        Ok(("kind", Value::String(_))) => {
            has_kind = true;
            true
        }
        Ok((key, _)) => key != "kind" && KEYS.contains(&key),
        Err(_) => false,
    }) && has_kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Draft;
    use crate::jsonb::encode;
    use serde_json::json;

    fn reports(jobs: &[(&str, &str, serde_json::Value)]) -> Vec<String> {
        let mut doubts = Doubts::default();
        for (ordinal, (kind, queue, args)) in jobs.iter().enumerate() {
            let bytes = encode(args);
            let draft =
                Draft { kind: Some(kind), queue: Some(queue), args: Some(Value::root(&bytes).unwrap()), ..Draft::default() };
            doubts.look(ordinal as u64 + 1, &draft.validate_for_awa().unwrap());
        }
        doubts.reports().map(|(message, _)| message).collect()
    }

    #[test]
    fn names_with_blanks_are_odd() {
        for odd in [
            " k",
            "k ",
            "k\n",
            "\tk",
            "k\r",
            "k\u{a0}",
            "\u{2003}k",
            "k\u{200b}",
            "k\u{200b}k",
            "k\u{2060}",
            "k\u{ad}k",
            "k\u{200d}",
            "\u{1}k",
        ] {
            assert!(is_odd(odd), "{odd:?}");
        }
        for usual in ["", "k", "send email", "a\tb", "é", "🐘", "k\u{301}", "نمی\u{200c}خواهم", "👩\u{200d}💻", "__AWA_NULL__"]
        {
            assert!(!is_odd(usual), "{usual:?}");
        }
    }

    #[test]
    fn json_in_a_string_is_found() {
        for doubted in [r#"{"a": 1}"#, "[]", " {} \n", "[1, {\"a\": null}]"] {
            assert!(holds_json(doubted), "{doubted}");
        }
        for text in ["", "text", "{name}", "[draft]", "1", "\"x\"", "null", "{", "{]", "{} {}"] {
            assert!(!holds_json(text), "{text}");
        }
    }

    #[test]
    fn whole_jobs_are_found() {
        let is_job = |value: serde_json::Value| {
            let bytes = encode(&value);
            is_job(Value::root(&bytes).unwrap())
        };
        assert!(is_job(json!({"kind": "k", "args": {}})) && is_job(json!({"kind": "k", "queue": "q", "priority": 1})));
        assert!(is_job(json!([{"kind": "k", "args": {}}, 1])));
        assert!(
            !is_job(json!({"kind": "k"})) && !is_job(json!({"queue": "q", "args": {}})) && !is_job(json!({"kind": 1, "args": {}}))
        );
        assert!(!is_job(json!({"kind": "k", "args": {}, "page": 1})) && !is_job(json!([])) && !is_job(json!("kind")));
    }

    #[test]
    fn each_doubt_is_reported_once() {
        let found = reports(&[
            ("k", "q", json!({})),
            ("k\n", "q", json!("{}")),
            ("k ", "", json!({"kind": "k", "args": 1})),
            ("k ", " q", json!("[]")),
        ]);
        let expected =
            ["job 2: kind \"k\\n\"", "job 4: queue \" q\"", "job 3: the name", "job 2: args is a string", "job 3: args looks"];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (report, start) in found.iter().zip(expected) {
            assert!(report.starts_with(start), "{report}");
        }
        assert!(found[0].ends_with("(and so in 2 more jobs)") && found[3].ends_with("(and so in 1 more job)"), "{found:?}");
        let found = reports(&[(r#"{"kind": "k"}"#, "q", json!({}))]);
        assert_eq!(found, [r#"job 1: kind "{\"kind\": \"k\"}" is JSON"#]);
        assert!(reports(&[("{k}", "q", json!({})), ("k", "q", json!({"a": 1})), ("k", "default", json!("text"))]).is_empty());
    }
}
