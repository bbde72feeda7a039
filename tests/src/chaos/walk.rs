//! The walk: a process is killed at every failpoint, each in turn, while the fleet works.
//!
//! Each start of a program carries some of the failpoints that have not killed yet, each of them once for all
//! processes. What ordinary work does not pass is provoked: people pause and relabel, a message is not a wake-up,
//! a comment has a twin, the row of a message cannot be read.

use std::time::{Duration, Instant};

use agentmine_runtime::failpoint::BOUNDARIES;
use agentmine_trackers::FLEET_MARKER;

use super::fault::Act;
use super::fleet::{Services, Setup, StoreKind};
use super::people::{self, Later};
use super::plan::Outcome;
use super::run::Run;
use crate::forge::{BOT, DEMO};
use crate::random::Random;

/// Failpoints that a start carries.
const AT_ONCE: usize = 5;
/// From here on each start carries all that are left.
const FEW: usize = 25;
/// When all programs start again if none was killed at a new place.
const RENEW: Duration = Duration::from_secs(25);
/// A new issue, or another provocation, this often.
const EVERY: Duration = Duration::from_millis(700);

/// Boundaries that no producer or consumer of this fleet passes, and why.
pub(super) fn out_of_reach(boundary: &str, store: StoreKind) -> Option<&'static str> {
    match boundary {
        "store.enqueue" => Some("the suite's repository has limits, so its tasks wait at first"),
        "store.hold_task" => Some("no item of the suite waits for another one"),
        "store.prioritize" => Some("no label of the suite's items is that of a priority"),
        "store.begin_round"
        | "store.round_result"
        | "store.unwatch_pull"
        | "tracker.branch_remove"
        | "tracker.thread_reply"
        | "tracker.thread_resolve" => {
            Some("nobody reviews or closes a pull request of the walk; `rounds` kills it there")
        }
        "tracker.pull_request_ready" => {
            Some("this fleet opens no draft before the work; `conversion` kills it there")
        }
        "store.name_branch" => {
            Some("this fleet has no pattern for branches; `branch_names` kills it there")
        }
        "store.skip_delay" => Some("only commands of `agentmine` pass it"),
        "store.obey" | "tracker.reaction_create" => {
            Some("nobody of the walk writes a command; `commands` kills it there")
        }
        "store.claim_dashboard"
        | "store.begin_dashboard_text"
        | "store.found_dashboard"
        | "store.dashboard_shows"
        | "store.note_on_dashboard"
        | "store.release_dashboard"
        | "store.admit_at_once"
        | "tracker.issue_create"
        | "tracker.issue_edit" => {
            Some("this fleet keeps no dashboard; `dashboard_issue` kills it there")
        }
        "store.found_result" => Some(
            "a task fails with an unsure pull request only after days of outages; `ends` kills it there",
        ),
        "store.hold_request" => {
            Some("everybody of this fleet may start work; `who` kills it there")
        }
        "store.add_memory" => {
            Some("the model of this fleet proposes no record; `memory` kills it there")
        }
        "store.fail_queued" => Some(
            "no queued task has run out of attempts, since a claim or the sweep fails it first",
        ),
        name if name.starts_with("queue.") && store == StoreKind::Sqlite => {
            Some("the queue is in the process")
        }
        _ => None,
    }
}

/// The failpoints, `NAME.EDGE`, at which a process can be killed.
fn targets(setup: &Setup) -> Vec<String> {
    let within = BOUNDARIES
        .iter()
        .filter(|name| out_of_reach(name, setup.store).is_none());
    within
        .flat_map(|name| [format!("{name}.before"), format!("{name}.after")])
        .collect()
}

