//! `file_write`: creates or replaces a text file (spec 004 §2).
//!
//! No reader sees a half-written file, and a new file never replaces another one, not even one that appears
//! meanwhile. Missing folders are created, as in the text editor. A replaced file keeps its mode and owner.
//! Links are not followed, so none leads out of the roots.
//!
//! Executable files are refused: by their name, by their content, or because the existing file is executable.
//!
//! Accepted: what another program writes to the file between the check and the rename is lost.

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;

use rmcp::model::{CallToolRequestParams, CallToolResponse, JsonObject};
use rmcp::service::{RequestContext, RoleServer};
use rustix::fs::{
    Access, AtFlags, FileType, Gid, Mode, Stat, Uid, accessat, fchmod, fchown, statat,
};
use rustix::io::Errno;
use serde_json::json;

use crate::kind::file_kind;
use crate::one_tool::{Arguments, OneTool, done, failed};
use crate::paths::{OpenRoots, Place};
use crate::sniff;
use crate::temporary::{Survives, Temporary};

/// Maximum size of a file, in bytes.
const MAX_FILE: usize = 10 * 1024 * 1024;

pub(crate) struct FileWrite {
    roots: OpenRoots,
}

enum Overwrite {
    No,
    Yes,
}

impl FileWrite {
    pub(crate) fn new(roots: OpenRoots) -> Self {
        Self { roots }
    }

    fn write(&self, arguments: Option<JsonObject>) -> Result<(), String> {
        let arguments = Arguments::new(arguments, &["path", "content", "overwrite"])?;
        let path = arguments.required("path", "the file to write")?;
        let content = arguments.required("content", "the text to write, \"\" for an empty file")?;
        let overwrite = match arguments.flag("overwrite")? {
            true => Overwrite::Yes,
            false => Overwrite::No,
        };
        refuse_executable(path, content)?;
        let place = self.roots.place(path).map_err(|error| error.to_string())?;
        let there = match statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failure(path, errno)),
        };
        match (there, overwrite) {
            (None, _) => create(&place, content).map_err(|errno| match errno {
                Errno::EXIST => exists(path),
                errno => failure(path, errno),
            }),
            (Some(stat), overwrite) => {
                check_replaceable(path, &stat)?;
                match overwrite {
                    Overwrite::No => Err(exists(path)),
                    Overwrite::Yes => {
                        replace(&place, &stat, content).map_err(|errno| failure(path, errno))
                    }
                }
            }
        }
    }
}

impl OneTool for FileWrite {
    const SERVER: &'static str = "mcp-server-file-write";
    const DEFINITION: &'static str = include_str!("tool.json");

    async fn call(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        match self.write(request.arguments) {
            Ok(()) => done(json!({ "success": true })),
            Err(message) => failed(message),
        }
        .into()
    }
}

fn refuse_executable(path: &str, content: &str) -> Result<(), String> {
    if content.len() > MAX_FILE {
        return Err(format!(
            "content has {} bytes, and the limit is {MAX_FILE}: split it into several files",
            content.len()
        ));
    }
    let name = Path::new(path).file_name().unwrap_or_default();
    let named = sniff::executable_name(&name.to_string_lossy());
    // Some systems run a folder with this name as a program.
    let bundle = path.to_lowercase().contains(".app/");
    if let Some(mime) = named.or(bundle.then_some("application/x-executable")) {
        return Err(format!(
            "{path} was not written, because its name is that of an executable file ({mime}): \
             executable files are not allowed, choose a name for a text file"
        ));
    }
    if let Some(mime) = sniff::executable_content(content.as_bytes()) {
        return Err(format!(
            "{path} was not written, because its content is executable ({mime}): executable files are \
             not allowed"
        ));
    }
    Ok(())
}

fn check_replaceable(path: &str, stat: &Stat) -> Result<(), String> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => {
            return Err(format!(
                "{path} is a symbolic link, and links are not followed when writing: give the path \
                 of the file that it points to"
            ));
        }
        other => {
            return Err(format!(
                "{path} is a {}: give the path of a regular file",
                file_kind(other)
            ));
        }
    }
    let runs = Mode::XUSR | Mode::XGRP | Mode::XOTH;
    match Mode::from_raw_mode(stat.st_mode).intersects(runs) {
        true => Err(format!(
            "{path} is executable, and executable files are not written: remove its executable bit \
             first (chmod -x), or write another file"
        )),
        false => Ok(()),
    }
}

fn create(place: &Place, content: &str) -> Result<(), Errno> {
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    let temporary = temporary(&place.dir, content, mode)?;
    temporary.rename_to_new(&place.name).map_err(errno)
}

fn replace(place: &Place, old: &Stat, content: &str) -> Result<(), Errno> {
    // A rename would bypass the file's own permissions.
    accessat(&place.dir, &place.name, Access::WRITE_OK, AtFlags::empty())?;
    let temporary = temporary(&place.dir, content, Mode::RUSR | Mode::WUSR)?;
    let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
    let _ = fchown(temporary.file(), Some(uid), Some(gid));
    fchmod(temporary.file(), Mode::from_raw_mode(old.st_mode))?;
    temporary
        .replace(&place.name, Survives::PowerLoss)
        .map_err(errno)
}

fn temporary<'a>(dir: &'a OwnedFd, content: &str, mode: Mode) -> Result<Temporary<'a>, Errno> {
    Temporary::make(dir, content.as_bytes(), mode).map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn exists(path: &str) -> String {
    format!("{path} already exists and overwrite is false: set overwrite to true to replace it")
}

fn failure(path: &str, errno: Errno) -> String {
    format!("{path}: {errno}: check the path and its permissions")
}
