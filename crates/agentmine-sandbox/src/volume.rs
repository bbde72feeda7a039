//! A file system of fixed size for a workspace: a limit that the kernel enforces, whatever a sandbox does.
//!
//! It lies in a file without a name, whose space is reserved from the start, behind a loop device that ends with its
//! last user. So a sandbox cannot fill the machine's disk, and nothing stays behind, no matter who dies and when. The
//! sandbox never reaches the device, only files on it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentmine_guest::protocol::BYTES_FOR_A_FILE;
use rustix::fs::{Advice, AtFlags, FallocateFlags, Gid, MemfdFlags, SeekFrom, Uid};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};

/// Options of every mount of a volume. The tables of free entries need not be filled: the file begins as zeros. Nothing need be on
/// the disk: the file has no name, and ends with the machine at the latest.
pub(crate) const MOUNT_OPTIONS: &str = "nosuid,nodev,noatime,noinit_itable,nobarrier";
const MAKE: &str = "mkfs.ext4";
const MAKE_LIMIT: Duration = Duration::from_secs(60);
/// What must stay free beside a volume: this part of the disk, within these bounds in bytes. A tenth of a large disk
/// would be more than the machine needs.
const SPARE_PART: u64 = 10;
const SPARE_LEAST: u64 = 2 << 30;
const SPARE_MOST: u64 = 10 << 30;
/// What is reserved of the volume that proves that others can be made, in bytes.
const PROOF: u64 = 16 << 20;
/// The template of a larger volume, which is kept in memory, would have more than 50 MB.
const MAX_SIZE: u64 = 4 << 40;
const COPY_AT_ONCE: usize = 256 << 10;
const BLOCK: usize = 4096;
/// The folder in a workspace that is all that a new one takes over from another.
const PROJECT: &str = "project";
/// How often a free loop device is looked for: others look too.
const TRIES: u32 = 64;

/// Makes volumes of one size.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    folder: PathBuf,
    /// An empty file system of this size in memory, as `mkfs` writes it. Volumes begin as a copy of it: it is
    /// small, and copying is quicker than running `mkfs`.
    empty: Arc<File>,
    size: u64,
}

impl Volumes {
    /// Volumes whose files are in `folder`. A test volume that reserves little proves that they can be made: room for one
    /// may be missing now and there later. The error says what is missing.
    pub(crate) async fn find(folder: PathBuf, size: u64) -> Result<Self, String> {
        if !is_root() {
            return Err("only root can make file systems of a fixed size".into());
        }
        if size == 0 {
            return Err("no limit is configured".into());
        }
        if size > MAX_SIZE {
            return Err(format!("the limit is more than {} TiB", MAX_SIZE >> 40));
        }
        let program = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"]
            .map(|folder| Path::new(folder).join(MAKE))
            .into_iter()
            .find(|program| program.exists())
            .ok_or(format!("{MAKE} is not installed"))?;
        let volumes = Self {
            folder,
            empty: Arc::new(empty(&program, size).await?),
            size,
        };
        let file = volumes.file().and_then(|file| {
            rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, PROOF)?;
            copy_data(&volumes.empty, &file)?;
            Ok(file)
        });
        let file = file.map_err(|error| volumes.failed(&error))?;
        volumes.make_on(file, (0, 0), false)?;
        Ok(volumes)
    }

    /// Some that are never made.
    #[cfg(test)]
    pub(crate) fn played() -> Self {
        Self {
            folder: std::env::temp_dir(),
            empty: Arc::new(tempfile::tempfile().unwrap()),
            size: 1 << 20,
        }
    }

    /// Who enforces the limit, for people.
    pub(crate) fn describe(&self) -> String {
        let no_room = self.room().err();
        let no_room = no_room.map(|why| format!("; at present it has none: {why}"));
        format!(
            "{} MiB and {} files in /workspace, held by the kernel: a separate file system, whose space is reserved at \
             the start. If the disk has no room for one, the guest watches the limit every half second instead{}",
            self.size >> 20,
            self.size / BYTES_FOR_A_FILE,
            no_room.unwrap_or_default()
        )
    }

    /// A file of this size for one volume, which occupies nothing yet.
    fn file(&self) -> io::Result<File> {
        let file = nameless(&self.folder)?;
        file.set_len(self.size)?;
        Ok(file)
    }

    fn room(&self) -> io::Result<()> {
        room(&nameless(&self.folder)?, self.size)
    }

    /// Like `make`, and an empty one if none with this content can be made; if that fails too, the log says why.
    pub(crate) async fn make_or_warn(
        &self,
        owner: (u32, u32),
        content: Option<Arc<File>>,
    ) -> Option<Volume> {
        let made = match (self.make(owner, content.clone()).await, content) {
            (Err(why), Some(_)) => {
                tracing::debug!(%why, "no file system with the content of another could be made");
                self.make(owner, None).await
            }
            (made, _) => made,
        };
        made.map_err(|why| {
            tracing::warn!(%why, "no file system for a workspace could be made; the guest watches the disk limit");
        })
        .ok()
    }

    /// A volume whose top folder belongs to this user and group: an empty one, or one with the project of another volume of
    /// this size and owner, which `content` is a copy of.
    pub(crate) async fn make(
        &self,
        owner: (u32, u32),
        content: Option<Arc<File>>,
    ) -> Result<Volume, String> {
        let volumes = self.clone();
        let made = tokio::task::spawn_blocking(move || volumes.make_now(owner, content.as_deref()));
        made.await.map_err(|error| error.to_string())?
    }

    fn make_now(&self, owner: (u32, u32), content: Option<&File>) -> Result<Volume, String> {
        let file = self.file().and_then(|file| {
            room(&file, self.size)?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.size)?;
            copy_data(content.unwrap_or(&self.empty), &file)?;
            Ok(file)
        });
        let file = file.map_err(|error| self.failed(&error))?;
        self.make_on(file, owner, content.is_some())
    }

    /// The volume in a file that has its content.
    fn make_on(&self, file: File, owner: (u32, u32), has_content: bool) -> Result<Volume, String> {
        // Reading ahead would fill the memory with zeros that nobody needs.
        rustix::fs::fadvise(&file, 0, None, Advice::Random)
            .map_err(|error| self.failed(&error.into()))?;
        let (device, path) =
            loop_device(&file).map_err(|error| format!("a loop device: {error}"))?;
        let mount =
            mounted(&path).map_err(|error| format!("mounting {}: {error}", path.display()))?;
        let volume = Volume {
            _device: device,
            file,
            mount,
            path,
            folder: self.folder.clone(),
            has_content,
        };
        volume.prepare(owner)?;
        Ok(volume)
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.folder.display())
    }
}

