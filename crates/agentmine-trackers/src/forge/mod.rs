//! What every forge's REST API needs below its own endpoints: requests, retries, rate limits, the
//! reply cache and pages, triggers, the comment with a marker, and what a token allows. An adapter (`github`, `gitlab`) adds a
//! [`Dialect`], its wire types and its endpoints, and nothing else.
//!
//! From the bottom up: [`reply`] reads one reply, [`rate_limit`] says when requests may be sent,
//! [`cache`] keeps replies with their `ETag`, [`lists`] what a scan needs of a list, [`transport`] exchanges one request for one reply,
//! [`attempts`] is the only place that decides about another try, and [`client`] puts them together.

mod access;
mod attempts;
mod authorize;
mod cache;
mod client;
mod clone_url;
mod lists;
mod marked;
mod metrics;
mod name_rule;
mod noreply;
mod our_issue;
mod own_account;
mod own_address;
mod rate_limit;
mod refs;
mod reply;
mod scan;
mod section;
mod smaller_page;
mod tail;
mod tracker;
mod transport;
mod who;
mod written;

pub(crate) use access::{MOST_ASKED, lacks, refusal, shown};
pub(crate) use attempts::{Attempts, Fault, RequestLimits};
pub(crate) use authorize::{Authorize, Purpose, Renewal};
pub(crate) use client::{Client, Extent, Sent};
pub(crate) use clone_url::clone_url;
pub(crate) use lists::{KeptList, Lists, Since};
pub(crate) use marked::{Budget, CommentThread, Written, upsert};
pub(crate) use name_rule::has_match;
pub(crate) use noreply::noreply;
pub(crate) use our_issue::{IssueList, OpenedIssue, found_or_opened};
pub(crate) use own_account::OwnAccount;
pub(crate) use own_address::own_address;
pub(crate) use rate_limit::{Holder, LimitRules};
pub(crate) use refs::{Repo as NamedRepo, blocked_by, closes};
pub(crate) use reply::Reply;
pub(crate) use scan::{
    Change, Dated, Faults, Found, LabelChange, Labelled, Trigger, Triggers, concerns_one,
    may_concern_one,
};
pub(crate) use section::Section;
pub(crate) use tracker::forge_tracker;
pub(crate) use transport::{BodyFault, Call, Dialect, SIGN_ON, explained, http_client};
pub(crate) use who::{Known, Membership, NamedPeople, Permission, admission};

#[cfg(test)]
mod tests;
