//! Memory that is emptied from row to row.
#![allow(unsafe_code)]

use pgrx::PgMemoryContexts;
use pgrx::pg_sys::{self, MemoryContext};

/// A memory context for what the server allocates for one row.
pub struct RowMemory(MemoryContext);

impl RowMemory {
    /// Within the current memory context, which takes it along if it is not closed.
    pub fn new() -> Self {
        // SAFETY: the name is a constant; the sizes are the server's defaults.
        Self(unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"awa_ingest row".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        })
    }

    /// Runs `work` on this memory, and empties it. What `work` returns has nothing in it.
    pub fn of_row<T: 'static>(&mut self, work: impl FnOnce() -> T) -> T {
        // SAFETY: the context lives; `T` borrows nothing.
        unsafe {
            let result = PgMemoryContexts::For(self.0).switch_to(|_| work());
            pg_sys::MemoryContextReset(self.0);
            result
        }
    }

    /// Gives it back. Not a `Drop`: while an error unwinds, the surrounding context does this.
    pub fn close(self) {
        // SAFETY: the context lives, and is not the current one.
        unsafe { pg_sys::MemoryContextDelete(self.0) }
    }
}
