//! Settings of the C library's allocator.

/// Keeps the process small; to be called before there are threads.
///
/// By default each thread gets its own arena, up to eight for each core, and what was freed stays in them. A
/// worker has many threads that each do a little, and the larger it is, the more each start of a process costs.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, 2),
        // Bytes. The defaults grow with the largest block that was ever freed.
        (libc::M_MMAP_THRESHOLD, 128 << 10),
        (libc::M_TRIM_THRESHOLD, 128 << 10),
    ] {
        // SAFETY: takes two integers. If a setting is refused, the default stays.
        unsafe { libc::mallopt(setting, value) };
    }
}
