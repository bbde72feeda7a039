//! AgentMine's one issue that carries a marker, on any forge.
//!
//! Guaranteed: it is opened once. A request to open it whose outcome is unknown is looked up before it is sent again, and of
//! several with the same marker the first one counts. The caller makes sure that nobody else opens one meanwhile.

use agentmine_runtime::failpoint::Guard;
use async_trait::async_trait;

use super::attempts::Fault;
use super::marked::Budget;
use crate::error::TrackerError;
use crate::item::OurIssue;

/// What became of the request to open an issue.
pub(crate) enum OpenedIssue {
    Yes(OurIssue),
    /// Unknown: look for it.
    Look(Fault),
}

/// The issues of one repository.
#[async_trait]
pub(crate) trait IssueList: Sync {
    /// The number of the first issue of AgentMine with the marker.
    async fn find(&self, marker: &str) -> Result<Option<u64>, TrackerError>;
    async fn open(&self, budget: &Budget<'_>) -> Result<OpenedIssue, TrackerError>;
}

/// Finds the issue, or opens it.
pub(crate) async fn found_or_opened(
    list: &impl IssueList,
    marker: &str,
    budget: &Budget<'_>,
) -> Result<OurIssue, TrackerError> {
    loop {
        let found = list.find(marker).await?;
        if let Some(number) = found.filter(|_| !Guard::LookUp.is_off()) {
            return Ok(OurIssue::Found(number));
        }
        match list.open(budget).await? {
            OpenedIssue::Yes(issue) => return Ok(issue),
            OpenedIssue::Look(fault) => budget.attempts.again(fault).await?,
        }
    }
}
