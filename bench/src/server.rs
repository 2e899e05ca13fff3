//! A private server for one run: its own data folder, a unix socket in it, gone when the guard is dropped.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, process};

use anyhow::{Context as _, Result, bail, ensure};

/// Settings that differ from the defaults: room for a round without a forced checkpoint, and no network.
const SETTINGS: &str = "
listen_addresses = ''
max_wal_size = 4GB
shared_buffers = 256MB
";

/// A running server. Dropping it stops the server at once and removes its folder.
pub struct Server {
    bin: PathBuf,
    folder: PathBuf,
    user: Option<User>,
}

/// The user that runs the server where the benchmark itself runs as root, which PostgreSQL refuses.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Server {
    /// Initialises and starts a server from the programs in `AWA_INGEST_PG_BIN`, with further lines of configuration.
    pub fn start(settings: &str) -> Result<Self> {
        let bin = env::var_os("AWA_INGEST_PG_BIN")
            .context("AWA_INGEST_PG_BIN is not set: the folder with initdb, postgres and pg_ctl")?;
        let folder = env::temp_dir().join(format!("awa_ingest_bench.{}", process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;

        // From here on the guard removes the folder, whatever fails.
        let server = Self { bin: PathBuf::from(bin), folder, user: server_user()? };
        fs::set_permissions(&server.folder, fs::Permissions::from_mode(0o700))?;
        if let Some(user) = server.user {
            chown(&server.folder, Some(user.uid), Some(user.gid))?;
        }
        server.initialise(settings)?;
        server.run("pg_ctl", &["start", "-w", "-l", "log"])?;
        Ok(server)
    }

    /// The folder of the unix socket, to be given to drivers as the host.
    pub fn socket_folder(&self) -> &Path {
        &self.folder
    }

    fn initialise(&self, settings: &str) -> Result<()> {
        self.run("initdb", &["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"])?;
        let config = self.folder.join("data/postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(&config)?;
        writeln!(file, "{SETTINGS}{settings}unix_socket_directories = '{}'", self.folder.display())?;
        Ok(())
    }

    /// Runs one of the server's programs in the folder, as the server's user, on the data folder.
    fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        let mut command = Command::new(self.bin.join(program));
        command.args(args).args(["-D", "data"]).current_dir(&self.folder);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        let output = command.output().with_context(|| format!("cannot run {program}"))?;
        if !output.status.success() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            bail!("{program} failed: {}{log}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.folder.join("data/postmaster.pid").exists()
            && let Err(error) = self.run("pg_ctl", &["stop", "-w", "-m", "immediate"])
        {
            eprintln!("{error:#}");
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// `postgres` or else `nobody` for root, nothing for everyone else.
fn server_user() -> Result<Option<User>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd")?;
    let user = ["postgres", "nobody"].iter().find_map(|name| find_user(&passwd, name));
    ensure!(user.is_some(), "root cannot run a server, and there is no user postgres or nobody");
    Ok(user)
}

fn find_user(passwd: &str, name: &str) -> Option<User> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut ids = line.split(':').skip(2);
    Some(User { uid: ids.next()?.parse().ok()?, gid: ids.next()?.parse().ok()? })
}
