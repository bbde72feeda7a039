//! Why a command of the editor was refused.

/// Maximum size of a file that can be viewed or edited, in bytes.
pub const MAX_FILE: usize = 10 * 1024 * 1024;

/// Why a command was refused. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// A parameter is missing, of the wrong type, or out of range.
    #[error("{0}")]
    Arguments(String),
    /// The path, or a link in it, leads out of the workspace.
    #[error("{path} is outside {root}: only files under {root} can be viewed and edited")]
    Outside {
        /// As given.
        path: String,
        /// The workspace.
        root: String,
    },
    /// There is nothing at the path.
    #[error(
        "{0} does not exist: check the path by viewing its folder, or make the file with create"
    )]
    NotFound(String),
    /// `create` on something that exists.
    #[error("{0} already exists: change it with str_replace or insert, or create another path")]
    Exists(String),
    /// A folder where a file is needed.
    #[error("{0} is a folder: give the path of a file, or list the folder with view")]
    IsDirectory(String),
    /// A device, pipe or socket.
    #[error("{path} is a {kind}, not a text file: it cannot be viewed or edited")]
    Special {
        /// As given.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// More than [`MAX_FILE`] bytes.
    #[error(
        "{path} is, or would become, larger than {} MiB, the limit of this editor: if you can run commands, use head, sed or grep",
        MAX_FILE / (1024 * 1024)
    )]
    TooLarge {
        /// As given.
        path: String,
    },
    /// An edit of a file in UTF-16, into which it would write UTF-8.
    #[error(
        "{0} is UTF-16, which can be viewed but not edited: if you can run commands, change it with a script, or \
         convert it with iconv if its readers accept UTF-8"
    )]
    Utf16(String),
    /// `str_replace` found no place, or several.
    #[error("{0}")]
    NoUniqueMatch(String),
    /// `undo_edit` has nothing to undo, or something else has changed the file.
    #[error("{0}")]
    CannotUndo(String),
    /// The file system refused.
    #[error("{path}: {source}: check the path by viewing its folder")]
    Io {
        /// As given.
        path: String,
        /// The error of the file system.
        source: std::io::Error,
    },
}

impl EditError {
    pub(super) fn io(path: &str, source: impl Into<std::io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
