//! The text editor: five commands over the files of one workspace.
//!
//! Guaranteed: no path leads out of the workspace, not even through links; text is replaced literally; an edit
//! preserves all bytes that it does not replace, whether UTF-8 or not, and is refused in UTF-16; line endings are
//! preserved; no reader sees a half-written file, and files keep their mode; the last edits can be undone, including
//! the creation of files, as long as nothing else has changed the file.
//!
//! Accepted: if a program writes a file after the editor has read it and before the editor has renamed the new
//! one, that write is lost; a hard link to an edited file keeps the old content; if the editor is killed during
//! a write, a file `.agentmine-*.tmp` is left behind, with the new content or the old.
//!
//! In a sandbox an edit survives the death of any process, but not a loss of power: what survives that are the
//! checkpoints. Outside one (`open_at`) it survives what a rename survives.

mod command;
mod error;
mod history;
mod listing;
mod text;
mod workspace;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use command::{Command, LastLine, Range};
pub use error::{EditError, MAX_FILE};
use history::{Before, Change, Fingerprint, History};
use workspace::{Base, FileAt, What, Workspace};

/// How many bytes a reply has at most, as JSON, unless the client wants another limit.
const MAX_REPLY: usize = 48 * 1024;
/// Bytes of a reply without its content, the path and notes included.
const FRAME: usize = 512;
/// Bytes of content that are always there, however small the limit.
const MIN_CONTENT: usize = 256;
/// How many bytes around an edit are shown, and how many lines of context on both sides.
const MAX_SNIPPET: usize = 4 * 1024;
const SNIPPET_CONTEXT: usize = 4;

/// The result of a command, as returned to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolReply {
    /// Whether the command succeeded.
    pub success: bool,
    /// What was done, or what was wrong and what to do next.
    pub message: String,
    /// The requested lines with numbers, the lines around an edit, or a folder's listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl ToolReply {
    /// The reply for an error.
    #[must_use]
    pub fn failed(error: &EditError) -> Self {
        Self {
            success: false,
            message: error.to_string(),
            content: None,
        }
    }

    fn done(message: String, content: Option<String>) -> Self {
        Self {
            success: true,
            message,
            content,
        }
    }
}

/// The editor of one workspace, with the history that undo needs.
#[derive(Debug)]
pub struct Editor {
    workspace: Workspace,
    history: History,
    max_reply: usize,
}

