//! The rules of `command_executor.docker.network.push`.

use super::rules::{Rules, shown};
use crate::config::executor::{PushPolicy, SECRET_RULES};
use crate::config::size::ByteSize;

const KEY: &str = "command_executor.docker.network.push";
/// A commit of one file is about this large, with its protocol.
const SMALLEST: ByteSize = ByteSize::from_bytes(64 << 10);
const PATTERN: &str = "a path from the repository's root such as `.github/workflows/**`, or a name such as `*.lock`, \
                       without `.`, `..`, backslashes and empty parts";

impl Rules<'_> {
    pub(super) fn push(&mut self, policy: &PushPolicy) {
        let PushPolicy {
            max_size,
            refuse_paths,
            allow_secrets,
        } = policy;
        let seen = || format!("`{max_size}`");
        let expected = format!("a size of at least {SMALLEST}");
        self.expect(
            &format!("{KEY}.max_size"),
            *max_size >= SMALLEST,
            seen,
            &expected,
        );
        for (at, pattern) in refuse_paths.iter().enumerate() {
            let key = format!("{KEY}.refuse_paths.{at}");
            if is_pattern(pattern) && matches_all(pattern) {
                let expected = "a pattern that does not match every path";
                self.fault(&key, shown(pattern), expected).hint =
                    Some("with it no push is possible".to_owned());
            }
            self.expect(&key, is_pattern(pattern), || shown(pattern), PATTERN);
        }
        for (at, allowed) in allow_secrets.iter().enumerate() {
            let key = format!("{KEY}.allow_secrets.{at}");
            let rule = allowed.rule.as_str();
            if rule != "*" && !SECRET_RULES.contains(&rule) {
                self.fault(&format!("{key}.rule"), shown(rule), "`*`, or a rule")
                    .hint = Some(format!("the rules are {}", SECRET_RULES.join(", ")));
            }
            let seen = || "an empty list".to_owned();
            let expected = "at least one pattern of paths; `**` matches every path";
            self.expect(
                &format!("{key}.paths"),
                !allowed.paths.is_empty(),
                seen,
                expected,
            );
            for (n, pattern) in allowed.paths.iter().enumerate() {
                let key = format!("{key}.paths.{n}");
                self.expect(&key, is_pattern(pattern), || shown(pattern), PATTERN);
            }
        }
    }
}

/// Whether a pattern can match a path. A slash at its begin or end changes nothing.
fn is_pattern(text: &str) -> bool {
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let part =
        |part: &str| !matches!(part, "" | "." | "..") && (part == "**" || !part.contains("**"));
    text.trim() == text
        && !text.starts_with('!')
        && !text.contains(|c: char| c == '\\' || c.is_control())
        && inner.split('/').all(part)
}

fn matches_all(pattern: &str) -> bool {
    let mut parts = pattern.trim_matches('/').split('/');
    parts.all(|part| !part.is_empty() && part.chars().all(|c| c == '*'))
}

#[cfg(test)]
mod tests {
    use crate::config::{Sources, load};

    fn faults(push: &str) -> String {
        let text = format!("command_executor: {{docker: {{network: {{push: {push}}}}}}}");
        match load(&Sources::from_text("config.yaml", text)) {
            Ok(_) => String::new(),
            Err(errors) => errors.to_string(),
        }
    }

    #[test]
    fn a_key_of_the_push_policy_that_cannot_hold_is_named_with_what_was_expected() {
        for (push, key, seen) in [
            ("{max_size: 0k}", "max_size", "0"),
            ("{max_size: 63k}", "max_size", "63"),
            ("{max_size: many}", "max_size", "`many`"),
            ("{refuse_paths: [\"\"]}", "refuse_paths.0", "``"),
            ("{refuse_paths: [a, /]}", "refuse_paths.1", "`/`"),
            ("{refuse_paths: [a//b]}", "refuse_paths.0", "`a//b`"),
            ("{refuse_paths: [./a]}", "refuse_paths.0", "`./a`"),
            ("{refuse_paths: [a/../b]}", "refuse_paths.0", "`a/../b`"),
            ("{refuse_paths: [\"!a\"]}", "refuse_paths.0", "`!a`"),
            ("{refuse_paths: ['a\\b']}", "refuse_paths.0", "b`"),
            ("{refuse_paths: [a**]}", "refuse_paths.0", "`a**`"),
            ("{refuse_paths: [\" a\"]}", "refuse_paths.0", "` a`"),
            ("{refuse_paths: [\"**\"]}", "refuse_paths.0", "`**`"),
            ("{refuse_paths: [\"*\"]}", "refuse_paths.0", "`*`"),
            ("{refuse_paths: a}", "refuse_paths", "`a`"),
            (
                "{allow_secrets: [{rule: github, paths: [a]}]}",
                "allow_secrets.0.rule",
                "`github`",
            ),
            (
                "{allow_secrets: [{rule: jwt, paths: []}]}",
                "allow_secrets.0.paths",
                "an empty list",
            ),
            (
                "{allow_secrets: [{rule: jwt, paths: [a, b/]}, {rule: \"*\", paths: [a, ../b]}]}",
                "allow_secrets.1.paths.1",
                "`../b`",
            ),
            (
                "{allow_secrets: [{rule: jwt}]}",
                "allow_secrets.0",
                "`paths`",
            ),
            ("{max_sizes: 1m}", "push", "`max_sizes`"),
        ] {
            let found = faults(push);
            assert!(found.contains(key), "{push}: {found}");
            assert!(found.contains(seen), "{push}: {found}");
            assert!(found.contains("expected "), "{push}: {found}");
        }
    }

    #[test]
    fn a_push_policy_with_every_form_of_pattern_is_accepted() {
        let push = "{max_size: 64k, refuse_paths: [.github/workflows/**, '*.lock', /docs/, 'a/**/b', 'app/[id].tsx'], \
                    allow_secrets: [{rule: '*', paths: ['tests/**']}, {rule: private-key, paths: ['**']}]}";
        assert_eq!(faults(push), "");
    }
}
