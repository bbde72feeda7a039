//! Who asked for work, who may, and who changed what was requested.

use chrono::{DateTime, Utc};

/// Somebody on a tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The login name.
    pub login: String,
    /// The tracker's number of the account, where that is what it asks for.
    pub id: Option<u64>,
    /// Whether the tracker calls it a bot.
    pub is_bot: bool,
}

impl Person {
    /// Whether a program writes with this account: the tracker calls it a bot, or it is named as the account of a GitLab
    /// project's or group's token (`project_12_bot_ab`), or as GitLab names service accounts (`service_account_ab`).
    #[must_use]
    pub fn is_program(&self) -> bool {
        let of_token = ["project_", "group_"].iter().any(|begin| {
            let rest = self.login.strip_prefix(begin).unwrap_or_default();
            let (id, rest) = rest.split_once('_').unwrap_or_default();
            let is_number = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
            // `bot`, `bot1` of older versions, `bot_ab12`.
            let of_bot = rest.strip_prefix("bot");
            let is_bot = of_bot.is_some_and(|rest| rest.starts_with('_') || is_number(rest));
            !id.is_empty() && is_number(id) && is_bot
        });
        let of_service = self.login.starts_with("service_account_");
        self.is_bot || self.login.ends_with("[bot]") || of_token || of_service
    }

    /// A person whose account is gone, as forges show it.
    pub(crate) fn ghost() -> Self {
        Self {
            login: "ghost".to_owned(),
            id: None,
            is_bot: false,
        }
    }
}

/// A request for work: who added the label, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    /// `None`: the tracker does not know, as for items that were imported.
    pub by: Option<Person>,
    /// By the tracker's clock, in whole seconds at most; `None` if it does not know.
    pub at: Option<DateTime<Utc>>,
}

/// Whether a person may start work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The person may.
    Granted,
    /// The person may not; why, as the end of a sentence that begins with the name.
    Refused(String),
}

/// A change of an item's title or text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What was changed: `title` or `text`.
    pub what: &'static str,
    /// Who did it; `None` if the account is gone.
    pub by: Option<Person>,
    /// When.
    pub at: DateTime<Utc>,
}
