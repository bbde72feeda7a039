//! Bare mirrors of repositories on the worker's disk, from which new clones are served.
//!
//! What is guaranteed:
//! - **The host decides each time.** Before a mirror answers, the host lists its branches and tags for the session's own
//!   token. Only what it lists at this moment is served, and only if the mirror's tags, and the branches that are
//!   cloned, are the same. Otherwise the mirror fetches first, and if that does not make it the same, the host answers.
//! - **Nothing else is visible.** Only a new clone is answered: a client that has nothing learns nothing about what else
//!   is in the mirror, such as a commit that was force-pushed away. Everything else goes to the host. Each repository
//!   and token has its own mirror.
//! - **A sandbox does not write to it.** It is filled by the worker's git from the host alone, and pushes do not touch
//!   it. No byte of the sandbox's request reaches git ([`request`]). The mirror's configuration is written before each
//!   use, in the clean environment of `agentmine-git`. The sandbox's git verifies every object by the id that the host
//!   listed, so even a damaged mirror cannot give it other content.
//! - **It may fail.** Whatever goes wrong before the first byte, the host answers; a mirror that fails later is
//!   fetched again.
//! - **It is bounded** ([`place`]), and any number of workers of this machine share it.
//!
//! A mirror is filled after the first clone of its repository, not before it: the first task does not wait for it.

mod place;
pub(crate) mod refs;
mod request;

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agentmine_git::{Errand, GitHome};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use crate::facts::authorize;
use crate::git_process;
use crate::http::{Body, streamed};
use crate::upstream::Remote;
pub use place::Mirrors;
use place::{Held, Place};
use refs::{PREFIXES, Refs};
use request::CloneRequest;

/// Time limit for filling a mirror.
const FILL_LIMIT: Duration = Duration::from_secs(1800);
/// Time limit for bringing it up to date while a clone waits; then the host answers.
const UPDATE_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for the first byte of a clone; then the host answers.
const FIRST_BYTE: Duration = Duration::from_secs(60);
/// How long a clone waits for another worker that fetches.
const TURNS: u32 = 100;
const TURN: Duration = Duration::from_millis(100);
/// How often the size of a mirror that is being filled is checked.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Size limit of the list of a mirror's refs, in bytes.
const MAX_REFS: usize = 64 * 1024 * 1024;
/// More packs than these are joined into one.
const MAX_PACKS: usize = 30;

/// What a failed update means for a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consequence {
    /// The mirror is unchanged: a network failure says nothing about it, and room may become free once other mirrors are no
    /// longer in use.
    None,
    /// It has too much to fetch for the time that a clone waits, and fetches it afterwards.
    Behind,
    /// It is filled again.
    Spoiled,
}

impl Consequence {
    fn of(error: &MirrorError) -> Self {
        match error {
            MirrorError::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::Behind,
            MirrorError::Io(_) => Self::Spoiled,
            // The lock that a killed git left stops the next update as well.
            MirrorError::Git(said) if said.contains(".lock") => Self::Spoiled,
            MirrorError::Git(_) | MirrorError::TooLarge => Self::None,
        }
    }
}

/// The mirror of one session's repository.
#[derive(Debug)]
pub(crate) struct Mirror {
    remote: Arc<Remote>,
    place: Place,
    home: GitHome,
}

/// Who answers a fetch.
pub(crate) enum Answer {
    /// The mirror.
    Mirror(Body, Tend),
    /// The repository's host.
    Host(Option<Tend>),
}

/// Looks after the mirror once it is dropped, which is after the answer was sent.
pub(crate) struct Tend(Arc<Mirror>);

impl Drop for Tend {
    fn drop(&mut self) {
        let mirror = Arc::clone(&self.0);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { mirror.tend().await });
        }
    }
}

