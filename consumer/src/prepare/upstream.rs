//! Where a session's gateway fetches and pushes.

use agentmine_gateway::Upstream;
use agentmine_trackers::GitSource;

/// The gateway's upstream for a tracker's git source.
pub(super) fn upstream(source: GitSource) -> Upstream {
    match source {
        GitSource::Http {
            url,
            user,
            password,
            authority,
        } => Upstream::Http {
            url,
            user,
            password,
            authority,
        },
        GitSource::Path(path) => Upstream::Path(path),
    }
}
