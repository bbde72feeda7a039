//! What the exit code and output of a check mean.
//!
//! A check that the project did not name is only a guess: it may be one that cannot start here at all, or
//! one that failed before the agent changed anything. Neither shows a fault in the work.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize};

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The shell command.
    pub command: String,
    /// Its exit code.
    pub exit_code: i32,
    /// The head and tail of its output.
    pub output: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What the exit code means.
    #[serde(
        default,
        alias = "could_not_run",
        deserialize_with = "standing_or_could_not_run"
    )]
    pub standing: Standing,
}

/// What a check's exit code means for the result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It ran. Exit code 0 is a pass, any other a failure.
    #[default]
    Ran,
    /// It was guessed and could not start, for this reason. It does not count.
    NotRun(String),
    /// It fails in the same way on the base commit. It still counts.
    FailsOnBase,
    /// As `FailsOnBase`, but it was guessed and the model has been asked about it, so it no longer counts.
    FailedBefore,
    /// It fails in the same way on the commit of the target branch that was merged, not on the base commit. It still counts.
    FailsOnTarget,
    /// As `FailsOnTarget`, but it was guessed and the model has been asked about it, so it no longer counts.
    FailedOnTarget,
}

impl Standing {
    /// The words that follow a failure which another commit has too; empty if none has.
    pub(crate) fn elsewhere(&self) -> &'static str {
        match self {
            Self::Ran | Self::NotRun(_) => "",
            Self::FailsOnBase | Self::FailedBefore => ", as without this work",
            Self::FailsOnTarget | Self::FailedOnTarget => ", as on the target branch",
        }
    }
}

/// The `exit_code` of a command that has none since the sandbox ended while it ran. No process ends with it.
const ENDED_SANDBOX: i32 = -1;
/// The `exit_code` of a check that has none since the set-up before it ended the sandbox.
const NOT_REACHED: i32 = -2;

impl Check {
    /// The last line of its output if it was killed because it took too long.
    pub const TIMED_OUT: &str = "killed: time limit exceeded";

    /// A command that ended the sandbox. It counts as failed.
    #[must_use]
    pub fn ended_sandbox(command: String, why: &str) -> Self {
        Self {
            command,
            exit_code: ENDED_SANDBOX,
            output: format!("the command ended the sandbox: {why}"),
            duration_ms: 0,
            standing: Standing::Ran,
        }
    }

    /// A check that could not be reached since the set-up ended the sandbox. It counts as failed.
    #[must_use]
    pub fn not_reached(command: String) -> Self {
        Self {
            command,
            exit_code: NOT_REACHED,
            output: "not run, since the set-up ended the sandbox".into(),
            duration_ms: 0,
            standing: Standing::Ran,
        }
    }

    /// Its exit code, or why it has none.
    #[must_use]
    pub fn code(&self) -> String {
        match self.exit_code {
            ENDED_SANDBOX => "ended the sandbox".into(),
            NOT_REACHED => "not run, since the set-up ended the sandbox".into(),
            code if code != 0 && self.timed_out() => format!("{code}, time limit exceeded"),
            code => code.to_string(),
        }
    }

    fn timed_out(&self) -> bool {
        self.output.ends_with(Self::TIMED_OUT)
    }

    /// How it failed: `failed with exit code 1`.
    pub(crate) fn failure(&self) -> String {
        match self.exit_code {
            ENDED_SANDBOX => self.code(),
            NOT_REACHED => format!("was {}", self.code()),
            code => format!("failed with exit code {code}"),
        }
    }

