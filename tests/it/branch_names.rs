//! Work branches that are named by a pattern (`agent.branch_pattern`), on both forges.

use agentmine_domain::{ItemKind, Task};
use agentmine_tests::forge::{DEMO, PullView};
use agentmine_tests::model::{Fault, Scenario, Script, commit_and_push, say, shell};

use crate::rig::{REQUEST, Rig, assert_done, solves_demo};

/// What the model is asked for the words of a branch with.
const QUESTION: &str = "<issue>";

/// The branch of the first issue by what [`names`] answers.
const NAMED: &str = "fix/agentmine-bot-1-greet-by-name";

fn names(answer: &str) -> Script {
    Script::new()
        .scenario(Scenario::new("names").when(QUESTION).replies([say(answer)]))
        .scenario(
            Scenario::new("round")
                .when("this is round 1 on it")
                .replies([
                    shell("echo '# more' >> greet.sh"),
                    commit_and_push("Say more"),
                    say("I did it."),
                ]),
        )
        .scenario(solves_demo())
}

fn by_pattern(mut rig: Rig) -> Rig {
    rig.config["agent"]["branch_pattern"] = "{type}/{bot}-{number}-{description}".into();
    rig.config["rounds"]["settle_seconds"] = 0.into();
    rig
}

fn only_pull(rig: &Rig) -> PullView {
    let mut pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    pulls.remove(0)
}

/// How often the model was asked for words.
fn questions(rig: &Rig) -> usize {
    let asked = |it: &Option<String>| it.as_deref() == Some("names");
    let requests = rig.model.requests();
    requests.iter().filter(|it| asked(&it.scenario)).count()
}

async fn task_of(rig: &Rig, kind: ItemKind) -> Task {
    let mut tasks = rig.tasks().await;
    tasks.retain(|task| task.item.kind == kind);
    assert_eq!(tasks.len(), 1, "{tasks:#?}");
    tasks.remove(0)
}

