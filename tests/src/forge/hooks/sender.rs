//! Sends the deliveries of one hook in order, signed as the forge signs them.

use std::sync::Weak;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use ring::hmac;
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::Inner;
use super::{Delivery, Hook, HookOf, Sending, Sent};

/// After which both forges give up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends what comes through the queue until the forge is gone.
pub(super) async fn run(
    inner: Weak<Inner>,
    (number, hook): (usize, Hook),
    mut queue: UnboundedReceiver<usize>,
) {
    agentmine_runtime::tls::install_default_provider();
    let client = reqwest::Client::builder()
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client");
    while let Some(at) = queue.recv().await {
        let Some((delivery, is_disabled)) = taken(&inner, number, at) else {
            return;
        };
        let attempts = match delivery.how {
            Sending::Late(by) => {
                let passed = (Utc::now() - delivery.at).to_std().unwrap_or_default();
                tokio::time::sleep(by.saturating_sub(passed)).await;
                1
            }
            Sending::Twice => 2,
            Sending::Prompt | Sending::Held => 1,
        };
        for _ in 0..attempts {
            let (headers, text) = signed(&inner, number, &hook, &delivery);
            let sent = match is_disabled {
                true => Sent::Disabled,
                false => post(&client, &hook.url, &headers, &text).await,
            };
            let Some(inner) = inner.upgrade() else {
                return;
            };
            let mut state = inner.lock();
            if let Some(delivery) = state.hooks.deliveries.get_mut(at) {
                (delivery.headers, delivery.text) = (headers, text);
            }
            state.hooks.record(at, sent);
            drop(state);
            inner.changed.notify_waiters();
        }
    }
}

/// A delivery, and whether its hook is disabled; `None` if the forge is gone.
fn taken(inner: &Weak<Inner>, number: usize, at: usize) -> Option<(Delivery, bool)> {
    let inner = inner.upgrade()?;
    let state = inner.lock();
    let delivery = state.hooks.deliveries.get(at)?.clone();
    Some((delivery, state.hooks.is_disabled(number)))
}

async fn post(
    client: &reqwest::Client,
    url: &str,
    headers: &[(String, String)],
    text: &str,
) -> Sent {
    let mut request = client.post(url).body(text.to_owned());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match request.send().await {
        Ok(answer) => Sent::Answered(answer.status().as_u16()),
        Err(error) => Sent::Failed(error.without_url().to_string()),
    }
}

/// The headers and the body of an attempt.
fn signed(
    inner: &Weak<Inner>,
    number: usize,
    hook: &Hook,
    delivery: &Delivery,
) -> (Vec<(String, String)>, String) {
    let json = delivery.body.to_string();
    match &hook.of {
        HookOf::GitHub { secret, is_form } => {
            let text = match is_form {
                true => url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("payload", &json)
                    .finish(),
                false => json,
            };
            (of_github(number, delivery, (secret, *is_form), &text), text)
        }
        HookOf::GitLab { secret, signing } => {
            let instance = inner.upgrade().map(|inner| inner.html(""));
            let mut headers = of_gitlab(delivery, &instance.unwrap_or_default());
            if let Some(secret) = secret {
                headers.push(header("X-Gitlab-Token", secret));
            }
            if let Some(signing) = signing {
                headers.extend(standard(signing, &delivery.id, &json));
            }
            (headers, json)
        }
    }
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// GitHub's delivery headers (docs.github.com, webhooks, "Webhook events and payloads").
fn of_github(
    number: usize,
    delivery: &Delivery,
    (secret, is_form): (&str, bool),
    text: &str,
) -> Vec<(String, String)> {
    let sign = |algorithm| {
        let key = hmac::Key::new(algorithm, secret.as_bytes());
        hex(hmac::sign(&key, text.as_bytes()).as_ref())
    };
    let kind = match is_form {
        true => "application/x-www-form-urlencoded",
        false => "application/json",
    };
    let (old, new) = (
        sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        sign(hmac::HMAC_SHA256),
    );
    vec![
        header("Accept", "*/*"),
        header("Content-Type", kind),
        header("User-Agent", "GitHub-Hookshot/0000000"),
        header("X-GitHub-Delivery", &delivery.id),
        header("X-GitHub-Event", &delivery.event),
        header("X-GitHub-Hook-ID", &number.to_string()),
        header("X-Hub-Signature", &format!("sha1={old}")),
        header("X-Hub-Signature-256", &format!("sha256={new}")),
    ]
}

/// GitLab's delivery headers (`WebHookService#build_headers` of its source). `X-Gitlab-Event-UUID` is that of the request that
/// caused the event, if that request has one because a delivery caused it: several deliveries then have the same.
fn of_gitlab(delivery: &Delivery, instance: &str) -> Vec<(String, String)> {
    let new = || uuid::Uuid::new_v4().to_string();
    let recursion = delivery.recursion.clone();
    vec![
        header("Content-Type", "application/json"),
        header("User-Agent", "GitLab/19.0.0"),
        header("Idempotency-Key", &delivery.id),
        header("X-Gitlab-Event", &delivery.event),
        header("X-Gitlab-Webhook-UUID", &new()),
        header("X-Gitlab-Instance", instance.trim_end_matches('/')),
        header("X-Gitlab-Event-UUID", &recursion.unwrap_or_else(new)),
    ]
}

/// The signature of Standard Webhooks.
fn standard(token: &str, id: &str, json: &str) -> [(String, String); 3] {
    let key = STANDARD.decode(token.strip_prefix("whsec_").unwrap_or(token));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key.expect("a signing token is base64"));
    let time = Utc::now().timestamp().to_string();
    let tag = hmac::sign(&key, format!("{id}.{time}.{json}").as_bytes());
    [
        header("webhook-id", id),
        header("webhook-timestamp", &time),
        header(
            "webhook-signature",
            &format!("v1,{}", STANDARD.encode(tag.as_ref())),
        ),
    ]
}
