//! Issues as people see them.

use super::Forge;

/// An issue as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueView {
    /// Its number.
    pub number: u64,
    /// Who opened it.
    pub author: String,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
}

impl Forge {
    /// Somebody ticks the box in the first line of an issue's text that contains `mark`. Whether there is one.
    pub fn tick(&self, repo: &str, number: u64, mark: &str, login: &str) -> bool {
        let body = self.with_issue(repo, number, |issue| issue.body.clone());
        let mut found = false;
        let tick = |line: &str| match !found && line.contains(mark) && line.contains("[ ]") {
            true => {
                found = true;
                line.replacen("[ ]", "[x]", 1)
            }
            false => line.to_owned(),
        };
        let body: Vec<String> = body.lines().map(tick).collect();
        if found {
            self.edit_text_as(repo, number, &body.join("\r\n"), login);
        }
        found
    }

    /// All issues that somebody opened, oldest first.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn issues_of(&self, repo: &str, login: &str) -> Vec<IssueView> {
        self.with_repo(repo, |repo| {
            let issues = repo.issues.iter();
            let own = issues.filter(|it| it.pull.is_none() && it.author == login && !it.deleted);
            let view = own.map(|it| IssueView {
                number: it.number,
                author: it.author.clone(),
                title: it.title.clone(),
                body: it.body.clone(),
                open: it.open,
            });
            view.collect()
        })
    }
}