async fn work_goes_to_the_named_branch(rig: Rig) {
    let rig = by_pattern(rig);
    let issue = rig.produce_issue().await;
    assert_eq!(issue, 1);
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(task.branch(), NAMED);
    let pull = only_pull(&rig);
    assert_eq!((pull.head.as_str(), pull.base.as_str()), (NAMED, "main"));
    assert_eq!(rig.forge.branches(DEMO), [NAMED, "main"]);
    assert_eq!(questions(&rig), 1);
    let calls = rig.sessions().await[0].usage.model_calls as usize;
    assert_eq!(calls, rig.model.requests().len(), "the name costs a call");
    let why = rig.agentmine(&["task", "show", "1", "--json"], 0).0;
    assert!(why.contains(NAMED), "{why}");

    // A round continues with it, and is not named again.
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Say more.");
    rig.produce().await;
    rig.consume().await;
    assert_done(&task_of(&rig, ItemKind::PullRequest).await);
    let head = rig.forge.branch_sha(DEMO, NAMED).unwrap();
    assert_ne!(head, pull.head_sha);
    assert_eq!(only_pull(&rig).head, NAMED);
    assert_eq!(questions(&rig), 1);

    // Its branch is found and removed once it is merged.
    rig.forge.merge(DEMO, pull.number);
    rig.produce().await;
    assert_eq!(rig.forge.branches(DEMO), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_to_the_branch_that_the_pattern_names_on_github() {
    let rig = Rig::local(names("fix/greet-by-name")).await;
    work_goes_to_the_named_branch(rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_to_the_branch_that_the_pattern_names_on_gitlab() {
    let rig = Rig::local_gitlab(names("fix/greet-by-name")).await;
    work_goes_to_the_named_branch(rig).await;
}

async fn killed_anywhere_it_is_one_branch(rig: Rig) {
    let mut rig = by_pattern(rig);
    rig.config["consumer"]["max_attempts"] = 30.into();
    rig.produce_issue().await;
    rig.killed_at(
        "consumer",
        &[
            "store.name_branch.before",
            "store.name_branch.after",
            "gateway.push.before",
            "gateway.push.after",
            "tracker.pull_request_create.before",
            "tracker.pull_request_create.after",
        ],
    )
    .await;
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_done(&task);
    assert_eq!(only_pull(&rig).head, NAMED);
    assert_eq!(rig.forge.branches(DEMO), [NAMED, "main"]);
    assert_eq!(questions(&rig), 2, "what was recorded is not asked for");
}

#[tokio::test]
async fn killed_anywhere_a_task_has_one_named_branch_on_github() {
    killed_anywhere_it_is_one_branch(Rig::local(names("fix/greet-by-name")).await).await;
}

#[tokio::test]
async fn killed_anywhere_a_task_has_one_named_branch_on_gitlab() {
    killed_anywhere_it_is_one_branch(Rig::local_gitlab(names("fix/greet-by-name")).await).await;
}

async fn without_an_answer_labels_and_title_name_it(rig: Rig) {
    let rig = by_pattern(rig);
    let labels = [REQUEST, "kind/bug"];
    let title = "greet.sh greets nobody";
    rig.forge.add_issue(DEMO, title, "It should.", &labels);
    rig.forge
        .add_issue(DEMO, "挨拶が動かない", "It should.", &[REQUEST]);
    rig.produce().await;
    rig.consume().await;
    let mut tasks = rig.tasks().await;
    tasks.sort_by_key(|task| task.item.number);
    let [first, second] = tasks.as_slice() else {
        panic!("{tasks:#?}");
    };
    assert_eq!(first.branch(), "fix/agentmine-bot-1-greet-sh-greets-nobody");
    assert_eq!(second.branch(), "task/agentmine-bot-2");
    tasks.iter().for_each(assert_done);
    let mut heads: Vec<String> = rig
        .forge
        .pulls(DEMO)
        .into_iter()
        .map(|it| it.head)
        .collect();
    heads.sort();
    assert_eq!(heads, [first.branch(), second.branch()]);
}

#[tokio::test]
async fn an_answer_that_is_no_name_leaves_labels_and_title_to_name_the_branch_on_github() {
    let rubbish = "hotfix/../../main --force\n`refs/heads/main`\nmain";
    without_an_answer_labels_and_title_name_it(Rig::local(names(rubbish)).await).await;
}

#[tokio::test]
async fn an_answer_that_is_no_name_leaves_labels_and_title_to_name_the_branch_on_gitlab() {
    let rubbish = "hotfix/../../main --force\n`refs/heads/main`\nmain";
    without_an_answer_labels_and_title_name_it(Rig::local_gitlab(names(rubbish)).await).await;
}

/// A model that refuses the question does the work all the same.
#[tokio::test]
async fn a_refused_question_leaves_labels_and_title_to_name_the_branch() {
    let refused = say("").with_fault(Fault::Status(400, None));
    let script = Script::new()
        .scenario(Scenario::new("names").when(QUESTION).replies([refused]))
        .scenario(solves_demo());
    without_an_answer_labels_and_title_name_it(Rig::local(script).await).await;
}

async fn a_name_that_exists_gets_a_number(rig: Rig) {
    let mut rig = by_pattern(rig);
    rig.forge.commit(DEMO, NAMED, "main", |dir| {
        std::fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    });
    let theirs = rig.forge.branch_sha(DEMO, NAMED);
    let issue = rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    let pull = only_pull(&rig);
    assert_eq!(pull.head, format!("{NAMED}-2"));
    assert_eq!(rig.forge.branch_sha(DEMO, NAMED), theirs);

    // A later task of the same issue is not taken for the one whose pull request was closed.
    rig.config["rounds"]["remove_branch"] = "closed".into();
    rig.forge.close(DEMO, pull.number);
    rig.produce().await;
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
    rig.forge.add_label(DEMO, issue, REQUEST);
    rig.produce().await;
    rig.consume().await;
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    tasks.iter().for_each(assert_done);
    let pulls = rig.forge.pulls(DEMO);
    let open: Vec<&str> = pulls
        .iter()
        .filter(|it| it.open)
        .map(|it| it.head.as_str())
        .collect();
    assert_eq!(open, [format!("{NAMED}-3")]);
}

#[tokio::test]
async fn a_branch_name_that_exists_gets_a_number_on_github() {
    a_name_that_exists_gets_a_number(Rig::local(names("fix/greet-by-name")).await).await;
}

#[tokio::test]
async fn a_branch_name_that_exists_gets_a_number_on_gitlab() {
    a_name_that_exists_gets_a_number(Rig::local_gitlab(names("fix/greet-by-name")).await).await;
}

/// Git has no branch below another one.
#[tokio::test]
async fn a_branch_in_the_way_leaves_the_name_of_the_task() {
    let rig = by_pattern(Rig::local(names("fix/greet-by-name")).await);
    rig.forge.commit(DEMO, "fix", "main", |dir| {
        std::fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    });
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(task.branch(), task.branch_of_id());
    assert_eq!(only_pull(&rig).head, task.branch_of_id());
    assert!(
        rig.transcript(&task)
            .await
            .contains("there is a branch `fix`")
    );
}

/// What pushed without a pattern continues where it pushed.
#[tokio::test]
async fn a_task_that_began_before_there_was_a_pattern_keeps_its_branch() {
    let mut rig = Rig::local(names("fix/greet-by-name")).await;
    rig.config["consumer"]["max_attempts"] = 30.into();
    rig.produce_issue().await;
    let kill = "gateway.push.after=kill";
    let (status, log) = rig.spawn_failing("consumer", kill).end().await;
    assert!(!status.success(), "{log}");
    let rig = by_pattern(rig);
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_done(&task);
    assert_eq!(only_pull(&rig).head, task.branch_of_id());
    assert_eq!(questions(&rig), 0);
}

async fn a_draft_is_opened_from_the_named_branch(rig: Rig) {
    let mut rig = by_pattern(rig);
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    rig.config["consumer"]["max_attempts"] = 30.into();
    rig.produce_issue().await;
    let kill = "tracker.pull_request_create.after=kill";
    let (status, log) = rig.spawn_failing("consumer", kill).end().await;
    assert!(!status.success(), "{log}");
    let draft = only_pull(&rig);
    assert_eq!((draft.head.as_str(), draft.draft), (NAMED, true));
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_done(&task);
    let pull = only_pull(&rig);
    assert_eq!((pull.head.as_str(), pull.draft), (NAMED, false));
    assert_eq!(pull.number, draft.number);
    assert_eq!(rig.forge.branches(DEMO), [NAMED, "main"]);
}

#[tokio::test]
async fn a_draft_is_opened_from_the_named_branch_on_github() {
    a_draft_is_opened_from_the_named_branch(Rig::local(names("fix/greet-by-name")).await).await;
}

#[tokio::test]
async fn a_draft_is_opened_from_the_named_branch_on_gitlab() {
    a_draft_is_opened_from_the_named_branch(Rig::local_gitlab(names("fix/greet-by-name")).await)
        .await;
}