impl Editor {
    /// An editor for the files under `root`, which has the layout of a sandbox: relative paths start at
    /// `root/project` if that is a folder, otherwise at `root`.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open(root: impl Into<PathBuf>) -> anyhow::Result<Self> {
        Self::with_base(root.into(), Base::Project)
    }

    /// An editor for the files under `root`, outside a sandbox: relative paths start at `root`.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open_at(root: impl Into<PathBuf>) -> anyhow::Result<Self> {
        Self::with_base(root.into(), Base::Root)
    }

    fn with_base(root: PathBuf, base: Base) -> anyhow::Result<Self> {
        Ok(Self {
            workspace: Workspace::open(root, base)?,
            history: History::default(),
            max_reply: MAX_REPLY,
        })
    }

    /// Limits replies to `bytes`, as JSON. Content that is longer is cut between lines, and a note says what is
    /// omitted and how to see it.
    #[must_use]
    pub fn with_max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = bytes;
        self
    }

    /// Bytes of content in a reply about this path.
    fn room(&self, path: &str) -> usize {
        let frame = FRAME + 2 * text::quoted_len(path);
        self.max_reply.saturating_sub(frame).max(MIN_CONTENT)
    }

    /// Runs one call, with its arguments as the model wrote them.
    ///
    /// # Errors
    /// The error to return to the model.
    pub fn run(&mut self, arguments: &Map<String, Value>) -> Result<ToolReply, EditError> {
        let (path, command) = command::parse(arguments)?;
        let path = path.as_str();
        match command {
            Command::View { range } => self.view(path, range),
            Command::Create { text } => self.create(path, &text),
            Command::Replace { old, new } => self.replace(path, &old, &new),
            Command::Insert { line, text } => self.insert(path, line, &text),
            Command::Undo => self.undo(path),
        }
    }

    fn view(&self, path: &str, range: Option<Range>) -> Result<ToolReply, EditError> {
        match self.workspace.resolve(path)?.what {
            What::Directory(_) if range.is_some() => Err(EditError::Arguments(format!(
                "{path} is a folder: view_range is for files only, omit it"
            ))),
            What::Directory(dir) => {
                let listing = listing::list(&dir).map_err(|source| EditError::io(path, source))?;
                Ok(view_folder(path, &listing, self.room(path)))
            }
            What::File(file) => view_file(path, &file.read(path)?.bytes, range, self.room(path)),
            other => Err(unusable(path, other)),
        }
    }

    fn create(&mut self, path: &str, text: &str) -> Result<ToolReply, EditError> {
        if text.len() > MAX_FILE {
            return Err(EditError::TooLarge { path: path.into() });
        }
        let found = self.workspace.resolve(path)?;
        match found.what {
            What::Missing(_) if path.ends_with('/') => Err(EditError::Arguments(format!(
                "{path} ends with a slash: create makes files, give the file's path \
                 (missing folders are made)"
            ))),
            What::Missing(place) => {
                place.create(path, text.as_bytes())?;
                self.history.push(Change {
                    file: found.key,
                    before: Before::Absent,
                    after: Fingerprint::of(text.as_bytes()),
                });
                let lines = text::line_count(text.as_bytes());
                Ok(ToolReply::done(
                    format!("created {path} ({lines} lines)"),
                    None,
                ))
            }
            What::Directory(_) | What::File(_) | What::Special(_) => {
                Err(EditError::Exists(path.into()))
            }
        }
    }

    fn replace(&mut self, path: &str, old: &str, new: &str) -> Result<ToolReply, EditError> {
        let (key, file, current) = self.editable(path)?;
        let edit = text::replace_once(&current.bytes, old.as_bytes(), new.as_bytes())
            .map_err(|miss| EditError::NoUniqueMatch(miss.explain(path, &current.bytes, old)))?;
        let message = format!(
            "replaced one occurrence in {path}, at line {}",
            edit.first_line
        );
        self.write(path, key, &file, current, edit, message)
    }

    fn insert(&mut self, path: &str, line: usize, text: &str) -> Result<ToolReply, EditError> {
        let (key, file, current) = self.editable(path)?;
        let lines = text::line_count(&current.bytes);
        let edit = text::insert_after(&current.bytes, line, text.as_bytes()).ok_or_else(|| {
            EditError::Arguments(format!(
                "insert_line is {line}, but {path} has {lines} lines: give 0 (start) to {lines} (end)"
            ))
        })?;
        let message = format!(
            "inserted {} lines into {path} after line {line}",
            edit.lines
        );
        self.write(path, key, &file, current, edit, message)
    }

    fn undo(&mut self, path: &str) -> Result<ToolReply, EditError> {
        let found = self.workspace.resolve(path)?;
        let Some(change) = self.history.last(&found.key) else {
            return Err(EditError::CannotUndo(format!(
                "there is no edit of {path} left to undo: to go further back, write the earlier text \
                 with str_replace"
            )));
        };
        let file = match found.what {
            What::File(file) => file,
            What::Missing(_) => {
                return Err(EditError::CannotUndo(format!(
                    "{path} was removed by something else since its last edit: create it again"
                )));
            }
            other => return Err(unusable(path, other)),
        };
        let current = file.read(path)?;
        if Fingerprint::of(&current.bytes) != change.after {
            return Err(EditError::CannotUndo(format!(
                "{path} was changed by something else since its last edit, and undo would lose \
                 that: view it and edit it with str_replace"
            )));
        }
        let reply = match &change.before {
            Before::Absent => {
                file.remove(path)?;
                ToolReply::done(format!("undone: {path} was removed again"), None)
            }
            Before::Content(bytes) => {
                file.write(path, bytes, &current.stat, self.workspace.survives())?;
                let lines = text::line_count(bytes);
                ToolReply::done(
                    format!("undone: {path} is as it was before its last edit ({lines} lines)"),
                    None,
                )
            }
        };
        self.history.forget_last(&found.key);
        Ok(reply)
    }

    fn editable(&self, path: &str) -> Result<(PathBuf, FileAt, workspace::Content), EditError> {
        let found = self.workspace.resolve(path)?;
        let file = match found.what {
            What::File(file) => file,
            other => return Err(unusable(path, other)),
        };
        let current = file.read(path)?;
        match text::from_utf16(&current.bytes) {
            Some(_) => Err(EditError::Utf16(path.to_owned())),
            None => Ok((found.key, file, current)),
        }
    }

    fn write(
        &mut self,
        path: &str,
        key: PathBuf,
        file: &FileAt,
        current: workspace::Content,
        edit: text::Edit,
        message: String,
    ) -> Result<ToolReply, EditError> {
        if edit.bytes.len() > MAX_FILE {
            return Err(EditError::TooLarge { path: path.into() });
        }
        file.write(path, &edit.bytes, &current.stat, self.workspace.survives())?;
        self.history.push(Change {
            file: key,
            before: Before::Content(current.bytes),
            after: Fingerprint::of(&edit.bytes),
        });
        let first = edit.first_line.saturating_sub(SNIPPET_CONTEXT).max(1);
        let last = edit.first_line + edit.lines.saturating_sub(1) + SNIPPET_CONTEXT;
        let snippet = text::numbered(&edit.bytes, first, last, MAX_SNIPPET.min(self.room(path)));
        Ok(ToolReply::done(message, Some(snippet.text)))
    }
}

