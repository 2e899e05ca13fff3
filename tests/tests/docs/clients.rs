//! The samples of docs/clients.md run as they are printed, and fail as the page says.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use awa_ingest_tests::{Db, within};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

const PAGE: &str = include_str!("../../../docs/clients.md");
/// Where Debian's libpostgresql-jdbc-java puts the driver.
const JDBC_DRIVER: &str = "/usr/share/java/postgresql.jar";

/// The blocks of `language`, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&fence).skip(1).map(|rest| rest.split_once("```").expect("a block ends").0).collect()
}

fn block(language: &str) -> &'static str {
    let [block] = blocks(language)[..] else { panic!("the page has one block of {language}") };
    block
}

/// A file that `scripts/setup-clients` provides.
fn provided(path: impl Into<PathBuf>, package: &str) -> PathBuf {
    let path = path.into();
    assert!(path.exists(), "{} is missing: run scripts/setup-clients, which installs {package}", path.display());
    path
}

/// Where `scripts/setup-clients` installs what is not Debian's.
fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/clients")
}

/// Runs a sample that finds `db` in its environment. `package` is what provides the program.
async fn run(command: &mut Command, package: &str, db: &Db) -> Output {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let (port, name) = (db.cluster().port().to_string(), db.name());
    command
        .env("DATABASE_URL", db.url())
        .env("JDBC_DATABASE_URL", format!("jdbc:postgresql://127.0.0.1:{port}/{name}?user=postgres"))
        .envs([("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres"), ("PGDATABASE", name)])
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = within(&program, command.output()).await;
    output.unwrap_or_else(|error| panic!("{program} does not start ({error}): run scripts/setup-clients, which installs {package}"))
}

/// From here on the second job has no kind when it arrives.
async fn spoil_second_job(client: &Client) {
    client
        .batch_execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.kind := NULL; RETURN NEW; END $$;
             CREATE TRIGGER spoil BEFORE INSERT ON awa.ingest FOR EACH ROW
                 WHEN (NEW.kind = 'resize_image') EXECUTE FUNCTION spoil()",
        )
        .await
        .expect("creating the trigger");
}

/// What is in the storage, in the order of arrival.
async fn stored(client: &Client) -> Vec<(String, String, Value)> {
    let sql = "SELECT kind, queue, args FROM awa_ingest.ready_entries ORDER BY job_id";
    client.query(sql, &[]).await.expect(sql).iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

fn expected() -> [(String, String, Value); 2] {
    [
        ("send_email".into(), "email".into(), json!({"to": "Zoë", "subject": "Say \"hi\", Zoë"})),
        ("resize_image".into(), "media".into(), json!({"id": 7, "width": 640})),
    ]
}

/// The sample enqueues its jobs and says so; where the server refuses one, it enqueues none and shows the server's words.
async fn check(package: &str, sample: impl Fn(&Db) -> Command) {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let output = run(&mut sample(&db), package, &db).await;
    let (printed, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {printed}{complaints}", output.status);
    assert_eq!((printed.trim(), complaints.trim()), ("2 jobs enqueued", ""));
    assert_eq!(stored(&client).await, expected());

    let db = Db::embedded().await;
    let client = db.connect().await;
    spoil_second_job(&client).await;
    let output = run(&mut sample(&db), package, &db).await;
    let (printed, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && printed.trim().is_empty(), "{}: {printed}{complaints}", output.status);
    assert!(complaints.contains("job 2: ") && complaints.contains("COPY ingest, line 2"), "{complaints}");
    assert_eq!(stored(&client).await, []);
}

#[tokio::test]
async fn psql() {
    check("the server's programs", |db| {
        let psql = db.cluster().program("psql");
        let folder = Path::new(psql.get_program()).parent().expect("psql is in a folder");
        let rest = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(std::iter::once(folder.into()).chain(env::split_paths(&rest))).expect("a PATH");
        let mut command = Command::new("sh");
        command.args(["-c", block("sh")]).env("PATH", path);
        command
    })
    .await;
}

#[tokio::test]
async fn python() {
    let python = provided(clients().join("venv/bin/python"), "psycopg");
    check("python3", |_| {
        let mut command = Command::new(&python);
        command.args(["-c", block("python")]);
        command
    })
    .await;
}

#[tokio::test]
async fn node() {
    provided(clients().join("node_modules/pg-copy-streams"), "pg and pg-copy-streams");
    check("nodejs", |_| {
        let mut command = Command::new("node");
        command.args(["--input-type=module", "-e", block("js")]).current_dir(clients());
        command
    })
    .await;
}

#[tokio::test]
async fn java() {
    let driver = provided(JDBC_DRIVER, "libpostgresql-jdbc-java");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("Enqueue-{}.java", std::process::id()));
    std::fs::write(&source, block("java")).expect("writing the sample");
    check("default-jdk-headless", |_| {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&driver).arg(&source);
        command
    })
    .await;
    std::fs::remove_file(&source).expect("removing the sample");
}

#[tokio::test]
async fn rust() {
    // What is printed is what cargo built.
    assert_eq!(blocks("rust"), [include_str!("../../clients/copy_tokio_postgres.rs"), include_str!("../../clients/copy_sqlx.rs")]);
    for program in [env!("CARGO_BIN_EXE_copy_tokio_postgres"), env!("CARGO_BIN_EXE_copy_sqlx")] {
        check("this package", |_| Command::new(program)).await;
    }
}

/// pgx asks for the columns' types by preparing a SELECT, which nobody can run.
#[tokio::test]
async fn go_can_prepare_its_copy() {
    assert!(block("go").contains("conn.CopyFrom(ctx, pgx.Identifier{\"awa\", \"ingest\"}"));
    let client = Db::embedded().await.connect().await;
    let statement = client.prepare("select \"kind\", \"queue\", \"args\" from \"awa\".\"ingest\"").await.expect("preparing");
    let types: Vec<_> = statement.columns().iter().map(|column| column.type_().clone()).collect();
    assert_eq!(types, [Type::TEXT, Type::TEXT, Type::JSONB]);
}

#[tokio::test]
async fn sql_runs_as_printed() {
    let client = Db::embedded().await.connect().await;
    for sql in blocks("sql") {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    }
    let stored = stored(&client).await;
    let by_kind = |kind: &str| stored.iter().filter(|job| job.0 == kind).count();
    assert_eq!((by_kind("invoice"), by_kind("send_email"), by_kind("resize_image")), (2, 3, 1));
    assert_eq!(stored[4..], expected());
}
