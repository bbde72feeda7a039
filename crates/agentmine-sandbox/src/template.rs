//! Workspaces that begin as a copy of another one's project, which saves a clone.
//!
//! What is copied is the whole file system, block by block, which is cheaper than making its files one by one. It is copied while
//! it is mounted read-only, so the copy is consistent, and it is mounted writable again whether that succeeds or not. The copy is an
//! unnamed file, which ends with the worker.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mount::FsPickFlags;

use crate::error::SandboxError;
use crate::volume::{Volume, copy_data, nameless, room};

/// The project of a workspace as it was once, for the workspaces of other sandboxes of the same backend. Clones share it.
#[derive(Debug, Clone)]
pub struct WorkspaceTemplate(Arc<Template>);

#[derive(Debug)]
struct Template {
    content: Arc<File>,
    bytes: u64,
    /// The id of the image whose programs wrote it; empty in the jail.
    image: String,
    is_unusable: AtomicBool,
}

impl WorkspaceTemplate {
    /// The space that it takes on disk, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether both are the same one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether no workspace could be made of it.
    #[must_use]
    pub fn is_unusable(&self) -> bool {
        self.0.is_unusable.load(Ordering::Relaxed)
    }

    /// Whether it comes from a sandbox of the image with this id.
    pub(crate) fn is_of(&self, image: &str) -> bool {
        self.0.image == image
    }

    /// What a volume begins as.
    pub(crate) fn content(&self) -> Arc<File> {
        Arc::clone(&self.0.content)
    }
}

/// The file system of a sandbox's workspace, if it has one of its own.
#[derive(Debug, Default)]
pub(crate) struct OwnVolume {
    image: String,
    kept: Mutex<Option<Kept>>,
}

/// What is kept until the sandbox is removed, or cannot be saved any longer.
#[derive(Debug)]
struct Kept {
    begun_as: Option<WorkspaceTemplate>,
    content: Arc<Content>,
}

impl OwnVolume {
    /// That of a volume which was to begin as the template, in a sandbox of the image with this id.
    pub(crate) fn of(volume: &Volume, template: Option<WorkspaceTemplate>, image: String) -> Self {
        if let Some(template) = template.as_ref().filter(|_| !volume.has_content()) {
            template.0.is_unusable.store(true, Ordering::Relaxed);
        }
        let content = Content::of(volume);
        let content =
            content.inspect_err(|error| tracing::debug!(%error, "a workspace cannot be saved"));
        let kept = content.ok().map(|content| Kept {
            begun_as: template.filter(|_| volume.has_content()),
            content: Arc::new(content),
        });
        Self {
            image,
            kept: Mutex::new(kept),
        }
    }

    pub(crate) fn begun_as(&self) -> Option<WorkspaceTemplate> {
        self.lock().as_ref()?.begun_as.clone()
    }

    pub(crate) fn exists(&self) -> bool {
        self.lock().is_some()
    }

    /// See [`crate::Sandbox::save_workspace`].
    pub(crate) async fn save(
        &self,
        max_bytes: u64,
    ) -> Result<Option<WorkspaceTemplate>, SandboxError> {
        let content = self.lock().as_ref().map(|kept| Arc::clone(&kept.content));
        let Some(content) = content else {
            return Ok(None);
        };
        // To its end, even if nobody waits for it: it must not stay read-only.
        let copied = tokio::task::spawn_blocking(move || content.copy(max_bytes)).await;
        match copied.map_err(|error| SandboxError::Gone(error.to_string()))? {
            Ok((content, bytes)) => Ok(Some(WorkspaceTemplate(Arc::new(Template {
                content: Arc::new(content),
                bytes,
                image: self.image.clone(),
                is_unusable: AtomicBool::new(false),
            })))),
            Err(NotCopied::Unchanged(error)) => {
                tracing::debug!(%error, "a workspace was not saved as a template");
                Ok(None)
            }
            Err(NotCopied::ReadOnly(error)) => Err(SandboxError::Gone(format!(
                "its workspace can no longer be written: {error}"
            ))),
        }
    }

    /// Drops the worker's references to the file system.
    pub(crate) fn release(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The content of a volume that is in use.
#[derive(Debug)]
struct Content {
    file: File,
    mount: OwnedFd,
    folder: PathBuf,
}

/// Why the content of a volume was not copied.
#[derive(Debug)]
enum NotCopied {
    /// It is as it was.
    Unchanged(io::Error),
    /// The volume cannot be written any longer.
    ReadOnly(io::Error),
}

impl Content {
    fn of(volume: &Volume) -> io::Result<Self> {
        let (file, mount, folder) = volume.handles()?;
        Ok(Self {
            file,
            mount,
            folder,
        })
    }

    /// Copies the content while nothing is written to it, and returns the copy and its size on disk in bytes. It fails if a
    /// file is open for writing.
    fn copy(&self, max_bytes: u64) -> Result<(File, u64), NotCopied> {
        let copy = self.place(max_bytes).map_err(NotCopied::Unchanged)?;
        self.remount("ro").map_err(NotCopied::Unchanged)?;
        let copied = copy_data(&self.file, &copy);
        self.remount("rw").map_err(NotCopied::ReadOnly)?;
        copied
            .and_then(|()| {
                let bytes = copy.metadata()?.blocks() * 512;
                Ok((copy, bytes))
            })
            .map_err(NotCopied::Unchanged)
    }

    /// A file for the copy, if the disk has room for it.
    fn place(&self, max_bytes: u64) -> io::Result<File> {
        let stat = rustix::fs::fstatvfs(&self.mount)?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize;
        if used > max_bytes {
            return Err(io::Error::other(format!(
                "it has {used} bytes, and the limit of all templates is {max_bytes}"
            )));
        }
        let copy = nameless(&self.folder)?;
        room(&copy, used)?;
        copy.set_len(self.file.metadata()?.len())?;
        Ok(copy)
    }

    /// Remounts the file system with one flag changed.
    fn remount(&self, flag: &str) -> io::Result<()> {
        use rustix::mount::{fsconfig_reconfigure, fsconfig_set_flag, fspick};
        let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
        let context = fspick(self.mount.as_fd(), "", flags)?;
        fsconfig_set_flag(context.as_fd(), flag)?;
        Ok(fsconfig_reconfigure(context.as_fd())?)
    }
}
