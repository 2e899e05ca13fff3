//! The storages, the extension's own and awa's: installed, found, dumped, dropped, worked by awa, and guarded by rights.

mod authority;
mod awa_parity;
mod awa_worker;
mod before_commit;
mod catalog;
mod coexistence;
mod created;
mod data_only;
mod discard;
mod drop_race;
mod embedded_drop;
mod embedded_dump;
mod engine;
mod lookup;
mod privileges;
mod revokes;
mod row_security;
mod settings;
mod takeover;
mod workable;
