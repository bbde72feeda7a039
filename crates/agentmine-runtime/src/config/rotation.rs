//! Secrets in files that change while the process runs, as when Kubernetes updates a mounted secret.
//!
//! Guaranteed: after [`follow_secret_files`] a [`Secret`](super::Secret) of a file gives the file's new content at its
//! next use, and whatever redacts knows a new value before anything uses it, and keeps the former ones. A file that is
//! missing, empty or unreadable changes nothing, and the log says so once. New content counts when two looks in a row
//! saw it, so that a file that is being written is not used. Accepted race: until then the former value is used, for
//! two seconds.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock, Weak};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::secret_texts::parts_of;

/// The time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest secret. A private key has a few kilobytes.
const LONGEST: u64 = 64 << 10;
/// New values that are kept for redaction.
const KEPT: usize = 256;

/// All files of secrets in use.
static FILES: Mutex<Vec<Weak<SecretFile>>> = Mutex::new(Vec::new());
/// The values that came after the first ones, and what of them is secret by itself.
static REPLACEMENTS: RwLock<Vec<SecretString>> = RwLock::new(Vec::new());
/// How often [`REPLACEMENTS`] has changed.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A file with one secret.
pub(super) struct SecretFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    current: SecretString,
    /// Seen once.
    next: Option<SecretString>,
    is_unreadable: bool,
}

impl SecretFile {
    /// The file at `path`, from which `first` was read.
    pub(super) fn new(first: SecretString, path: &Path) -> Arc<Self> {
        let file = Arc::new(Self {
            path: path.to_owned(),
            state: Mutex::new(State {
                current: first,
                next: None,
                is_unreadable: false,
            }),
        });
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&file));
        file
    }

    pub(super) fn current(&self) -> SecretString {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.current.clone()
    }

    fn look(&self) {
        let seen = content(&self.path);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.display();
        let text = match seen {
            Ok(text) => text,
            Err(error) => {
                state.next = None;
                if !std::mem::replace(&mut state.is_unreadable, true) {
                    tracing::warn!(%path, error, "the file of a secret cannot be read; its last value stays in use");
                }
                return;
            }
        };
        state.is_unreadable = false;
        if state.current.expose_secret() == text {
            state.next = None;
            return;
        }
        match state.next.take() {
            Some(next) if next.expose_secret() == text => {
                remember(&next);
                state.current = next;
                tracing::info!(%path, "the file of a secret has changed; the new value is used from now on");
            }
            Some(_) | None => state.next = Some(SecretString::from(text)),
        }
    }
}

/// Begins to look at the files of all secrets, for as long as the process runs. May be called again.
pub fn follow_secret_files() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let forever = || {
            loop {
                std::thread::sleep(LOOK_EVERY);
                look_at_all();
            }
        };
        let started = std::thread::Builder::new()
            .name("secret-files".into())
            .spawn(forever);
        if let Err(error) = started {
            tracing::warn!(%error, "files of secrets are not read again: their thread cannot be started");
        }
    });
}

fn look_at_all() {
    let files: Vec<Arc<SecretFile>> = {
        let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(Weak::upgrade).collect()
    };
    files.iter().for_each(|file| file.look());
}

fn remember(secret: &SecretString) {
    let mut kept = REPLACEMENTS.write().unwrap_or_else(PoisonError::into_inner);
    let parts = parts_of(secret.expose_secret());
    kept.extend(parts.into_iter().map(SecretString::from));
    let excess = kept.len().saturating_sub(KEPT);
    kept.drain(..excess);
    GENERATION.fetch_add(1, Ordering::Release);
}

/// Changes when a secret was replaced. Read it before [`replacements`].
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// The values that came after the first ones.
pub(crate) fn replacements() -> Vec<SecretString> {
    let kept = REPLACEMENTS.read().unwrap_or_else(PoisonError::into_inner);
    kept.clone()
}

/// The secret in a file. The error never shows what was read.
pub(super) fn content(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("more than {LONGEST} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    match secret_in(&text) {
        "" => Err("an empty file".into()),
        secret => Ok(secret.to_owned()),
    }
}