/// Why a mirror was not filled.
#[derive(Debug, thiserror::Error)]
enum MirrorError {
    #[error("the repository is larger than consumer.mirrors.max_size")]
    TooLarge,
    #[error("git: {0}")]
    Git(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Mirror {
    /// The mirror of a repository on a host. One on the worker's own disk needs none.
    pub(crate) fn of(mirrors: &Mirrors, remote: &Arc<Remote>) -> Option<Arc<Self>> {
        let Remote::Http(http) = remote.as_ref() else {
            return None;
        };
        let url = http.base();
        let (user, password) = http.identity();
        let password = password.map_or("", |password| password.expose());
        let opened = mirrors
            .place(&[url.as_str(), user, password])
            .and_then(|place| {
                Ok(Self {
                    remote: Arc::clone(remote),
                    place,
                    home: GitHome::new()?,
                })
            });
        match opened {
            Ok(mirror) => Some(Arc::new(mirror)),
            Err(error) => {
                tracing::warn!(%error, "repositories are not mirrored. hint: set consumer.mirrors.folder to a folder that can be written, or consumer.mirrors.enabled to false");
                None
            }
        }
    }

    /// Answers a fetch in version 2 of the protocol, if it is a new clone.
    pub(crate) async fn answer(self: &Arc<Self>, body: &[u8]) -> Answer {
        let Some(request) = CloneRequest::parse(body) else {
            return Answer::Host(None);
        };
        let served = self.serve(&request).await;
        let outcome = match &served {
            Ok(Some(_)) => "mirror",
            Ok(None) => "host",
            Err(error) => {
                tracing::warn!(%error, "the mirror of a repository cannot be used; its host answers");
                "failed"
            }
        };
        metrics::counter!("agentmine_gateway_clones_total", "from" => outcome).increment(1);
        let tend = Tend(Arc::clone(self));
        match served {
            Ok(Some(body)) => Answer::Mirror(body, tend),
            Ok(None) | Err(_) => Answer::Host(Some(tend)),
        }
    }

    async fn serve(&self, request: &CloneRequest) -> Result<Option<Body>, MirrorError> {
        let Some(held) = self.place.hold()? else {
            return Ok(None);
        };
        if !self.place.is_whole() {
            return Ok(None);
        }
        // Its failure is reported where the host is asked for the clone itself.
        let Ok(listed) = self.remote.list_refs(request::list_refs().into()).await else {
            return Ok(None);
        };
        let Some(host) = Refs::listed(&listed).filter(|host| host.have(&request.wants)) else {
            return Ok(None);
        };
        self.place.write_config()?;
        if !self.is_as_good_as(&host, request).await? {
            if self.place.is_behind() {
                return Ok(None);
            }
            let Some(_update) = self.wait_for_update().await? else {
                return Ok(None);
            };
            // Another worker may have fetched meanwhile.
            if !self.is_as_good_as(&host, request).await? {
                self.update().await?;
                if !self.is_as_good_as(&host, request).await? {
                    return Ok(None);
                }
            }
        }
        self.upload_pack(request, held).await.map(Some)
    }

    async fn is_as_good_as(
        &self,
        host: &Refs,
        request: &CloneRequest,
    ) -> Result<bool, MirrorError> {
        let mut git = self.git();
        git.args(["for-each-ref", "--format=%(objectname) %(refname)"]);
        let output = git_process::run(git, UPDATE_LIMIT, MAX_REFS).await?;
        if !output.status.success() {
            self.place.spoil();
            return Err(MirrorError::Git(crate::printable::printable(
                &output.stderr,
            )));
        }
        let own = Refs::of_mirror(&output.stdout);
        Ok(own.is_some_and(|own| own.are_as_good_as(host, &request.wants)))
    }

    /// Brings it up to date while a clone waits.
    async fn update(&self) -> Result<(), MirrorError> {
        let fetched = self.fetch(UPDATE_LIMIT).await;
        if let Err(error) = &fetched {
            match Consequence::of(error) {
                Consequence::None => {}
                Consequence::Behind => self.place.fall_behind(),
                Consequence::Spoiled => self.place.spoil(),
            }
        }
        fetched
    }

    async fn wait_for_update(&self) -> io::Result<Option<Held>> {
        for _ in 0..TURNS {
            if let Some(update) = self.place.try_update()? {
                return Ok(Some(update));
            }
            tokio::time::sleep(TURN).await;
        }
        Ok(None)
    }

    /// Starts git's server program, and waits for its first bytes.
    async fn upload_pack(&self, request: &CloneRequest, held: Held) -> Result<Body, MirrorError> {
        let mut git = git_process::command(self.home.git(Errand::Trusted));
        git.args(["upload-pack", "--stateless-rpc"])
            .arg(self.place.repository())
            .env("GIT_PROTOCOL", "version=2")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = git.spawn()?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(MirrorError::Git("it was started without pipes".into()));
        };
        let body = request.written();
        tokio::spawn(async move {
            // A server that has read enough closes its end; its output then shows the rest.
            let _ = stdin.write_all(&body).await;
        });
        let mut stdout = ReaderStream::with_capacity(stdout, 64 * 1024);
        let first = timeout(FIRST_BYTE, stdout.next()).await;
        let first = match first {
            Ok(Some(first)) => first?,
            Ok(None) | Err(_) => Bytes::new(),
        };
        // The length of the first line, and its beginning.
        if first.len() < 8 || &first[4..8] == b"ERR " {
            self.place.spoil();
            return Err(MirrorError::Git("it does not serve the mirror".into()));
        }
        Ok(streamed(checked(
            first,
            stdout,
            child,
            (self.place.clone(), held),
        )))
    }

    /// Fills the mirror, brings it up to date, or joins its packs, unless another worker does.
    async fn tend(&self) {
        let done = match self.place.is_whole() {
            true if self.place.is_behind() => self.catch_up().await,
            true => self.join_packs().await,
            false => self.fill().await,
        };
        match done {
            Ok(()) => {}
            Err(error @ MirrorError::TooLarge) => {
                tracing::info!(%error, "a repository is not mirrored");
            }
            Err(error) => tracing::warn!(%error, "a repository could not be mirrored"),
        }
    }

    async fn fill(&self) -> Result<(), MirrorError> {
        let place = &self.place;
        if place.is_too_large() {
            return Ok(());
        }
        let Some(_update) = place.try_update()? else {
            return Ok(());
        };
        if place.is_whole() || !place.begin()? {
            return Ok(());
        }
        let Some(held) = place.hold()? else {
            return Ok(());
        };
        let fetched = self.fetch(FILL_LIMIT).await;
        if let Err(error) = fetched {
            drop(held);
            if matches!(error, MirrorError::TooLarge) {
                place.mark_too_large()?;
            }
            place.remove()?;
            return Err(error);
        }
        Ok(place.complete()?)
    }

    /// Fetches what took longer than a clone waits. To fill the mirror again would take longer still.
    async fn catch_up(&self) -> Result<(), MirrorError> {
        let place = &self.place;
        let Some(_update) = place.try_update()? else {
            return Ok(());
        };
        let Some(_held) = place.hold()? else {
            return Ok(());
        };
        // Another worker may have done it.
        if !place.is_whole() || !place.is_behind() {
            return Ok(());
        }
        let fetched = async {
            place.write_config()?;
            place.remove_partial_packs()?;
            self.fetch(FILL_LIMIT).await
        };
        match fetched.await {
            Ok(()) => Ok(place.caught_up()?),
            Err(error) => {
                let is_too_large = matches!(error, MirrorError::TooLarge);
                if is_too_large || Consequence::of(&error) != Consequence::None {
                    // It is filled again, or marked as too large for a day.
                    place.spoil();
                }
                Err(error)
            }
        }
    }

    /// Brings branches and tags up to date with the host's, under the session's token. Ends early where there is no
    /// room.
    async fn fetch(&self, limit: Duration) -> Result<(), MirrorError> {
        let mut git = self.git();
        git.args(["-c", "fetch.unpackLimit=1"]);
        authorize(&mut git, &self.remote);
        git.args(["fetch", "--quiet", "--prune", "--force", "--no-tags"]);
        git.args(["--no-write-fetch-head", "--no-recurse-submodules", "--"]);
        git.arg(self.remote.url()?);
        git.args(PREFIXES.map(|prefix| format!("+{prefix}*:{prefix}*")));
        let fetched = tokio::select! {
            fetched = git_process::run(git, limit, MAX_REFS) => fetched?,
            has_none = self.until_there_is_no_room() => return Err(has_none),
        };
        match fetched.status.success() {
            true if !self.has_room().await? => Err(MirrorError::TooLarge),
            true => Ok(()),
            false => Err(MirrorError::Git(crate::printable::printable(
                &fetched.stderr,
            ))),
        }
    }

    async fn until_there_is_no_room(&self) -> MirrorError {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.has_room().await {
                Ok(true) => {}
                Ok(false) => return MirrorError::TooLarge,
                Err(error) => return error,
            }
        }
    }

