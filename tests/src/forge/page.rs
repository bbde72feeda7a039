//! A page for a person, as much as GitHub's and GitLab's pages show: issues and pull requests with their labels, checks,
//! conversation and diff, and the texts rendered.

use std::fmt::Write;

use chrono::{DateTime, Utc};

use super::gitlab::Kind;
use super::markdown::{escape, rendered};
use super::rest::Api;
use super::state::{CommentView, Issue, LabelEvent, Pull, Repo, ReviewOf, ReviewView, State};
use super::{Forge, Inner, git, threads};

const STYLE: &str = "body{font:15px/1.5 'DejaVu Sans',sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328}\
    pre{background:#f4f4f4;padding:.8rem;overflow-x:auto;white-space:pre-wrap;font-size:.85em}\
    code{background:#f0f1f3;border-radius:.3rem;padding:.1rem .3rem;font-size:.9em}pre code{padding:0}\
    table{border-collapse:collapse;margin:.6rem 0}th,td{border:1px solid #d0d7de;padding:.2rem .7rem;text-align:left}\
    blockquote{border-left:3px solid #d0d7de;color:#59636e;margin:.6rem 0;padding-left:1rem}\
    li:has(>input){list-style:none;margin-left:-1.2rem}\
    .label{background:#ddf4ff;border:1px solid #54aeff;border-radius:.8rem;padding:0 .6rem;margin-left:.3rem;font-size:.8rem}\
    .state{background:#1f883d;color:#fff;border-radius:1rem;padding:.1rem .8rem;font-size:.85rem}\
    .closed{background:#cf222e}.merged{background:#8250df}.draft{background:#59636e}\
    .box{border:1px solid #d0d7de;border-radius:.4rem;margin:1rem 0}.box>header{background:#f6f8fa;padding:.3rem 1rem;\
    border-bottom:1px solid #d0d7de;font-size:.9em}.box>div{padding:.2rem 1rem}.box .box{margin:.6rem 0}\
    .event{color:#59636e;font-size:.9em;margin:.4rem 1rem}.reaction{border:1px solid #d0d7de;border-radius:.8rem;\
    padding:0 .5rem;font-size:.8rem}.markdown-alert{border-left:3px solid #9a6700;padding-left:1rem}\
    .markdown-alert-title{font-weight:bold}.add{color:#060}.del{color:#900}";

impl Forge {
    /// The page at a path such as `octo/demo/1`, or `octo/demo/-/issues/1` of GitLab.
    ///
    /// # Panics
    /// If there is none.
    pub fn page(&self, path: &str) -> String {
        render(&self.inner, path).expect("the page exists")
    }
}

/// The page at a path; `None` if there is none.
pub(super) fn render(inner: &Inner, path: &str) -> Option<String> {
    let state = inner.lock();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let body = match parts.as_slice() {
        [] => state.repos.iter().map(repo_list).collect(),
        parts => match state.repo(&parts.join("/")) {
            Some(repo) => repo_list(repo),
            None => {
                let (number, place) = parts.split_last()?;
                let own = place.iter().take_while(|part| **part != "-");
                let own: Vec<&str> = own.copied().collect();
                let repo = state.repo(&own.join("/"))?;
                let number = number.parse().ok()?;
                // GitLab has `/-/issues/` before the number.
                let (api, issue) = match place.split_last()? {
                    (list, [.., "-"]) => (Api::GitLab, Kind::named(list)?.find(repo, number)?),
                    _ => (Api::GitHub, repo.issue(number)?),
                };
                let page = Page {
                    state: &state,
                    repo,
                    issue,
                    api,
                };
                page.html()
            }
        },
    };
    Some(format!(
        "<!doctype html><meta charset=utf-8><title>fake forge</title><style>{STYLE}</style>\
         <p><a href=/>all repositories</a></p>{body}"
    ))
}

fn repo_list(repo: &Repo) -> String {
    let mut html = format!("<h1>{}</h1>", escape(&repo.full_name));
    for (title, pulls) in [("Issues", false), ("Pull requests", true)] {
        let _ = write!(html, "<h2>{title}</h2><ul>");
        for issue in repo
            .issues
            .iter()
            .filter(|issue| issue.pull.is_some() == pulls)
        {
            let place = format!("/{}/{}", escape(&repo.full_name), issue.number);
            let headline = headline(issue, &format!("#{}", issue.number));
            let _ = write!(html, "<li><a href=\"{place}\">{headline}</a></li>");
        }
        html.push_str("</ul>");
    }
    html
}

/// `name` is what the forge calls it: `#7`.
fn headline(issue: &Issue, name: &str) -> String {
    let pull = issue.pull.as_ref();
    let state = match issue.open {
        _ if pull.is_some_and(|pull| pull.merged) => "merged",
        false => "closed",
        true if pull.is_some_and(|pull| pull.draft) => "draft",
        true => "open",
    };
    let mut html = format!(
        "{name} {} <span class=\"state {state}\">{state}</span>",
        escape(&issue.title)
    );
    for label in &issue.labels {
        let _ = write!(html, "<span class=label>{}</span>", escape(label));
    }
    html
}

/// One issue or pull request.
struct Page<'a> {
    state: &'a State,
    repo: &'a Repo,
    issue: &'a Issue,
    api: Api,
}

