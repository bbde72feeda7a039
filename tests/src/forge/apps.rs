//! GitHub Apps: their JSON Web Tokens, installations, and tokens for some repositories and permissions.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::Method;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::rest::{Answer, Ask};
use super::state::{Account, State};

/// GitHub's limit, and the difference of clocks that it allows.
const LONGEST_JWT: i64 = 600 + 60;

/// An App that one owner or several have installed.
#[derive(Debug, Clone)]
pub struct App {
    /// Its id.
    pub id: u64,
    /// Its name in addresses; it writes as `SLUG[bot]`.
    pub slug: String,
    /// Its public key, DER (PKCS #1).
    pub public_key: Vec<u8>,
    /// Its installations.
    pub installations: Vec<Installation>,
    /// How long its tokens last.
    pub lasts: TimeDelta,
}

/// Where an App is installed, for all repositories of the owner.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Its id.
    pub id: u64,
    /// A user or an organization.
    pub owner: String,
    /// `read` or `write` by the name of a permission.
    pub permissions: BTreeMap<String, String>,
}

/// What a token of an installation may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Without it, the token is worth nothing.
    pub(super) installation: u64,
    pub(super) owner: String,
    /// Names without their owner; all if there are none.
    pub(super) repositories: Option<Vec<String>>,
    pub(super) permissions: BTreeMap<String, String>,
    pub(super) until: DateTime<Utc>,
}

impl Grant {
    fn allows(&self, permission: &str, writes: bool) -> bool {
        match self.permissions.get(permission).map(String::as_str) {
            Some("write") => true,
            Some(_) => !writes,
            None => false,
        }
    }

    pub(super) fn covers(&self, full_name: &str) -> bool {
        let Some((owner, name)) = full_name.split_once('/') else {
            return false;
        };
        let named = |names: &Vec<String>| names.iter().any(|it| it.eq_ignore_ascii_case(name));
        owner.eq_ignore_ascii_case(&self.owner) && self.repositories.as_ref().is_none_or(named)
    }

    /// Whether git may do this.
    pub(super) fn git(&self, full_name: &str, push: bool) -> bool {
        self.covers(full_name) && self.allows("contents", push)
    }

    /// Why a request is refused.
    pub(super) fn refusal(&self, ask: &Ask, reads: bool) -> Option<Answer> {
        let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
        if let ["orgs", _, "teams", ..] = segments.as_slice() {
            let is_refused = !self.allows("members", !reads);
            return is_refused.then(|| not_accessible("members", reads));
        }
        let (full_name, rest) = match (segments.as_slice(), &ask.repository) {
            // One that has another owner now is that owner's, under its old name too.
            (["repos", _, _, rest @ ..] | ["repositories", _, rest @ ..], Some((_, full_name))) => {
                (full_name.clone(), rest)
            }
            (["repos", owner, name, rest @ ..], None) => (format!("{owner}/{name}"), rest),
            _ => return None,
        };
        if !self.covers(&full_name) {
            return Some(Answer::not_found());
        }
        let permission = match rest {
            ["issues", ..] | ["labels", ..] => "issues",
            ["pulls", ..] => "pull_requests",
            ["contents" | "branches" | "git", ..] => "contents",
            ["commits", _, "check-runs"] => "checks",
            ["commits", _, "status"] => "statuses",
            ["actions", ..] => "actions",
            _ => "metadata",
        };
        if self.allows(permission, !reads) {
            return None;
        }
        Some(not_accessible(permission, reads))
    }
}

/// The token lacks a permission.
fn not_accessible(permission: &str, reads: bool) -> Answer {
    let level = if reads { "read" } else { "write" };
    let message = "Resource not accessible by integration";
    Answer {
        headers: vec![(
            "x-accepted-github-permissions",
            format!("{permission}={level}"),
        )],
        ..Answer::new(403, json!({ "message": message, "status": "403" }))
    }
}

/// Answers what only an App may ask, and what a token may do to itself; `None` for all else.
pub(super) fn dispatch(state: &mut State, token: &str, ask: &Ask) -> Option<Answer> {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    if let (&Method::DELETE, ["installation", "token"]) = (&ask.method, segments.as_slice()) {
        state.accounts.remove(token);
        state.revoked.push(token.to_owned());
        return Some(Answer::new(204, Value::Null));
    }
    let app = match signed_by(state, token)? {
        Ok(app) => app,
        Err(message) => return Some(Answer::new(401, json!({ "message": message }))),
    };
    if let ["repos", owner, name, "installation"] = segments.as_slice()
        && let Some(answer) = moved(state, &format!("{owner}/{name}"))
    {
        return Some(answer);
    }
    Some(match (&ask.method, segments.as_slice()) {
        (&Method::GET, ["app"]) => Answer::ok(json!({
            "id": app.id, "slug": app.slug, "node_id": "A_1", "name": app.slug,
            "client_id": "Iv1.0", "owner": { "login": "octo" },
        })),
        (&Method::GET, ["app", "installations", id]) => {
            of_installation(&app, |it| it.id.to_string() == *id)
        }
        (&Method::GET, ["repos" | "users" | "orgs", owner, .., "installation"]) => {
            of_installation(&app, |it| it.owner.eq_ignore_ascii_case(owner))
        }
        (&Method::GET, ["repositories", id, "installation"]) => {
            let mut repos = state.repos.iter();
            let repo = repos.find(|repo| repo.id.to_string() == *id);
            let owner = repo.and_then(|repo| repo.full_name.split('/').next());
            let is_owner =
                |it: &Installation| owner.is_some_and(|owner| it.owner.eq_ignore_ascii_case(owner));
            of_installation(&app, is_owner)
        }
        (&Method::POST, ["app", "installations", id, "access_tokens"]) => {
            let found = app.installations.iter().find(|it| it.id.to_string() == *id);
            match found {
                Some(installation) => mint(state, &app, installation, &ask.body),
                None => Answer::not_found(),
            }
        }
        _ => Answer::new(
            401,
            json!({ "message": "A JSON web token could not be decoded" }),
        ),
    })
}