    async fn has_room(&self) -> Result<bool, MirrorError> {
        let place = self.place.clone();
        let looked = tokio::task::spawn_blocking(move || place.make_room()).await;
        Ok(looked.map_err(io::Error::other)??)
    }

    /// Joins the packs into one, without what no branch or tag needs any more, while nobody uses the mirror.
    async fn join_packs(&self) -> Result<(), MirrorError> {
        if self.place.packs() <= MAX_PACKS {
            return Ok(());
        }
        let Some(_update) = self.place.try_update()? else {
            return Ok(());
        };
        let Some(_alone) = self.place.try_alone()? else {
            return Ok(());
        };
        for arguments in [&["repack", "-a", "-d", "-q"][..], &["pack-refs", "--all"]] {
            let mut git = self.git();
            git.args(arguments);
            let done = git_process::run(git, FILL_LIMIT, MAX_REFS).await?;
            if !done.status.success() {
                self.place.spoil();
                return Err(MirrorError::Git(crate::printable::printable(&done.stderr)));
            }
        }
        Ok(())
    }

    /// Git on the mirror, with no protocol allowed.
    fn git(&self) -> Command {
        let mut git = git_process::command(self.home.git(Errand::Trusted));
        git.arg("--git-dir").arg(self.place.repository());
        git
    }
}