    /// Whether it counts as failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        match self.standing {
            Standing::Ran | Standing::FailsOnBase | Standing::FailsOnTarget => self.exit_code != 0,
            Standing::NotRun(_) | Standing::FailedBefore | Standing::FailedOnTarget => false,
        }
    }

    /// What it showed, for a person: `exit code 1 in 20 ms, as without this work`.
    #[must_use]
    pub fn verdict(&self) -> String {
        let ran = match self.exit_code {
            ENDED_SANDBOX | NOT_REACHED => self.code(),
            code => format!("exit code {code} in {} ms", self.duration_ms),
        };
        match &self.standing {
            Standing::NotRun(why) => format!("not run: {why}"),
            Standing::Ran
            | Standing::FailsOnBase
            | Standing::FailedBefore
            | Standing::FailsOnTarget
            | Standing::FailedOnTarget => ran + self.standing.elsewhere(),
        }
    }

    /// Why a guessed check could not start: its program, module, target or script does not exist, or it
    /// found no tests. `None` if it ran.
    #[must_use]
    pub fn cannot_start(&self) -> Option<String> {
        match self.exit_code {
            0 => return None,
            // The shell's exit codes (POSIX, 2.8.2).
            126 => return Some("the program cannot be executed in the sandbox".into()),
            127 => return Some("the program is not in the sandbox".into()),
            // pytest's own exit code.
            5 if self.command.contains("pytest") => return Some("there are no tests".into()),
            _ => {}
        }
        // Python quotes the module in a traceback of the project's own code, but not when `-m` fails.
        const SIGNS: [(&str, &str); 7] = [
            (": No module named ", "the Python module is not installed"),
            ("No rule to make target", "make has no such target"),
            ("Missing script:", "package.json has no such script"),
            ("Don't know how to build task", "rake has no such task"),
            ("Could not open input file: ", "PHP has no such program"),
            ("error: no such command:", "cargo has no such command"),
            (
                "bundler: command not found:",
                "the bundle has no such command",
            ),
        ];
        self.output.lines().find_map(|line| {
            let (_, reason) = SIGNS
                .iter()
                .find(|(sign, _)| line.contains(sign) && !line.contains("ModuleNotFoundError"))?;
            Some(format!("{reason}: {:.200}", line.trim()))
        })
    }

    #[cfg(test)]
    fn fails_like(&self, other: &Self) -> bool {
        let failure = |check: &Self| CheckFailure::of(check.exit_code, &check.output);
        match (failure(self), failure(other)) {
            (Some(own), Some(other)) => own.is_like(&other),
            _ => false,
        }
    }

    pub(crate) fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            command,
            exit_code,
            output,
            duration_ms,
            standing,
        } = self;
        Self {
            command: redact(command),
            exit_code,
            output: redact(output),
            duration_ms,
            standing: match standing {
                Standing::NotRun(reason) => Standing::NotRun(redact(reason)),
                Standing::Ran
                | Standing::FailsOnBase
                | Standing::FailedBefore
                | Standing::FailsOnTarget
                | Standing::FailedOnTarget => standing,
            },
        }
    }
}

/// How a check failed, to be compared with the same check on another commit. Made of more of its output than [`Check::output`] keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFailure {
    exit_code: i32,
    timed_out: bool,
    /// The lines that report errors, without what differs from one run to the next.
    errors: Vec<String>,
    /// Those, sorted; all lines if none reports an error.
    complaints: Vec<String>,
}

impl CheckFailure {
    /// `None` for a success, and for an output that was cut, since a difference may be in what is missing.
    #[must_use]
    pub fn of(exit_code: i32, output: &str) -> Option<Self> {
        if exit_code == 0 || output.contains(" left out") {
            return None;
        }
        Some(Self {
            exit_code,
            timed_out: output.ends_with(Check::TIMED_OUT),
            errors: errors(output),
            complaints: complaints(output),
        })
    }

    /// Whether `other` is the same failure: with the same exit code, and with the same error lines apart from times, counts of
    /// what passed, and random names of temporary files. If both took too long, how far each came depends on the moment, and only
    /// an error that the other one has not reported is a difference.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        if self.exit_code != other.exit_code {
            return false;
        }
        if self.timed_out && other.timed_out {
            let known: HashSet<&String> = other.errors.iter().collect();
            return self.errors.iter().all(|it| known.contains(it));
        }
        self.complaints == other.complaints
    }
}

/// Whether a line, in lower case, is about an attempt that is repeated, which depends on the moment while the error that ends the
/// attempts has its own line, or about where a log is.
fn is_beside_the_failure(line: &str) -> bool {
    let is_retry = line.starts_with("warning: spurious network error")
        || line.starts_with("warn") && line.contains(" will retry in");
    let names_log = ["a complete log of this run", "/_logs/"];
    let is_about_log = line.starts_with("npm err") && names_log.iter().any(|it| line.contains(it));
    is_retry || is_about_log
}

