//! Scripts as files, and the script that is played without one.
//!
//! ```yaml
//! scenarios:
//!   - name: fix-greeting
//!     when: [greet.sh]              # texts that the task must contain
//!     find: { ticket: "T-([0-9]+)" } # defines {ticket}; {branch}, {project}, {number} are predefined
//!     replies:
//!       - { text: "Running the test.", shell: "sh test.sh" }
//!       - { view: greet.sh }
//!       - { replace: { path: greet.sh, old: 'name=""', new: 'name="$1"' } }
//!       - { create: { path: NOTES.md, text: "Fixed.\n" } }
//!       - { commit: "Fix the greeting" }   # adds, commits, pushes to {branch}
//!       - { calls: [{ name: text_editor, arguments: { command: view, path: "{project}" } }] }
//!       - { text: "Done.", fault: { status: 503, retry_after: 1, times: 2 } }
//! ```
//!
//! A fault is one of `status`, `delay_ms`, `stall`, `break_off`, `drop`, `broken_arguments`, `loading`,
//! `web_page`, `hang` and `comments`.
//!
//! In a `.jsonl` file, each line is one scenario as a JSON object.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::known;
use super::script::{
    Answer, Call, Fault, Scenario, Script, commit_and_push, edit_create, edit_replace, edit_view,
    say, shell,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileShape {
    #[serde(default)]
    key: Option<String>,
    scenarios: Vec<ScenarioShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioShape {
    name: String,
    #[serde(default)]
    when: Vec<String>,
    #[serde(default)]
    find: BTreeMap<String, String>,
    replies: Vec<ReplyShape>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ReplyShape {
    text: String,
    shell: Option<String>,
    view: Option<String>,
    create: Option<CreateShape>,
    replace: Option<ReplaceShape>,
    commit: Option<String>,
    calls: Vec<CallShape>,
    finish: Option<String>,
    fault: Option<FaultShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateShape {
    path: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplaceShape {
    path: String,
    old: String,
    new: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallShape {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Exactly one kind of fault, for the first `times` requests of each conversation (default: all).
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FaultShape {
    status: Option<u16>,
    retry_after: Option<u64>,
    delay_ms: Option<u64>,
    stall: bool,
    break_off: bool,
    drop: bool,
    broken_arguments: bool,
    loading: bool,
    web_page: bool,
    hang: bool,
    comments: bool,
    times: Option<usize>,
}

/// Reads a script: YAML, or JSON Lines with the ending `.jsonl`.
///
/// # Errors
/// Names the file and what is wrong in it.
pub fn load_script(path: &Path) -> anyhow::Result<Script> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
    let file = if path.extension().is_some_and(|ending| ending == "jsonl") {
        let scenarios = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(n, line)| {
                serde_json::from_str(line).with_context(|| format!("{shown}:{}", n + 1))
            })
            .collect::<anyhow::Result<_>>()?;
        FileShape {
            key: None,
            scenarios,
        }
    } else {
        serde_saphyr::from_str(&text).with_context(|| format!("{shown} is not a script"))?
    };
    let mut script = Script::new();
    if let Some(key) = &file.key {
        script = script.key(key);
    }
    for shape in file.scenarios {
        script = script.scenario(scenario(shape).with_context(|| shown.to_string())?);
    }
    Ok(script)
}

fn scenario(shape: ScenarioShape) -> anyhow::Result<Scenario> {
    let ScenarioShape {
        name,
        when,
        find,
        replies,
    } = shape;
    let mut scenario = Scenario::new(&name);
    for marker in &when {
        scenario = scenario.when(marker);
    }
    for (value, pattern) in &find {
        Regex::new(pattern).with_context(|| format!("scenario {name}: find.{value}"))?;
        scenario = scenario.find(value, pattern);
    }
    let mut answers = Vec::new();
    for (turn, shape) in replies.into_iter().enumerate() {
        let (answer, fault) =
            reply(shape).with_context(|| format!("scenario {name}: reply {turn}"))?;
        answers.push(answer);
        if let Some((fault, times)) = fault {
            scenario = scenario.fault_at(turn, fault, times);
        }
    }
    Ok(scenario.replies(answers))
}

fn reply(shape: ReplyShape) -> anyhow::Result<(Answer, Option<(Fault, usize)>)> {
    let ReplyShape {
        text,
        shell: line,
        view,
        create,
        replace,
        commit,
        calls,
        finish,
        fault,
    } = shape;
    let parts = [
        view.map(|path| edit_view(&path)),
        create.map(|create| edit_create(&create.path, &create.text)),
        replace.map(|replace| edit_replace(&replace.path, &replace.old, &replace.new)),
        line.map(|line| shell(&line)),
        commit.map(|message| commit_and_push(&message)),
    ];
    let mut answer = parts.into_iter().flatten().fold(say(&text), Answer::and);
    answer.calls.extend(calls.into_iter().map(|call| Call {
        name: call.name,
        arguments: call.arguments,
    }));
    answer.finish = finish;
    Ok((answer, fault.map(self::fault).transpose()?))
}

fn fault(shape: FaultShape) -> anyhow::Result<(Fault, usize)> {
    let FaultShape {
        status,
        retry_after,
        delay_ms,
        stall,
        break_off,
        drop,
        broken_arguments,
        loading,
        web_page,
        hang,
        comments,
        times,
    } = shape;
    let mut kinds: Vec<Fault> = [
        status.map(|status| Fault::Status(status, retry_after)),
        delay_ms.map(|ms| Fault::Delay(Duration::from_millis(ms))),
        stall.then_some(Fault::Stall),
        break_off.then_some(Fault::BreakOff),
        drop.then_some(Fault::Drop),
        broken_arguments.then_some(Fault::BrokenArguments),
        loading.then(known::loading),
        web_page.then(known::web_page),
        hang.then_some(Fault::Hang),
        comments.then_some(Fault::Comments),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (kinds.pop(), kinds.is_empty()) {
        (Some(kind), true) => Ok((kind, times.unwrap_or(usize::MAX))),
        _ => anyhow::bail!(
            "a fault is exactly one of status, delay_ms, stall, break_off, drop, broken_arguments, loading, web_page, hang, comments"
        ),
    }
}

/// Solves the fake forge's sample issue, a greeting without a name. For any other task it adds a line
/// to a file, so that any repository gets as far as a pull request.
#[must_use]
pub fn default_script() -> Script {
    let greeting = Scenario::new("greeting").when("greet.sh").replies([
        say("Let me look at the script and run its test.")
            .and(shell("ls -a && sh test.sh")),
        edit_view("greet.sh"),
        say("The name is never set from the first argument.").and(edit_replace(
            "greet.sh",
            "name=\"\"",
            "name=\"${1:-world}\"",
        )),
        shell("sh test.sh && git diff"),
        commit_and_push("Greet the person named by the first argument"),
        say(
            "`greet.sh` now takes the name from its first argument and greets the world without one. \
             `sh test.sh` passes. It is committed and pushed.",
        ),
    ]);
    let other = Scenario::new("any other task").replies([
        say("Let me look around.").and(shell("ls -a && git log --oneline -3")),
        shell(
            "echo 'The scripted model was here for #{number}.' >> SCRIPTED.md && cat SCRIPTED.md",
        ),
        commit_and_push("Add a line for #{number}"),
        say(
            "I am a script, not a model: I added a line to `SCRIPTED.md`, committed and pushed it.",
        ),
    ]);
    Script::new().scenario(greeting).scenario(other)
}
