//! Images, as far as starting a container needs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::errors::Error;
use futures::StreamExt as _;
use tokio::sync::Mutex;

use super::engine::Engine;
use super::holder::Holder;
use crate::error::SandboxError;

const PULL_LIMIT: Duration = Duration::from_secs(900);

/// Size limit of the archive of an empty workspace, in bytes.
const MOST_OF_EMPTY: usize = 64 * 1024;
/// How many images are remembered.
const MOST_IMAGES: usize = 1000;

/// What starting a container needs to know about an image.
pub(super) struct Image {
    /// Its id; empty if the engine has none.
    pub(super) id: String,
    /// Whether it works with a read-only root, by its label.
    pub(super) read_only_root: bool,
}

/// The image, pulled if the engine does not have it.
pub(super) async fn find(engine: &Engine, name: &str) -> Result<Image, SandboxError> {
    let inspect = || {
        engine.call("inspecting the image", |docker| {
            let name = name.to_owned();
            async move { docker.inspect_image(&name).await }
        })
    };
    let inspected = match inspect().await {
        Ok(inspected) => inspected,
        Err(SandboxError::Unavailable(why)) => return Err(SandboxError::Unavailable(why)),
        Err(_) => {
            pull(engine, name).await?;
            inspect().await?
        }
    };
    let id = inspected.id.unwrap_or_default();
    let labels = inspected
        .config
        .and_then(|config| config.labels)
        .unwrap_or_default();
    let read_only_root = labels
        .get("agentmine.readonly-root")
        .is_some_and(|v| v == "true");
    Ok(Image { id, read_only_root })
}

/// Which images have an empty `/workspace` of the guest's user, by their id. Clones share it.
///
/// The engine copies such a folder into a new volume with its owner, and so nothing has to be uploaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Workspaces(Arc<Mutex<HashMap<String, bool>>>);

impl Workspaces {
    /// Whether this image has one. Looked at once; an image whose id is unknown counts as one that has none.
    pub(super) async fn has(
        &self,
        engine: &Engine,
        name: &str,
        image: &Image,
        owner: (u64, u64),
    ) -> Result<bool, SandboxError> {
        if image.id.is_empty() {
            return Ok(false);
        }
        let mut known = self.0.lock().await;
        if let Some(has) = known.get(&image.id) {
            return Ok(*has);
        }
        let holder = Holder::create(engine, name, None).await?;
        let archive = holder.archive("/workspace", MOST_OF_EMPTY).await;
        holder.remove().await;
        let has = archive?.is_some_and(|archive| is_empty_workspace(&archive, owner));
        if known.len() >= MOST_IMAGES {
            known.clear();
        }
        known.insert(image.id.clone(), has);
        Ok(has)
    }
}

/// Whether an archive of `/workspace` has the folders of an empty workspace, or some of them, and nothing else.
fn is_empty_workspace(archive: &[u8], owner: (u64, u64)) -> bool {
    const FOLDERS: [&str; 4] = [
        "workspace",
        "workspace/project",
        "workspace/tmp",
        "workspace/tmp/home",
    ];
    let mut archive = tar::Archive::new(archive);
    let Ok(entries) = archive.entries() else {
        return false;
    };
    let mut found = 0;
    for entry in entries {
        let Ok(entry) = entry else { return false };
        let header = entry.header();
        let path = entry.path().ok();
        let path = path.as_deref().and_then(std::path::Path::to_str);
        let is_known = path.is_some_and(|path| FOLDERS.contains(&path.trim_end_matches('/')));
        let is_owned = header.uid().is_ok_and(|uid| uid == owner.0)
            && header.gid().is_ok_and(|gid| gid == owner.1);
        let is_usable = header.mode().is_ok_and(|mode| mode & 0o7777 == 0o755);
        if !(header.entry_type().is_dir() && is_known && is_owned && is_usable) {
            return false;
        }
        found += 1;
    }
    found > 0
}

async fn pull(engine: &Engine, name: &str) -> Result<(), SandboxError> {
    tracing::info!(image = name, "pulling the sandbox image");
    // Without a tag the engine would pull all of them.
    let last = name.rsplit('/').next().unwrap_or(name);
    let tagged = last.contains(':') || last.contains('@');
    let options = bollard::query_parameters::CreateImageOptions {
        from_image: Some(if tagged {
            name.to_owned()
        } else {
            format!("{name}:latest")
        }),
        ..Default::default()
    };
    let docker = engine.docker();
    let mut progress = std::pin::pin!(docker.create_image(Some(options), None, None));
    let mut failed = None;
    let pulled = async {
        while let Some(step) = progress.next().await {
            // The client makes an error of what the engine reports in the stream.
            failed = step.err().or(failed.take());
        }
    };
    let in_time = tokio::time::timeout(PULL_LIMIT, pulled).await;
    let failed = match in_time {
        Ok(()) => failed.map(|err| (is_refusal(&err), err.to_string())),
        Err(_) => Some((
            false,
            format!("not finished after {} s", PULL_LIMIT.as_secs()),
        )),
    };
    let Some((is_refused, why)) = failed else {
        return Ok(());
    };
    let text = not_pulled(name, &why);
    Err(match is_refused {
        true => SandboxError::Refused(text),
        false => SandboxError::Unavailable(text),
    })
}

