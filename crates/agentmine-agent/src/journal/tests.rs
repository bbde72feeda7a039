use std::path::Path;

use agentmine_domain::Epoch;
use agentmine_llm::{Extra, Stop, ToolCall};
use serde_json::{Value, json};

use super::*;
use crate::check::{Check, Standing};
use crate::facts::{ChangedFile, WebRequest};
use crate::note::{Resumed, Unsaved};
use crate::start::{Absent, Project};

/// One entry of each variant, every field set, and one of each variant that a field of them has.
fn every_entry() -> Vec<Entry> {
    let usage = Usage {
        model_calls: 1,
        tool_calls: 2,
        input_tokens: 3,
        cached_tokens: 4,
        output_tokens: 5,
        cost_micros: 6,
    };
    let reply = |stop| Entry::ModelReply {
        reply: ModelReply {
            text: "reply".into(),
            calls: vec![ToolCall {
                id: "id".into(),
                name: "tool".into(),
                arguments: "{}".into(),
                ..ToolCall::default()
            }],
            stop,
            ..ModelReply::default()
        },
        usage,
    };
    let extra = |name: &str| Extra::from_iter([(name.to_owned(), json!({ "thought": "so" }))]);
    let mut thoughtful = reply(Stop::ToolCalls);
    if let Entry::ModelReply { reply, .. } = &mut thoughtful {
        reply.extra = extra("reasoning_details");
        reply.calls[0].extra = extra("extra_content");
    }
    vec![
        Entry::Phase {
            phase: Phase::Preparing,
        },
        Entry::Start {
            start: Start {
                base: "base".into(),
                rebases: None,
                rules: None,
                project: Project {
                    setup: vec!["npm ci".into()],
                    checks: vec!["npm test".into()],
                    checks_from: "from the configuration".into(),
                    guessed: true,
                    warning: Some("a warning".into()),
                    done: Vec::new(),
                    notes: vec!["a note".into()],
                    absent: Absent {
                        lfs_pointers: 2,
                        submodules: vec!["lib".into()],
                    },
                },
            },
        },
        Entry::Prompt {
            role: PromptRole::System,
            text: "who".into(),
            hidden: None,
            remarks: None,
        },
        Entry::Prompt {
            role: PromptRole::User,
            text: "what".into(),
            hidden: Some(Hidden {
                markup: 1,
                characters: 2,
            }),
            remarks: Some(vec!["7".into()]),
        },
        reply(Stop::EndTurn),
        reply(Stop::ToolCalls),
        reply(Stop::Length),
        reply(Stop::WindowFull),
        reply(Stop::Filtered),
        thoughtful,
        Entry::ToolResult {
            result: CallResult {
                call_id: "id".into(),
                name: "tool".into(),
                text: "result".into(),
                is_error: true,
            },
        },
        Entry::Facts {
            facts: Facts {
                head: Some("head".into()),
                base: "base".into(),
                push_error: Some("rejected".into()),
                files: vec![ChangedFile {
                    path: "path".into(),
                    added: Some(1),
                    removed: None,
                }],
                files_not_listed: 3,
                checks: vec![Check {
                    command: "make".into(),
                    exit_code: 2,
                    output: "boom".into(),
                    duration_ms: 3,
                    standing: Standing::NotRun("not found".into()),
                }],
                checks_from: "guessed".into(),
                setup_failures: [
                    Standing::Ran,
                    Standing::FailsOnBase,
                    Standing::FailedBefore,
                    Standing::FailsOnTarget,
                    Standing::FailedOnTarget,
                ]
                .map(|standing| Check {
                    command: "npm ci".into(),
                    exit_code: 1,
                    output: "no".into(),
                    duration_ms: 4,
                    standing,
                })
                .into(),
                notes: vec!["skipped".into()],
                placeholders: vec!["a:1 todo".into()],
                protected: vec![".github/workflows/ci.yml".into()],
                refused_pushes: vec!["a secret".into()],
                web: vec![WebRequest {
                    host: "host:443".into(),
                    count: 2,
                    refused: Some("not allowed".into()),
                }],
                web_dropped: 1,
                diff_cut: true,
                unchanged: false,
                merged: false,
            },
            stopped: Some("the budget ran out".into()),
        },
        Entry::ModelUse {
            text: "a server asked".into(),
            usage,
        },
        Entry::note("a note"),
        Resumed::With(Seq(57)).entry(),
        Resumed::Without(Seq(3), "no space".into()).entry(),
        Unsaved::Changes(Seq(4), "too slow".into()).entry(),
        Unsaved::Files("core, app/".into()).entry(),
        Entry::Note {
            text: "without results".into(),
            fact: Some(NoteFact::ResultsOmitted(6)),
        },
    ]
}

/// Declares the variants of an enum: their names, and which of them a value is. One that is not listed here does not
/// compile.
macro_rules! variants {
    ($all:ident, $of:ident, $type:ident: $($variant:ident),+ $(,)?) => {
        const $all: &[&str] = &[$(stringify!($variant)),+];

        fn $of(value: &$type) -> &'static str {
            match value {
                $($type::$variant { .. } => stringify!($variant),)+
            }
        }
    };
}

