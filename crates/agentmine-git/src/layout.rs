//! Where the parts of a repository on disk are.

use std::io;
use std::path::{Path, PathBuf};

/// Upper limit of the small files that point from one folder to another, in bytes.
const MAX_POINTER: u64 = 16 * 1024;

/// Where the parts of a repository are. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The top of the work tree, or the repository itself if it is bare.
    pub(crate) top: PathBuf,
    /// With the index and `HEAD`; of a linked work tree, a separate folder.
    pub(crate) git_dir: PathBuf,
    /// With the objects, refs and configuration.
    pub(crate) common_dir: PathBuf,
    /// Whether there is no work tree.
    pub(crate) bare: bool,
}

impl Layout {
    /// The repository that `folder`, an absolute path, is in; `None` if it is in none.
    pub(crate) fn find(folder: &Path) -> io::Result<Option<Self>> {
        for top in folder.ancestors() {
            if let Some(git_dir) = dot_git(top)? {
                return Ok(Some(Self::of(top, git_dir, false)?));
            }
            if is_git_dir(top) {
                return Ok(Some(Self::of(top, top.to_owned(), true)?));
            }
        }
        Ok(None)
    }

    fn of(top: &Path, git_dir: PathBuf, bare: bool) -> io::Result<Self> {
        let common_dir = match pointer(&git_dir.join("commondir"))? {
            Some(common) => git_dir.join(common).canonicalize()?,
            None => git_dir.clone(),
        };
        Ok(Self {
            top: top.to_owned(),
            git_dir,
            common_dir,
            bare,
        })
    }
}

/// The folder that `.git` in `top` is, or points to.
fn dot_git(top: &Path) -> io::Result<Option<PathBuf>> {
    let here = top.join(".git");
    if here.is_dir() {
        let git_dir = here.canonicalize()?;
        return Ok(is_git_dir(&git_dir).then_some(git_dir));
    }
    let Some(text) = pointer(&here)? else {
        return Ok(None);
    };
    let Some(git_dir) = text.strip_prefix("gitdir: ") else {
        return Ok(None);
    };
    let git_dir = top.join(git_dir).canonicalize()?;
    Ok(is_git_dir(&git_dir).then_some(git_dir))
}

/// Whether git would take `folder` for a repository.
fn is_git_dir(folder: &Path) -> bool {
    let is_linked = folder.join("commondir").is_file();
    folder.join("HEAD").is_file()
        && (is_linked || (folder.join("objects").is_dir() && folder.join("refs").exists()))
}

/// The text of a small file, without the end of its line; `None` if there is no such file.
fn pointer(file: &Path) -> io::Result<Option<String>> {
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_POINTER => {
            let text = std::fs::read_to_string(file)?;
            Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error),
    }
}
