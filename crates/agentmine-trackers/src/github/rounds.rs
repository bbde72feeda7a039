//! Open pull requests, and the threads of their reviews.
//!
//! REST has the comments of threads and takes replies; whether a thread is resolved is in GraphQL alone.

use std::collections::{BTreeMap, HashMap};

use agentmine_domain::ItemRef;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use futures::future::join_all;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, ID_TTL, MAX_TEXT, split_path};
use super::candidates::AT_ONCE;
use super::fault::refused;
use super::graphql::{RESOLVE, THREADS};
use super::wire::{self, LineComment, Pull};
use crate::error::TrackerError;
use crate::forge::{
    Attempts, Budget, Call, CommentThread, KeptList, Lists, Reply, Written, concerns_one,
    may_concern_one, upsert,
};
use crate::item::{Comment, CommentKind};
use crate::marker::{self, FLEET_MARKER, Marker};
use crate::people::Person;
use crate::rounds::{OpenPull, OpenPulls, Thread};

/// A thread as GraphQL shows it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: String,
    is_resolved: bool,
    comments: First,
}

#[derive(Debug, Clone, Deserialize)]
struct First {
    nodes: Vec<Named>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    /// The number that REST knows it by, mostly as a text. `databaseId` has 32 bits, which the numbers of new comments do not
    /// fit into.
    #[serde(default)]
    full_database_id: Value,
}

