//! `awa_ingest.status()`: where jobs go, and what keeps them from being taken.

use crate::attach::{self, Body, Function};
use crate::entry::Call;
use crate::lane_damage;
use crate::results;
use crate::spi::{self, View};
use crate::storage::{AwaEngine, KNOWN_VERSION, Mode, Storage, Version};
use awa_ingest_core::error::Result;
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// One row; a storage that refuses jobs is reported, not raised. Needs SELECT on awa's state tables where awa is installed.
pub fn status(call: &Call) -> Result<Option<Datum>> {
    let (awa, storage) = spi::connect(|session| {
        (AwaEngine::look_up(session, View::Caller, Version::Checked), Storage::resolve(session, View::Caller, Version::Checked))
    });
    let damage = storage.as_ref().ok().and_then(|storage| spi::connect(|session| lane_damage::summary(session, storage)));
    let (problem, hint) = match &storage {
        Ok(_) if damage.is_some() => (damage.clone(), Some("awa_ingest.lane_sequence_problems() says how it is repaired.")),
        Ok(_) => (None, None),
        Err(error) => (Some(error.to_string()), error.hint()),
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
