//! Files of the project that a process has mapped: the kernel reports no event when it writes to them.

use std::path::Path;

use agentmine_process::descendants;

/// The mapped files, relative to the project; `None` if a process lets nobody look into it.
pub(super) fn files(project: &Path) -> Option<Vec<Vec<u8>>> {
    use std::os::unix::ffi::OsStrExt as _;
    let project = [project.as_os_str().as_bytes(), b"/"].concat();
    let mut found = Vec::new();
    for process in descendants(std::process::id().cast_signed()) {
        match std::fs::read(format!("/proc/{}/maps", process.pid())) {
            Ok(maps) => found.extend(in_project(&maps, &project)),
            // It has ended, and what it mapped was closed with it.
            Err(_) if process.tree().is_empty() => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

/// The paths after `project` of what is shared with the file.
fn in_project<'a>(maps: &'a [u8], project: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
    maps.split(|&byte| byte == b'\n').filter_map(move |line| {
        let permissions = line.split(|&byte| byte == b' ').nth(1)?;
        if permissions.get(3) != Some(&b's') {
            return None;
        }
        let at = line
            .windows(project.len())
            .position(|part| part == project)?;
        let path = &line[at + project.len()..];
        // The only byte that is written otherwise.
        Some(
            String::from_utf8_lossy(path)
                .replace("\\012", "\n")
                .into_bytes(),
        )
    })
}