impl Page<'_> {
    fn html(&self) -> String {
        let name = match (self.api, &self.issue.pull) {
            (Api::GitLab, Some(_)) => format!("!{}", self.issue.iid),
            (Api::GitLab, None) => format!("#{}", self.issue.iid),
            (Api::GitHub, _) => format!("#{}", self.issue.number),
        };
        let mut html = format!("<h1>{}</h1>", headline(self.issue, &name));
        if let Some(pull) = &self.issue.pull {
            let names = [&pull.base, &pull.head].map(|name| escape(name));
            let [base, head] = names;
            let _ = write!(html, "<p><code>{head}</code> into <code>{base}</code></p>");
        }
        if !self.issue.assignees.is_empty() {
            let names = escape(&self.issue.assignees.join(", "));
            let _ = write!(html, "<p class=event>assigned to {names}</p>");
        }
        html.push_str(&self.said(
            (&self.issue.author, "opened this"),
            self.issue.created_at,
            &self.issue.body,
            "",
        ));
        html.push_str(&self.conversation());
        if let Some(pull) = &self.issue.pull {
            html.push_str(&self.checks(pull));
            html.push_str(&self.diff(pull));
        }
        html
    }

    /// A text in its box; `below` is HTML.
    fn said(&self, who: (&str, &str), at: DateTime<Utc>, text: &str, below: &str) -> String {
        format!(
            "<div class=box><header><b>{}</b> {}, {}</header><div>{}{below}</div></div>",
            escape(who.0),
            escape(who.1),
            at.format("%H:%M:%S"),
            rendered(text, self.api),
        )
    }

    /// What was said and done, in its order.
    fn conversation(&self) -> String {
        let comments = self.issue.comments.iter();
        let comments = comments.map(|it| (it.created_at, self.comment(it)));
        let events = self.issue.events.iter().map(|it| (it.at, event(it)));
        let reviews = self.issue.pull.iter().flat_map(|pull| &pull.reviews);
        let verdicts = reviews.filter_map(|it| Some((it.at, self.verdict(it)?)));
        let threads = threads::threads(self.issue);
        let threads = threads.iter().filter_map(|(root, members)| {
            let first = members.first()?;
            Some((first.at, self.thread(*root, members)))
        });
        let all = comments.chain(events).chain(verdicts).chain(threads);
        let mut all: Vec<(DateTime<Utc>, String)> = all.collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, html)| html).collect()
    }

    fn comment(&self, comment: &CommentView) -> String {
        let how = match comment.edits {
            0 => "commented".to_owned(),
            1 => "commented (edited once)".to_owned(),
            edits => format!("commented (edited {edits} times)"),
        };
        let reactions = self.state.reactions.iter();
        let reactions = reactions.filter(|it| it.comment == comment.id).map(|it| {
            let (content, login) = (escape(&it.content), escape(&it.login));
            format!("<span class=reaction>{content} {login}</span> ")
        });
        let reactions: String = reactions.collect();
        let who = (comment.author.as_str(), how.as_str());
        self.said(who, comment.created_at, &comment.body, &reactions)
    }

    /// A review as a whole, as opposed to a comment on a line.
    fn verdict(&self, review: &ReviewView) -> Option<String> {
        let ReviewOf::Verdict(verdict) = &review.of else {
            return None;
        };
        let verdict = match verdict.as_str() {
            "CHANGES_REQUESTED" => "requested changes",
            "APPROVED" => "approved these changes",
            _ => "reviewed",
        };
        Some(self.said((&review.author, verdict), review.at, &review.body, ""))
    }

    fn thread(&self, root: u64, members: &[&ReviewView]) -> String {
        let pull = self.issue.pull.as_ref();
        let resolved = match pull.is_some_and(|pull| pull.resolved.contains(&root)) {
            true => ", resolved",
            false => "",
        };
        let place = members.first().map(|first| match &first.of {
            ReviewOf::Line(path, line) => format!("{path}, line {line}"),
            ReviewOf::Verdict(_) => String::new(),
        });
        let place = escape(&place.unwrap_or_default());
        let members = members.iter();
        let said = members.map(|it| self.said((&it.author, "commented"), it.at, &it.body, ""));
        let said: String = said.collect();
        format!(
            "<div class=box><header>Thread on <code>{place}</code>{resolved}</header><div>{said}</div></div>"
        )
    }

    fn checks(&self, pull: &Pull) -> String {
        let mut html = String::from("<h2>Checks</h2><ul>");
        let head = self.repo.sha(&pull.head);
        let own = self.repo.checks.iter();
        for check in own.filter(|it| head.as_ref() == Some(&it.commit)) {
            let sign = match check.state.as_str() {
                "success" => "✔",
                "pending" => "…",
                _ => "✘",
            };
            let (name, state) = (escape(&check.name), escape(&check.state));
            let _ = write!(html, "<li>{sign} {name}: {state}</li>");
        }
        html.push_str("</ul>");
        html
    }

    fn diff(&self, pull: &Pull) -> String {
        let range = format!("refs/heads/{}...refs/heads/{}", pull.base, pull.head);
        let args = ["diff", "--no-ext-diff", "--no-textconv", &range];
        let Some(diff) = git::try_out(&self.repo.git_dir, &args) else {
            return "<h2>Files</h2><p>The branch was removed.</p>".to_owned();
        };
        let mut html = String::from("<h2>Files</h2><pre>");
        for line in diff.lines().take(2000) {
            let class = match line.as_bytes().first() {
                Some(b'+') => "add",
                Some(b'-') => "del",
                _ => "",
            };
            let _ = writeln!(html, "<span class=\"{class}\">{}</span>", escape(line));
        }
        html.push_str("</pre>");
        html
    }
}

fn event(event: &LabelEvent) -> String {
    let what = match event.event.as_str() {
        "labeled" => "added",
        _ => "removed",
    };
    let (actor, label) = (escape(&event.actor), escape(&event.label));
    format!("<div class=event>{actor} {what} <span class=label>{label}</span></div>")
}