/// A file in memory with an empty file system of this size.
async fn empty(program: &Path, size: u64) -> Result<File, String> {
    let file = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).map(File::from);
    let file = file
        .map_err(io::Error::from)
        .and_then(|file| {
            file.set_len(size)?;
            Ok((file.try_clone()?, file))
        })
        .map_err(|error| format!("a file in memory: {error}"))?;
    let (input, file) = file;
    let mut make = tokio::process::Command::new(program);
    // It is never made larger: what a larger one would need takes as long to write as all the rest.
    make.args(["-q", "-F", "-m", "0", "-b", "4096"])
        .args(["-O", "^has_journal,^resize_inode"])
        .args(["-E", "nodiscard,lazy_itable_init=1"])
        .args(["-i", &BYTES_FOR_A_FILE.to_string()])
        .arg("/proc/self/fd/0")
        .env_clear()
        .stdin(input)
        // Ctrl-C in a terminal must not leave half a file system.
        .process_group(0)
        .kill_on_drop(true);
    let made = tokio::time::timeout(MAKE_LIMIT, make.output()).await;
    let output = made
        .map_err(|_| format!("{MAKE} does not finish"))?
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{MAKE}: {}: {:.300}", output.status, said.trim()));
    }
    Ok(file)
}

/// Writes what is not zero in the one to the same places of the other, which has nothing there. Blocks of a reserved file that
/// were only read count as data, too.
pub(crate) fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let mut buffer = vec![0; COPY_AT_ONCE];
    let mut end = 0;
    loop {
        let start = match rustix::fs::seek(from, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(()),
            start => start?,
        };
        end = rustix::fs::seek(from, SeekFrom::Hole(start))?;
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(usize::MAX);
            let part = buffer.split_at_mut(length.min(COPY_AT_ONCE)).0;
            from.read_exact_at(part, at)?;
            write_content(part, to, at)?;
            at += part.len() as u64;
        }
    }
}

/// Writes the blocks that are not zero, neighbours at once.
fn write_content(content: &[u8], to: &File, at: u64) -> io::Result<()> {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let mut begin = 0;
    for end in (0..content.len()).step_by(BLOCK) {
        let block = content.get(end..).unwrap_or_default();
        let block = block.get(..BLOCK).unwrap_or(block);
        if ZEROS.starts_with(block) {
            write_part(content, (begin, end), to, at)?;
            begin = end + block.len();
        }
    }
    write_part(content, (begin, content.len()), to, at)
}

fn write_part(content: &[u8], (begin, end): (usize, usize), to: &File, at: u64) -> io::Result<()> {
    match content.get(begin..end) {
        Some(part) if !part.is_empty() => to.write_all_at(part, at + begin as u64),
        Some(_) | None => Ok(()),
    }
}

/// Whether this process may make file systems, and owns the machine's files.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A file system that lasts as long as this, or as it is mounted.
#[derive(Debug)]
pub(crate) struct Volume {
    _device: File,
    /// What the device stores its blocks in.
    file: File,
    /// A mount that no path leads to. As long as it is there, another one of the same device costs little.
    mount: OwnedFd,
    path: PathBuf,
    /// The folder of the files of all volumes.
    folder: PathBuf,
    has_content: bool,
}

