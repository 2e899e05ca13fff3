//! What the harness needs from the operating system: who runs the server, where, and how it ends with us.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// Folders of this harness are called `awa_ingest-PID-NUMBER`, so that a later run knows which ones nobody uses.
const FOLDER_PREFIX: &str = "awa_ingest-";

/// The user the server runs as when we are root, which it refuses to be itself.
#[derive(Clone, Copy)]
pub struct ServerUser {
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl ServerUser {
    /// `None` unless root: then the server simply runs as whoever runs the tests.
    pub fn current() -> Option<Self> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let user = ["postgres", "nobody"].into_iter().find_map(Self::named);
        Some(user.expect("root needs a user postgres or nobody to run the server as"))
    }

    fn named(name: &str) -> Option<Self> {
        let name = CString::new(name).expect("user names hold no NUL");
        // SAFETY: the name is a C string; the entry is copied out before anything else could call getpwnam.
        unsafe {
            let entry = libc::getpwnam(name.as_ptr());
            entry.as_ref().map(|e| Self { uid: e.pw_uid, gid: e.pw_gid })
        }
    }

    /// Makes `command` run as `user`, in `/` because our own folder may be closed to that user.
    pub fn apply(user: Option<Self>, command: &mut Command) -> &mut Command {
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
        command.current_dir("/")
    }

    /// Gives a folder to `user`.
    pub fn give(user: Option<Self>, folder: &Path) -> io::Result<()> {
        user.map_or(Ok(()), |u| std::os::unix::fs::chown(folder, Some(u.uid), Some(u.gid)))
    }
}

/// Names the folder that the servers' folders are made in, if that is not the one for temporary files.
const PARENT: &str = "AWA_INGEST_TEST_FOLDER";

/// A new folder with a short path (a socket's path is limited to about 100 bytes), after removing what killed runs left.
pub fn new_folder() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let parent = std::env::var_os(PARENT).map_or_else(std::env::temp_dir, PathBuf::from);
    remove_abandoned(&parent)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("{FOLDER_PREFIX}{}-{number}", std::process::id()));
    fs::create_dir(&folder)?;
    Ok(folder)
}

fn remove_abandoned(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| n.strip_prefix(FOLDER_PREFIX)).and_then(|n| n.split('-').next());
        if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            // Another test binary may be removing the same folder: whoever comes second finds nothing.
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
    Ok(())
}

/// A TCP port that was free a moment ago.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A server process that ends when this process does, however that ends.
pub struct Server {
    pid: libc::pid_t,
    keeper: JoinHandle<io::Result<ExitStatus>>,
}

impl Server {
    /// Starts `command` from a thread that lives as long as the child: Linux sends the parent-death signal when the
    /// *thread* that forked ends, and tests come and go on threads of their own.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let (send, receive) = mpsc::channel();
        let keeper = thread::Builder::new().name("server keeper".into()).spawn(move || {
            let mut child = spawn_bound_to_us(&mut command).inspect_err(|e| {
                let _ = send.send(Err(io::Error::new(e.kind(), e.to_string())));
            })?;
            let _ = send.send(Ok(child.id()));
            child.wait()
        })?;
        let pid = receive.recv().expect("the keeper reports before it ends")?;
        Ok(Self { pid: pid as libc::pid_t, keeper })
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.keeper.is_finished()
    }

    /// Ends the server at once (`pg_ctl stop -m immediate`) and waits until it is gone.
    pub fn stop(self) {
        self.end(libc::SIGQUIT);
    }

    /// Ends the server in order (`pg_ctl stop -m fast`) and waits until it is gone.
    pub fn stop_fast(self) {
        self.end(libc::SIGINT);
    }

    fn end(self, signal: libc::c_int) {
        if !self.has_ended() {
            // SAFETY: the keeper has not reaped this child yet, so the id is still that child's.
            unsafe { libc::kill(self.pid, signal) };
        }
        let _ = self.keeper.join();
    }
}

fn spawn_bound_to_us(command: &mut Command) -> io::Result<Child> {
    // SAFETY: prctl and getppid are async-signal-safe system calls, and nothing is allocated between fork and exec.
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT);
            // We may have died between fork and prctl.
            if libc::getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
    command.spawn()
}
