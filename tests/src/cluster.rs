//! A private PostgreSQL server for tests.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use crate::db::Template;
use crate::os::{self, Server, ServerUser};

/// Settings of every test server: no durability, room for many clients and workers, no chance in the plans.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("max_connections", "300"),
    ("shared_buffers", "128MB"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("jit", "off"),
    ("max_worker_processes", "64"),
    ("log_line_prefix", "%m [%p] %d "),
    ("timezone", "UTC"),
];

/// A started server (`initdb`, `postgres`) on a free port of 127.0.0.1 and a Unix socket. Its folder is removed and its
/// process ended when the last handle goes, and for handles that never go, when the test process ends.
pub struct Cluster {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    pub(crate) templates: [OnceCell<()>; Template::COUNT],
}

impl Cluster {
    /// The server that all tests of this binary share, started on first use.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[])).clone()
    }

    /// A server of the test's own, with extra settings: for tests that restart, preload, or need their own roles.
    pub fn start(settings: &[(&str, &str)]) -> Arc<Self> {
        let cluster = Self::new(settings);
        init_db(&cluster.bin, &cluster.folder, ServerUser::current());
        cluster.launch();
        Arc::new(cluster)
    }

    /// A standby of `primary`, which must be set up for one, with extra settings.
    pub fn standby_of(primary: &Self, settings: &[(&str, &str)]) -> Arc<Self> {
        let cluster = Self::new(settings);
        let mut command = primary.program("pg_basebackup");
        command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-D"]).arg(cluster.folder.join("data"));
        let output = ServerUser::apply(ServerUser::current(), &mut command).output().expect("running pg_basebackup");
        assert!(output.status.success(), "pg_basebackup failed: {}", String::from_utf8_lossy(&output.stderr));
        cluster.launch();
        Arc::new(cluster)
    }

    fn new(settings: &[(&str, &str)]) -> Self {
        let bin = env::var_os("AWA_INGEST_PG_BIN")
            .map(PathBuf::from)
            .expect("AWA_INGEST_PG_BIN must name the bin folder of a PostgreSQL with the extension installed");
        let folder = os::new_folder().expect("creating the server's folder");
        ServerUser::give(ServerUser::current(), &folder).expect("giving the folder to the server's user");
        let port = os::free_port().expect("finding a free port");
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Self { bin, folder, port, settings, templates: Default::default() }
    }

    fn launch(&self) {
        let server = launch(&self.bin, &self.folder, self.port, &self.settings, ServerUser::current());
        RunningServers::add(self.folder.clone(), server);
        wait_until_ready(&self.folder);
    }

    /// Stops the server as `pg_ctl stop -m fast` does, and returns how long that took.
    pub fn stop_fast(&self) -> Duration {
        let started = Instant::now();
        RunningServers::take(&self.folder).expect("the server is running").stop_fast();
        started.elapsed()
    }

    /// Starts the server again that was stopped. Its log begins anew.
    pub fn start_again(&self) {
        self.launch();
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection string for any client library.
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// A client program of the same installation (`psql`, `pg_dump` …), set up to connect as the superuser.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string()).env("PGUSER", "postgres");
        command
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        read_log(&self.folder)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        RunningServers::end(&self.folder);
    }
}

fn init_db(bin: &Path, folder: &Path, user: Option<ServerUser>) {
    let mut command = Command::new(bin.join("initdb"));
    command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "-D"]);
    command.arg(folder.join("data"));
    let output = ServerUser::apply(user, &mut command).output().expect("running initdb");
    assert!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
}

fn launch(bin: &Path, folder: &Path, port: u16, extra: &[(String, String)], user: Option<ServerUser>) -> Server {
    let log = fs::File::create(log_path(folder)).expect("creating the server's log");
    let mut command = Command::new(bin.join("postgres"));
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder).args(["-p", &port.to_string()]);
    let extra = extra.iter().map(|(name, value)| (&**name, &**value));
    for (name, value) in SETTINGS.iter().copied().chain(extra) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    ServerUser::apply(user, &mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Server::spawn(command).expect("starting postgres")
}

/// The last line of `postmaster.pid` is what `pg_ctl` itself waits for.
fn wait_until_ready(folder: &Path) {
    let started = Instant::now();
    let status = folder.join("data/postmaster.pid");
    while !fs::read_to_string(&status).is_ok_and(|s| s.lines().nth(7).is_some_and(|l| l.trim() == "ready")) {
        if RunningServers::has_ended(folder) || started.elapsed() > crate::DEADLINE {
            let log = read_log(folder);
            RunningServers::end(folder);
            panic!("the test server did not start:\n{log}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("log")
}

fn read_log(folder: &Path) -> String {
    let bytes = fs::read(log_path(folder)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Every server this process runs, so that one exit handler ends those that live in statics.
struct RunningServers(Vec<(PathBuf, Server)>);

static RUNNING: Mutex<RunningServers> = Mutex::new(RunningServers(Vec::new()));

impl RunningServers {
    fn add(folder: PathBuf, server: Server) {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: the handler has the signature atexit wants and does not unwind.
            unsafe { libc::atexit(end_all_servers) };
        });
        Self::lock().0.push((folder, server));
    }

    fn has_ended(folder: &Path) -> bool {
        Self::lock().0.iter().any(|(f, server)| f == folder && server.has_ended())
    }

    fn take(folder: &Path) -> Option<Server> {
        let mut running = Self::lock();
        let at = running.0.iter().position(|(f, _)| f == folder)?;
        Some(running.0.swap_remove(at).1)
    }

    fn end(folder: &Path) {
        if let Some(server) = Self::take(folder) {
            server.stop();
        }
        let _ = fs::remove_dir_all(folder);
    }

    /// A panic while the lock was held leaves the list as good as it was.
    fn lock() -> std::sync::MutexGuard<'static, Self> {
        RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

extern "C" fn end_all_servers() {
    for (folder, server) in RunningServers::lock().0.drain(..) {
        server.stop();
        let _ = fs::remove_dir_all(folder);
    }
}
