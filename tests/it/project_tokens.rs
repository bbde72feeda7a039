//! GitLab's access tokens of projects and groups: each has an account of its own, which is the fleet.

use agentmine_tests::forge::{DEMO, HUMAN};

use crate::item_faults::end;
use crate::rig::{REQUEST, Rig, assert_done, codes};
use crate::rounds::{counted, rounds, script};

/// What the account writes without a marker: no person requested it.
const ITSELF: &str = "print the canary of ourselves";

/// The token's account is the bot: it works on an issue, hears neither itself nor its own labels, and hears people.
async fn is_known_as_us(login: &str) {
    let mut rig = Rig::local_gitlab(script()).await;
    // Another account for the same token.
    rig.forge.add_account(rig.forge.token(), login, true);
    let held = rig.forge.add_issue(DEMO, "held", "text", &[]);
    rig.forge.add_label_as(DEMO, held, REQUEST, login);
    let number = rig.produce_issue().await;
    assert_eq!(rig.tasks().await.len(), 1, "its own label starts nothing");
    let why = rig.why(&format!("{DEMO}#{held}"), 0);
    assert!(codes(&why).contains(&"not_allowed"), "{why:#}");

    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.say(DEMO, number, login, ITSELF);
    rig.forge.say(DEMO, number, login, "/agentmine stop");
    rig.produce().await;
    rig.model.release();
    let task = rig.wait_ended(1).await.remove(0);
    end(consumer).await;
    assert_done(&task);
    assert_eq!(rig.forge.reactions(), []);
    let transcript = rig.transcript(&task).await;
    assert!(!transcript.contains(ITSELF), "{transcript}");
    let comments = rig.forge.comments(DEMO, number).into_iter();
    let marked = comments.filter(|it| it.author == login && it.body.contains(":progress -->"));
    assert_eq!(marked.count(), 1);
    let pull = rig.forge.pulls(DEMO).remove(0);
    assert_eq!(pull.author, login);

    // What it writes on its own merge request begins no round. A person who names it does.
    rig.config["rounds"]["settle_seconds"] = 0.into();
    let mention = format!("@{login} rename it");
    rig.forge.say(DEMO, pull.number, login, &mention);
    rig.forge
        .add_review_as(DEMO, pull.number, login, "CHANGES_REQUESTED", "No.");
    rig.produce().await;
    rig.produce().await;
    assert!(rounds(&rig).await.is_empty());
    rig.forge.say(DEMO, pull.number, HUMAN, &mention);
    counted(&mut rig, "begun", "requests").await;
    rig.consume().await;
    assert_done(&rounds(&rig).await[0]);
}

#[tokio::test]
async fn the_account_of_a_project_access_token_is_the_bot() {
    is_known_as_us("project_123_bot_4ffca233d8298ea1").await;
}

#[tokio::test]
async fn the_account_of_a_group_access_token_is_the_bot() {
    is_known_as_us("group_109_bot_9f2b1c").await;
}