/// A `docker login` on the engine's machine is of no use to an image that its API is asked for.
fn not_pulled(name: &str, why: &str) -> String {
    format!(
        "the engine has no image {name:?}, which could not be pulled: {why}. hint: build it for this engine with \
         docker/executor-default/build, which uses DOCKER_HOST too, or set another in \
         command_executor.docker.base_image. It is pulled without credentials: if its registry asks for some, run \
         `docker pull {name}` on the engine's machine"
    )
}

/// Whether the registry has no such image, or not for this engine, as opposed to one that is away or limits requests. In
/// the stream, and where the engine answers 500, only the text shows it.
fn is_refusal(err: &Error) -> bool {
    let text = match err {
        Error::DockerResponseServerError {
            status_code: 400 | 401 | 403 | 404,
            ..
        } => return true,
        Error::DockerResponseServerError { message, .. } => message,
        Error::DockerStreamError { error } => error,
        _ => return false,
    };
    let text = text.to_lowercase();
    // A limit's text speaks of authentication, too.
    let limits = ["toomanyrequests", "too many requests", "rate limit"];
    let refusals = [
        "not found",
        "denied",
        "manifest unknown",
        "no matching manifest",
        "invalid reference",
        "unauthorized",
        "forbidden",
    ];
    let names = |texts: &[&str]| texts.iter().any(|it| text.contains(it));
    !names(&limits) && names(&refusals)
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType, Header};

    use super::*;

    fn archive(entries: &[(&str, EntryType, u64, u32)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for &(path, kind, uid, mode) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_uid(uid);
            header.set_gid(1000);
            header.set_mode(mode);
            header.set_size(0);
            builder.append_data(&mut header, path, &[][..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn only_an_image_that_is_not_there_or_not_allowed_is_refused() {
        for text in [
            "pull access denied for agentmine/none, repository does not exist or may require 'docker login'",
            "manifest for alpine:none not found: manifest unknown: manifest unknown",
            "no matching manifest for linux/arm64/v8 in the manifest list entries",
            "failed to resolve reference \"ghcr.io/a/b:c\": unexpected status from HEAD request: 403 Forbidden",
            "unauthorized: authentication required",
        ] {
            let error = text.to_owned();
            assert!(is_refusal(&Error::DockerStreamError { error }), "{text}");
            let message = text.to_owned();
            let status_code = 500;
            let error = Error::DockerResponseServerError {
                status_code,
                message,
            };
            assert!(is_refusal(&error), "{text}");
        }
        let invalid = Error::DockerResponseServerError {
            status_code: 400,
            message: "invalid reference format".to_owned(),
        };
        assert!(is_refusal(&invalid));
        for text in [
            "Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io: no such host",
            "dial tcp 127.0.0.1:1: connect: connection refused",
            "toomanyrequests: You have reached your unauthenticated pull rate limit.",
            "unexpected status from HEAD request: 429 Too Many Requests, unauthorized",
            "received unexpected HTTP status: 503 Service Unavailable",
            "net/http: TLS handshake timeout",
            "write /var/lib/docker/tmp/x: no space left on device",
        ] {
            let error = text.to_owned();
            assert!(!is_refusal(&Error::DockerStreamError { error }), "{text}");
        }
        assert!(!is_refusal(&Error::RequestTimeoutError));
    }

    #[test]
    fn an_image_that_needs_a_login_is_pulled_by_hand() {
        let why = "unauthorized: authentication required";
        let shown = not_pulled("registry.example.com/a/b:1", why);
        assert!(shown.contains(why), "{shown}");
        assert!(
            shown.contains("`docker pull registry.example.com/a/b:1`"),
            "{shown}"
        );
    }

    #[test]
    fn only_an_empty_workspace_of_the_guests_user_is_taken_from_an_image() {
        use EntryType::{Directory, Regular};
        let top = ("workspace/", Directory, 1000, 0o755);
        let is_empty = |entries: &[_]| is_empty_workspace(&archive(entries), (1000, 1000));
        assert!(is_empty(&[top]));
        assert!(is_empty(&[
            top,
            ("workspace/project/", Directory, 1000, 0o755)
        ]));
        assert!(!is_empty(&[]));
        for other in [
            ("workspace/project/", Directory, 0, 0o755),
            ("workspace/project/", Directory, 1000, 0o777),
            ("workspace/project/.git/", Directory, 1000, 0o755),
            ("workspace/project", Regular, 1000, 0o755),
            ("workspace/tmp/home/.bashrc", Regular, 1000, 0o755),
        ] {
            assert!(!is_empty(&[top, other]), "{other:?}");
        }
        assert!(!is_empty_workspace(b"no archive", (1000, 1000)));
    }
}
