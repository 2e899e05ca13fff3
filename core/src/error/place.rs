//! Where in the input an error is.

use std::fmt::{self, Display, Formatter};

/// A place in CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: u64,
    /// The column's name, where the error is about one.
    pub column: Option<&'static str>,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) => write!(f, "CSV line {}, column {column}", self.line),
            None => write!(f, "CSV line {}", self.line),
        }
    }
}