/// The way to the installation of a repository that has another name now.
fn moved(state: &State, full_name: &str) -> Option<Answer> {
    if state.repo(full_name).is_some() {
        return None;
    }
    let id = state.renamed(full_name)?.id;
    Some(Answer {
        location: Some(format!("/api/v3/repositories/{id}/installation")),
        ..Answer::new(301, json!({ "message": "Moved Permanently" }))
    })
}

fn of_installation(app: &App, is: impl Fn(&Installation) -> bool) -> Answer {
    match app.installations.iter().find(|it| is(it)) {
        Some(it) => Answer::ok(json!({
            "id": it.id, "account": { "login": it.owner }, "app_id": app.id,
            "repository_selection": "all", "permissions": it.permissions,
        })),
        None => Answer::not_found(),
    }
}

fn mint(state: &mut State, app: &App, installation: &Installation, body: &Value) -> Answer {
    let wanted = body["permissions"].as_object();
    let permissions: BTreeMap<String, String> = match wanted {
        Some(wanted) => wanted
            .iter()
            .map(|(name, level)| (name.clone(), level.as_str().unwrap_or_default().to_owned()))
            .collect(),
        None => installation.permissions.clone(),
    };
    let granted = |(name, level): (&String, &String)| {
        let own = installation.permissions.get(name);
        own.is_some_and(|own| own == level || own == "write")
    };
    let invalid = |message: &str| Answer::new(422, json!({ "message": message }));
    if !permissions.iter().all(granted) {
        return invalid("The permissions requested are not granted to this installation.");
    }
    let names = body["repositories"].as_array();
    let repositories = names.map(|names| {
        let names = names.iter().filter_map(Value::as_str);
        names.map(ToOwned::to_owned).collect::<Vec<_>>()
    });
    let exists = |name: &String| {
        state
            .repo(&format!("{}/{name}", installation.owner))
            .is_some()
    };
    if repositories
        .as_ref()
        .is_some_and(|names| !names.iter().all(exists))
    {
        return invalid(
            "There is at least one repository that does not exist or is not accessible to the parent installation.",
        );
    }
    let until = Utc::now() + app.lasts;
    // Long and with dots, as GitHub's have been since 2026.
    let filler = "x".repeat(300);
    let token = format!(
        "ghs_{}_{}.{filler}.{}",
        app.id,
        uuid::Uuid::new_v4().simple(),
        state.id()
    );
    let answer = json!({
        "token": token, "expires_at": until.to_rfc3339_opts(SecondsFormat::Secs, true),
        "permissions": permissions, "repository_selection": if repositories.is_some() { "selected" } else { "all" },
    });
    state.minted.push((token.clone(), body.clone()));
    let account = Account {
        login: format!("{}[bot]", app.slug),
        may_write: true,
        is_app: true,
        client: String::new(),
        grant: Some(Grant {
            installation: installation.id,
            owner: installation.owner.clone(),
            repositories,
            permissions,
            until,
        }),
    };
    state.accounts.insert(token, account);
    Answer::new(201, answer)
}

/// The App that signed a JSON Web Token, or what is wrong with the token; `None` if it is none.
fn signed_by(state: &State, token: &str) -> Option<Result<App, &'static str>> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
    let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
    let signature = decode(signature)?;
    Some(verify(state, signed, &header, &claims, &signature))
}

fn verify(
    state: &State,
    signed: &str,
    header: &Value,
    claims: &Value,
    signature: &[u8],
) -> Result<App, &'static str> {
    if header["alg"] != "RS256" {
        return Err("A JSON web token could not be decoded");
    }
    let issuer = match &claims["iss"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let app = state.apps.iter().find(|app| app.id.to_string() == issuer);
    let app = app.ok_or("Integration not found")?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &app.public_key)
        .verify(signed.as_bytes(), signature)
        .map_err(|_| "A JSON web token could not be decoded")?;
    let now = Utc::now().timestamp();
    let (issued, expires) = (claims["iat"].as_i64(), claims["exp"].as_i64());
    match (issued, expires) {
        (Some(issued), _) if issued > now + 5 => Err(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        ),
        (Some(issued), Some(expires)) if expires > now && expires - issued <= LONGEST_JWT => {
            Ok(app.clone())
        }
        (Some(_), Some(_)) => Err("'Expiration time' claim ('exp') is too far in the future"),
        _ => Err("Missing claims"),
    }
}
