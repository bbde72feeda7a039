//! The rules of `mcp`.

use super::rules::{Rules, shown};
use crate::config::mcp::Mcp;

/// The longest time that a server's start may delay a session, in seconds.
const MAX_START: u64 = 600;

impl Rules<'_> {
    pub(super) fn mcp(&mut self, mcp: &Mcp) {
        if let Some(file) = &mcp.config_file {
            self.not_blank("mcp.config_file", &file.to_string_lossy());
        }
        let kept = u64::try_from(mcp.max_output_size).unwrap_or(u64::MAX);
        self.at_least("mcp.max_output_size", kept, 1024);
        self.at_least("mcp.total_timeout_seconds", mcp.total_timeout_seconds, 1);
        let start = mcp.start_timeout_seconds;
        let expected = format!("a whole number from 1 to {MAX_START}");
        let seen = || format!("the number {start}");
        let fine = (1..=MAX_START).contains(&start);
        self.expect("mcp.start_timeout_seconds", fine, seen, &expected);
        for (list, patterns) in [
            ("allowed_tools", &mcp.allowed_tools),
            ("denied_tools", &mcp.denied_tools),
        ] {
            for (at, pattern) in patterns.iter().enumerate() {
                // A pattern without a colon would match no tool, which nobody intends.
                let fine = pattern == "*"
                    || pattern
                        .split_once(':')
                        .is_some_and(|(server, tool)| !server.is_empty() && !tool.is_empty());
                let key = format!("mcp.{list}.{at}");
                let expected = "`server:tool`, each with `*` for any text, or `*` alone";
                self.expect(&key, fine, || shown(pattern), expected);
            }
        }
    }
}