fn view_folder(path: &str, listing: &listing::Listing, room: usize) -> ToolReply {
    let (head, rest) = text::head_within(&listing.text, room);
    let (mut content, mut message) = (head.to_owned(), format!("{path}: {}", listing.summary));
    if !rest.is_empty() {
        let (bytes, lines) = (rest.len(), rest.lines().count());
        let note = format!(
            "{bytes} bytes, {lines} lines left out: see them by viewing one of its folders"
        );
        content.push_str(&format!("[... {note} ...]\n"));
        message.push_str(&format!("; {note}"));
    }
    ToolReply::done(message, Some(content))
}

fn view_file(
    path: &str,
    bytes: &[u8],
    range: Option<Range>,
    room: usize,
) -> Result<ToolReply, EditError> {
    let utf16 = text::from_utf16(bytes);
    let bytes = utf16.as_deref().unwrap_or(bytes);
    let lines = text::line_count(bytes);
    let (first, last) = match range {
        None => (1, lines),
        Some(Range { first, last }) => {
            if first > lines.max(1) {
                return Err(EditError::Arguments(format!(
                    "view_range starts at line {first}, but {path} has {lines} lines"
                )));
            }
            let last = match last {
                LastLine::Number(last) => last.min(lines),
                LastLine::End => lines,
            };
            (first, last)
        }
    };
    let mut view = text::numbered(bytes, first, last, room);
    let mut message = if lines == 0 {
        format!("{path} is an empty file")
    } else {
        format!("{path}: lines {first} to {} of {lines}", view.last)
    };
    if view.last < last {
        let (next, left_out) = (view.last + 1, last - view.last);
        let note = format!(
            "{} bytes, {left_out} lines left out: see them with view_range [{next}, {last}]",
            view.left_out
        );
        view.text.push_str(&format!("[... {note} ...]\n"));
        message.push_str(&format!("; {note}"));
    }
    if utf16.is_some() {
        message.push_str("; it is UTF-16, and cannot be edited with this tool");
    } else if std::str::from_utf8(bytes).is_err() {
        message.push_str(
            "; it is not valid UTF-8: invalid bytes are shown as \u{fffd}, and edits preserve them",
        );
    }
    Ok(ToolReply::done(message, Some(view.text)))
}

/// The error for a path that is not a file.
fn unusable(path: &str, what: What) -> EditError {
    let path = path.to_owned();
    match what {
        What::Missing(_) => EditError::NotFound(path),
        What::Directory(_) | What::File(_) => EditError::IsDirectory(path),
        What::Special(kind) => EditError::Special { path, kind },
    }
}
