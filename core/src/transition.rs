//! Which of awa's engines takes jobs, by the row of `storage_transition_state`: what `sql/statements/engine.sql` asks, for a reader without SQL.

/// The row's values; all absent where there is no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transition<'a> {
    /// `state`.
    pub state: Option<&'a str>,
    /// `current_engine`.
    pub current: Option<&'a str>,
    /// `prepared_engine`.
    pub prepared: Option<&'a str>,
    /// `details ->> 'schema'`.
    pub schema: Option<&'a str>,
}

impl<'a> Transition<'a> {
    /// The engine that takes jobs.
    pub fn engine(&self) -> &'a str {
        let engine = match self.state {
            Some("mixed_transition" | "active") => self.prepared.or(self.current),
            _ => self.current,
        };
        engine.map(|engine| engine.trim_matches(' ')).filter(|engine| !engine.is_empty()).unwrap_or("canonical")
    }

    /// The schema of queue storage, which the row of `runtime_storage_backends` names where this one does not.
    pub fn schema<'s>(&'s self, backend: Option<&'s str>) -> &'s str {
        self.schema.filter(|schema| !schema.is_empty()).or(backend).unwrap_or("awa")
    }

    /// Whether queue storage takes all jobs and awa has no way back.
    pub fn is_settled(&self) -> bool {
        self.state == Some("active") && self.engine() == "queue_storage"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(state: &str, current: Option<&str>, prepared: Option<&str>) -> String {
        Transition { state: Some(state), current, prepared, schema: None }.engine().to_owned()
    }

    #[test]
    fn the_prepared_engine_counts_once_the_transition_begins() {
        let queue = Some("queue_storage");
        for (state, current, prepared, expected) in [
            ("canonical", Some("canonical"), None, "canonical"),
            ("prepared", Some("canonical"), queue, "canonical"),
            ("mixed_transition", Some("canonical"), queue, "queue_storage"),
            ("active", queue, None, "queue_storage"),
            ("active", Some("canonical"), queue, "queue_storage"),
            ("active", queue, Some(" "), "canonical"),
            ("canonical", queue, None, "queue_storage"),
            ("active", Some(" queue_storage  "), None, "queue_storage"),
            ("active", None, None, "canonical"),
        ] {
            assert_eq!(engine(state, current, prepared), expected, "{state} {current:?} {prepared:?}");
        }
        assert_eq!(Transition::default().engine(), "canonical");
    }

    #[test]
    fn the_schema_is_named_in_three_places() {
        let named = Transition { schema: Some("mine"), ..Transition::default() };
        assert_eq!((named.schema(Some("other")), named.schema(None)), ("mine", "mine"));
        let empty = Transition { schema: Some(""), ..Transition::default() };
        assert_eq!((empty.schema(Some("other")), empty.schema(None)), ("other", "awa"));
    }

    #[test]
    fn only_active_queue_storage_is_settled() {
        let active = Transition { state: Some("active"), current: Some("queue_storage"), ..Transition::default() };
        assert!(active.is_settled());
        assert!(!Transition { state: Some("mixed_transition"), ..active }.is_settled());
        assert!(!Transition { current: Some("canonical"), ..active }.is_settled());
    }
}
