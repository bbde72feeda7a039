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
    assert!(text.draft && text.body.contains("Partial result") && text.body.starts_with("For #1"));
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
        body.contains("Closes #7") && body.contains("\n## Heading"),
        "{body}"
    );
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
    let measured = body.find("### Measured").unwrap();
    assert!(measured < body.find("### Not done").unwrap());
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

#[test]
fn long_lists_in_a_pull_request_are_truncated_and_counted() {
    let files = (0..53).map(|n| ChangedFile {
        path: format!("f{n}"),
        added: Some(1),
        removed: Some(0),
    });
    let web = (0..52).map(|n| WebRequest {
        host: format!("h{n}:443"),
        count: 1,
        refused: None,
    });
    let outcome = RunOutcome {
        facts: Facts {
            files: files.collect(),
            web: web.collect(),
            ..good()
        },
        missing: None,
        last_message: "w".repeat(9_000),
        usage: Usage::default(),
        rounds: 1,
    };
    let text = pull_request(&"t".repeat(300), issue(7), "1", &outcome);
    assert_eq!(text.title.chars().count(), 201);
    assert!(!text.draft && text.body.starts_with("Closes #7"));
    assert!(text.body.contains("| … and 3 more"), "{}", text.body);
    assert!(text.body.contains("\n… and 2 more"), "{}", text.body);
    assert!(text.body.contains("No checks are known"));
    assert!(!text.body.contains("Changed files that control"));
    assert!(!text.body.contains(&"w".repeat(8_001)));
}

#[test]
fn lists_of_exactly_the_maximum_length_are_not_truncated() {
    let file = |n: u32| ChangedFile {
        path: format!("f{n}"),
        added: Some(1),
        removed: Some(0),
    };
    let web = |n: u32| WebRequest {
        host: format!("h{n}:443"),
        count: 1,
        refused: None,
    };
    let outcome = RunOutcome {
        facts: Facts {
            files: (0..50).map(file).collect(),
            web: (0..50).map(web).collect(),
            ..good()
        },
        missing: None,
        last_message: String::new(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    assert!(
        body.contains("`f49`") && body.contains("`h49:443`"),
        "{body}"
    );
    assert!(!body.contains(" more"), "{body}");
}
