//! Webhooks: each change of the state that a forge sends an event for becomes a delivery, whoever made the change.
//!
//! What changed is found where the lock of the state is released, so that no way to change something can be forgotten: see
//! [`changes`]. The bodies are made in that moment, by [`github`] and [`gitlab`], and are sent in order by one task for each
//! hook ([`sender`]), for which no request waits. A delivery that fails is kept, and not tried again, as on both forges.
//! Two changes of one item under one lock that cancel each other out are none.

mod changes;
mod github;
mod gitlab;
mod sender;

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::state::State;
use super::{Forge, HUMAN, Inner};
use changes::Snapshot;

/// Failures in a row after which GitLab disables a hook for a minute.
const MOST_FAILURES: u32 = 4;

/// A webhook of all repositories, subscribed to what the documentation asks for.
#[derive(Debug, Clone)]
pub struct Hook {
    url: String,
    of: HookOf,
}

#[derive(Debug, Clone)]
enum HookOf {
    GitHub {
        secret: String,
        is_form: bool,
    },
    GitLab {
        /// Sent in clear.
        secret: Option<String>,
        /// `whsec_…`.
        signing: Option<String>,
    },
}

impl Hook {
    /// One of GitHub, which signs with `secret`.
    pub fn github(url: &str, secret: &str) -> Self {
        let secret = secret.to_owned();
        Self {
            url: url.to_owned(),
            of: HookOf::GitHub {
                secret,
                is_form: false,
            },
        }
    }

    /// The same, with the content type that GitHub's form for a new webhook proposes.
    pub fn github_form(url: &str, secret: &str) -> Self {
        let secret = secret.to_owned();
        Self {
            url: url.to_owned(),
            of: HookOf::GitHub {
                secret,
                is_form: true,
            },
        }
    }

    /// One of GitLab, with a secret token.
    pub fn gitlab(url: &str, secret: &str) -> Self {
        Self {
            url: url.to_owned(),
            of: HookOf::GitLab {
                secret: Some(secret.to_owned()),
                signing: None,
            },
        }
    }

    /// One of GitLab, with a signing token (`whsec_` and the key in base64).
    pub fn gitlab_signed(url: &str, signing: &str) -> Self {
        Self {
            url: url.to_owned(),
            of: HookOf::GitLab {
                secret: None,
                signing: Some(signing.to_owned()),
            },
        }
    }
}

/// What became of one attempt to send a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The status of the answer.
    Answered(u16),
    /// There was none.
    Failed(String),
    /// GitLab had disabled the hook after failures.
    Disabled,
}

impl Sent {
    fn is_success(&self) -> bool {
        matches!(self, Self::Answered(200..300))
    }
}

/// One event, as it was or will be sent to a hook.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `X-GitHub-Delivery`, or `Idempotency-Key`: another attempt has the same.
    pub id: String,
    /// `issues`, or `Issue Hook`.
    pub event: String,
    /// The JSON, also where it is sent in a form.
    pub body: Value,
    /// The headers of the newest attempt.
    pub headers: Vec<(String, String)>,
    /// The body of the newest attempt.
    pub text: String,
    /// The attempts, oldest first.
    pub attempts: Vec<Sent>,
    hook: usize,
    at: DateTime<Utc>,
    how: Sending,
    recursion: Option<String>,
}

impl Delivery {
    /// Whether an attempt was answered with success.
    pub fn arrived(&self) -> bool {
        self.attempts.iter().any(Sent::is_success)
    }
}

/// How the next deliveries are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sending {
    /// At once.
    #[default]
    Prompt,
    /// So long after the change.
    Late(Duration),
    /// Twice, the second time as somebody who asks for it again makes the forge do.
    Twice,
    /// Not before [`Forge::release_deliveries`].
    Held,
}

/// In which order held deliveries are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The newest first.
    Reversed,
    /// As it happened.
    Kept,
}

#[derive(Debug)]
struct Registered {
    hook: Hook,
    queue: UnboundedSender<usize>,
    failures: u32,
    disabled_until: Option<DateTime<Utc>>,
}

/// The hooks of a forge and their deliveries.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    registered: Vec<Registered>,
    before: Snapshot,
    deliveries: Vec<Delivery>,
    sending: Sending,
    held: Vec<usize>,
}

/// Who changes the state.
#[derive(Debug, Default)]
struct By {
    /// [`HUMAN`] if it is not known.
    login: Option<String>,
    /// The `X-Gitlab-Event-UUID` of the request, which GitLab gives to the deliveries that it causes.
    recursion: Option<String>,
}

/// The locked state. What changed under the lock is noted when it is released.
pub(super) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    inner: &'a Inner,
    by: By,
    is_touched: bool,
}

impl<'a> Locked<'a> {
    pub(super) fn new(inner: &'a Inner, state: MutexGuard<'a, State>) -> Self {
        Self {
            state,
            inner,
            by: By::default(),
            is_touched: false,
        }
    }

    /// What changes from here on is done by this account, in a request that a delivery may have caused.
    pub(super) fn by(mut self, login: &str, recursion: Option<&str>) -> Self {
        self.by = By {
            login: Some(login.to_owned()),
            recursion: recursion.map(str::to_owned),
        };
        self
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.is_touched = true;
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.is_touched && !self.state.hooks.registered.is_empty() {
            note(self.inner, &mut self.state, &self.by);
        }
    }
}

