//! What differs between the forges, by its meaning: a story that runs on both does not know on which one it runs.

use agentmine_tests::forge::{DEMO, Fault};
use serde_json::Value;

use crate::rig::Rig;

/// What a request to the forge is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    /// To open a pull request.
    OpenPull,
    /// To post a comment.
    PostComment,
    /// To read what a person may do in a repository.
    ReadPermission,
}

impl Request {
    /// Its method, and a part of its path that no other kind of request with this method has; `$` is the end.
    fn place(self, gitlab: bool) -> (&'static str, &'static str) {
        match (self, gitlab) {
            (Self::OpenPull, false) => ("POST", "/pulls$"),
            (Self::OpenPull, true) => ("POST", "/merge_requests$"),
            (Self::PostComment, false) => ("POST", "/comments$"),
            (Self::PostComment, true) => ("POST", "/notes$"),
            (Self::ReadPermission, false) => ("GET", "/permission"),
            (Self::ReadPermission, true) => ("GET", "/members/all"),
        }
    }
}

impl Rig {
    fn is_on_gitlab(&self) -> bool {
        self.config["trackers"]["gitlab"].is_object()
    }

    /// The section of the configuration that is about the forge.
    pub(crate) fn tracker(&mut self) -> &mut Value {
        let name = match self.is_on_gitlab() {
            true => "gitlab",
            false => "github",
        };
        &mut self.config["trackers"][name]
    }

    /// Names the repositories that the fleet works on.
    pub(crate) fn serve(&mut self, repositories: &[&str]) {
        let key = match self.is_on_gitlab() {
            true => "projects",
            false => "repositories",
        };
        self.tracker()[key] = repositories.into();
    }

    /// The number that the forge shows of an item.
    pub(crate) fn shown(&self, number: u64) -> u64 {
        match self.is_on_gitlab() {
            true => self.forge.iid(DEMO, number),
            false => number,
        }
    }

    /// A fault of requests of this kind.
    pub(crate) fn fault_of(&self, request: Request) -> Fault {
        let (method, path) = request.place(self.is_on_gitlab());
        Fault::on(method, path)
    }

    /// How many writes of this kind arrived at the forge.
    pub(crate) fn written(&self, request: Request) -> usize {
        let (method, path) = request.place(self.is_on_gitlab());
        let path = path.trim_end_matches('$');
        let writes = self.forge.writes().into_iter();
        writes
            .filter(|it| it.method == method && it.path.ends_with(path))
            .count()
    }

    /// The boundary of the last request of a label's move: on GitLab, a move is one request.
    pub(crate) fn last_of_a_label_move(&self) -> &'static str {
        match self.is_on_gitlab() {
            true => "tracker.label_add",
            false => "tracker.label_remove",
        }
    }
}
