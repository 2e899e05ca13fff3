//! What the documentation shows.

mod calls;
mod clients;
mod readme;
mod walkthrough;