/// How package managers report one of the downloads that they make at the same time: what the line contains, in lower case, and after
/// what it names the package. Which one fails first depends on the moment.
const DOWNLOADS: [(&str, &str); 7] = [
    ("err_pnpm_fetch_", " get http"),
    ("err_pnpm_meta_fetch_", " get http"),
    ("this error happened while installing ", " installing "),
    ("npm err", " - get http"),
    ("npm err", " request to http"),
    // uv
    ("× failed to download `", "download `"),
    // cargo
    ("failed to download from `http", "from `http"),
];

/// A line without the package whose download failed.
fn without_package(line: &str) -> &str {
    let cut = DOWNLOADS.iter().find_map(|(sign, before)| {
        let at = line.contains(sign).then(|| line.find(before))??;
        line.get(..at + before.len())
    });
    cut.unwrap_or(line)
}

/// The lines of an output that report errors, sorted; all lines if none does.
fn complaints(output: &str) -> Vec<String> {
    let mut found = errors(output);
    if found.is_empty() {
        found = comparable_lines(output).collect();
    }
    found.sort_unstable();
    found
}

/// The lines of an output that report errors.
fn errors(output: &str) -> Vec<String> {
    const SIGNS: [&str; 11] = [
        "fail",
        "error",
        "panic",
        "exception",
        "assert",
        "expected",
        "not ok",
        "✕",
        "✖",
        "●",
        "rspec ",
    ];
    comparable_lines(output)
        .filter(|line| !is_beside_the_failure(line))
        .filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
        .collect()
}

/// The lines of an output, each without what differs from one run to the next.
fn comparable_lines(output: &str) -> impl Iterator<Item = String> {
    output
        .lines()
        .map(|line| without_random_names(&line.to_lowercase()))
        .map(|line| without_measurements(without_package(&line)))
        .filter(|line| !line.is_empty())
}

/// A random part of a line: what stands before it, its characters, and how many of them there are.
type Random = (&'static str, fn(&char) -> bool, RangeInclusive<usize>);

/// The random names and addresses that tools are known to print, in lower case. Each is as narrow as the tool allows,
/// since a difference that is omitted here may hide a new failure.
const RANDOM: [Random; 10] = [
    // rustc's folder for the linker
    ("/deps/rustc", char::is_ascii_alphanumeric, 6..=6),
    // The crate tempfile
    ("/.tmp", char::is_ascii_alphanumeric, 6..=6),
    // gcc's objects
    ("/tmp/cc", char::is_ascii_alphanumeric, 6..=6),
    // mktemp
    ("/tmp/tmp.", char::is_ascii_alphanumeric, 10..=10),
    // Python's tempfile
    (
        "/tmp/tmp",
        |c| c.is_ascii_alphanumeric() || *c == '_',
        8..=8,
    ),
    // go build, go test
    ("/go-build", char::is_ascii_digit, 6..=20),
    // pnpm, which adds a process and a number
    ("_tmp_", |c| c.is_ascii_digit() || *c == '_', 3..=12),
    // The ports that the kernel chooses (32768 to 60999), also that of the sandbox's own proxy
    ("127.0.0.1:", char::is_ascii_digit, 5..=5),
    ("localhost:", char::is_ascii_digit, 5..=5),
    // Addresses of memory, which are longer than most error codes
    ("0x", char::is_ascii_hexdigit, 9..=16),
];

/// A line without the random part of what is in [`RANDOM`].
fn without_random_names(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let found = RANDOM.iter().find_map(|random| random_after(rest, random));
        let (shown, after) = found.unwrap_or_else(|| rest.split_at(next.len_utf8()));
        kept.push_str(shown);
        rest = after;
    }
    kept
}

/// What stands before the random part at the beginning of a text, and what comes after it.
fn random_after<'a>(
    text: &'a str,
    (before, belongs, lengths): &Random,
) -> Option<(&'a str, &'a str)> {
    let after = text.strip_prefix(before)?;
    let length = after.chars().take_while(belongs).count();
    let rest = after.get(length..)?;
    let continues = rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'));
    // Of a port only those that the kernel chooses.
    let is_chosen = !before.ends_with(':')
        || after[..length]
            .parse()
            .is_ok_and(|port: u32| (32_768..=60_999).contains(&port));
    let is_random = lengths.contains(&length) && !continues && is_chosen;
    is_random.then_some((*before, rest))
}

