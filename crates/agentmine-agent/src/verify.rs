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
                Standing::FailsOnTarget => {
                    ". It fails in the same way on the commit of the target branch that was merged; if fixing that is not part of the task, leave it and explain why"
                }
                Standing::Ran
                | Standing::NotRun(_)
                | Standing::FailedBefore
                | Standing::FailedOnTarget => "",
            },
            indent(&check.output)
        ));
    }
    for setup in facts.setup_failures.iter().filter(|it| counts(it, facts)) {
        missing.push(format!(
            "{SET_UP}{}` {}{}:\n{}",
            setup.command,
            setup.failure(),
            setup.standing.elsewhere(),
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

/// The beginning of an entry about a set-up command.
const SET_UP: &str = "- before the checks, the set-up command `";

/// Whether an earlier result on the branch lacked only checks and set-up commands, and these facts, which are sufficient for
/// "done", show that they pass now. Nothing else is measured again, such as a budget that ran out, unpushed work, or
/// placeholders in earlier commits.
#[must_use]
pub fn completes(facts: &Facts, earlier: &str) -> bool {
    let passed = |command: &str| {
        let mut checks = facts.checks.iter();
        checks.any(|it| it.command == command && it.standing == Standing::Ran && !it.failed())
    };
    let is_done = |part: &str| match part.strip_prefix("- `") {
        // The command may contain backticks.
        Some(part) => part
            .match_indices("` ")
            .any(|(end, _)| part.get(..end).is_some_and(passed)),
        None => part.starts_with(SET_UP) && facts.setup_failures.is_empty(),
    };
    // What a command wrote is indented.
    let mut parts = earlier
        .lines()
        .filter(|it| !it.is_empty() && !it.starts_with("    "));
    !facts.unchanged && parts.all(is_done)
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

/// An added line: path, line number, text.
type Added<'a> = (&'a str, u64, &'a str);

/// Finds added lines that mark unfinished work. Lines are given as (path, line number, text).
pub fn placeholders<'a>(added: impl Iterator<Item = (&'a str, u64, &'a str)>) -> Vec<String> {
    let added: Vec<Added<'_>> = added.collect();
    let lines = added.iter().enumerate();
    lines
        .filter(|(at, (path, _, text))| lacks_code(path, text) && !is_meant(&added[..=*at]))
        .map(|(_, (path, line, text))| {
            let text: String = text.trim().chars().take(120).collect();
            format!("{path}:{line} {text}")
        })
        .take(20)
        .collect()
}

/// Whether a line marks missing code. Documentation and string literals do not count.
fn lacks_code(path: &str, text: &str) -> bool {
    // In lower case. A plain TODO may be a convention of the project.
    const SIGNS: [&str; 9] = [
        "todo!(",
        "unimplemented!(",
        "raise notimplementederror",
        "throw new error(\"not implemented",
        "throw new error('not implemented",
        "// ... existing code",
        "# ... existing code",
        "// rest of the code",
        "your code here",
    ];
    const DOCUMENTATION: [&str; 5] = [".md", ".markdown", ".mdx", ".rst", ".adoc"];
    if DOCUMENTATION.iter().any(|end| path.ends_with(end)) {
        return false;
    }
    // In Rust `'` also begins a lifetime.
    let quotes: &[char] = match path.ends_with(".rs") {
        true => &['"'],
        false => &['"', '\'', '`'],
    };
    let lower = text.to_lowercase();
    let is_quoted = |at: usize| {
        let (before, after) = lower.split_at(at);
        let is_comment = |mark: &&str| before.trim_start().starts_with(*mark);
        if ["//", "#"].iter().any(is_comment) {
            return false;
        }
        let mut quotes = quotes.iter();
        quotes.any(|quote| before.matches(*quote).count() % 2 == 1 && after.contains(*quote))
    };
    let mut signs = SIGNS.iter().flat_map(|sign| lower.match_indices(*sign));
    signs.any(|(at, _)| !is_quoted(at))
}

/// Whether the code is missing on purpose on the last of these lines: in an abstract method in Python or an ignored test in
/// Rust. Only added lines are known, and any method of an abstract class counts as abstract.
fn is_meant(lines: &[Added<'_>]) -> bool {
    let Some(&(path, number, text)) = lines.last() else {
        return false;
    };
    let is_function: fn(&str) -> bool = match path.rsplit('.').next() {
        Some("py" | "pyi") => {
            |line: &str| line.starts_with("def ") || line.starts_with("async def ")
        }
        Some("rs") => |line: &str| line.starts_with("fn ") || line.contains(" fn "),
        Some(_) | None => return false,
    };
    let indent = |line: &str| line.len() - line.trim_start().len();
    // The line itself and those directly above it, the nearest first.
    let near = lines.iter().rev().zip(0_u64..);
    let near = near.take_while(|((of, at, _), up)| *of == path && at + up == number);
    let mut above = near.map(|((_, _, text), _)| *text).peekable();
    // Its own line may be that of the function.
    let inside = indent(text) + usize::from(is_function(text.trim_start()));
    let is_around = |line: &&str| is_function(line.trim_start()) && indent(line) < inside;
    let Some(function) = above.find(is_around) else {
        return false;
    };
    while let Some(mark) = above.next_if(|line| line.trim_start().starts_with(['@', '#'])) {
        if mark.contains("abstractmethod") || mark.trim_start().starts_with("#[ignore") {
            return true;
        }
    }
    let is_class =
        |line: &&str| line.trim_start().starts_with("class ") && indent(line) < indent(function);
    let class = above.find(is_class).and_then(|line| line.split_once('('));
    class.is_some_and(|(_, bases)| {
        let mut names = bases.split(|c: char| !c.is_alphanumeric());
        names.any(|name| ["ABC", "ABCMeta", "Protocol"].contains(&name))
    })
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
    fn only_checks_that_pass_now_complete_an_earlier_result() {
        let mut failed = good();
        failed.checks[0].exit_code = 1;
        failed.checks[0].output = "- a placeholder\n\nexpected Hello".into();
        let of_checks = missing(&failed).unwrap();
        assert!(completes(&good(), &of_checks), "{of_checks}");
        failed.setup_failures = vec![Check {
            command: "npm ci".into(),
            ..failed.checks[0].clone()
        }];
        let of_set_up = missing(&failed).unwrap();
        assert!(completes(&good(), &of_set_up), "{of_set_up}");
        let set_up_fails = Facts {
            setup_failures: failed.setup_failures.clone(),
            ..good()
        };
        assert!(!completes(&set_up_fails, &of_set_up));

        for more in [
            "the budget ran out: 10 calls",
            "- a placeholder was added: a:1 x",
        ] {
            assert!(
                !completes(&good(), &format!("{more}\n{of_checks}")),
                "{more}"
            );
            assert!(
                !completes(&good(), &format!("{of_checks}\n{more}")),
                "{more}"
            );
        }
        let unchanged = Facts {
            unchanged: true,
            ..good()
        };
        assert!(!completes(&unchanged, &of_checks));
        for standing in [Standing::FailedBefore, Standing::NotRun("no sh".into())] {
            let mut other = good();
            other.checks[0].exit_code = 1;
            other.checks[0].standing = standing;
            assert!(!completes(&other, &of_checks));
        }
        let mut another = good();
        another.checks[0].command = "sh".into();
        assert!(!completes(&another, &of_checks));
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
        facts.checks[0].standing = Standing::FailsOnTarget;
        let why = missing(&facts).unwrap();
        assert!(why.contains("same way on the commit of the target branch"));
        assert!(!why.contains("base commit"), "{why}");
        facts.checks[0].standing = Standing::FailedOnTarget;
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

    /// How many placeholders a new file has.
    fn count(path: &str, text: &str) -> usize {
        let lines = (1..).zip(text.lines());
        placeholders(lines.map(|(number, line)| (path, number, line))).len()
    }

    #[test]
    fn a_sign_in_documentation_or_in_a_string_is_no_placeholder() {
        assert_eq!(count("docs/style.md", "Never leave `todo!()`."), 0);
        assert_eq!(count("requirements.txt", "# your code here"), 1);
        for (path, quoted) in [
            ("tests/a.rs", "assert!(out.contains(\"todo!()\"));"),
            ("a_test.py", "assert 'raise NotImplementedError' in out"),
            ("a.tsx", "<input placeholder=\"Your code here\" />"),
            ("a.js", "const text = `// rest of the code`;"),
        ] {
            assert_eq!(count(path, quoted), 0, "{quoted}");
        }
        for (path, stub) in [
            (
                "a.rs",
                "fn f<'a>(x: &'a str) -> &'a str { todo!(\"can't\") }",
            ),
            ("a.py", "# don't forget: your code here"),
            ("a.js", "case \"b\": throw new Error(\"Not implemented\");"),
            ("a.rs", "Some(\"a\") => todo!(\"b\"),"),
        ] {
            assert_eq!(count(path, stub), 1, "{stub}");
        }
    }

    #[test]
    fn a_method_that_subclasses_define_is_no_placeholder() {
        let abstracts = [
            "class A(Base):\n    @abc.abstractmethod\n    def f(\n        self,\n    ) -> int:\n        raise NotImplementedError",
            "class A(abc.ABC):\n    def f(self):\n        \"\"\"What it is.\"\"\"\n        raise NotImplementedError",
            "class A(Protocol[T]):\n    def g(self): ...\n\n    async def f(self): raise NotImplementedError()",
            "class A(metaclass=ABCMeta):\n    x = 1\n\n    def f(self):\n        raise NotImplementedError",
        ];
        for text in abstracts {
            assert_eq!(count("a.py", text), 0, "{text}");
            // As another language it is not known.
            assert_eq!(count("a.txt", text), 1, "{text}");
        }
        for text in [
            "class A(Base):\n    def f(self):\n        raise NotImplementedError",
            "class A(ABC):\n    pass\n\ndef f():\n    raise NotImplementedError",
            "@abstractmethod\ndef g(self): ...\n\ndef f():\n    raise NotImplementedError",
            "raise NotImplementedError",
        ] {
            assert_eq!(count("a.py", text), 1, "{text}");
        }
    }

    #[test]
    fn a_test_that_is_ignored_may_have_no_code() {
        let test = |marks: &str| {
            count(
                "a.rs",
                &format!("{marks}\nasync fn f() {{\n    todo!()\n}}"),
            )
        };
        assert_eq!(test("#[ignore = \"later\"]\n#[tokio::test]"), 0);
        assert_eq!(test("#[test]"), 1);
        assert_eq!(test("#[ignore]\nfn g() {}\n"), 1);
        // What is between these lines was there before.
        let far = [("a.rs", 1, "#[ignore]"), ("a.rs", 9, "fn f() { todo!() }")];
        assert_eq!(placeholders(far.into_iter()).len(), 1);
    }
}
