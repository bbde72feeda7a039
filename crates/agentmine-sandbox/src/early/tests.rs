//! A sandbox that starts early, on an engine that only counts.

use std::sync::atomic::{AtomicBool, Ordering};

use agentmine_domain::{Epoch, TaskId};

use super::*;
use crate::pool::tests::Engine;

const IMAGE: &str = "base";
const MINUTE: Duration = Duration::from_secs(60);

/// How many were assigned, newly started and removed.
type Counts = (usize, usize, usize);

fn begin(engine: Engine) -> (Arc<Engine>, EarlySandbox) {
    let engine = Arc::new(engine);
    let early = EarlySandbox::begin(Arc::new(Arc::clone(&engine)), IMAGE.into(), None);
    (engine, early)
}

fn spec(image: Option<&str>, role: SandboxRole) -> SandboxSpec {
    SandboxSpec {
        task: TaskId::new(),
        epoch: Epoch(1),
        role,
        image: image.map(str::to_owned),
        template: None,
    }
}

async fn counts(engine: &Engine) -> Counts {
    // What runs in the background ends within this.
    tokio::time::sleep(2 * MINUTE).await;
    (
        engine.assigned.lock().unwrap().len(),
        engine.new.load(Ordering::SeqCst),
        engine.removed.load(Ordering::SeqCst),
    )
}

/// What becomes of the sandboxes of a session that takes one of these.
async fn taken(engine: Engine, image: Option<&str>, role: SandboxRole) -> Counts {
    let (engine, early) = begin(engine);
    let sandbox = early.take_or_start(&engine, &spec(image, role)).await;
    sandbox.unwrap();
    assert!(early.give_up(MINUTE).await.is_none());
    counts(&engine).await
}

#[tokio::test(start_paused = true)]
async fn the_task_takes_it_even_while_it_starts() {
    for image in [None, Some(IMAGE)] {
        let slow = Engine {
            takes: MINUTE,
            ..Engine::default()
        };
        assert_eq!(taken(slow, image, SandboxRole::Main).await, (1, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_removed_and_another_one_is_started() {
    let other = Some("another");
    assert_eq!(
        taken(Engine::default(), other, SandboxRole::Main).await,
        (0, 1, 1)
    );
    assert_eq!(
        taken(Engine::default(), None, SandboxRole::Verify).await,
        (0, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn what_failed_to_start_or_ended_or_cannot_be_assigned_is_replaced() {
    let failed = Engine {
        is_away: AtomicBool::new(true),
        ..Engine::default()
    };
    assert_eq!(taken(failed, None, SandboxRole::Main).await, (0, 1, 0));
    let ended = Engine {
        ends: true,
        ..Engine::default()
    };
    assert_eq!(taken(ended, None, SandboxRole::Main).await, (0, 1, 1));
    let refuses = Engine {
        refuses: AtomicBool::new(true),
        ..Engine::default()
    };
    assert_eq!(taken(refuses, None, SandboxRole::Main).await, (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_took_is_given_up_or_removed_once_it_has_started() {
    let (engine, early) = begin(Engine::default());
    assert!(early.give_up(MINUTE).await.is_some());
    assert_eq!(counts(&engine).await, (0, 0, 0));
    let (engine, early) = begin(Engine {
        takes: 2 * MINUTE,
        ..Engine::default()
    });
    assert!(early.give_up(MINUTE).await.is_none());
    assert_eq!(counts(&engine).await, (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_needs_none_starts_none() {
    let engine = Arc::new(Engine::default());
    let early = EarlySandbox::none();
    assert!(early.give_up(MINUTE).await.is_none());
    early
        .take_or_start(&engine, &spec(None, SandboxRole::Main))
        .await
        .unwrap();
    assert_eq!(counts(&engine).await, (0, 1, 0));
}
