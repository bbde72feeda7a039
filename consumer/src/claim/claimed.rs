//! A claimed row, with the moment from which its lease certainly lasts.

use agentmine_runtime::permit::BootInstant;
use agentmine_store::Claim;

/// A claimed row.
pub(crate) struct Claimed {
    pub(crate) claim: Claim,
    /// The moment before the claim was sent: the lease lasts from then on at least.
    pub(crate) since: BootInstant,
}
