//! A plain page for a person: issues, pull requests with their diffs, comments.

use std::fmt::Write;

use super::state::{Issue, Repo};
use super::{Inner, git};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    pre{background:#f4f4f4;padding:.8rem;overflow-x:auto;white-space:pre-wrap}\
    .label{background:#ddf;border-radius:.6rem;padding:0 .5rem;margin-left:.3rem;font-size:.85em}\
    .state{color:#666}.comment{border-left:3px solid #ccc;padding-left:1rem;margin:1rem 0}\
    .add{color:#060}.del{color:#900}";

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
                // GitLab has `/-/issues/` between the two.
                let own = place.iter().take_while(|part| **part != "-");
                let own: Vec<&str> = own.copied().collect();
                let repo = state.repo(&own.join("/"))?;
                one(repo, repo.issue(number.parse().ok()?)?)
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
            let _ = write!(html, "<li><a href=\"{place}\">{}</a></li>", headline(issue));
        }
        html.push_str("</ul>");
    }
    html
}

fn headline(issue: &Issue) -> String {
    let state = if issue.open { "open" } else { "closed" };
    let mut html = format!(
        "#{} {} <span class=state>{state}</span>",
        issue.number,
        escape(&issue.title)
    );
    for label in &issue.labels {
        let _ = write!(html, "<span class=label>{}</span>", escape(label));
    }
    html
}

fn one(repo: &Repo, issue: &Issue) -> String {
    let mut html = format!(
        "<h1>{}</h1><p>by {}</p><pre>{}</pre>",
        headline(issue),
        escape(&issue.author),
        escape(&issue.body)
    );
    if let Some(pull) = &issue.pull {
        let range = format!("refs/heads/{}...refs/heads/{}", pull.base, pull.head);
        let diff = git::try_out(
            &repo.git_dir,
            &["diff", "--no-ext-diff", "--no-textconv", &range],
        );
        let diff = diff.unwrap_or_else(|| "(the branch is gone)".to_owned());
        let names = format!("{} ← {}", escape(&pull.base), escape(&pull.head));
        let _ = write!(html, "<h2>{names}</h2><pre>");
        for line in diff.lines().take(2000) {
            let class = match line.as_bytes().first() {
                Some(b'+') => "add",
                Some(b'-') => "del",
                _ => "",
            };
            let _ = writeln!(html, "<span class=\"{class}\">{}</span>", escape(line));
        }
        html.push_str("</pre>");
    }
    for comment in &issue.comments {
        let _ = write!(
            html,
            "<div class=comment><b>{}</b> {}, edited {} times<pre>{}</pre></div>",
            escape(&comment.author),
            comment.created_at.format("%H:%M:%S"),
            comment.edits,
            escape(&comment.body)
        );
    }
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
