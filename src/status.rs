//! `awa_ingest.status()`: where jobs go, and what keeps them from being taken.

use crate::attach::{self, Body, Function};
use crate::authority;
use crate::entry::Call;
use crate::lane_damage;
use crate::results;
use crate::server;
use crate::spi::{self, Session, View};
use crate::storage::{AwaEngine, KNOWN_VERSION, Mode, Version};
use awa_ingest_core::error::Result;
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// One row; a storage that refuses jobs is reported, not raised. Needs SELECT on awa's state tables where awa is installed.
pub fn status(call: &Call) -> Result<Option<Datum>> {
    let (awa, storage) = spi::connect(|session| {
        let storage = authority::resolve_to_read(session).and_then(|storage| authority::check(&storage).map(|()| storage));
        (engine(session), storage)
    });
    let damage = match &storage {
        Ok(storage) => {
            let summary = |session: &Session| {
                authority::read(storage, lane_damage::touched(storage), || lane_damage::summary(session, storage))
            };
            spi::connect(summary).unwrap_or_else(|error| Some(error.to_string()))
        }
        Err(_) => None,
    };
    let (problem, hint) = match &storage {
        Ok(_) if damage.is_some() => (damage.clone(), Some("awa_ingest.lane_sequence_problems() says how it is repaired.")),
        Ok(_) => (None, None),
        Err(error) => (Some(error.detail().map_or_else(|| error.to_string(), |detail| format!("{error}: {detail}"))), error.hint()),
    };
    let attached = !matches!(awa, Ok(None));
    let awa = awa.ok().flatten();
    let mode = match &storage {
        Ok(storage) => storage.mode,
        Err(_) if attached => Mode::Attached,
        Err(_) => Mode::Embedded,
    };
    let engine = awa.as_ref().map_or("queue_storage", |awa| &awa.name);
    let schema = storage.as_ref().ok().map(|storage| storage.schema.to_string());
    let (function, function_problem) = if attached { compat(awa.as_ref())? } else { (None, None) };
    let row = [
        env!("CARGO_PKG_VERSION").into_datum(),
        (if mode == Mode::Attached { "awa" } else { "own" }).into_datum(),
        schema.into_datum(),
        engine.into_datum(),
        awa.as_ref().and_then(|awa| awa.version).into_datum(),
        (storage.is_ok() && damage.is_none()).into_datum(),
        problem.into_datum(),
        hint.into_datum(),
        function.into_datum(),
        function_problem.into_datum(),
    ];
    Ok(Some(results::record(call, row)))
}

/// A superuser reads as the owner of awa's state.
fn engine(session: &Session) -> Result<Option<AwaEngine>> {
    match server::is_superuser() {
        true => authority::engine(session, View::Caller),
        false => AwaEngine::look_up(session, View::Caller, Version::Checked),
    }
}

/// What awa's clients call, and what is wrong with it.
fn compat(awa: Option<&AwaEngine>) -> Result<(Option<&'static str>, Option<String>)> {
    let (function, original) = spi::connect(|session| (Function::look_up(session), attach::original(session)));
    let attached_once = original?.is_some();
    let version = awa.and_then(|awa| awa.version);
    let Some(function) = function else { return Ok((Some("missing"), Some("awa.insert_job_compat does not exist".into()))) };
    let known = version == Some(KNOWN_VERSION);
    let misfit = function.difference.or_else(|| (!known).then(|| "awa's schema has another version".into()));
    Ok(match (function.body, misfit) {
        (Body::Ours, None) => (Some("replaced"), None),
        (Body::Ours, misfit) => (Some("misfit"), misfit),
        _ if attached_once => (
            Some("overwritten"),
            Some("another function took the place of awa_ingest's since awa_ingest.attach() was called".into()),
        ),
        (Body::Awas, None) => (Some("original"), None),
        (Body::Awas, misfit) => (Some("unknown"), misfit),
        (Body::Other, misfit) => (Some("unknown"), misfit.or_else(|| Some("its body is not that of awa 0.6.9".into()))),
    })
}
