//! How long a backend holds lane locks, as another session sees it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::Client;

use crate::candidates::Call;

const SQL: &str = "SELECT EXISTS (SELECT FROM pg_locks
    WHERE pid = $1 AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted)";

/// Looking takes time: the true figure lies between these two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    pub at_least: Duration,
    pub at_most: Duration,
}

/// One look at the locks, which happened some time between question and answer.
#[derive(Clone, Copy)]
struct Look {
    asked: Instant,
    answered: Instant,
    locked: bool,
}

/// Makes the call, and looks at its backend's locks all the while. None where no lock was seen.
pub async fn watch(client: &Client, backend: i32, call: Call<'_>) -> Result<(usize, Option<Seen>)> {
    let statement = client.prepare(SQL).await?;
    let look = async || {
        let asked = Instant::now();
        let locked = client.query_one(&statement, &[&backend]).await?.get(0);
        Ok::<_, anyhow::Error>(Look { asked, answered: Instant::now(), locked })
    };
    let mut looks = vec![look().await?];
    let ended = Cell::new(false);
    let watching = async {
        while !ended.get() {
            looks.push(look().await?);
        }
        // One more, behind the end of the transaction.
        looks.push(look().await?);
        Ok(())
    };
    let calling = async {
        let enqueued = call.await?;
        ended.set(true);
        Ok::<_, anyhow::Error>(enqueued)
    };
    let (enqueued, ()) = tokio::try_join!(calling, watching)?;
    Ok((enqueued, hold(&looks)))
}

/// From the first look that saw a lock to the last, and from the look before these to the one behind.
fn hold(looks: &[Look]) -> Option<Seen> {
    let first = looks.iter().position(|look| look.locked)?;
    let last = looks.iter().rposition(|look| look.locked)?;
    Some(Seen {
        at_least: looks[last].asked.saturating_duration_since(looks[first].answered),
        at_most: looks.get(last + 1)?.answered - looks.get(first.checked_sub(1)?)?.asked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lies_between_the_looks_within_and_those_around() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let look = |millis, locked| Look { asked: at(millis), answered: at(millis + 1), locked };
        let looks = [look(0, false), look(10, true), look(20, true), look(30, true), look(40, false)];
        let seen = Seen { at_least: Duration::from_millis(19), at_most: Duration::from_millis(41) };
        assert_eq!(hold(&looks), Some(seen));
        assert_eq!(hold(&looks[..1]), None);
    }
}
