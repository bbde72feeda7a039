//! Rules of forges for the names of branches: regular expressions in RE2's syntax, which is nearly that of the `regex` crate.

use regex::RegexBuilder;

/// Bytes of an expression once it is compiled. Whoever administers a repository writes it.
const MAX_COMPILED: usize = 4 << 20;

/// Whether a name has a match of an expression; `None` if that cannot be read.
pub(crate) fn has_match(expression: &str, name: &str) -> Option<bool> {
    let mut expression = RegexBuilder::new(expression);
    let compiled = expression.size_limit(MAX_COMPILED).build();
    match compiled {
        Ok(compiled) => Some(compiled.is_match(name)),
        Err(error) => {
            tracing::debug!(%error, "a rule for the names of branches cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_cannot_be_read_says_nothing() {
        assert_eq!(
            has_match(r"^(fix|feature)/\w+-\d+", "fix/ABC-7"),
            Some(true)
        );
        assert_eq!(
            has_match(r"^(fix|feature)/", "agentmine/issue-7"),
            Some(false)
        );
        assert_eq!(has_match(r"issue", "agentmine/issue-7"), Some(true));
        for unknown in ["(", "^(?!main)", &"a{1000}".repeat(1000)] {
            assert_eq!(has_match(unknown, "main"), None, "{unknown:.20}");
        }
    }
}
