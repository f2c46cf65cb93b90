//! Calls that change a disk. In tests, any of them can be the first that a full disk refuses.

use std::fs::File;
use std::io::{self, Write};

/// Writes bytes, as many as there is space for.
pub(crate) fn write(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    if let Err(full) = allowed() {
        // A disk that fills up takes the first part.
        file.write_all(&bytes[..bytes.len() / 2])?;
        return Err(full);
    }
    file.write(bytes)
}

/// Writes all bytes in one call where the system takes them at once.
pub(crate) fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = write(file, bytes)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Synchronises a file.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    allowed()?;
    file.sync_all()
}

/// Whether the next call may succeed.
#[cfg(not(any(test, debug_assertions)))]
#[allow(clippy::unnecessary_wraps)] // as in tests
pub(crate) const fn allowed() -> io::Result<()> {
    Ok(())
}

/// Whether the next call may succeed. Tests of the binary, in the development build alone, have a disk that is full after as many
/// calls as the variable `MESHWRIGHT_DISK_CALLS` says.
#[cfg(all(not(test), debug_assertions))]
pub(crate) fn allowed() -> io::Result<()> {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static LEFT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let calls = std::env::var("MESHWRIGHT_DISK_CALLS").ok().and_then(|calls| calls.parse().ok());
        AtomicU64::new(calls.unwrap_or(u64::MAX))
    });
    let left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    left.map(|_| ()).map_err(|_| io::ErrorKind::StorageFull.into())
}

#[cfg(test)]
thread_local! {
    static LEFT: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) };
}

/// Whether the next call may succeed: after those that were granted, none does.
#[cfg(test)]
pub(crate) fn allowed() -> io::Result<()> {
    LEFT.with(|left| {
        if left.get() == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        left.set(left.get() - 1);
        Ok(())
    })
}

/// Result of work on this thread, on a disk that is full after `calls` calls.
#[cfg(test)]
pub(crate) fn failing_after<T>(calls: u64, work: impl FnOnce() -> T) -> T {
    LEFT.set(calls);
    let result = work();
    LEFT.set(u64::MAX);
    result
}
