//! The pages of the program itself.

/// Gives the pages of code and constants back that the start of the program has used: a large part of them is never
/// needed again, and they are most of what an idle process occupies. To be called when the start is done.
///
/// They stay in the page cache as long as the kernel has room, and are mapped again when they are used (a minor
/// fault); under pressure the kernel can take those that no process maps first.
pub fn release_those_of_the_start() {
    // SAFETY: the callback only reads what it is given, and keeps nothing of it.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::dl_iterate_phdr(Some(release), std::ptr::null_mut());
    }
}

#[cfg(target_os = "linux")]
unsafe extern "C" fn release(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a description that is valid during the call, with the length of its table.
    let (base, headers) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (object.dlpi_addr, headers)
    };
    // What can be written, or could before it was relocated, differs from the file.
    let read_only = headers
        .iter()
        .filter(|it| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_W == 0);
    for part in read_only {
        // SAFETY: takes an integer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
        let start = base.wrapping_add(part.p_vaddr);
        let end = start.wrapping_add(part.p_memsz);
        let start = start & !page.wrapping_sub(1);
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or_default();
        // SAFETY: a segment of this program that nothing writes is read from its file again. If it is refused, the
        // pages stay.
        unsafe {
            libc::madvise(
                std::ptr::with_exposed_provenance_mut(start as usize),
                length,
                libc::MADV_DONTNEED,
            )
        };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped_from_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse().unwrap()
    }

    #[test]
    fn the_program_has_fewer_pages_and_works_on() {
        let text = "what was relocated stays".to_owned();
        // Everything once, as a start does.
        let program = std::fs::read("/proc/self/maps").unwrap();
        let before = mapped_from_files();
        release_those_of_the_start();
        let after = mapped_from_files();
        assert!(after < before, "{before} KiB, then {after} KiB");
        let rows: Vec<String> = (0..100).map(|it| format!("{text} {it}")).collect();
        assert!(rows.concat().contains("stays 99") && !program.is_empty());
    }
}
