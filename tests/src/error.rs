//! What the server said when it refused.

use tokio_postgres::Error;

/// The fields of an error report that tests assert on; fields the server left out are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The five characters of the SQLSTATE.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// The detail line.
    pub detail: String,
    /// The hint line.
    pub hint: String,
    /// The constraint that was violated.
    pub constraint: String,
    /// The column the error is about.
    pub column: String,
    /// The context lines.
    pub context: String,
}

impl Failure {
    /// The ordinal in a message such as `job 3: …`, the way every error about one job names it.
    pub fn ordinal(&self) -> Option<u64> {
        let after = self.message.split_once("job ")?.1;
        let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let Some(report) = error.as_db_error() else {
            panic!("the connection failed where the server should have refused: {error:?}");
        };
        let text = |field: Option<&str>| field.unwrap_or_default().to_owned();
        Self {
            sqlstate: report.code().code().to_owned(),
            message: report.message().to_owned(),
            detail: text(report.detail()),
            hint: text(report.hint()),
            constraint: text(report.constraint()),
            column: text(report.column()),
            context: text(report.where_()),
        }
    }
}

/// The refusal in `result`.
///
/// # Panics
/// When the statement succeeded, or the connection broke instead (a crashed server is not a refusal).
#[track_caller]
pub fn failure<T>(result: Result<T, Error>) -> Failure {
    match result {
        Ok(_) => panic!("the statement succeeded, but should have been refused"),
        Err(error) => error.into(),
    }
}
