//! The address by which GitHub knows an account without its real one.

use serde::Deserialize;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::noreply;
use crate::people::Person;

#[derive(Debug, Deserialize)]
struct Account {
    id: u64,
    login: String,
}

impl Api {
    pub(super) async fn noreply(&self, person: &Person) -> Result<Option<String>, TrackerError> {
        let url = self.client.url(["users", &person.login]);
        let reply = self.client.get(url).await?;
        let Account { id, login } = reply.ok(&format!("account {}", person.login))?.json()?;
        Ok(noreply(id, '+', &login, &self.host))
    }
}