impl Api {
    /// The open pull requests of the repositories of these items, each list with one conditional request. A list that
    /// was not read before also says which repository it is of.
    pub(super) async fn open_pulls(
        &self,
        kept: &Lists<OpenPull>,
        repos: &[ItemRef],
    ) -> Result<OpenPulls, TrackerError> {
        let mut open = OpenPulls::default();
        let mut silent = 0;
        for repos in repos.chunks(AT_ONCE) {
            let lists = repos.iter().map(|repo| self.open_pulls_in(kept, repo));
            for (repo, list) in repos.iter().zip(join_all(lists).await) {
                match list {
                    Ok(pulls) => {
                        silent = 0;
                        open.pulls.extend(pulls);
                    }
                    Err(error) if concerns_one(&error) || may_concern_one(&error, &mut silent) => {
                        tracing::debug!(repository = %repo.repo_path, %error, "its pull requests cannot be listed");
                        open.unread.push(repo.repo_id.clone());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(open)
    }

    pub(super) async fn open_pulls_in(
        &self,
        kept: &Lists<OpenPull>,
        of: &ItemRef,
    ) -> Result<Vec<OpenPull>, TrackerError> {
        let known = self.repo_known(&of.repo_path, ID_TTL);
        let known = known.filter(|repo| repo.id.to_string() == of.repo_id);
        let path = known.as_ref().map_or(&of.repo_path, |repo| &repo.full_name);
        let mut url = self.repo_url(path, &["pulls"])?;
        url.query_pairs_mut()
            .append_pair("state", "open")
            .append_pair("sort", "created")
            .append_pair("direction", "asc")
            .append_pair("per_page", "100");
        let what = format!("the pull requests of {path}");
        let open = |reply: &Reply| {
            let pulls = self
                .client
                .fitting::<Pull>(reply.json::<Vec<Value>>()?, &what);
            if let Some(repo) = pulls.iter().find_map(|pull| pull.base.repo.as_ref()) {
                self.know(of.repo_path.clone(), repo.clone());
            }
            let own = pulls.into_iter().filter(|pull| {
                let home = pull.head.repo.as_ref();
                home.is_some_and(|home| home.id.to_string() == of.repo_id)
            });
            let own = own.filter_map(|pull| open_pull(of, pull));
            Ok(own.collect())
        };
        let list = KeptList {
            first: url,
            what: &what,
            of: "",
            within: None,
        };
        let list = self.client.kept_list(kept, list, open).await?;
        if known.is_none() {
            // Another repository may have the name now.
            self.repo_of(of).await?;
        }
        let pulls = list.pages.iter().flat_map(|page| page.iter());
        Ok(pulls.cloned().collect())
    }

    /// Whether it conflicts with its target branch.
    pub(super) async fn conflicts(&self, item: &ItemRef) -> Result<Option<bool>, TrackerError> {
        let item = self.current(item).await?;
        let number = item.number.to_string();
        let url = self.repo_url(&item.repo_path, &["pulls", &number])?;
        let reply = self.client.get(url).await?;
        let pull: Pull = reply.ok(&item.to_string())?.json()?;
        Ok(pull.mergeable.map(|mergeable| !mergeable))
    }

    /// The threads on lines of a pull request.
    pub(super) async fn threads(&self, item: &ItemRef) -> Result<Vec<Thread>, TrackerError> {
        let item = self.current(item).await?;
        let login = self.own_login().await?;
        let comments: Vec<LineComment> = self.of_pull(&item, "comments").await?;
        let resolved: HashMap<u64, bool> = self
            .thread_nodes(&item)
            .await?
            .into_iter()
            .filter_map(|node| Some((node.first()?, node.is_resolved)))
            .collect();
        let mut threads: BTreeMap<u64, Thread> = BTreeMap::new();
        for comment in comments {
            let root = comment.in_reply_to_id.unwrap_or(comment.id);
            let thread = threads.entry(root).or_insert_with(|| Thread {
                id: root.to_string(),
                comments: Vec::new(),
                resolved: resolved.get(&root).copied().unwrap_or(false),
                answered: false,
            });
            thread.comments.push(comment.id.to_string());
            let author = comment.user.map_or_else(Person::ghost, wire::person_of);
            let body = comment.body.unwrap_or_default();
            thread.answered = self.is_ours(&author.login, &login) && body.contains(FLEET_MARKER);
        }
        Ok(threads.into_values().collect())
    }

    /// Replies to a thread, unless the reply with this marker is there.
    pub(super) async fn reply_to_thread(
        &self,
        item: &ItemRef,
        thread: &str,
        (marker, body): (&Marker, &str),
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let item = &self.current(item).await?;
        let text = marker.append(&marker::cut(body, MAX_TEXT));
        let budget = Budget {
            attempts: self.client.attempts(),
            permit,
        };
        let replies = Replies {
            api: self,
            item,
            root: thread,
        };
        upsert(&replies, marker, &text, &budget).await.map(drop)
    }

    /// Resolves a thread; one that is resolved stays so.
    pub(super) async fn resolve_thread(
        &self,
        item: &ItemRef,
        thread: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let item = &self.current(item).await?;
        let nodes = self.thread_nodes(item).await?;
        let is_it = |node: &&Node| node.first().is_some_and(|it| it.to_string() == thread);
        let Some(node) = nodes.iter().find(is_it).filter(|node| !node.is_resolved) else {
            return Ok(());
        };
        let what = format!("thread {thread} of {item}");
        let change = (RESOLVE, json!({ "thread": node.id }));
        let sent = self.change_by_graphql(change, &item.repo_path, &what, permit);
        around("tracker.thread_resolve", sent).await
    }

    async fn thread_nodes(&self, item: &ItemRef) -> Result<Vec<Node>, TrackerError> {
        let (owner, name) = split_path(&item.repo_path)?;
        let what = format!("the threads of {item}");
        let (mut nodes, mut after) = (Vec::new(), Value::Null);
        // GitHub shows at most so many pages of comments on one pull request.
        for _ in 0..100 {
            let variables =
                json!({ "owner": owner, "name": name, "number": item.number, "after": after });
            let answer: Value = self
                .ask_graphql((THREADS, variables), Some(&item.repo_path), &what)
                .await?;
            let page = &answer["data"]["repository"]["pullRequest"]["reviewThreads"];
            let Some(found) = page["nodes"].as_array() else {
                let said = answer["errors"][0]["message"].as_str();
                let said = said.unwrap_or("GraphQL has no such pull request");
                return Err(refused(format!("{what} cannot be read: {said:.300}")));
            };
            nodes.extend(self.client.fitting::<Node>(found.clone(), &what));
            after = page["pageInfo"]["endCursor"].clone();
            if page["pageInfo"]["hasNextPage"] != true {
                break;
            }
        }
        Ok(nodes)
    }
}

impl Node {
    /// The comment that began the thread.
    fn first(&self) -> Option<u64> {
        match &self.comments.nodes.first()?.full_database_id {
            Value::String(id) => id.parse().ok(),
            id => id.as_u64(),
        }
    }
}

fn open_pull(of: &ItemRef, pull: Pull) -> Option<OpenPull> {
    Some(OpenPull {
        repo_id: of.repo_id.clone(),
        number: pull.number,
        url: pull.html_url,
        head: pull.head.branch,
        head_sha: pull.head.sha.unwrap_or_default(),
        base: pull.base.branch,
        updated_at: pull.updated_at?,
    })
}

/// The replies to one thread of a pull request, which has its repository's current path.
struct Replies<'a> {
    api: &'a Api,
    item: &'a ItemRef,
    /// The comment that began it.
    root: &'a str,
}

#[async_trait]
impl CommentThread for Replies<'_> {
    async fn all(&self, attempts: &Attempts) -> Result<Vec<Comment>, TrackerError> {
        let login = self.api.own_login().await?;
        let number = self.item.number.to_string();
        let mut url = self
            .api
            .repo_url(&self.item.repo_path, &["pulls", &number, "comments"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let what = self.item.to_string();
        let comments = self
            .api
            .client
            .list_within::<LineComment>(url, &what, attempts)
            .await?;
        let is_in = |it: &LineComment| {
            it.in_reply_to_id
                .is_some_and(|root| root.to_string() == self.root)
        };
        let replies = comments.into_iter().filter(is_in).map(|reply| {
            let place = reply.place();
            let author = reply.user.map_or_else(Person::ghost, wire::person_of);
            Comment {
                id: reply.id.to_string(),
                ours: self.api.is_ours(&author.login, &login),
                author,
                kind: CommentKind::OnLine {
                    path: reply.path,
                    place,
                },
                body: reply.body.unwrap_or_default(),
                created_at: reply.created_at,
            }
        });
        Ok(replies.collect())
    }

    async fn create(&self, text: &str, budget: &Budget<'_>) -> Result<Written, TrackerError> {
        let number = self.item.number.to_string();
        let place = ["pulls", &number, "comments", self.root, "replies"];
        let url = self.api.repo_url(&self.item.repo_path, &place)?;
        let body = json!({ "body": text });
        let call = Call::write(Method::POST, url, budget.permit).json(&body);
        let sent = self.api.client.send_once(&call, &budget.attempts);
        let sent = around("tracker.thread_reply", sent).await?;
        let what = format!("thread {} of {}", self.root, self.item);
        let made = sent.made(&what)?;
        Ok(made.map_or_else(Written::Look, |reply: LineComment| {
            Written::Yes(reply.id.to_string())
        }))
    }

    async fn edit(
        &self,
        id: String,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Written, TrackerError> {
        let place = ["pulls", "comments", &id];
        let url = self.api.repo_url(&self.item.repo_path, &place)?;
        let body = json!({ "body": text });
        let call = Call::write(Method::PATCH, url, budget.permit).json(&body);
        let sent = self.api.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_edit", sent).await?;
        let what = format!("reply {id}");
        Written::edited(reply, id, &what)
    }

    async fn delete(&self, id: &str, budget: &Budget<'_>) -> Result<(), TrackerError> {
        let place = ["pulls", "comments", id];
        let url = self.api.repo_url(&self.item.repo_path, &place)?;
        let call = Call::write(Method::DELETE, url, budget.permit);
        let sent = self.api.client.send_within(&call, &budget.attempts);
        let reply = around("tracker.comment_delete", sent).await?;
        reply.removed(&format!("reply {id}"))
    }
}
