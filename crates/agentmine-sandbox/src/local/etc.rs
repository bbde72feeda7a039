//! The `/etc` of a jail: one folder with copies of what programs need of the machine's.
//!
//! A mount for each entry would be 20 mounts and more, half of the time that bubblewrap takes. The copy is compared with the
//! machine's entries once a minute: another certificate of the machine's is in the jails that start later.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Access, access};

use super::programs::touch;
use crate::name::HOSTNAME;

/// The entries of the machine's `/etc` that programs need to run and to verify certificates. Never a folder
/// that also holds private keys: for files, a worker that runs as root is root in the jail too.
const SHOWN: &[&str] = &[
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/ca-trust",
    // Red Hat's JDKs read the CA certificates here; the folder holds nothing else.
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "ca-certificates",
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "protocols",
    "services",
    "os-release",
    "debian_version",
    "java",
    "java-8-openjdk",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    // Not settings.xml, which may hold passwords.
    "maven/m2.conf",
    "maven/logging",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "fonts",
    // Not Renviron.site, which may hold passwords.
    "R/Makeconf",
    "R/Renviron",
    "R/ldpaths",
    "R/repositories",
    "dotnet",
    "timezone",
];
const PASSWD: &str = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
     agent:x:1000:1000:agent:/workspace/tmp/home:/bin/sh\n\
     nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n";
/// How long a copy is used before it is compared again.
const COMPARED_AFTER: Duration = Duration::from_secs(60);

/// Makes the copies.
#[derive(Debug)]
pub(super) struct Etc {
    machine: PathBuf,
    /// The folder that the copies are in.
    copies: PathBuf,
    own: Own,
    newest: Mutex<Option<(Instant, PathBuf)>>,
}

/// What is in each copy beside the machine's entries; paths are relative to it.
#[derive(Debug, Hash)]
struct Own {
    files: Vec<(PathBuf, String)>,
    /// What other mounts need as their place.
    places: Vec<(PathBuf, Place)>,
}

#[derive(Debug, Clone, Copy, Hash)]
enum Place {
    File,
    Folder,
}

/// An entry of the machine's, or of a copy.
#[derive(Debug, Hash)]
struct Entry {
    node: Node,
    /// Of the machine's; a copy has another time.
    modified: Option<SystemTime>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Node {
    Folder,
    File { length: u64 },
    Link(PathBuf),
}

type Entries = BTreeMap<PathBuf, Entry>;

impl Etc {
    /// Copies of `machine`, which is `/etc`, with these files. `mounts` are paths that something else is mounted on.
    pub(super) fn new<'a>(
        machine: &Path,
        copies: PathBuf,
        files: Vec<(PathBuf, String)>,
        mounts: impl Iterator<Item = &'a PathBuf>,
    ) -> Self {
        let within = |path: &Path| path.strip_prefix(machine).map(Path::to_owned).ok();
        let files = files.into_iter();
        let files = files.filter_map(|(path, text)| Some((within(&path)?, text)));
        let hosts = format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n");
        let users = [("passwd", PASSWD), ("group", GROUP), ("hosts", &hosts)];
        let users = users.map(|(name, text)| (PathBuf::from(name), text.to_owned()));
        let places = mounts.filter_map(|path| {
            let place = match std::fs::metadata(path).ok()?.is_dir() {
                true => Place::Folder,
                false => Place::File,
            };
            Some((within(path)?, place))
        });
        Self {
            own: Own {
                files: users.into_iter().chain(files).collect(),
                places: places.collect(),
            },
            machine: machine.to_owned(),
            copies,
            newest: Mutex::default(),
        }
    }

