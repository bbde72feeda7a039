//! Decides whether the facts are sufficient for "done".

use agentmine_domain::markdown::cap;

use crate::check::{Check, Standing};
use crate::facts::Facts;

/// How many of the refused pushes are named if nothing was pushed, and how many characters of each.
const MAX_REFUSED: usize = 3;
const MAX_REASON: usize = 500;

/// What is missing for "done", one line for each part; `None` if the facts are sufficient: a pushed
/// commit with changes, passing checks and no placeholders.
#[must_use]
pub fn missing(facts: &Facts) -> Option<String> {
    let mut missing = Vec::new();
    if let Some(error) = &facts.push_error {
        missing.push(format!(
            "- not all of the work is on the branch: {}",
            error.trim()
        ));
    }
    if facts.head.is_none() {
        missing.push("- nothing was pushed".to_owned());
        let newest = facts.refused_pushes.iter().rev().take(MAX_REFUSED);
        missing.extend(newest.map(|why| format!("- a push was refused: {}", cap(why, MAX_REASON))));
    } else if !facts.has_changes() && !facts.unchanged {
        missing.push("- the pushed commit changes nothing".to_owned());
    }
    let failed: Vec<&Check> = facts.checks.iter().filter(|c| c.failed()).collect();
    for check in &failed {
        missing.push(format!(
            "- `{}` {} on the pushed commit{}:\n{}",
            check.command,
            check.failure(),
            match check.standing {
                Standing::FailsOnBase => {
                    ". It fails in the same way on the base commit; if fixing that is not part of the task, leave it and explain why"
                }
                Standing::Ran | Standing::NotRun(_) | Standing::FailedBefore => "",
            },
            indent(&check.output)
        ));
    }
    for setup in facts.setup_failures.iter().filter(|it| counts(it, facts)) {
        missing.push(format!(
            "- before the checks, the set-up command `{}` {}{}:\n{}",
            setup.command,
            setup.failure(),
            match setup.standing {
                Standing::FailsOnBase => ", as without this work",
                Standing::Ran | Standing::NotRun(_) | Standing::FailedBefore => "",
            },
            indent(&setup.output)
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

/// Whether the failure of a set-up command counts: it may be why a check failed, or nothing else shows that
/// the change works and it did not fail before the change.
fn counts(setup: &Check, facts: &Facts) -> bool {
    // If none failed, each that ran has passed.
    let ran = |check: &Check| check.standing == Standing::Ran;
    facts.checks.iter().any(Check::failed) || (ran(setup) && !facts.checks.iter().any(ran))
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
    use crate::facts::ChangedFile;

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
                standing: Standing::Ran,
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
    fn a_failed_set_up_alone_does_not_make_a_result_partial() {
        let mut facts = good();
        facts.setup_failures = vec![Check {
            command: "npm ci".into(),
            exit_code: 1,
            output: "lock file out of date".into(),
            ..facts.checks[0].clone()
        }];
        assert_eq!(missing(&facts), None);
        facts.checks[0].exit_code = 1;
        assert!(missing(&facts).unwrap().contains("lock file out of date"));
    }

    #[test]
    fn a_set_up_that_the_change_breaks_counts_if_no_check_passed() {
        let mut facts = good();
        facts.setup_failures = vec![Check {
            command: "npm ci".into(),
            exit_code: 1,
            output: "no such package".into(),
            ..facts.checks[0].clone()
        }];
        facts.checks.clear();
        assert!(missing(&facts).unwrap().contains("no such package"));
        facts.setup_failures[0].standing = Standing::FailsOnBase;
        assert_eq!(missing(&facts), None);
    }

    #[test]
    fn a_guessed_check_that_failed_before_does_not_count_once_the_model_was_asked() {
        let mut facts = good();
        facts.checks[0].exit_code = 1;
        facts.checks[0].standing = Standing::FailsOnBase;
        assert!(
            missing(&facts)
                .unwrap()
                .contains("same way on the base commit")
        );
        facts.checks[0].standing = Standing::FailedBefore;
        assert_eq!(missing(&facts), None);
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
