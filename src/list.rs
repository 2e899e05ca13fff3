//! The server's lists of nodes.
#![allow(unsafe_code)]

use pgrx::pg_sys::List;

/// The nodes of a list, in order.
///
/// # Safety
/// `list` is a list of such nodes, or empty, and lives as long as they are used.
pub unsafe fn nodes<T>(list: *mut List) -> impl Iterator<Item = *mut T> {
    // SAFETY: the caller vouches for the list; its length says how many cells there are.
    unsafe {
        let length = if list.is_null() { 0 } else { (*list).length as usize };
        (0..length).map(move |index| (*(*list).elements.add(index)).ptr_value.cast())
    }
}
