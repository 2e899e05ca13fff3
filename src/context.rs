//! What is added to errors that the server raises: a line of context, and the column.
#![allow(unsafe_code)]

use pgrx::pg_guard;
use pgrx::pg_sys::{self, ErrorContextCallback};
use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

/// A line, and the column that it is about, if any.
type Describe<'d> = &'d dyn Fn() -> (String, Option<&'static str>);

/// Runs `work`; errors that the server raises in it carry the line and the column that `describe` gives.
pub fn with<T>(describe: Describe<'_>, work: impl FnOnce() -> T) -> T {
    // SAFETY: the entry and what it points to stay in this frame until it is taken off the stack, which also happens while a panic
    // unwinds: whatever is raised further out must not look here.
    unsafe {
        let mut entry = ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(add_line),
            arg: (&raw const describe).cast_mut().cast(),
        };
        let _pop = Pop(entry.previous);
        pg_sys::error_context_stack = &raw mut entry;
        work()
    }
}

struct Pop(*mut ErrorContextCallback);

impl Drop for Pop {
    fn drop(&mut self) {
        // SAFETY: puts back what was there; calls nothing.
        unsafe { pg_sys::error_context_stack = self.0 }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn add_line(describe: *mut c_void) {
    // SAFETY: what `with` put there; the server copies the texts.
    unsafe {
        let (line, column) = (*describe.cast::<Describe<'_>>())();
        let line = CString::new(line).unwrap_or_default();
        pg_sys::set_errcontext_domain(std::ptr::null());
        errcontext_msg(c"%s".as_ptr(), line.as_ptr());
        if let Some(column) = column {
            let column = CString::new(column).unwrap_or_default();
            pg_sys::err_generic_string(pg_sys::PG_DIAG_COLUMN_NAME.into(), column.as_ptr());
        }
    }
}
