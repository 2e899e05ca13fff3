//! Jobs that arrive as rows of columns, by COPY, INSERT, CSV or arrays: a [`Record`] holds a row's values, and [`Defaults`] what a
//! foreign table gives where the row gives nothing.

use crate::error::Fault;
use crate::job::{Draft, RunAt};
use crate::jsonb::Value;
use crate::unique::Uniqueness;
use std::borrow::Cow;

/// The values of a row; `None` for NULL and for a column that the row does not have.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Record<'a> {
    pub kind: Option<&'a str>,
    pub queue: Option<&'a str>,
    pub args: Option<Value<'a>>,
    pub state: Option<&'a str>,
    pub priority: Option<i64>,
    pub max_attempts: Option<i64>,
    /// PostgreSQL's `timestamptz`.
    pub run_at: Option<i64>,
    pub metadata: Option<Value<'a>>,
    pub tags: Option<Value<'a>>,
    pub unique_key: Option<&'a [u8]>,
    pub unique_states: Option<&'a str>,
    pub ordering_key: Option<&'a [u8]>,
    pub uniqueness: Option<Value<'a>>,
    /// Only to be refused.
    pub job_id: Option<i64>,
}

/// What a row without a value gets.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Defaults {
    pub kind: Option<String>,
    pub queue: Option<String>,
    pub priority: Option<i64>,
    pub max_attempts: Option<i64>,
    pub uniqueness: Option<Uniqueness<'static>>,
    /// The bytes of a `jsonb`.
    pub tags: Option<Vec<u8>>,
}

/// For ways in that have no defaults of their own.
pub static NO_DEFAULTS: Defaults =
    Defaults { kind: None, queue: None, priority: None, max_attempts: None, uniqueness: None, tags: None };

impl<'a> Record<'a> {
    /// The job that the row asks for.
    pub fn draft(self, defaults: &'a Defaults) -> Result<Draft<'a>, Fault> {
        if self.job_id.is_some() {
            return Err(Fault::GivenId);
        }
        let tags = match (self.tags, &defaults.tags) {
            (None, Some(bytes)) => Some(Value::root(bytes)?),
            (tags, _) => tags,
        };
        Ok(Draft {
            kind: self.kind.or(defaults.kind.as_deref()),
            queue: self.queue.or(defaults.queue.as_deref()),
            args: self.args,
            state: self.state,
            priority: self.priority.or(defaults.priority),
            max_attempts: self.max_attempts.or(defaults.max_attempts),
            run_at: self.run_at.map(RunAt::Micros),
            metadata: self.metadata,
            tags,
            unique: self.unique(defaults)?,
            ordering_key: self.ordering_key.map(Cow::Borrowed),
        })
    }

    /// A row's `uniqueness` of false switches off the default.
    fn unique(&self, defaults: &Defaults) -> Result<Option<Uniqueness<'a>>, Fault> {
        let given = match (self.unique_key, self.unique_states) {
            (Some(key), states) => Some(Uniqueness::given_bytes(Cow::Borrowed(key), states)?),
            (None, states) => Uniqueness::given(None, states)?,
        };
        let asked = self.uniqueness.filter(|value| !value.is_null()).map(Uniqueness::from_json).transpose()?;
        match (given, asked) {
            (Some(_), Some(Some(_))) => Err(Fault::Uniqueness("uniqueness and unique_key exclude each other".into())),
            (Some(given), _) => Ok(Some(given)),
            (None, Some(asked)) => Ok(asked),
            (None, None) => Ok(defaults.uniqueness.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonb::encode;
    use serde_json::json;

    #[test]
    fn defaults_stand_in_for_what_a_row_does_not_give() {
        let tags = encode(&json!(["d"]));
        let defaults = Defaults {
            kind: Some("dk".into()),
            queue: Some("dq".into()),
            priority: Some(1),
            max_attempts: Some(7),
            uniqueness: Uniqueness::from_json(Value::Bool(true)).unwrap(),
            tags: Some(tags.clone()),
        };
        let draft = Record::default().draft(&defaults).unwrap();
        assert_eq!((draft.kind, draft.queue, draft.priority, draft.max_attempts), (Some("dk"), Some("dq"), Some(1), Some(7)));
        assert_eq!((draft.unique.is_some(), draft.tags), (true, Some(Value::root(&tags).unwrap())));

        let own = encode(&json!([]));
        let row = Record {
            kind: Some("k"),
            queue: Some("q"),
            priority: Some(4),
            max_attempts: Some(1),
            tags: Some(Value::root(&own).unwrap()),
            uniqueness: Some(Value::Bool(false)),
            run_at: Some(5),
            ..Record::default()
        };
        let draft = row.draft(&defaults).unwrap();
        assert_eq!((draft.kind, draft.queue, draft.priority, draft.max_attempts), (Some("k"), Some("q"), Some(4), Some(1)));
        assert_eq!((draft.unique, draft.run_at), (None, Some(RunAt::Micros(5))));
        assert_eq!(draft.tags, Some(Value::root(&own).unwrap()));
    }

    #[test]
    fn a_key_of_the_row_goes_before_the_default() {
        let defaults = Defaults { uniqueness: Uniqueness::from_json(Value::Bool(true)).unwrap(), ..Defaults::default() };
        let row = Record { unique_key: Some(&[1, 2]), unique_states: Some("01000000"), ..Record::default() };
        assert!(matches!(row.draft(&defaults).unwrap().unique, Some(Uniqueness::Given { .. })));
        let null = Record { uniqueness: Some(Value::Null), ..Record::default() };
        assert_eq!(null.draft(&defaults).unwrap().unique, defaults.uniqueness);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let none = Defaults::default();
        let both = Record { unique_key: Some(&[1]), uniqueness: Some(Value::Bool(true)), ..Record::default() };
        assert!(matches!(both.draft(&none).unwrap_err(), Fault::Uniqueness(_)));
        let no_key = Record { unique_states: Some("01000000"), ..Record::default() };
        assert_eq!(no_key.draft(&none).unwrap_err(), Fault::StatesWithoutKey);
        let id = Record { job_id: Some(1), ..Record::default() };
        assert_eq!(id.draft(&none).unwrap_err(), Fault::GivenId);
    }
}