impl Volume {
    /// The device, as long as this lives or it is mounted.
    pub(crate) fn device(&self) -> &Path {
        &self.path
    }

    /// Whether it begins with the project of another one.
    pub(crate) fn has_content(&self) -> bool {
        self.has_content
    }

    /// Second handles of the file that it is stored in and of its mount, which keep the file system, too; and the folder of such files.
    pub(crate) fn handles(&self) -> io::Result<(File, OwnedFd, PathBuf)> {
        let (file, mount) = (self.file.try_clone()?, self.mount.try_clone()?);
        Ok((file, mount, self.folder.clone()))
    }

    /// Mounts it on a folder, for this process and those that it starts.
    pub(crate) fn mount_on(self, folder: &Path) -> Result<(), String> {
        rustix::mount::move_mount(
            self.mount.as_fd(),
            "",
            rustix::fs::CWD,
            folder,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .map_err(|error| format!("mounting on {}: {error}", folder.display()))
    }

    /// Sets the owner of the top folder, and removes what is in it, but the project: the folder that every new file system has, or what
    /// belonged to another sandbox.
    fn prepare(&self, (uid, gid): (u32, u32)) -> Result<(), String> {
        let mount = self.mount.as_fd();
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let given = rustix::fs::chownat(mount, ".", Some(uid), Some(gid), AtFlags::empty());
        remove_but_project(mount)
            .and_then(|()| Ok(given?))
            .map_err(|error| format!("preparing {}: {error}", self.path.display()))
    }
}

fn remove_but_project(mount: BorrowedFd<'_>) -> io::Result<()> {
    let top = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    for entry in std::fs::read_dir(top)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == PROJECT => {}
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Ends the mounts on this folder. A process that still uses files on them keeps them until it ends. It is no error if
/// there are none.
pub(crate) fn unmount(folder: &Path) {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    // More than one only if somebody else has mounted there.
    while rustix::mount::unmount(folder, flags).is_ok() {}
}

fn mounted(device: &Path) -> io::Result<OwnedFd> {
    use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_set_flag(context.as_fd(), "noinit_itable")?;
    fsconfig_set_flag(context.as_fd(), "nobarrier")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// A file without a name on a disk.
pub(crate) fn nameless(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(folder)?;
    // Space in memory is not space on a disk.
    const TMPFS: i64 = 0x0102_1994;
    if rustix::fs::fstatfs(&file)?.f_type == TMPFS {
        return Err(io::Error::other("the folder is in memory"));
    }
    Ok(file)
}

/// Whether the disk that the file is on has room for `size` more bytes.
pub(crate) fn room(file: &File, size: u64) -> io::Result<()> {
    let stat = rustix::fs::fstatvfs(file)?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let spare = spare(stat.f_blocks.saturating_mul(stat.f_frsize));
    if free < size.saturating_add(spare) {
        return Err(io::Error::other(format!(
            "{} MiB are free, and {} MiB and a reserve of {} MiB are needed",
            free >> 20,
            size >> 20,
            spare >> 20
        )));
    }
    Ok(())
}

/// What must stay free on a disk of `total` bytes, in bytes.
fn spare(total: u64) -> u64 {
    (total / SPARE_PART).clamp(SPARE_LEAST, SPARE_MOST)
}

/// A device for the file; it ends with its last user (loop(4)).
fn loop_device(file: &File) -> io::Result<(File, PathBuf)> {
    let control = File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    let config = LoopConfig {
        fd: file.as_raw_fd().cast_unsigned(),
        block_size: 4096,
        info: LoopInfo {
            flags: LO_FLAGS_AUTOCLEAR,
            ..LoopInfo::default()
        },
        reserved: [0; 8],
    };
    for _ in 0..TRIES {
        // SAFETY: the request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        make_node(&path, number);
        let device = File::options().read(true).write(true).open(&path)?;
        // SAFETY: the struct is laid out as the kernel reads it, and outlives the call.
        if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } == 0 {
            return Ok((device, path));
        }
        let error = io::Error::last_os_error();
        // Somebody else took it meanwhile.
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
    }
    Err(io::Error::other("all are busy"))
}

/// Where no udev does it, as in a container.
fn make_node(path: &Path, number: i32) {
    const LOOP_MAJOR: libc::c_uint = 7;
    let Ok(name) = CString::new(path.as_os_str().as_encoded_bytes()) else {
        return;
    };
    if !path.exists() {
        let device = libc::makedev(LOOP_MAJOR, number.cast_unsigned());
        // SAFETY: the name ends in NUL. That it may exist by now is no fault.
        unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, device) };
    }
}

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names: [u8; 128],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl Default for LoopInfo {
    fn default() -> Self {
        Self {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            names: [0; 128],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_disk_need_not_keep_a_tenth_free() {
        assert_eq!(spare(5 << 30), 2 << 30);
        assert_eq!(spare(40 << 30), 4 << 30);
        assert_eq!(spare(4 << 40), 10 << 30);
    }
}
