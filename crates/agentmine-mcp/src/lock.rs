//! Locks that a panic of their holder does not make unusable.

/// Locks even after a holder has panicked: everything behind these locks is consistent at every statement.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
