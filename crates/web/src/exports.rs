//! Functions that JavaScript calls. A request and its reply share one buffer, so that nothing has to be freed and no address
//! is ever read from a number.

use std::cell::RefCell;

use crate::request;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Room for a request of `bytes` bytes; its address holds until the next call.
#[expect(unsafe_code, reason = "the name of an export is its contract with JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn room(bytes: usize) -> *const u8 {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.resize(bytes, 0);
        buffer.as_ptr()
    })
}

/// Answers the request in the buffer; number of bytes of the reply, which replaces it.
#[expect(unsafe_code, reason = "the name of an export is its contract with JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> usize {
    BUFFER.with_borrow_mut(|buffer| {
        *buffer = request::reply(buffer).into_bytes();
        buffer.len()
    })
}

/// Address of the reply.
#[expect(unsafe_code, reason = "the name of an export is its contract with JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn reply() -> *const u8 {
    BUFFER.with_borrow(|buffer| buffer.as_ptr())
}