/// The secret in a text, without the byte order mark that editors and shells of Windows begin a file with, and without
/// the line break at its end.
pub(super) fn secret_in(text: &str) -> &str {
    text.trim_start_matches('\u{feff}').trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use crate::redact::Redactor;

    fn file_of(path: &Path, text: &str) -> Secret {
        std::fs::write(path, text).unwrap();
        Secret::of_file(&Secret::new(text.trim()), path)
    }

    #[test]
    fn new_content_counts_when_it_was_seen_twice_and_is_redacted_like_the_former() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let secret = file_of(&path, "first-canary-token\n");
        let copy = secret.clone();
        let redactor = Redactor::new([secret.clone()]);
        let file = secret.file().unwrap();
        std::fs::write(&path, "second-canary-token\n").unwrap();
        file.look();
        assert_eq!(copy.current().expose(), "first-canary-token");
        file.look();
        assert_eq!(copy.current().expose(), "second-canary-token");
        assert_eq!(copy.current().current().expose(), "second-canary-token");
        assert_eq!(secret.expose(), "first-canary-token", "what was read first");
        let text = "first-canary-token and second-canary-token";
        assert_eq!(redactor.redact(text.into()), "*** and ***");
        assert_eq!(redactor.clone().redact(text.into()), "*** and ***");
        assert_eq!(*redactor.redact_bytes(text.as_bytes()), b"*** and ***"[..]);
        assert_eq!(redactor.redact_open(text), "*** and ***");
        assert!(redactor.finds_in("second-canary-token"));
        let later = Redactor::new([Secret::new("another-canary")]);
        assert_eq!(later.redact("second-canary-token".into()), "***");
    }

    #[test]
    fn a_file_that_is_away_empty_or_half_written_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let secret = file_of(&path, "lasting-canary");
        let file = secret.file().unwrap();
        let looked = |content: Option<&str>| {
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            file.look();
            secret.current().expose().to_owned()
        };
        for content in [
            None,
            Some(""),
            Some(" \n"),
            Some("half"),
            Some("half-a-new"),
        ] {
            assert_eq!(looked(content), "lasting-canary", "{content:?}");
        }
        assert_eq!(looked(Some("half-a-new-canary")), "lasting-canary");
        assert_eq!(looked(None), "lasting-canary");
        assert_eq!(looked(Some("half-a-new-canary")), "lasting-canary");
        assert_eq!(looked(Some("half-a-new-canary")), "half-a-new-canary");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "\u{feff}marked-canary\r\n").unwrap();
        assert_eq!(content(&path).as_deref(), Ok("marked-canary"));
        std::fs::write(&path, "\u{feff}\n").unwrap();
        assert_eq!(content(&path).unwrap_err(), "an empty file");
    }

    /// As the kubelet does it: `token` is a link to `..data/token`, and `..data` one to a folder that is exchanged.
    #[test]
    fn a_folder_that_is_exchanged_behind_a_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let publish = |version: &str, token: &str| {
            std::fs::create_dir(at(version)).unwrap();
            std::fs::write(at(version).join("token"), token).unwrap();
            std::os::unix::fs::symlink(version, at("..data_tmp")).unwrap();
            std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
        };
        publish("..1", "mounted-canary");
        std::os::unix::fs::symlink("..data/token", at("token")).unwrap();
        let secret = Secret::of_file(&Secret::new("mounted-canary"), &at("token"));
        publish("..2", "updated-canary");
        std::fs::remove_dir_all(at("..1")).unwrap();
        secret.file().unwrap().look();
        secret.file().unwrap().look();
        assert_eq!(secret.current().expose(), "updated-canary");
    }

    #[test]
    fn of_a_url_its_password_is_redacted_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        let secret = file_of(&path, "postgres://agent:former-canary@db/agentmine");
        let redactor = Redactor::new([]);
        std::fs::write(&path, "postgres://agent:latter%40canary@db/agentmine").unwrap();
        secret.file().unwrap().look();
        secret.file().unwrap().look();
        assert!(secret.current().expose().contains("latter"));
        for shown in ["latter@canary", "latter%40canary"] {
            assert_eq!(redactor.redact(shown.into()), "***");
        }
    }
}
