//! Started servers, and why some are not running.

use agentmine_mcp::config::{ServerPlace, Transport};
use agentmine_mcp::{Catalog, Manager, McpError, Notice, NoticeKind, ServerState, ServerStatus};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;

use crate::print::{clean, note, one_line};

/// Lines of a server's stderr that are shown: the last ones.
const STDERR_LINES: usize = 12;

/// The servers of one command.
pub(super) struct Servers {
    pub(super) manager: Manager,
    /// Why there is no jail, where one was needed.
    pub(super) no_jail: Option<String>,
}

/// Why a server is not running.
pub(super) struct Trouble {
    pub(super) what: String,
    /// The end of its stderr without control characters; may be empty.
    pub(super) stderr: String,
    /// The next step.
    pub(super) next: String,
}

impl Servers {
    /// The status of all servers, with the reason why one is not running.
    pub(super) async fn statuses(&self) -> Vec<(ServerStatus, Option<Trouble>)> {
        let mut statuses = Vec::new();
        for status in self.manager.status() {
            let trouble = self.trouble(&status).await;
            statuses.push((status, trouble));
        }
        statuses
    }

    /// Ensures that a server can be used.
    pub(super) async fn ready(&self, name: &str) -> Result<()> {
        let mut statuses = self.statuses().await.into_iter();
        let trouble = match statuses.find(|(it, _)| it.config.name == name) {
            Some((_, None)) => return Ok(()),
            Some((_, Some(trouble))) => trouble,
            None => {
                let message = format!("there is no MCP server '{name}'");
                return Err(Failure::new(Exit::NotFound, message).into());
            }
        };
        let mut message = format!("MCP server '{name}' is not running: {}", trouble.what);
        if !trouble.stderr.is_empty() {
            message.push_str("\nthe end of its stderr:\n");
            message.push_str(&trouble.stderr);
        }
        Err(Failure::new(Exit::Other, message).hint(trouble.next).into())
    }

    /// Why a server is not running; `None` if it is.
    async fn trouble(&self, status: &ServerStatus) -> Option<Trouble> {
        let is_sandboxed = status.config.place() == Some(ServerPlace::Sandbox);
        let (what, next) = match &status.state {
            ServerState::Ready => return None,
            ServerState::Disabled => (
                "it is disabled".to_owned(),
                "set \"enabled\": true in its entry".to_owned(),
            ),
            ServerState::Withheld(why) => match &self.no_jail {
                Some(why) if is_sandboxed => (
                    format!("it runs only in a jail, which could not be created: {why}"),
                    "fix the cause; servers that need no jail are not affected".to_owned(),
                ),
                _ => (why.clone(), "change its entry".to_owned()),
            },
            ServerState::Starting => (
                "it is still starting".to_owned(),
                "give it more time with --start-timeout".to_owned(),
            ),
            ServerState::Restarting { after: error } | ServerState::Failed(error) => {
                (error.to_string(), next_step(status, error))
            }
        };
        let stderr = match &status.state {
            ServerState::Failed(McpError::Process { stderr, .. }) if !stderr.is_empty() => {
                stderr.clone()
            }
            _ => self.manager.stderr(&status.config.name).await,
        };
        Some(Trouble {
            what: one_line(&what, 600),
            stderr: ending(&stderr),
            next: clean(&next),
        })
    }

    /// Reports on stderr which servers are not running, and what is omitted from the offers of the others.
    /// Returns the exit code: the result is shown, but is incomplete.
    pub(super) async fn report_absent(&self) -> Exit {
        let mut exit = Exit::Done;
        for (status, trouble) in self.statuses().await {
            if let Some(trouble) = trouble {
                exit = Exit::Other;
                note(format!("{}: {}", status.config.name, trouble.what));
                note(format!("hint: {}", trouble.next));
            }
        }
        report_left_out(&self.manager.catalog());
        exit
    }

    /// What happened to servers, except for what [`Trouble`]s and their offers show.
    pub(super) fn further(&self) -> Vec<Notice> {
        let mut notices = self.manager.notices();
        notices.retain(|notice| match notice.kind {
            NoticeKind::Failed | NoticeKind::LeftOut => false,
            NoticeKind::Crashed
            | NoticeKind::Restarted
            | NoticeKind::GivenUp
            | NoticeKind::Changed
            | NoticeKind::Shadowed => true,
        });
        notices
    }
}

/// The next step for a server that did not start. The error's own hint would name this command.
fn next_step(status: &ServerStatus, error: &McpError) -> String {
    let Transport::Stdio { command, .. } = &status.config.transport else {
        return "check `url` and `headers`, and that the server is up".to_owned();
    };
    let line = one_line(&command.join(" "), 100);
    let origin = &status.config.origin;
    match error {
        McpError::Process { .. } => format!(
            "run `{line}` by hand; its entry is {}:{}",
            origin.file.display(),
            origin.line
        ),
        McpError::Connection { .. } | McpError::Protocol { .. } => format!(
            "check that `{line}` speaks MCP on stdout, and writes nothing else there; or give it more time with --start-timeout"
        ),
        McpError::ToolExecution { .. } => error.hint(),
    }
}

/// The last lines of a hostile text.
fn ending(text: &str) -> String {
    let text = clean(text);
    let lines: Vec<&str> = text.trim().lines().collect();
    let from = lines.len().saturating_sub(STDERR_LINES);
    let last = lines[from..].iter().map(|line| one_line(line, 300));
    last.collect::<Vec<_>>().join("\n")
}

/// Reports on stderr what is omitted from the offers.
pub(super) fn report_left_out(catalog: &Catalog) {
    for (name, offer) in &catalog.servers {
        for left_out in &offer.left_out {
            note(format!("{name}: left out: {}", one_line(left_out, 300)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_stderr_is_shown() {
        let text: String = (0..40).map(|n| format!("line {n}\x1b[2J\n")).collect();
        let shown = ending(&text);
        assert_eq!(shown.lines().count(), STDERR_LINES);
        assert!(shown.ends_with("line 39\u{fffd}[2J"));
    }
}
