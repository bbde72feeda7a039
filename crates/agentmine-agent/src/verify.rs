//! Decides whether the facts are sufficient for "done".

use crate::facts::Facts;

/// What is missing for "done", one line for each part; `None` if the facts are sufficient: a pushed
/// commit with changes, passing checks and no placeholders.
#[must_use]
pub fn missing(facts: &Facts) -> Option<String> {
    let mut missing = Vec::new();
    if let Some(error) = &facts.push_error {
        missing.push(format!("- the push failed: {}", error.trim()));
    }
    if facts.head.is_none() {
        missing.push("- nothing was pushed".to_owned());
    } else if facts.files.is_empty() {
        missing.push("- the pushed commit changes nothing".to_owned());
    }
    for check in facts
        .checks
        .iter()
        .filter(|c| c.exit_code != 0 && !c.could_not_run)
    {
        missing.push(format!(
            "- `{}` failed with exit code {} on the pushed commit:\n{}",
            check.command,
            check.exit_code,
            indent(&check.output)
        ));
    }
    for place in &facts.placeholders {
        missing.push(format!("- a placeholder was added: {place}"));
    }
    if facts.diff_cut {
        missing.push("- the diff is too large to be checked completely".to_owned());
    }
    (!missing.is_empty()).then(|| missing.join("\n"))
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|l| format!("    {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Finds added lines that mark unfinished work. Lines are given as (path, line number, text).
pub fn placeholders<'a>(added: impl Iterator<Item = (&'a str, u64, &'a str)>) -> Vec<String> {
    // Only signs that code is missing; a plain TODO may be a convention of the project.
    const SIGNS: [&str; 9] = [
        "todo!(",
        "unimplemented!(",
        "raise NotImplementedError",
        "throw new Error(\"Not implemented",
        "throw new Error('Not implemented",
        "// ... existing code",
        "# ... existing code",
        "// rest of the code",
        "your code here",
    ];
    added
        .filter(|(_, _, text)| {
            let lower = text.to_lowercase();
            SIGNS
                .iter()
                .any(|sign| lower.contains(&sign.to_lowercase()))
        })
        .map(|(path, line, text)| {
            let text: String = text.trim().chars().take(120).collect();
            format!("{path}:{line} {text}")
        })
        .take(20)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{ChangedFile, Check};

    fn good() -> Facts {
        Facts {
            head: Some("abc".into()),
            base: "def".into(),
            files: vec![ChangedFile {
                path: "a".into(),
                added: Some(1),
                removed: Some(0),
            }],
            checks: vec![Check {
                command: "sh test.sh".into(),
                exit_code: 0,
                output: String::new(),
                duration_ms: 3,
                could_not_run: false,
            }],
            ..Facts::default()
        }
    }

    #[test]
    fn a_pushed_change_with_passing_checks_is_enough() {
        assert_eq!(missing(&good()), None);
    }

    #[test]
    fn all_missing_parts_are_reported_together() {
        let mut facts = good();
        facts.checks[0].exit_code = 1;
        facts.checks[0].output = "expected Hello".into();
        facts.files.clear();
        facts.placeholders = vec!["a:1 todo!()".into()];
        let why = missing(&facts).unwrap();
        for part in [
            "changes nothing",
            "exit code 1",
            "expected Hello",
            "a:1 todo!()",
        ] {
            assert!(why.contains(part), "{part} is not in {why}");
        }
    }

    #[test]
    fn placeholders_are_lines_where_code_is_missing() {
        let lines = [
            ("src/a.rs", 3, "    todo!(\"later\")"),
            ("src/b.py", 9, "    raise NotImplementedError"),
            ("src/c.js", 1, "// TODO: tune"),
        ];
        assert_eq!(
            placeholders(lines.into_iter()),
            [
                "src/a.rs:3 todo!(\"later\")",
                "src/b.py:9 raise NotImplementedError"
            ]
        );
    }
}