    /// A folder that is to be mounted as `/etc`. It is not changed any more.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn folder(&self) -> io::Result<PathBuf> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, folder)) = newest.as_ref()
            && since.elapsed() < COMPARED_AFTER
            && folder.join("passwd").exists()
        {
            return Ok(folder.clone());
        }
        let folder = self.compared()?;
        touch(&folder);
        *newest = Some((Instant::now(), folder.clone()));
        Ok(folder)
    }

    /// The copy of what the machine has now. Any number of workers may make it at once.
    fn compared(&self) -> io::Result<PathBuf> {
        let wanted = entries(&self.machine);
        let mut hasher = DefaultHasher::new();
        wanted.hash(&mut hasher);
        self.own.hash(&mut hasher);
        let folder = self.copies.join(format!("etc-{:016x}", hasher.finish()));
        if self.is_complete(&folder, &wanted) {
            return Ok(folder);
        }
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let made = folder.with_extension(&unique);
        let copied = self.copy(&wanted, &made).and_then(|()| {
            // A cleaner of temporary files may have removed a part of it.
            if folder.exists() && !self.is_complete(&folder, &wanted) {
                std::fs::rename(&folder, folder.with_extension(format!("{unique}-old")))?;
            }
            match std::fs::rename(&made, &folder) {
                // Another worker was first.
                Err(_) if self.is_complete(&folder, &wanted) => std::fs::remove_dir_all(&made),
                renamed => renamed,
            }
        });
        if copied.is_err() {
            let _ = std::fs::remove_dir_all(&made);
        }
        copied.map(|()| folder)
    }

    fn is_complete(&self, folder: &Path, wanted: &Entries) -> bool {
        let has = |(path, text): &(PathBuf, String)| {
            std::fs::read_to_string(folder.join(path)).is_ok_and(|it| it == *text)
        };
        self.own.files.iter().all(has)
            && self
                .own
                .places
                .iter()
                .all(|(path, _)| folder.join(path).exists())
            && has_same_nodes(&entries(folder), wanted)
    }

    fn copy(&self, wanted: &Entries, to: &Path) -> io::Result<()> {
        let place = |path: &Path| {
            let place = to.join(path);
            place.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            Ok::<_, io::Error>(place)
        };
        for (path, entry) in wanted {
            let copy = place(path)?;
            match &entry.node {
                Node::Folder => std::fs::create_dir_all(copy)?,
                Node::Link(target) => std::os::unix::fs::symlink(target, copy)?,
                Node::File { .. } => std::fs::copy(self.machine.join(path), copy).map(drop)?,
            }
        }
        for (path, text) in &self.own.files {
            std::fs::write(place(path)?, text)?;
        }
        for (path, kind) in &self.own.places {
            let made = place(path)?;
            match kind {
                Place::Folder => std::fs::create_dir_all(made)?,
                Place::File => File::options()
                    .create(true)
                    .append(true)
                    .open(made)
                    .map(drop)?,
            }
        }
        Ok(())
    }
}

fn has_same_nodes(some: &Entries, others: &Entries) -> bool {
    some.len() == others.len()
        && some
            .iter()
            .zip(others)
            .all(|((path, entry), (other, same))| path == other && entry.node == same.node)
}

/// The entries that are shown, by their paths relative to `etc`. What cannot be read is not there.
fn entries(etc: &Path) -> Entries {
    let mut found = Entries::new();
    for name in SHOWN {
        // A jail may not have what a link of the machine's leads to.
        if let Ok(metadata) = std::fs::metadata(etc.join(name)) {
            add(etc, Path::new(name), &metadata, &mut found);
        }
    }
    found
}

