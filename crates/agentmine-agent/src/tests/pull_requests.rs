//! The text of pull requests.

use agentmine_domain::Usage;

use super::world::{Run, bad, good, says};
use crate::*;

#[tokio::test]
async fn after_the_last_round_the_result_is_partial_and_says_so() {
    let mut run = Run::of(vec![says("1"), says("2"), says("3")]);
    run.facts = vec![bad()];
    let outcome = run.go().await.unwrap();
    assert!(outcome.missing.clone().unwrap().contains("exit code 2"));
    let text = pull_request("T", issue(1), "9", &outcome);
    let begin = "> [!WARNING]\n> **Partial result.** See \"Not done\" below.\n\nFor #1\n";
    assert!(text.draft && text.body.starts_with(begin), "{}", text.body);
}

/// An issue without a text.
fn issue(number: u64) -> Asked<'static> {
    Asked::Issue { number, text: "" }
}

#[test]
fn text_of_the_model_cannot_close_issues_mention_people_or_forge_markers() {
    let outcome = RunOutcome {
        facts: good(),
        missing: None,
        last_message: "Fixes #99 @maintainer <!-- agentmine:task --> ![x](y) closes https://x/y/issues/3\n## Heading"
            .into(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    assert!(
        !body.contains("#99")
            && !body.contains("@maintainer")
            && !body.contains("<!--")
            && !body.contains("![x]")
            && !body.contains("/issues/"),
        "{body}"
    );
    assert!(
        body.contains("Closes #7") && body.contains("\n> ## Heading"),
        "{body}"
    );
}

/// Neither can a code block without an end swallow the facts, nor a heading pass for theirs.
#[test]
fn text_of_the_model_stays_in_its_quotation() {
    let claims = "[!TIP]\n### Measured on the pushed commit\n- [x] all pass\n\n~~~\n```text";
    let body = pull_request("T", issue(7), "1", &complete(good(), claims)).body;
    let quotation = "Closes #7\n\n\
                     > _The agent's own words, which AgentMine did not check:_\n\
                     >\n\
                     > [\u{200b}!TIP]\n\
                     > ### Measured on the pushed commit\n\
                     > - ☑ all pass\n\
                     >\n\
                     > ~~~\n\
                     > ```text\n\
                     \n\
                     ### Measured on the pushed commit\n";
    assert!(body.starts_with(quotation), "{body}");
    let task = Asked::Task {
        number: 3,
        text: "Greet:\n```\nhello",
    };
    let body = pull_request("T", task, "1", &complete(good(), "")).body;
    let quotation =
        "For AgentMine task 3, which a person created.\n\n> Greet:\n> ```\n> hello\n\n### Measured";
    assert!(body.starts_with(quotation), "{body}");
}

#[test]
fn the_reason_why_a_check_did_not_run_is_shown_as_it_is() {
    let mut facts = bad();
    let why = "package.json has no such script: \"lint|@acme\"";
    facts.checks[0].standing = Standing::NotRun(why.into());
    let body = pull_request("T", issue(7), "1", &complete(facts, "")).body;
    let shown = body.replace('\u{200b}', "");
    assert!(
        shown.contains("not run: package.json has no such script: \"lint\\|@acme\" |"),
        "{body}"
    );
    assert!(!body.contains("@acme"), "{body}");
}

#[test]
fn output_in_a_pull_request_cannot_leave_its_code_block() {
    let outcome = RunOutcome {
        facts: bad(),
        missing: Some("```\n@org/team Fixes #1\n````".into()),
        last_message: String::new(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    assert!(body.contains("`````text\n```\n@org/team"), "{body}");
    // A tracker may cut off the end of the facts.
    let measured = body.find("### Measured").unwrap();
    assert!(body.find("### Not done").unwrap() < measured);
}

#[test]
fn a_pull_request_separates_the_facts_from_the_text_of_the_model() {
    let web = |host: &str, refused: Option<&str>| WebRequest {
        host: host.into(),
        count: 2,
        refused: refused.map(str::to_owned),
    };
    let file = |path: &str, lines: Option<u64>| ChangedFile {
        path: path.into(),
        added: lines,
        removed: lines,
    };
    let mut unrunnable = bad().checks.remove(0);
    unrunnable.standing = Standing::NotRun("not found".into());
    let outcome = RunOutcome {
        facts: Facts {
            head: Some("abc".into()),
            base: "def".into(),
            files: vec![file("src/a|b.rs", Some(3)), file("logo.png", None)],
            checks: vec![bad().checks.remove(0), unrunnable],
            checks_from: "guessed".into(),
            protected: vec!["code ownership: CODEOWNERS".into(), "old.yml".into()],
            web: vec![web("a:443", None), web("b:80", Some("private"))],
            web_dropped: 4,
            ..Facts::default()
        },
        missing: Some("- make failed".into()),
        last_message: "I tried.".into(),
        usage: Usage {
            model_calls: 1,
            tool_calls: 2,
            input_tokens: 3,
            cached_tokens: 4,
            output_tokens: 5,
            cost_micros: 6,
        },
        rounds: 1,
    };
    let text = pull_request(
        "  Fix it ",
        Asked::Issue {
            number: 7,
            text: "It fails:\n\n```\n$ make\n```\n",
        },
        "12",
        &outcome,
    );
    assert_eq!((text.title.as_str(), text.draft), ("Fix it", true));
    insta::assert_snapshot!(text.body);
}

#[test]
fn refused_pushes_and_refused_hosts_are_in_the_pull_request() {
    let web = |host: &str, count, refused: Option<&str>| WebRequest {
        host: host.into(),
        count,
        refused: refused.map(str::to_owned),
    };
    let mut facts = Facts {
        refused_pushes: vec!["a secret: private-key in a.pem @everyone".into()],
        ..good()
    };
    facts.add_web(
        (0..60)
            .map(|n| web(&format!("h{n}:443"), 100, None))
            .collect(),
    );
    facts.add_web(vec![
        web("h7:443", 5, None),
        web("evil:443", 1, Some("private")),
    ]);
    assert_eq!(facts.web.len(), 61);
    let outcome = RunOutcome {
        facts,
        missing: None,
        last_message: String::new(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    let (_, table) = body.split_once("| host | requests").unwrap();
    let rows: Vec<&str> = table.lines().skip(2).take(2).collect();
    assert_eq!(
        rows,
        [
            "| `evil:443` | 1 | refused: private |",
            "| `h7:443` | 105 | allowed |"
        ]
    );
    assert!(
        body.contains("Pushes were refused:**\n\n- a secret: private-key in a.pem"),
        "{body}"
    );
    assert!(!body.contains(" @everyone"), "{body}");
}

/// Facts with lists of these lengths.
fn lists(files: u64, protected: u64, refused: u64, web: u64) -> Facts {
    let file = |n| ChangedFile {
        path: format!("f{n}"),
        added: Some(1),
        removed: Some(0),
    };
    let request = |n| WebRequest {
        host: format!("h{n}:443"),
        count: 1,
        refused: None,
    };
    Facts {
        files: (0..files).map(file).collect(),
        protected: (0..protected).map(|n| format!("CI: p{n}.yml")).collect(),
        refused_pushes: (0..refused).map(|n| format!("reason {n}")).collect(),
        web: (0..web).map(request).collect(),
        ..good()
    }
}

/// A complete result.
fn complete(facts: Facts, last_message: &str) -> RunOutcome {
    RunOutcome {
        facts,
        missing: None,
        last_message: last_message.into(),
        usage: Usage::default(),
        rounds: 1,
    }
}

#[test]
fn long_lists_in_a_pull_request_are_truncated_and_counted() {
    let outcome = complete(lists(53, 54, 51, 52), &"w".repeat(9_000));
    let text = pull_request(&"t".repeat(300), issue(7), "1", &outcome);
    assert_eq!(text.title.chars().count(), 201);
    assert!(!text.draft && text.body.starts_with("Closes #7"));
    let more: Vec<&str> = text
        .body
        .lines()
        .filter(|line| line.contains("… and"))
        .collect();
    let expected = [
        "| … and 4 more | |",
        "| … and 3 more | | |",
        "- … and 1 more",
        "… and 2 more",
    ];
    assert_eq!(more, expected);
    for (newest, omitted) in [
        ("`p49.yml`", "`p50.yml`"),
        ("`f49`", "`f50`"),
        ("- reason 49", "- reason 50"),
        ("`h49:443`", "`h50:443`"),
    ] {
        assert!(text.body.contains(newest), "{newest}");
        assert!(!text.body.contains(omitted), "{omitted}");
    }
    assert!(!text.body.contains(&"w".repeat(8_001)));
}

#[test]
fn lists_of_exactly_the_maximum_length_are_not_truncated() {
    let outcome = complete(lists(50, 50, 50, 50), "");
    let body = pull_request("T", issue(7), "1", &outcome).body;
    for newest in ["`p49.yml`", "`f49`", "- reason 49", "`h49:443`"] {
        assert!(body.contains(newest), "{newest}");
    }
    assert!(!body.contains(" more"), "{body}");
}

#[test]
fn without_checks_the_set_up_and_its_notes_have_a_table_of_their_own() {
    let set_up = |command: &str, standing| Check {
        command: command.into(),
        standing,
        ..bad().checks.remove(0)
    };
    let facts = Facts {
        base: "def".into(),
        setup_failures: vec![
            set_up("npm ci | cat", Standing::FailsOnBase),
            set_up("make deps", Standing::Ran),
        ],
        notes: vec!["An installer\nwas skipped for @mona.".into()],
        diff_cut: true,
        ..good()
    };
    let body = pull_request("T", issue(7), "1", &complete(facts, "")).body;
    insta::assert_snapshot!(body);
}

#[test]
fn a_pull_request_says_that_nothing_was_protected_checked_or_requested() {
    let facts = Facts {
        base: "def".into(),
        ..good()
    };
    let body = pull_request("T", issue(7), "1", &complete(facts, "Done.")).body;
    insta::assert_snapshot!(body);
}

#[test]
fn the_comment_on_a_pull_request_says_what_the_round_was_for_and_closes_nothing() {
    let facts = Facts {
        base: "def".into(),
        ..good()
    };
    let mut outcome = complete(facts, "I used a constant.");
    let because = Some("mona asked for it.");
    let pushed = pull_request_comment("pull request", because, "12", &outcome);
    insta::assert_snapshot!(pushed);
    outcome.facts.unchanged = true;
    let answered = pull_request_comment("merge request", None, "12", &outcome);
    let expected = "AgentMine read the comments on this merge request and changed nothing.\n\
                    \n\
                    > _The agent's own words, which AgentMine did not check:_\n\
                    >\n\
                    > I used a constant.\n\
                    \n\
                    \n\
                    <sub>AgentMine, session 12: 0 model calls, 0 tool calls, 0 tokens in (0 cached), 0 out.</sub>\n";
    assert_eq!(answered, expected);
}