/// Kills a process at every failpoint, within `limit`.
///
/// # Errors
/// If the suite itself cannot do its work.
pub async fn walk(
    setup: &Setup,
    services: &mut Services,
    seed: u64,
    limit: Duration,
) -> anyhow::Result<Outcome> {
    let mut run = Run::new(setup, services, seed).await?;
    let mut random = Random::new(seed);
    let all = targets(setup);
    let begun = Instant::now();
    let mut next = Instant::now();
    let mut renew = Instant::now() + RENEW;
    let mut fewest = all.len();
    let mut turn = 0;
    loop {
        let left = left(&run, &all);
        if left.is_empty() || begun.elapsed() > limit {
            break;
        }
        if left.len() < fewest {
            fewest = left.len();
            renew = Instant::now() + RENEW;
        }
        // Programs that their own failpoints spare start again with others.
        if Instant::now() >= renew {
            renew = Instant::now() + RENEW;
            for program in &run.fleet.programs {
                program.kill();
            }
        }
        for program in &mut run.fleet.programs {
            if program.pid().is_none() && program.plans.is_empty() {
                program.plans.push_back(plan(&left, &mut random));
            }
        }
        if Instant::now() >= next {
            next = Instant::now() + EVERY;
            provoke(&mut run, turn, &left).await;
            turn += 1;
        }
        run.tick().await?;
    }
    let missed = left(&run, &all);
    let mut outcome = run.finish().await?;
    outcome.missed = missed;
    Ok(outcome)
}

fn left(run: &Run<'_>, all: &[String]) -> Vec<String> {
    let folder = run.fleet.points();
    let is_open = |point: &&String| !folder.join(format!("once.{point}.kill")).exists();
    all.iter().filter(is_open).cloned().collect()
}

fn plan(left: &[String], random: &mut Random) -> String {
    let mut chosen: Vec<&String> = Vec::new();
    for _ in 0..AT_ONCE {
        chosen.extend(random.pick(left));
    }
    if left.len() <= FEW {
        chosen = left.iter().collect();
    }
    let mut plan: Vec<String> = chosen
        .iter()
        .map(|point| format!("{point}=kill!"))
        .collect();
    if chosen
        .iter()
        .any(|point| point.starts_with("queue.retry_later"))
    {
        // A message whose row cannot be claimed goes to the retry ladder.
        plan.push("store.claim.before=unknown*3".to_owned());
    }
    if chosen
        .iter()
        .any(|point| point.starts_with("tracker.pull_request_update"))
    {
        // The next attempt finds the pull request, and does not know that its text is right.
        // Its own kill, which comes later in the list, takes precedence.
        plan.insert(0, "tracker.pull_request_create.after=unknown".to_owned());
    }
    plan.join(",")
}

/// Makes the fleet pass what it would not pass by itself.
async fn provoke(run: &mut Run<'_>, turn: usize, left: &[String]) {
    let wanted = |name: &str| left.iter().find(|point| point.starts_with(name));
    // Enough work for everybody, and not more than can be finished.
    if run.open_tasks().await < 8 {
        run.open_issue();
    }
    let newest = run.issues.last().copied();
    let (Some(issue), Some(task)) = (newest, run.running_task().await) else {
        return;
    };
    let number = run.fleet.number(&task);
    match turn % 6 {
        0 if wanted("queue.dead_letter").is_some() => {
            let _ = run.foreign_message().await;
        }
        1 if wanted("tracker.comment_delete").is_some() => {
            let twin = format!("A twin.\n\n<!-- {FLEET_MARKER}{}:progress -->", task.id);
            run.fleet.forge.add_comment(DEMO, number, BOT, &twin);
        }
        2 if wanted("store.answer_request").is_some() => {
            run.act(number, Act::PauseAndRelabel).await;
        }
        3 => {
            // The first command is killed; the second one does it.
            for (verb, name) in [
                ("pause", "store.request_pause"),
                ("resume", "store.resume"),
                ("stop", "store.request_stop"),
            ] {
                if let Some(point) = wanted(name) {
                    let plan = format!("{point}=kill!");
                    let id = task.id.to_string();
                    people::command_line(&run.fleet, &[verb, &id], &plan).await;
                    match verb {
                        "pause" => run.later.push(Later::Resume(number)),
                        "stop" => run.acts.entry(number).or_default().push(Act::Stop),
                        _ => {}
                    }
                    return;
                }
            }
        }
        4 if wanted("store.request_stop").is_some() => {
            run.act(issue, Act::CloseIssue).await;
        }
        _ => {}
    }
}