/// A line without times, and without numbers that do not count failures.
fn without_measurements(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let kept = words.iter().enumerate().filter(|(at, word)| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let number = bare.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let is_number =
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let unit = &bare[number.len()..];
        let is_time = is_number && ["s", "ms", "us", "ns", "sec", "secs", "min"].contains(&unit);
        let counts_failures = words.get(at + 1).is_some_and(|next| {
            ["fail", "error", "not"]
                .iter()
                .any(|sign| next.starts_with(sign))
        });
        !is_time && (!is_number || !unit.is_empty() || counts_failures)
    });
    kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// Journals written before `Standing` existed hold a boolean, `could_not_run`.
fn standing_or_could_not_run<'de, D: Deserializer<'de>>(from: D) -> Result<Standing, D::Error> {
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Bool(false) => Ok(Standing::Ran),
        serde_json::Value::Bool(true) => Ok(Standing::NotRun(
            "the program is not in the sandbox".to_owned(),
        )),
        standing => serde_json::from_value(standing).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, exit_code: i32, output: &str) -> Check {
        Check {
            command: command.into(),
            exit_code,
            output: output.into(),
            duration_ms: 1,
            standing: Standing::Ran,
        }
    }

    #[test]
    fn a_check_without_its_program_module_target_or_tests_cannot_start() {
        for (command, code, output) in [
            ("go test ./...", 127, "/bin/sh: 1: go: not found"),
            (
                "./gradlew test",
                126,
                "/bin/sh: 1: ./gradlew: Permission denied",
            ),
            (
                "python3 -m pytest -q",
                1,
                "/usr/bin/python3: No module named pytest",
            ),
            ("python3 -m pytest -q", 5, "no tests ran in 0.01s"),
            (
                "make test",
                2,
                "make: *** No rule to make target 'test'.  Stop.",
            ),
            ("npm test --silent", 1, "npm error Missing script: \"test\""),
            (
                "bundle exec rake test",
                1,
                "Don't know how to build task 'test' (See the list of available tasks)",
            ),
        ] {
            assert!(
                check(command, code, output).cannot_start().is_some(),
                "{command}: {output}"
            );
        }
    }

    #[test]
    fn a_test_that_misses_a_module_of_its_own_has_run() {
        let output = "E   ModuleNotFoundError: No module named 'requests'\n1 error in 0.05s";
        assert_eq!(
            check("python3 -m pytest -q", 2, output).cannot_start(),
            None
        );
        assert_eq!(
            check("make test", 2, "FAIL greet\nmake: *** [test] Error 1").cannot_start(),
            None
        );
        let listed = "ok: No rule to make target 'x' is reported";
        assert_eq!(check("make test", 0, listed).cannot_start(), None);
        assert_eq!(check("make test", 5, "5 failed").cannot_start(), None);
    }

    #[test]
    fn the_same_failure_is_recognised_despite_other_counts_and_times() {
        let before = check(
            "t",
            1,
            "..F\nFAILED tests/test_net.py::test_dns - timeout\n1 failed, 2 passed in 0.31s",
        );
        let after = check(
            "t",
            1,
            "....F\nFAILED tests/test_net.py::test_dns - timeout\n1 failed, 4 passed in 1.02s",
        );
        assert!(after.fails_like(&before));
        let other = check(
            "t",
            1,
            "....F\nFAILED tests/test_greet.py::test_name - x\n1 failed, 4 passed in 1.02s",
        );
        assert!(!other.fails_like(&before));
        assert!(!check("t", 2, &before.output).fails_like(&before));
        let more = after.output.replace("1 failed", "2 failed");
        assert!(
            !check("t", 1, &more).fails_like(&before),
            "one more failure"
        );
        let cut = format!("{}[... 9 bytes, 1 lines left out ...]", before.output);
        assert!(!check("t", 1, &cut).fails_like(&check("t", 1, &cut)));
    }

    /// In the words of programs that ran without a network.
    #[test]
    fn the_same_failure_is_recognised_whichever_download_fails_first() {
        let uv = |package: &str, version: &str, by: &str| {
            format!(
                "   Building click @ file:///workspace/project\n  × Failed to download `{package}=={version}`\n  ├─▶ Failed to fetch:\n  │   \
                 `https://files.example.com/packages/b7/{package}-{version}-py3-none-any.whl`\n  ├─▶ Request failed after 3 retries\n  \
                 ├─▶ error sending request for url\n  ├─▶ client error (Connect)\n  ╰─▶ tunnel error: unsuccessful\n  help: `{package}` \
                 (v{version}) was included because `{by}` depends on `{package}`\n"
            )
        };
        let pnpm = |package: &str, folder: &str| {
            format!(
                " ERR_PNPM_FETCH_403  GET https://npm.example.com/{package}: Forbidden - 403\n\nThis error happened while installing a direct \
                 dependency of /workspace/tmp/home/.tools/pnpm/10.34.5_tmp_{folder}\n\nNo authorization header was set for the request.\n \
                 ERROR  Command failed with exit code 1: pnpm add pnpm@10.34.5\nFor help, run: pnpm help run\n"
            )
        };
        let npm = |package: &str, second: u32| {
            format!(
                "npm error code E403\nnpm error 403 403 Forbidden - GET https://npm.example.com/{package}\nnpm error A complete log of this run can \
                 be found in: /workspace/tmp/home/.npm/_logs/2026-11-28T11_40_{second}_123Z-debug-0.log\n"
            )
        };
        let pairs = [
            (
                uv("packaging", "26.0", "pytest"),
                uv("tox", "4.52.0", "click:dev"),
            ),
            (pnpm("pnpm", "60_0"), pnpm("pnpm", "61_0")),
            (pnpm("vite", "60_0"), pnpm("esbuild", "61_0")),
            (npm("uc.micro/-/uc.micro-2.1.0.tgz", 10), npm("marked", 22)),
        ];
        for (one, other) in &pairs {
            let (one, other) = (check("t", 1, one), check("t", 1, other));
            assert!(one.fails_like(&other), "{}\n{}", one.output, other.output);
        }
        let loaded = |name: &str| check("t", 1, &format!("FAIL failed to download `{name}`"));
        assert!(!loaded("ada").fails_like(&loaded("bob")));
        let asked = |path: &str| check("t", 1, &format!("FAIL GET https://localhost/{path}"));
        assert!(!asked("users").fails_like(&asked("rooms")));
    }

    #[test]
    fn the_same_failure_is_recognised_despite_other_temporary_files_and_attempts() {
        let linker = |folder: &str| {
            let output = format!(
                "error: linking with `cc` failed: exit status: 1\n  = note: \"cc\" \
                 \"/workspace/project/target/debug/deps/{folder}/symbols.o\" \"lib{{libtest-*,libpanic_unwind-*}}\"\n\
                 rust-lld: error: unable to find library -lgit"
            );
            check("cargo test", 101, &output)
        };
        assert!(linker("rustcdRdixN").fails_like(&linker("rustcxUpXGU")));
        assert!(!linker("fdRdixN").fails_like(&linker("fxUpXGU")));
        let fetch = |attempts: &str| {
            let output = format!(
                "    Updating crates.io index\n{attempts}error: failed to get `fluent` as a dependency\n"
            );
            check("cargo test", 101, &output)
        };
        let again = "warning: spurious network error (3 tries remaining): [56] CheckFailure when receiving data\n";
        assert!(fetch(again).fails_like(&fetch("")));
        let finding = |what: &str| {
            check(
                "make lint",
                2,
                &format!("warning: {what}\nmake: *** [lint] Error 1"),
            )
        };
        assert!(
            !finding("no error is handled here")
                .fails_like(&finding("this assertion holds always"))
        );
        let address = |at: &str| {
            check(
                "t",
                134,
                &format!("ERROR: heap-use-after-free on {at} pc {at}"),
            )
        };
        assert!(address("0x602000000010").fails_like(&address("0x602000000150")));
        let refused = |at: &str| check("t", 1, &format!("Error: connect ECONNREFUSED {at}"));
        for (one, other) in [
            ("127.0.0.1:41873", "127.0.0.1:39021"),
            ("http://localhost:41873/a", "http://localhost:39021/a"),
        ] {
            assert!(refused(one).fails_like(&refused(other)), "{one}");
        }
        assert!(!refused("127.0.0.1:5432").fails_like(&refused("127.0.0.1:6379")));
        assert!(!refused("127.0.0.1:27017").fails_like(&refused("127.0.0.1:11211")));
        let temporary = |name: &str| check("t", 1, &format!("cannot open {name}"));
        for (one, other) in [
            ("/tmp/tmpk3_x9a_q/a.txt", "/tmp/tmp0zq_7_ab/a.txt"),
            ("/tmp/tmp.Xy12abCDEF", "/tmp/tmp.0987zyXWvu"),
        ] {
            assert!(temporary(one).fails_like(&temporary(other)), "{one}");
        }
        for (one, other) in [
            // Longer than a random part
            ("/tmp/ccA1b2C3_main.o", "/tmp/ccD4e5F6_other.o"),
            ("/tmp/ccA1b2C3-main.o", "/tmp/ccD4e5F6-other.o"),
        ] {
            assert!(!temporary(one).fails_like(&temporary(other)), "{one}");
        }
        for (one, other) in [
            ("/src/ccache.c", "/src/ccaches.c"),
            ("/src/ccontext.c", "/src/cconvert.c"),
            ("/tests/rustc_a.rs", "/tests/rustc_b.rs"),
            ("/compiler/rustc_driver", "/compiler/rustc_middle"),
            ("/tests/tmp_one.py", "/tests/tmp_two.py"),
            ("/pytest-1.x/a.py", "/pytest-2.x/a.py"),
            ("0xc0000005", "0xc0000409"),
        ] {
            let failing = |file: &str| check("t", 1, &format!("FAIL {file}"));
            assert!(!failing(one).fails_like(&failing(other)), "{one}");
        }
    }

    #[test]
    fn checks_that_take_too_long_on_both_commits_fail_alike_unless_one_reports_another_error() {
        let slow = |output: &str| check("t", 124, &format!("{output}\n{}", Check::TIMED_OUT));
        assert!(slow("ok a\nok b").fails_like(&slow("ok a")));
        assert!(slow("FAIL a").fails_like(&slow("FAIL a\nFAIL b")));
        assert!(!slow("FAIL a\nFAIL b").fails_like(&slow("FAIL a")));
        assert!(!slow("ok a").fails_like(&check("t", 124, "ok b")));
    }

    #[test]
    fn a_verdict_says_what_a_check_that_does_not_count_showed() {
        let mut check = check("make", 127, "");
        assert_eq!(check.verdict(), "exit code 127 in 1 ms");
        check.standing = Standing::NotRun("the program is not in the sandbox".into());
        assert_eq!(
            check.verdict(),
            "not run: the program is not in the sandbox"
        );
        check.standing = Standing::FailedBefore;
        assert_eq!(
            check.verdict(),
            "exit code 127 in 1 ms, as without this work"
        );
        check.standing = Standing::FailsOnTarget;
        assert_eq!(
            check.verdict(),
            "exit code 127 in 1 ms, as on the target branch"
        );
        check.exit_code = 1;
        assert!(check.failed());
        check.standing = Standing::FailedOnTarget;
        assert!(!check.failed());
    }

    #[test]
    fn the_code_of_a_check_that_took_too_long_says_so() {
        let ended = |code| check("t", code, &format!("ok a\n{}", Check::TIMED_OUT)).code();
        assert_eq!(ended(124), "124, time limit exceeded");
        // A check that passes may print the same line.
        assert_eq!(ended(0), "0");
        assert_eq!(check("t", 124, "ok a").code(), "124");
    }

    #[test]
    fn a_check_of_an_older_journal_can_be_read() {
        let stored = r#"{"command":"make","exit_code":127,"output":"","duration_ms":1,"could_not_run":true}"#;
        let check: Check = serde_json::from_str(stored).unwrap();
        assert!(matches!(check.standing, Standing::NotRun(_)) && !check.failed());
    }

    #[test]
    fn a_name_that_goes_on_after_its_random_part_is_not_random() {
        for (line, expected) in [
            ("/tmp/ccAb12Cd.o", "/tmp/cc.o"),
            ("/tmp/ccAb12Cd-x", "/tmp/ccAb12Cd-x"),
            ("/tmp/ccAb12Cd_x", "/tmp/ccAb12Cd_x"),
            ("/tmp/ccAb12Cde", "/tmp/ccAb12Cde"),
        ] {
            assert_eq!(without_random_names(line), expected);
        }
    }
}
