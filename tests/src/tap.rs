//! A look at what another client really sends.

use std::mem;
use std::sync::{Arc, Mutex};

use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Db;

/// A proxy before the server that keeps the bytes of every COPY from a client. It ends with its value.
pub struct CopyTap {
    url: String,
    copied: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

impl CopyTap {
    /// Starts a proxy to the server of `db`.
    pub async fn start(db: &Db) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("the proxy's address").port();
        let server = db.cluster().port();
        let copied = Arc::new(Mutex::default());
        let record = Arc::clone(&copied);
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server, Arc::clone(&record)));
            }
        });
        // Without TLS, so that there is something to see.
        let url = format!("postgres://postgres@127.0.0.1:{port}/{}?sslmode=disable", db.name());
        Self { url, copied, listener }
    }

    /// A connection string that leads through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was copied since the last call, all CopyData messages in one.
    pub fn take(&self) -> Vec<u8> {
        mem::take(&mut *self.copied.lock().expect("no connection panics"))
    }
}

impl Drop for CopyTap {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(client: TcpStream, server: u16, record: Arc<Mutex<Vec<u8>>>) {
    let server = TcpStream::connect(("127.0.0.1", server)).await.expect("the server's port");
    // Messages go on one by one, and the kernel must not wait for more.
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("TCP_NODELAY");
    }
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    // Either side may end first; the other sees that by itself.
    tokio::spawn(async move {
        let _ = io::copy(&mut from_server, &mut to_client).await;
    });
    let _ = forward(from_client, to_server, &record).await;
}

/// Passes the client's messages on, one by one.
async fn forward(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, record: &Mutex<Vec<u8>>) -> io::Result<()> {
    // The first message alone has no type.
    let startup = body(&mut client).await?;
    send(&mut server, None, &startup).await?;
    loop {
        let kind = client.read_u8().await?;
        let body = body(&mut client).await?;
        if kind == b'd' {
            record.lock().expect("no connection panics").extend_from_slice(&body);
        }
        send(&mut server, Some(kind), &body).await?;
    }
}

/// The rest of a message: its length counts itself.
async fn body(client: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let length = client.read_u32().await?;
    let mut body = vec![0; length as usize - size_of::<u32>()];
    client.read_exact(&mut body).await?;
    Ok(body)
}

async fn send(server: &mut OwnedWriteHalf, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let length = (body.len() + size_of::<u32>()) as u32;
    let message: Vec<u8> = kind.into_iter().chain(length.to_be_bytes()).chain(body.iter().copied()).collect();
    server.write_all(&message).await
}