variants!(ENTRIES, entry_name, Entry: Phase, Start, Prompt, ModelReply, ToolResult, Facts, ModelUse, Note);
variants!(ROLES, role_name, PromptRole: System, User);
variants!(STANDINGS, standing_name, Standing: Ran, NotRun, FailsOnBase, FailedBefore, FailsOnTarget, FailedOnTarget);
variants!(RESUMED, resumed_name, Resumed: With, Without);
variants!(UNSAVED, unsaved_name, Unsaved: Changes, Files);
variants!(STOPS, stop_name, Stop: EndTurn, ToolCalls, Length, WindowFull, Filtered);

/// Each name of these that none of the examples has.
fn without_example(all: &[&'static str], examples: &[&str]) -> Vec<&'static str> {
    let lacks = |name: &&&str| !examples.contains(*name);
    all.iter().filter(lacks).copied().collect()
}

#[test]
fn every_variant_has_an_example_in_the_golden_file() {
    let entries = every_entry();
    let names: Vec<&str> = entries.iter().map(entry_name).collect();
    assert_eq!(without_example(ENTRIES, &names), [""; 0]);
    let roles = entries.iter().filter_map(|entry| match entry {
        Entry::Prompt { role, .. } => Some(role_name(role)),
        _ => None,
    });
    assert_eq!(without_example(ROLES, &roles.collect::<Vec<_>>()), [""; 0]);
    let stops = entries.iter().filter_map(|entry| match entry {
        Entry::ModelReply { reply, .. } => Some(stop_name(&reply.stop)),
        _ => None,
    });
    assert_eq!(without_example(STOPS, &stops.collect::<Vec<_>>()), [""; 0]);
    let (mut resumed, mut unsaved, mut omitted) = (Vec::new(), Vec::new(), 0);
    for entry in &entries {
        if let Entry::Note {
            fact: Some(fact), ..
        } = entry
        {
            match fact {
                NoteFact::Resumed(it) => resumed.push(resumed_name(it)),
                NoteFact::Unsaved(it) => unsaved.push(unsaved_name(it)),
                NoteFact::ResultsOmitted(_) => omitted += 1,
            }
        }
    }
    assert_eq!(without_example(RESUMED, &resumed), [""; 0]);
    assert_eq!(without_example(UNSAVED, &unsaved), [""; 0]);
    assert_eq!(omitted, 1);
    let facts = entries.iter().filter_map(|entry| match entry {
        Entry::Facts { facts, .. } => Some(facts),
        _ => None,
    });
    let checks = facts.flat_map(|facts| facts.checks.iter().chain(&facts.setup_failures));
    let standings: Vec<&str> = checks.map(|check| standing_name(&check.standing)).collect();
    assert_eq!(without_example(STANDINGS, &standings), [""; 0]);
}

fn step(kind: StepKind, payload: &Value) -> Step {
    Step {
        seq: Seq(7),
        epoch: Epoch(1),
        kind,
        payload: StepPayload::encode(payload).unwrap(),
        duration_ms: 0,
        at: chrono::Utc::now(),
    }
}

#[test]
fn an_unknown_name_anywhere_is_of_a_later_version() {
    let entries = every_entry();
    let facts = entries.iter().find(|it| matches!(it, Entry::Facts { .. }));
    let text = serde_json::to_string(&facts.unwrap().encode().unwrap().decode::<Value>().unwrap());
    let later = text.unwrap().replace("fails_on_target", "unheard");
    let later: Value = serde_json::from_str(&later).unwrap();
    let error = Entry::decode(&step(StepKind::Fact, &later)).unwrap_err();
    assert!(error.is_of_later_version(), "{error}");
}

/// `UPDATE_GOLDEN=1 cargo test -p agentmine-agent golden` regenerates the file. A changed line means
/// that stored journals can no longer be read: increase the version, and keep reading the old one.
#[test]
fn the_golden_file_holds_every_variant_as_it_is_stored() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/journal.json");
    let mut stored: Value = every_entry()
        .iter()
        .map(|entry| json!({ "kind": entry.kind(), "payload": entry.encode().unwrap() }))
        .collect();
    stored.sort_all_objects();
    let text = serde_json::to_string_pretty(&stored).unwrap() + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn every_variant_survives_encoding_and_decoding() {
    for entry in every_entry() {
        let payload: Value = entry.encode().unwrap().decode().unwrap();
        assert_eq!(Entry::decode(&step(entry.kind(), &payload)).unwrap(), entry);
    }
}

#[test]
fn a_prompt_without_what_was_hidden_is_still_read() {
    let old = json!({ "v": 1, "type": "prompt", "role": "user", "text": "do it" });
    let entry = Entry::decode(&step(StepKind::Prompt, &old)).unwrap();
    assert_eq!(entry, Entry::from(crate::Prompt::user("do it")));
    assert_eq!(hidden_in_prompt(&[entry]), None);
}

#[test]
fn only_replies_model_use_and_tool_calls_add_to_the_usage() {
    let mut sum = Usage::default();
    for entry in every_entry() {
        sum += entry.usage();
    }
    let expected = Usage {
        model_calls: 7,
        tool_calls: 15,
        input_tokens: 21,
        cached_tokens: 28,
        output_tokens: 35,
        cost_micros: 42,
    };
    assert_eq!(sum, expected);
}

#[test]
fn steps_without_a_version_are_still_read() {
    let message = |message: Value| json!({ "message": message, "usage": { "model_calls": 1 } });
    let tool =
        json!({ "role": "tool", "call_id": "1", "name": "t", "text": "x", "is_error": false });
    let old = [
        (StepKind::Phase, json!({ "phase": "running" })),
        (
            StepKind::Prompt,
            message(json!({ "role": "user", "text": "do it" })),
        ),
        (
            StepKind::Prompt,
            message(json!({ "role": "system", "text": "you are" })),
        ),
        (
            StepKind::ModelReply,
            message(json!({ "role": "assistant", "text": "yes" })),
        ),
        (StepKind::ToolResult, message(tool)),
        (StepKind::Note, json!({ "text": "a note" })),
        (
            StepKind::Note,
            json!({ "text": "asked", "usage": { "model_calls": 1 } }),
        ),
    ];
    let entries: Vec<Entry> = old
        .iter()
        .map(|(kind, payload)| Entry::decode(&step(*kind, payload)).unwrap())
        .collect();
    let kinds: Vec<StepKind> = entries.iter().map(Entry::kind).collect();
    assert_eq!(kinds, old.map(|(kind, _)| kind));
    let used: u32 = entries.iter().map(|entry| entry.usage().model_calls).sum();
    assert_eq!(used, 2, "one for the reply and one for the server");
}

#[test]
fn an_error_names_the_step_that_cannot_be_decoded() {
    for (kind, payload, problem) in [
        (
            StepKind::Note,
            json!({ "v": 2, "type": "note", "text": "x" }),
            "version 2",
        ),
        (StepKind::Note, json!({ "v": 1, "type": "note" }), "text"),
        (
            StepKind::Note,
            json!({ "v": 1, "type": "poem", "text": "x" }),
            "poem",
        ),
        (
            StepKind::Note,
            json!({ "v": 1, "type": "phase", "phase": "running" }),
            "of the kind phase",
        ),
        (
            StepKind::ModelReply,
            json!({ "message": { "role": "assistant", "text": "x" } }),
            "usage of the reply is missing",
        ),
        (StepKind::Prompt, json!({}), "any variant"),
        (StepKind::Fact, json!([]), "struct"),
    ] {
        let error = Entry::decode(&step(kind, &payload))
            .unwrap_err()
            .to_string();
        assert!(error.contains("step 7"), "{error}");
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn every_text_of_every_variant_is_redacted() {
    let texts = |entry: &Entry| {
        let mut found = Vec::new();
        strings(&entry.encode().unwrap().decode().unwrap(), &mut found);
        found
    };
    for entry in every_entry() {
        let kept = ["type", "role", "stop", "phase", "standing"];
        let redacted = entry.clone().redacted(&|_| "***".into());
        for (key, text) in texts(&redacted) {
            assert!(
                kept.contains(&key.as_str()) || text == "***",
                "{key} of {:?} is {text:?}",
                entry.kind()
            );
        }
        assert_eq!(texts(&redacted).len(), texts(&entry).len());
    }
}

/// All texts of a value with the keys that hold them.
fn strings(value: &Value, found: &mut Vec<(String, String)>) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        match value {
            Value::String(text) => found.push((key.clone(), text.clone())),
            Value::Array(items) => items.iter().for_each(|item| match item {
                Value::String(text) => found.push((key.clone(), text.clone())),
                other => strings(other, found),
            }),
            other => strings(other, found),
        }
    }
}

#[test]
fn the_newest_start_is_used() {
    let start = |base: &str| Entry::Start {
        start: Start {
            base: base.into(),
            rebases: None,
            rules: None,
            project: Project::default(),
        },
    };
    let entries = [
        start("old"),
        Entry::note("x"),
        start("new"),
        Entry::note("y"),
    ];
    assert_eq!(newest_start(&entries).unwrap().base, "new");
    assert!(newest_start(&entries[1..2]).is_none());
}

#[test]
fn of_doubled_steps_only_messages_are_read_once() {
    let prompt = |text: &str| Entry::from(crate::Prompt::user(text));
    let phase = Entry::Phase {
        phase: Phase::Running,
    };
    let note = Entry::note("a note");
    let recorded = [
        prompt("do it"),
        note.clone(),
        // The same message, although a note is between.
        prompt("do it"),
        phase.clone(),
        phase.clone(),
        note.clone(),
        note.clone(),
        prompt("do more"),
        prompt("do it"),
    ];
    let steps = recorded.map(|entry| Step {
        payload: entry.encode().unwrap(),
        ..step(entry.kind(), &json!({}))
    });
    let expected = [
        prompt("do it"),
        note.clone(),
        phase.clone(),
        phase,
        note.clone(),
        note,
        prompt("do more"),
        prompt("do it"),
    ];
    assert_eq!(decode_all(&steps).unwrap(), expected);
}
