//! The README's walkthrough runs as it is printed, but for the first line, which `scripts/setup-clients` has run.

use std::env;
use std::path::Path;
use std::process::Stdio;

use awa_ingest_tests::{Db, within};
use tokio::process::Command;

const README: &str = include_str!("../../../README.md");
const REQUIREMENTS: &str = include_str!("../../clients/requirements.txt");

/// The block of `language` in the section.
fn block(section: &str, language: &str) -> String {
    let start = format!("```{language}\n");
    let (_, rest) = section.split_once(&start).expect(language);
    rest.split_once("```").expect("a block ends").0.to_owned()
}

#[tokio::test]
async fn a_job_is_worked_as_printed() {
    let (_, section) = README.split_once("\n## A first job, worked\n").expect("the section");
    let (worker, script) = (block(section, "python"), block(section, "sh"));
    let (install, rest) = script.split_once('\n').expect("several lines");
    let pinned = install.strip_prefix("pip install ").expect("it is installed first");
    assert!(REQUIREMENTS.contains(&format!("\n{pinned} ")), "{pinned} is what the test runs");
    let (export, rest) = rest.split_once('\n').expect("several lines");
    assert!(export.starts_with("export DATABASE_URL="), "{export}");

    let db = Db::bare().await;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("walkthrough-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("worker.py"), worker).expect("writing the worker");
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/clients/venv/bin");
    assert!(python.join("python").exists(), "python is missing: run scripts/setup-clients");
    let psql = db.cluster().program("psql");
    let programs = Path::new(psql.get_program()).parent().expect("psql is in a folder").to_owned();
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([python, programs].into_iter().chain(env::split_paths(&others))).expect("a PATH");

    let mut command = Command::new("sh");
    command.args(["-e", "-c", rest]).current_dir(&folder).env("PATH", path).env("DATABASE_URL", db.url());
    let output = within("the walkthrough", command.stdin(Stdio::null()).kill_on_drop(true).output()).await.expect("sh starts");
    let (printed, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {printed}{complaints}", output.status);
    assert!(printed.ends_with("sent to ada@example.com\n"), "{printed}{complaints}");
    std::fs::remove_dir_all(&folder).expect("removing the folder");

    let client = db.connect().await;
    let status = client.query_one("SELECT engine FROM awa_ingest.status()", &[]).await.unwrap();
    assert_eq!(status.get::<_, &str>(0), "queue_storage");
    let sql = "SELECT string_agg(kind || ' ' || state::text, ', ') FROM awa.jobs";
    let jobs = client.query_one(sql, &[]).await.unwrap();
    assert_eq!(jobs.get::<_, &str>(0), "send_email completed");
}
