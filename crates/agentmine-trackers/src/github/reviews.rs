//! Reviews of a pull request, and the comments on lines of its diff.

use agentmine_domain::ItemRef;

use super::api::Api;
use super::wire::{LineComment, Review, person_of};
use crate::error::TrackerError;
use crate::people::Person;
use crate::tracker::{Comment, CommentKind};

impl Api {
    /// Reviews and comments on lines; `item` is a pull request with its repository's current path.
    pub(super) async fn reviews(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let login = self.own_login().await?;
        let is_ours = |author: &Person| self.is_ours(&author.login, login);
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
            let author = comment.user.map_or_else(Person::ghost, person_of);
            Comment {
                id: comment.id.to_string(),
                ours: is_ours(&author),
                author,
                kind: CommentKind::OnLine {
                    path: comment.path,
                    line: comment.line,
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