fn add(etc: &Path, path: &Path, metadata: &Metadata, found: &mut Entries) {
    let full = etc.join(path);
    let node = if metadata.is_dir() {
        for entry in std::fs::read_dir(&full).into_iter().flatten().flatten() {
            if let Ok(metadata) = entry.metadata() {
                add(etc, &path.join(entry.file_name()), &metadata, found);
            }
        }
        Some(Node::Folder)
    } else if metadata.is_symlink() {
        std::fs::read_link(&full).ok().map(Node::Link)
    } else if metadata.is_file() && access(&full, Access::READ_OK).is_ok() {
        Some(Node::File {
            length: metadata.len(),
        })
    } else {
        None
    };
    let entry = node.map(|node| Entry {
        modified: match node {
            Node::File { .. } => metadata.modified().ok(),
            Node::Folder | Node::Link(_) => None,
        },
        node,
    });
    found.extend(entry.map(|entry| (path.to_owned(), entry)));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A machine's `/etc`, the folder of the copies, and what makes them.
    fn machine() -> (tempfile::TempDir, Etc) {
        let folder = tempfile::tempdir().unwrap();
        let (machine, copies) = (folder.path().join("etc"), folder.path().join("copies"));
        for path in ["ssl/certs/java", "ssl/private", "stored", "php/8.4"] {
            std::fs::create_dir_all(machine.join(path)).unwrap();
        }
        std::fs::create_dir(&copies).unwrap();
        for (path, text) in [
            ("ssl/certs/all.crt", "one"),
            ("ssl/certs/java/cacerts", "keys"),
            ("ssl/private/server.key", "secret"),
            ("stored/zone", "Europe/Berlin"),
            ("passwd", "somebody:x:0:0::/:/bin/sh\n"),
        ] {
            std::fs::write(machine.join(path), text).unwrap();
        }
        symlink("all.crt", machine.join("ssl/certs/link.crt")).unwrap();
        symlink("stored/zone", machine.join("localtime")).unwrap();
        let extra = machine.join("php/8.4/cli/agentmine.ini");
        let mounted = [machine.join("stored"), folder.path().join("copies")];
        let etc = Etc::new(
            &machine,
            copies,
            vec![(extra, "extension=dom.so\n".into())],
            mounted.iter(),
        );
        (folder, etc)
    }

    fn read(folder: &Path, path: &str) -> String {
        std::fs::read_to_string(folder.join(path)).unwrap()
    }

    /// Compares at once.
    fn later(etc: &Etc) -> PathBuf {
        etc.compared().unwrap()
    }

    #[test]
    fn what_programs_need_is_copied_and_nothing_else() {
        let (_folder, etc) = machine();
        let copy = etc.folder().unwrap();
        assert_eq!(read(&copy, "ssl/certs/link.crt"), "one");
        assert!(copy.join("ssl/certs/link.crt").is_symlink());
        assert_eq!(read(&copy, "ssl/certs/java/cacerts"), "keys");
        // A jail does not have the folder that it leads to.
        assert!(!copy.join("localtime").is_symlink());
        assert_eq!(read(&copy, "localtime"), "Europe/Berlin");
        assert!(!copy.join("ssl/private").exists());
        assert_eq!(read(&copy, "passwd"), PASSWD);
        assert_eq!(
            read(&copy, "php/8.4/cli/agentmine.ini"),
            "extension=dom.so\n"
        );
        assert!(
            std::fs::read_dir(copy.join("stored"))
                .unwrap()
                .next()
                .is_none()
        );
        assert_eq!(etc.folder().unwrap(), copy);
    }

    #[test]
    fn a_change_of_the_machine_makes_another_copy_and_leaves_the_first() {
        let (folder, etc) = machine();
        let first = later(&etc);
        assert_eq!(later(&etc), first);
        let bundle = folder.path().join("etc/ssl/certs/all.crt");
        std::fs::write(&bundle, "two").unwrap();
        let second = later(&etc);
        assert_ne!(second, first);
        assert_eq!(read(&first, "ssl/certs/all.crt"), "one");
        assert_eq!(read(&second, "ssl/certs/all.crt"), "two");
    }

    #[test]
    fn a_copy_that_lacks_something_is_made_again() {
        let (_folder, etc) = machine();
        let copy = later(&etc);
        for lost in ["ssl/certs/all.crt", "passwd"] {
            std::fs::remove_file(copy.join(lost)).unwrap();
            assert_eq!(later(&etc), copy);
            assert!(copy.join(lost).exists(), "{lost}");
        }
    }

    #[test]
    fn files_that_cannot_be_read_or_written_again_are_no_obstacle() {
        let (folder, etc) = machine();
        let bundle = folder.path().join("etc/ssl/certs/all.crt");
        std::fs::set_permissions(&bundle, std::fs::Permissions::from_mode(0o444)).unwrap();
        let socket = folder.path().join("etc/ssl/certs/socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let copy = later(&etc);
        assert!(!copy.join("ssl/certs/socket").exists());
        assert_eq!(later(&etc), copy);
    }

    #[test]
    fn no_private_key_is_in_a_visible_folder() {
        for key in [
            "ssl/private/server.key",
            "pki/tls/private/server.key",
            "pki/nssdb/key4.db",
            "R/Renviron.site",
            "php/8.4/mods-available/apm.ini",
            "shadow",
        ] {
            let shown = SHOWN.iter().find(|path| Path::new(key).starts_with(path));
            assert_eq!(shown, None, "{key}");
        }
        for certificates in ["ssl/certs/ca-certificates.crt", "pki/java/cacerts"] {
            let mut shown = SHOWN.iter();
            assert!(shown.any(|path| Path::new(certificates).starts_with(path)));
        }
    }
}
