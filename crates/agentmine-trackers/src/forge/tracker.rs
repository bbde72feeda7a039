//! The methods of [`Tracker`](crate::Tracker) that every forge's adapter has word for word.

/// Implements `Tracker` for an adapter with the methods in the braces, and all those that only pass a call on to its
/// `api` (the endpoints) and `scan` (the candidates). Its `who` says who may start work, and its `dashboards` whether
/// issues of AgentMine are kept. The names of types are those that the adapter's file imports.
macro_rules! forge_tracker {
    ($adapter:ident { $($own:tt)* }) => {
        #[async_trait]
        impl Tracker for $adapter {
            $($own)*

            fn host(&self) -> &str {
                &self.api.host
            }

            async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
                self.api.find(name).await
            }

            async fn find_repository(&self, name: &str) -> Result<Option<RepositoryRef>, TrackerError> {
                self.api.find_repository(name).await
            }

            async fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError> {
                self.scan.run(&self.api, label).await
            }

            fn scans(&self, path: &str) -> bool {
                self.scan.contains(path)
            }

            fn scanned_as(&self, repo_id: &str) -> Option<String> {
                let mut paths = self.api.paths_of(repo_id).into_iter();
                paths.find(|path| self.scan.contains(path))
            }

            async fn candidates_in(&self, path: &str, label: &str) -> Result<Vec<Candidate>, TrackerError> {
                self.scan.run_in(&self.api, path, label).await
            }

            fn skipped(&self) -> Vec<Skipped> {
                self.scan.faults().list()
            }

            async fn label_request(
                &self,
                item: &ItemRef,
                label: &str,
            ) -> Result<LabelRequest, TrackerError> {
                self.scan.label_request(&self.api, item, label).await
            }

            async fn may_start(&self, item: &ItemRef, person: &Person) -> Result<Admission, TrackerError> {
                self.api.may_start(&self.who, item, person).await
            }

            async fn requested(
                &self,
                item: &ItemRef,
                trigger: &str,
            ) -> Result<Option<Requested>, TrackerError> {
                self.api.requested(item, trigger).await
            }

            async fn edits(&self, item: &ItemRef, since: DateTime<Utc>) -> Result<Vec<Edit>, TrackerError> {
                self.api.edits(item, since).await
            }

            async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
                self.api.item(item).await
            }

            async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
                self.api.comments(item).await
            }

            async fn react(
                &self,
                item: &ItemRef,
                comment: &Comment,
                permit: &Permit,
            ) -> Result<(), TrackerError> {
                self.api.react(item, comment, permit).await
            }

            async fn set_labels(
                &self,
                item: &ItemRef,
                add: &[String],
                remove: &[String],
                permit: &Permit,
            ) -> Result<(), TrackerError> {
                self.api.set_labels(item, add, remove, permit).await
            }

            async fn write_comment(
                &self,
                item: &ItemRef,
                marker: &Marker,
                body: &str,
                permit: &Permit,
            ) -> Result<String, TrackerError> {
                self.api.write_comment(item, marker, body, permit).await
            }

            async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
                self.api.repository(item).await
            }

            async fn file(
                &self,
                item: &ItemRef,
                branch: &str,
                path: &str,
            ) -> Result<Option<String>, TrackerError> {
                self.api.file(item, branch, path).await
            }

            async fn find_pull_request(
                &self,
                item: &ItemRef,
                head: &str,
            ) -> Result<Option<PullRequest>, TrackerError> {
                let attempts = self.api.client.attempts();
                self.api.find_pull_request(item, head, &attempts).await
            }

            async fn open_pull_requests(
                &self,
                item: &ItemRef,
            ) -> Result<Vec<OpenPullRequest>, TrackerError> {
                self.api.open_pull_requests(item).await
            }

            async fn blockers(&self, item: &Item) -> Result<Vec<Blocker>, TrackerError> {
                self.api.blockers(item).await
            }

            async fn create_pull_request(
                &self,
                item: &ItemRef,
                new: &NewPullRequest,
                permit: &Permit,
            ) -> Result<PullRequest, TrackerError> {
                self.api.create_pull_request(item, new, permit).await
            }

            async fn update_pull_request(
                &self,
                item: &ItemRef,
                number: u64,
                new: &NewPullRequest,
                permit: &Permit,
            ) -> Result<(), TrackerError> {
                self.api
                    .update_pull_request(item, number, new, permit)
                    .await
            }

            async fn push_objection(
                &self,
                item: &ItemRef,
                branch: &str,
            ) -> Result<Option<String>, TrackerError> {
                self.api.push_objection(item, branch).await
            }

            fn keeps_dashboards(&self) -> bool {
                self.dashboards
            }

            async fn issue_of_ours(
                &self,
                of: &ItemRef,
                new: &NewIssue<'_>,
                permit: &Permit,
            ) -> Result<OurIssue, TrackerError> {
                self.api.issue_of_ours(of, new, permit).await
            }

            async fn edit_issue(
                &self,
                item: &ItemRef,
                body: &str,
                permit: &Permit,
            ) -> Result<DateTime<Utc>, TrackerError> {
                self.api.edit_issue(item, body, permit).await
            }

            async fn remove_branch(
                &self,
                item: &ItemRef,
                branch: &str,
                commit: &str,
                permit: &Permit,
            ) -> Result<BranchRemoval, TrackerError> {
                let at = (branch, commit);
                self.api.remove_branch(item, at, permit).await
            }

            async fn mark_ready(
                &self,
                item: &ItemRef,
                number: u64,
                permit: &Permit,
            ) -> Result<(), TrackerError> {
                self.api.mark_ready(item, number, permit).await
            }

            async fn checks(&self, pull: &ItemRef, commit: &str) -> Result<Checks, TrackerError> {
                self.api.checks(pull, commit).await
            }

            async fn check_log(&self, pull: &ItemRef, log: &str) -> Result<Option<String>, TrackerError> {
                self.api.check_log(pull, log).await
            }

            async fn branch_commit(
                &self,
                of: &ItemRef,
                branch: &str,
            ) -> Result<Option<String>, TrackerError> {
                self.api.branch_commit(of, branch).await
            }

            async fn conflicts(&self, pull: &ItemRef) -> Result<Option<bool>, TrackerError> {
                self.api.conflicts(pull).await
            }

            async fn threads(&self, pull: &ItemRef) -> Result<Vec<Thread>, TrackerError> {
                self.api.threads(pull).await
            }

            async fn reply_to_thread(
                &self,
                pull: &ItemRef,
                thread: &str,
                marker: &str,
                body: &str,
                permit: &Permit,
            ) -> Result<(), TrackerError> {
                let marker = Marker::new(self.kind(), marker)?;
                let reply = (&marker, body);
                self.api.reply_to_thread(pull, thread, reply, permit).await
            }

            async fn resolve_thread(
                &self,
                pull: &ItemRef,
                thread: &str,
                permit: &Permit,
            ) -> Result<(), TrackerError> {
                self.api.resolve_thread(pull, thread, permit).await
            }
        }
    };
}
pub(crate) use forge_tracker;