type Chunks = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The output of a server program, whose failure ends it with an error, and the use of the mirror.
fn checked(
    first: Bytes,
    rest: ReaderStream<tokio::process::ChildStdout>,
    child: tokio::process::Child,
    (place, held): (Place, Held),
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let first = futures::stream::once(async move { Ok(first) });
    let chunks: Chunks = Box::pin(first.chain(rest));
    futures::stream::unfold(Some((chunks, child, place, held)), |state| async move {
        let (mut chunks, mut child, place, held) = state?;
        match chunks.next().await {
            Some(Ok(chunk)) => Some((Ok(chunk), Some((chunks, child, place, held)))),
            Some(Err(error)) => Some((Err(error), None)),
            None => match child.wait().await {
                Ok(status) if status.success() => None,
                Ok(_) | Err(_) => {
                    place.spoil();
                    let why = "git could not serve the mirror of the repository to the end";
                    Some((Err(io::Error::other(why)), None))
                }
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_that_takes_too_long_does_not_cost_the_mirror() {
        let io = |kind: io::ErrorKind| Consequence::of(&MirrorError::Io(kind.into()));
        assert_eq!(io(io::ErrorKind::TimedOut), Consequence::Behind);
        assert_eq!(io(io::ErrorKind::StorageFull), Consequence::Spoiled);
        let git = |said: &str| Consequence::of(&MirrorError::Git(said.into()));
        let locked = "Unable to create '/m/refs/heads/main.lock': File exists.";
        assert_eq!(git(locked), Consequence::Spoiled);
        assert_eq!(git("Could not resolve host: h"), Consequence::None);
        assert_eq!(Consequence::of(&MirrorError::TooLarge), Consequence::None);
    }
}
