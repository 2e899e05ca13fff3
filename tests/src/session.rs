//! A connection that a test can break, and a COPY that it can leave open.

use std::pin::Pin;
use std::time::Instant;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, CopyInSink, Error, NoTls};

use crate::{DEADLINE, Db, backend_pid, rows, wait_until};

/// A connection of the superuser whose socket can be closed without a word.
pub struct Session {
    /// The client.
    pub client: Client,
    /// The backend's process.
    pub pid: i32,
    connection: JoinHandle<()>,
}

impl Session {
    /// Connects to `db`.
    pub async fn open(db: &Db) -> Self {
        let (client, connection) = tokio_postgres::connect(&db.url(), NoTls).await.expect("a connection");
        // What breaks the connection is what the test does to it.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let pid = backend_pid(&client).await;
        Self { client, pid, connection }
    }

    /// Begins a COPY.
    pub async fn copy(&self, statement: &str) -> OpenCopy {
        let sink = self.client.copy_in(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        OpenCopy { sink: Box::pin(sink), pid: self.pid, sent: 0 }
    }

    /// Closes the socket, and waits until the backend is gone.
    pub async fn break_off(self, observer: &Client) {
        self.connection.abort();
        self.wait_until_gone(observer).await;
    }

    /// Waits until the backend is gone.
    pub async fn wait_until_gone(&self, observer: &Client) {
        wait_until(observer, &format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {})", self.pid)).await;
    }

    /// Fails if the backend, which may be gone, has left temporary files.
    pub async fn assert_no_temporary_files(pid: i32, observer: &Client, when: &str) {
        let files = rows(observer, &temporary_files(pid), &[]).await;
        assert!(files.is_empty(), "{when}: {files:?}");
    }
}

fn temporary_files(pid: i32) -> String {
    format!("(SELECT name FROM pg_ls_tmpdir() WHERE name LIKE 'pgsql\\_tmp{pid}.%')")
}

/// A COPY that is under way. Dropped, it is aborted by the client.
pub struct OpenCopy {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    pid: i32,
    sent: usize,
}

impl OpenCopy {
    /// Sends whole lines, which need not have arrived when this returns.
    pub async fn send(&mut self, lines: impl Into<Bytes>) -> Result<(), Error> {
        let lines = lines.into();
        self.sent += lines.iter().filter(|byte| **byte == b'\n').count();
        self.sink.send(lines).await?;
        self.sink.flush().await
    }

    /// Waits until the server has taken in every row that was sent.
    pub async fn wait_until_taken(&self, observer: &Client) {
        let taken = format!("SELECT tuples_processed = {} FROM pg_stat_progress_copy WHERE pid = {}", self.sent, self.pid);
        wait_until(observer, &taken).await;
    }

    /// Waits until rows were spilled to temporary files.
    pub async fn wait_until_spilled(&self, observer: &Client) {
        wait_until(observer, &format!("SELECT count(*) > 0 FROM {} AS file", temporary_files(self.pid))).await;
    }

    /// Sends `lines` again and again until the server has ended the COPY: it looks for cancellations between rows.
    pub async fn send_until_ended(&mut self, lines: impl Into<Bytes>, observer: &Client) {
        let lines = lines.into();
        let under_way = format!("SELECT FROM pg_stat_progress_copy WHERE pid = {}", self.pid);
        let started = Instant::now();
        while self.send(lines.clone()).await.is_ok() && observer.query_opt(&under_way, &[]).await.expect(&under_way).is_some() {
            assert!(started.elapsed() < DEADLINE, "the COPY goes on after {DEADLINE:?}");
        }
    }

    /// Ends the COPY, and returns how many rows the server says it read.
    pub async fn finish(mut self) -> Result<u64, Error> {
        self.sink.as_mut().finish().await
    }
}
