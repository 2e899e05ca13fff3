//! What the documentation shows.

mod clients;
mod readme;
mod walkthrough;
