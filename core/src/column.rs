//! The columns in which rows of jobs arrive, by CSV and by COPY.

use std::fmt::{self, Display, Formatter};

/// A column that a row may give. The twelve before [`Column::Uniqueness`] are those of awa's own COPY, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Column {
    Kind,
    Queue,
    Args,
    State,
    Priority,
    MaxAttempts,
    RunAt,
    Metadata,
    Tags,
    UniqueKey,
    UniqueStates,
    OrderingKey,
    Uniqueness,
}

impl Column {
    /// How many there are; `column as usize` is below it.
    pub const COUNT: usize = 13;

    /// All columns, in their order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Kind,
        Self::Queue,
        Self::Args,
        Self::State,
        Self::Priority,
        Self::MaxAttempts,
        Self::RunAt,
        Self::Metadata,
        Self::Tags,
        Self::UniqueKey,
        Self::UniqueStates,
        Self::OrderingKey,
        Self::Uniqueness,
    ];

    /// The columns of rows that name none: those of awa's own COPY.
    pub fn unnamed() -> &'static [Self] {
        const UNNAMED: &[Column] = Column::ALL.split_at(Column::COUNT - 1).0;
        UNNAMED
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Queue => "queue",
            Self::Args => "args",
            Self::State => "state",
            Self::Priority => "priority",
            Self::MaxAttempts => "max_attempts",
            Self::RunAt => "run_at",
            Self::Metadata => "metadata",
            Self::Tags => "tags",
            Self::UniqueKey => "unique_key",
            Self::UniqueStates => "unique_states",
            Self::OrderingKey => "ordering_key",
            Self::Uniqueness => "uniqueness",
        }
    }

    /// The column of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }
}

impl Display for Column {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_fit_the_order() {
        for (index, column) in Column::ALL.into_iter().enumerate() {
            assert_eq!(column as usize, index);
            assert_eq!(Column::parse(column.name()), Some(column));
        }
        assert_eq!(Column::parse("job_id"), None);
        assert_eq!(Column::parse("Kind"), None);
    }

    #[test]
    fn unnamed_columns_are_those_of_awas_copy() {
        let names: Vec<_> = Column::unnamed().iter().map(|column| column.name()).collect();
        let awas =
            "kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states, ordering_key";
        assert_eq!(names.join(", "), awas);
    }
}
