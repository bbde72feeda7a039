//! Whether a delivery comes from who knows the secret.

use agentmine_runtime::config::Secret;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};

/// How far the time of a signed delivery may be from ours.
const WINDOW: TimeDelta = TimeDelta::minutes(5);
/// The longest id of a delivery that is remembered.
const LONGEST_ID: usize = 200;

/// A delivery with a valid signature, and its id, by which a repetition is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Genuine {
    pub(super) id: Option<String>,
}

/// GitHub: an HMAC over the body. Neither the time nor the id of the delivery is signed.
pub(super) fn github(secret: &Secret, headers: &HeaderMap, body: &[u8]) -> Option<Genuine> {
    let signature = text(headers, "x-hub-signature-256")?.strip_prefix("sha256=")?;
    let signature = hex::decode(signature).ok()?;
    is_signed(secret.expose().as_bytes(), &[body], &signature).then(|| Genuine {
        id: id(headers, "x-github-delivery"),
    })
}

/// GitLab: a signature by Standard Webhooks from 19.0 on, or a secret in clear. If both are configured either will do,
/// so that one can be replaced by the other.
pub(super) fn gitlab(
    signing: Option<&Secret>,
    secret: Option<&Secret>,
    headers: &HeaderMap,
    body: &[u8],
    now: DateTime<Utc>,
) -> Option<Genuine> {
    let signed = || standard(signing?, headers, body, now);
    let in_clear = || {
        let (secret, given) = (secret?, text(headers, "x-gitlab-token")?);
        let is_same = Sha256::digest(secret.expose()) == Sha256::digest(given);
        // Not `X-Gitlab-Event-UUID`: all deliveries that one request causes have the same one.
        is_same.then(|| Genuine {
            id: id(headers, "idempotency-key").or_else(|| id(headers, "x-gitlab-webhook-uuid")),
        })
    };
    signed().or_else(in_clear)
}

fn standard(
    token: &Secret,
    headers: &HeaderMap,
    body: &[u8],
    now: DateTime<Utc>,
) -> Option<Genuine> {
    let key = STANDARD
        .decode(token.expose().strip_prefix("whsec_")?)
        .ok()?;
    let (id, time) = (
        text(headers, "webhook-id")?,
        text(headers, "webhook-timestamp")?,
    );
    let sent = DateTime::from_timestamp(time.parse().ok()?, 0)?;
    if id.len() > LONGEST_ID || (now - sent).abs() > WINDOW {
        return None;
    }
    let parts = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    let signatures = text(headers, "webhook-signature")?.split(' ');
    let mut signatures = signatures.filter_map(|it| it.strip_prefix("v1,"));
    let is_valid = signatures.any(|signature| {
        let signature = STANDARD.decode(signature);
        signature.is_ok_and(|signature| is_signed(&key, &parts, &signature))
    });
    is_valid.then(|| Genuine {
        id: Some(id.to_owned()),
    })
}

/// Compares in constant time.
fn is_signed(key: &[u8], parts: &[&[u8]], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return false;
    };
    parts.iter().for_each(|part| mac.update(part));
    mac.verify_slice(signature).is_ok()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn id(headers: &HeaderMap, name: &str) -> Option<String> {
    let id = text(headers, name)?;
    (!id.is_empty() && id.len() <= LONGEST_ID).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    /// The example of GitHub's documentation.
    #[test]
    fn githubs_example_is_genuine_and_nothing_else_is() {
        let secret = Secret::new("It's a Secret to Everybody");
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let sent = headers(&[
            ("x-hub-signature-256", signature),
            ("x-github-delivery", "7"),
        ]);
        let genuine = github(&secret, &sent, b"Hello, World!");
        assert_eq!(
            genuine,
            Some(Genuine {
                id: Some("7".into())
            })
        );
        assert_eq!(github(&secret, &sent, b"Hello, World?"), None);
        assert_eq!(github(&Secret::new("x"), &sent, b"Hello, World!"), None);
        assert_eq!(github(&secret, &HeaderMap::new(), b"Hello, World!"), None);
        let short = headers(&[("x-hub-signature-256", "sha256=75")]);
        assert_eq!(github(&secret, &short, b"Hello, World!"), None);
    }

    /// The example of the Standard Webhooks specification's libraries.
    #[test]
    fn a_signing_token_is_valid_for_five_minutes_and_for_its_body_alone() {
        let token = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = br#"{"test": 2432232314}"#;
        let signature = "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let sent = headers(&[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", signature),
        ]);
        let at = |seconds: i64| DateTime::from_timestamp(1_614_265_330 + seconds, 0).unwrap();
        let check = |body: &[u8], seconds| gitlab(Some(&token), None, &sent, body, at(seconds));
        assert!(
            check(body, 0).is_some() && check(body, 299).is_some() && check(body, -299).is_some()
        );
        assert_eq!(check(body, 301), None);
        assert_eq!(check(body, -301), None);
        assert_eq!(check(b"{}", 0), None);
    }

    /// `X-Gitlab-Event-UUID` belongs to the request that caused the delivery, and a request may cause several.
    #[test]
    fn a_delivery_with_a_secret_token_is_known_by_its_own_id() {
        let secret = Secret::new("s");
        let id = |more: &[(&'static str, &str)]| {
            let common = [("x-gitlab-token", "s"), ("x-gitlab-event-uuid", "of many")];
            let sent = headers(&[&common[..], more].concat());
            gitlab(None, Some(&secret), &sent, b"{}", Utc::now()).and_then(|it| it.id)
        };
        let both = [("idempotency-key", "a"), ("x-gitlab-webhook-uuid", "b")];
        assert_eq!(id(&both).as_deref(), Some("a"));
        assert_eq!(id(&both[1..]).as_deref(), Some("b"));
        assert_eq!(id(&[]), None);
    }

    #[test]
    fn a_secret_token_is_compared_as_a_whole() {
        let secret = Secret::new("correct horse");
        let check = |given: &str| {
            let sent = headers(&[("x-gitlab-token", given)]);
            gitlab(None, Some(&secret), &sent, b"{}", Utc::now()).is_some()
        };
        assert!(check("correct horse"));
        assert!(!check("correct hors") && !check("correct horse ") && !check(""));
        let none = headers(&[("x-gitlab-token", "")]);
        assert_eq!(gitlab(None, None, &none, b"{}", Utc::now()), None);
    }
}
