//! What a process holds of its own program's file.

use std::ffi::{c_int, c_void};

/// Unmaps the pages of this process's program that nothing writes to: code and constants. To be called when a process
/// has started, and then waits.
///
/// The kernel maps sixteen pages around each one that is used, and keeps them mapped. A start passes once through code
/// that is hardly used again, which is most of what a waiting process holds. What is used again is mapped again from
/// the kernel's cache of the file, at about three microseconds for sixteen pages; what is not, the kernel can use otherwise.
pub fn unmap_unused_program() {
    // SAFETY: the function is called during this call, with what it expects.
    unsafe { libc::dl_iterate_phdr(Some(unmap_segments), std::ptr::null_mut()) };
}

/// Gets the program first, then its libraries, which other processes use too; so it ends after the first.
unsafe extern "C" fn unmap_segments(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    const END: c_int = 1;
    // SAFETY: takes a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    let Ok(page @ 1..) = page else {
        return END;
    };
    // SAFETY: the headers that the C library gives are there for as long as this function runs.
    let (base, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info.dlpi_addr as usize, headers)
    };
    let read_only: Vec<(usize, usize)> = headers
        .iter()
        .filter(|it| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_W == 0)
        .map(|it| {
            let start = base.wrapping_add(it.p_vaddr as usize);
            (start, start.wrapping_add(it.p_memsz as usize))
        })
        .collect();
    // Where this function is not in one of them, they are not those of this program.
    let own = unmap_segments as *const () as usize;
    if !read_only.iter().any(|it| (it.0..it.1).contains(&own)) {
        return END;
    }
    for (start, end) in read_only {
        // Whole pages: what else is in the first and the last one may be written to.
        let (start, end) = (start.next_multiple_of(page), end / page * page);
        if start < end {
            // SAFETY: nothing has written to these pages, so the file has the same content.
            unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        }
    }
    END
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static CONSTANT: [u8; 1 << 20] = [7; 1 << 20];
    static VARIABLE: AtomicU64 = AtomicU64::new(1);

    /// How much of the constant is mapped, in percent.
    fn mapped() -> usize {
        // SAFETY: takes a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        let pages = CONSTANT.len() / page;
        let mut entries = vec![0; pages * 8];
        let first = CONSTANT.as_ptr() as usize / page * 8;
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        map.read_exact_at(&mut entries, first as u64).unwrap();
        // Eight bytes for each page; the highest bit of the last one says that it is there.
        let is_there = |entry: &&[u8]| entry.last().is_some_and(|it| it & 0x80 != 0);
        entries.chunks(8).filter(is_there).count() * 100 / pages
    }

    fn sum() -> u64 {
        black_box(&CONSTANT).iter().copied().map(u64::from).sum()
    }

    #[test]
    fn unused_constants_are_unmapped_and_are_there_when_they_are_used() {
        assert_eq!(sum(), 7 << 20);
        let before = mapped();
        VARIABLE.store(2, Ordering::SeqCst);
        unmap_unused_program();
        // Sixteen pages around what is next to it may be mapped again.
        let after = mapped();
        assert!(before > 90 && after < 50, "{before} %, then {after} %");
        assert_eq!(sum(), 7 << 20);
        assert_eq!(VARIABLE.load(Ordering::SeqCst), 2);
    }
}
