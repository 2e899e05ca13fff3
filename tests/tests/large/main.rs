//! What takes millions of jobs or a hundred thousand calls.

mod copy_big;
mod fuzz;
mod limit;
mod memory;