impl Inner {
    /// Notes what a person changed in git, which no lock guards.
    pub(super) fn note_git(&self) {
        self.note_push(HUMAN);
    }

    /// Notes what this account pushed.
    pub(super) fn note_push(&self, login: &str) {
        let mut state = self.lock().by(login, None);
        state.is_touched = true;
    }
}

/// Makes the deliveries for what is different from before.
fn note(inner: &Inner, state: &mut State, by: &By) {
    let before = std::mem::take(&mut state.hooks.before);
    let login = by.login.as_deref().unwrap_or(HUMAN);
    let (news, now) = before.news(&state.repos, login);
    state.hooks.before = now;
    if news.items.is_empty() && news.checks.is_empty() {
        return;
    }
    for (hook, registered) in state.hooks.registered.iter().enumerate() {
        let made = match registered.hook.of {
            HookOf::GitHub { .. } => github::bodies(inner, state, &news),
            HookOf::GitLab { .. } => gitlab::bodies(inner, state, &news),
        };
        let how = state.hooks.sending;
        let deliveries = made.into_iter().map(|(event, body)| Delivery {
            id: uuid::Uuid::new_v4().to_string(),
            event,
            body,
            headers: Vec::new(),
            text: String::new(),
            attempts: Vec::new(),
            hook,
            at: Utc::now(),
            how,
            recursion: by.recursion.clone(),
        });
        let deliveries: Vec<Delivery> = deliveries.collect();
        let from = state.hooks.deliveries.len();
        let numbers = from..from + deliveries.len();
        state.hooks.deliveries.extend(deliveries);
        match how {
            Sending::Held => state.hooks.held.extend(numbers),
            Sending::Prompt | Sending::Late(_) | Sending::Twice => numbers.for_each(|at| {
                // It fails when the forge ends.
                let _ = registered.queue.send(at);
            }),
        }
    }
    inner.changed.notify_waiters();
}

impl Hooks {
    /// Sends a delivery, perhaps again.
    fn queue(&self, at: usize) {
        let hook = self.deliveries.get(at).map(|it| it.hook);
        if let Some(registered) = hook.and_then(|hook| self.registered.get(hook)) {
            let _ = registered.queue.send(at);
        }
    }

    fn is_disabled(&self, hook: usize) -> bool {
        let until = self.registered.get(hook).and_then(|it| it.disabled_until);
        until.is_some_and(|until| until > Utc::now())
    }

    /// Keeps what became of an attempt.
    fn record(&mut self, at: usize, sent: Sent) {
        let Some(delivery) = self.deliveries.get_mut(at) else {
            return;
        };
        if let Some(registered) = self.registered.get_mut(delivery.hook)
            && sent != Sent::Disabled
        {
            registered.failures = match sent.is_success() {
                true => 0,
                false => registered.failures + 1,
            };
            let disables = matches!(registered.hook.of, HookOf::GitLab { .. });
            if disables && registered.failures >= MOST_FAILURES {
                registered.disabled_until = Some(Utc::now() + TimeDelta::minutes(1));
            }
        }
        delivery.attempts.push(sent);
    }
}

impl Forge {
    /// Registers a webhook: from now on each change is delivered to it.
    pub fn add_hook(&self, hook: Hook) {
        let (queue, deliveries) = unbounded_channel();
        let mut state = self.inner.lock();
        if state.hooks.registered.is_empty() {
            state.hooks.before = Snapshot::of(&state.repos);
        }
        let number = state.hooks.registered.len();
        state.hooks.registered.push(Registered {
            hook: hook.clone(),
            queue,
            failures: 0,
            disabled_until: None,
        });
        drop(state);
        let inner = Arc::downgrade(&self.inner);
        tokio::spawn(sender::run(inner, (number, hook), deliveries));
    }

    /// All deliveries, in the order in which things happened.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.inner.lock().hooks.deliveries.clone()
    }

    /// How the deliveries of later changes are sent.
    pub fn send_deliveries(&self, how: Sending) {
        self.inner.lock().hooks.sending = how;
    }

    /// Sends those that were held, and later ones at once.
    pub fn release_deliveries(&self, order: Order) {
        let mut state = self.inner.lock();
        state.hooks.sending = Sending::Prompt;
        let mut held = std::mem::take(&mut state.hooks.held);
        if order == Order::Reversed {
            held.reverse();
        }
        held.into_iter().for_each(|at| state.hooks.queue(at));
    }

    /// A person has a delivery sent again, by its id.
    pub fn redeliver(&self, id: &str) {
        let state = self.inner.lock();
        let at = state.hooks.deliveries.iter().position(|it| it.id == id);
        at.into_iter().for_each(|at| state.hooks.queue(at));
    }

    /// Waits until each delivery so far was sent, whatever became of it.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub async fn deliveries_sent(&self) {
        let minute = Duration::from_secs(60);
        let waits = self.wait_until("all deliveries were sent", minute, |forge| {
            let all = forge.deliveries();
            all.iter().all(|it| !it.attempts.is_empty())
        });
        waits.await;
    }
}
