//! `file_read`: the content of a text file (spec 004 §1).
//!
//! Files that are not text are refused: by their name, by the MIME type of their first bytes, or because they
//! cannot be decoded. UTF-8, with or without a byte order mark, and UTF-16 with one are text.

mod decode;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;

use rmcp::model::{CallToolRequestParams, CallToolResponse, JsonObject};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;

use crate::one_tool::{Arguments, OneTool, done, failed};
use crate::paths::OpenRoots;
use crate::sniff;

/// Maximum size of a file, in bytes. A response contains the content twice, and even if every byte is escaped,
/// it fits into the longest line that clients accept (16 MiB).
const MAX_FILE: u64 = 1024 * 1024;

pub(crate) struct FileRead {
    roots: OpenRoots,
}

impl FileRead {
    pub(crate) fn new(roots: OpenRoots) -> Self {
        Self { roots }
    }

    fn read(&self, arguments: Option<JsonObject>) -> Result<String, String> {
        let arguments = Arguments::new(arguments, &["path"])?;
        let path = arguments.required("path", "the file to read")?;
        if let Some(extension) = sniff::binary_name(path) {
            return Err(format!(
                "{path} was not read, because .{extension} files are not text: use a program that \
                 understands them"
            ));
        }
        let (fd, stat) = self
            .roots
            .open_file(path)
            .map_err(|error| error.to_string())?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut bytes = Vec::new();
        File::from(fd)
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("{path}: {error}: check the file and its permissions"))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(format!(
                "{path} has {} bytes, and the limit is {MAX_FILE}: read parts of it with a command \
                 such as head, tail, sed or grep",
                size.max(bytes.len() as u64)
            ));
        }
        if let Some(mime) = sniff::binary_content(&bytes) {
            return Err(format!(
                "{path} is not text: its content is {mime}; only text files can be read, use a \
                 program that understands it"
            ));
        }
        decode::decode(bytes).map_err(|what| format!("{path} was not read: {what}"))
    }
}

impl OneTool for FileRead {
    const SERVER: &'static str = "mcp-server-file-read";
    const DEFINITION: &'static str = include_str!("tool.json");

    async fn call(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        match self.read(request.arguments) {
            Ok(content) => done(json!({ "content": content })),
            Err(message) => failed(message),
        }
        .into()
    }
}
