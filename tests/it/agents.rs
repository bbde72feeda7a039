//! The fleet's own loop works as the agent of a task says: the operator's file, narrowed by the repository's.

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_store::{Edited, TaskEdit};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, commit_and_push, edit_view, say, shell};
use serde_json::Value;

use crate::rig::{Rig, assert_done};

const FIX_GREETING: &str = r#"sed -i 's/name=""/name="${1:-world}"/' greet.sh"#;

impl Rig {
    /// Writes the operator's file of an agent.
    fn operator_agent(&mut self, name: &str, text: &str) {
        let folder = self.folder.path().join("agents");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
        self.config["agent"]["folder"] = folder.display().to_string().into();
    }

    /// Commits the repository's own file of an agent.
    fn repository_agent(&self, name: &str, text: &str) {
        self.forge.commit(DEMO, "main", "main", |dir| {
            let folder = dir.join(".agentmine/agents");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
        });
    }

    /// A task of the sample issue that names this agent.
    async fn task_of(&self, agent: &str) {
        self.produce_issue().await;
        let edit = TaskEdit {
            agent: Some(Some(agent.to_owned())),
            ..TaskEdit::default()
        };
        let edited = self.store.edit_task(self.task().await.id, &edit).await;
        assert!(matches!(edited.unwrap(), Edited::Done(_)));
    }

    /// The bodies of the requests to the model.
    fn bodies(&self) -> Vec<Value> {
        self.model
            .requests()
            .into_iter()
            .map(|it| it.body)
            .collect()
    }
}

fn tools(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect()
}

fn reason(task: &Task) -> &str {
    task.reason.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn the_loop_obeys_the_agent_and_the_repository_only_narrows_it() {
    let script = Scenario::new("uses the shell").replies([
        edit_view("greet.sh"),
        shell(FIX_GREETING),
        commit_and_push("Greet the person named"),
        say("It greets."),
    ]);
    let mut rig = Rig::local(script).await;
    rig.operator_agent(
        "fix",
        "description: Fixes\nmodel: special\nsystem_prompt: WORDS-OF-THE-OPERATOR\n\
         tools: {denied: [text_editor]}\nlimits: {max_steps: 20}\n\
         definition_of_done: [{name: ada, command: 'sh greet.sh Ada | grep Ada', timeout_seconds: 60}]\n",
    );
    rig.repository_agent(
        "fix",
        "description: Ours\nmodel: dear\nsystem_prompt: WORDS-OF-THE-REPOSITORY\ntools: {allowed: ['*']}\n\
         environment: {image: 'evil:latest'}\nlimits: {max_steps: 9999}\n\
         definition_of_done:\n  - {name: ada, command: 'true'}\n  - {name: there, command: 'test -f greet.sh'}\n",
    );
    rig.task_of("fix").await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);

    let bodies = rig.bodies();
    assert!(bodies.iter().all(|body| body["model"] == "special"));
    let (system, user) = (
        bodies[0]["messages"][0]["content"].to_string(),
        bodies[0]["messages"][1]["content"].to_string(),
    );
    assert!(system.contains("WORDS-OF-THE-OPERATOR"), "{system}");
    assert!(!system.contains("WORDS-OF-THE-REPOSITORY"), "{system}");
    assert!(user.contains("> WORDS-OF-THE-REPOSITORY"), "{user}");
    assert!(!system.contains("text_editor"), "{system}");
    for body in &bodies {
        let offered = tools(body);
        let editor = offered.iter().any(|name| name.contains("text_editor"));
        assert!(!editor && !offered.is_empty(), "{offered:?}");
    }
    // A call of the denied tool is answered like one of an unknown tool.
    let (_, refused) = &rig.results(&task).await[0];
    assert!(refused.is_error, "{refused:?}");

    let transcript = rig.transcript(&task).await;
    for part in [
        "sh greet.sh Ada | grep Ada",
        "test -f greet.sh",
        "sh test.sh",
        "the operator's file, narrowed by the repository's",
        "model \\\"dear\\\"",
        "evil:latest",
    ] {
        assert!(transcript.contains(part), "no {part}: {transcript}");
    }
    let sessions = rig.sessions().await;
    assert_eq!(sessions[0].model.as_deref(), Some("special"));
}

#[tokio::test]
async fn a_repository_lowers_the_limits_and_adds_checks_that_count() {
    let script = Scenario::new("continues").replies([
        shell(FIX_GREETING),
        commit_and_push("Greet the person named"),
        say("It greets."),
        say("I cannot do more."),
    ]);
    let mut rig = Rig::local(script).await;
    rig.config["agent"]["max_rounds"] = 3.into();
    rig.repository_agent(
        "strict",
        "description: Strict\nlimits: {max_rounds: 1}\n\
         definition_of_done: [{name: never, command: 'exit 7'}]\n",
    );
    rig.task_of("strict").await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let missing = task.missing().unwrap_or_default();
    assert!(missing.contains("exit 7"), "{:?}", task.reason);
    assert_eq!(rig.bodies().len(), 3, "one round");
}

#[tokio::test]
async fn a_task_whose_agent_cannot_run_fails_with_what_was_expected() {
    let mut rig = Rig::local(Scenario::new("nothing")).await;
    rig.operator_agent("other", "description: Another\nclient: codex\n");
    rig.task_of("nobody").await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed));
    assert!(
        reason(&task).contains("there is no agent \"nobody\": expected nobody.yaml"),
        "{:?}",
        task.reason
    );
    assert!(rig.bodies().is_empty());
}
