//! Reviews of a pull request, and the comments on lines of its diff.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use agentmine_domain::{Addressed, ItemRef};
use chrono::{DateTime, TimeDelta, Utc};

use super::api::Api;
use super::wire::{LineComment, Review, person_of};
use crate::error::TrackerError;
use crate::forge::{Lists, concerns_one};
use crate::item::{Comment, CommentKind, RecentComment};
use crate::people::Person;
use crate::rounds::OpenPull;

/// Times are shown in whole seconds, and clocks differ: a pull request that changed so shortly before it was read is read
/// again.
const SETTLES: TimeDelta = TimeDelta::seconds(60);
/// Pull requests whose reviews are known. Past it, all are forgotten and read again.
const MAX_READ: usize = 10_000;

/// The commands in reviews as they were read last, by repository and number. No list of a repository has its reviews.
#[derive(Debug, Default)]
pub(super) struct ReadReviews(Mutex<HashMap<(String, u64), Read>>);

#[derive(Debug, Clone)]
struct Read {
    updated_at: DateTime<Utc>,
    at: DateTime<Utc>,
    commands: Vec<Comment>,
}

impl ReadReviews {
    /// What was read of a pull request that did not change since.
    fn current(&self, pull: &OpenPull) -> Option<Vec<Comment>> {
        let read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read.get(&(pull.repo_id.clone(), pull.number))?;
        let is_current =
            known.updated_at == pull.updated_at && known.at > pull.updated_at + SETTLES;
        is_current.then(|| known.commands.clone())
    }

    fn put(&self, pull: &OpenPull, now: Read) {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if read.len() >= MAX_READ {
            read.clear();
        }
        read.insert((pull.repo_id.clone(), pull.number), now);
    }
}

impl Api {
    /// The commands in reviews of these pull requests of one repository and on their lines. Anybody who writes one changes the
    /// time of the pull request in the list of the open ones.
    pub(super) async fn recent_reviews(
        &self,
        open: &Lists<OpenPull>,
        read: &ReadReviews,
        pulls: &[ItemRef],
    ) -> Result<Vec<RecentComment>, TrackerError> {
        let Some(of) = pulls.first() else {
            return Ok(Vec::new());
        };
        let listed = self.open_pulls_in(open, of).await?;
        let mut found = Vec::new();
        for item in pulls {
            let Some(pull) = listed.iter().find(|it| it.number == item.number) else {
                continue;
            };
            let commands = match read.current(pull) {
                Some(commands) => commands,
                None => match self.read_reviews(item, pull).await {
                    Ok(now) => {
                        read.put(pull, now.clone());
                        now.commands
                    }
                    Err(error) if concerns_one(&error) => {
                        tracing::debug!(%item, %error, "its reviews cannot be read");
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            found.extend(commands.into_iter().map(|comment| RecentComment {
                item: item.clone(),
                comment,
            }));
        }
        Ok(found)
    }

    async fn read_reviews(&self, item: &ItemRef, pull: &OpenPull) -> Result<Read, TrackerError> {
        let at = Utc::now();
        let item = self.current(item).await?;
        let mut commands = self.reviews(&item).await?;
        commands.retain(|comment| Addressed::by(&comment.body).is_some());
        Ok(Read {
            updated_at: pull.updated_at,
            at,
            commands,
        })
    }

    /// Reviews and comments on lines; `item` is a pull request with its repository's current path.
    pub(super) async fn reviews(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let login = self.own_login().await?;
        let is_ours = |author: &Person| self.is_ours(&author.login, &login);
        let reviews: Vec<Review> = self.of_pull(item, "reviews").await?;
        let lines: Vec<LineComment> = self.of_pull(item, "comments").await?;
        let reviews = reviews.into_iter().filter_map(|review| {
            // A review that is not submitted has no time; one that only holds comments has no text.
            let created_at = review.submitted_at?;
            let body = review.body.unwrap_or_default();
            let verdict = review.state.to_lowercase().replace('_', " ");
            let says_nothing = body.trim().is_empty() && verdict == "commented";
            let author = review.user.map_or_else(Person::ghost, person_of);
            (!says_nothing).then(|| Comment {
                id: review.id.to_string(),
                ours: is_ours(&author),
                author,
                kind: CommentKind::Review { verdict },
                body,
                created_at,
            })
        });
        let lines = lines.into_iter().map(|comment| {
            let place = comment.place();
            let author = comment.user.map_or_else(Person::ghost, person_of);
            Comment {
                id: comment.id.to_string(),
                ours: is_ours(&author),
                author,
                kind: CommentKind::OnLine {
                    path: comment.path,
                    place,
                },
                body: comment.body.unwrap_or_default(),
                created_at: comment.created_at,
            }
        });
        Ok(reviews.chain(lines).collect())
    }

    pub(super) async fn of_pull<T: serde::de::DeserializeOwned>(
        &self,
        item: &ItemRef,
        list: &str,
    ) -> Result<Vec<T>, TrackerError> {
        let number = item.number.to_string();
        let mut url = self.repo_url(&item.repo_path, &["pulls", &number, list])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        self.client.list(url, &item.to_string()).await
    }
}
