//! The handshake, in either era of the protocol.
//!
//! If the era is not known, the client sends `server/discover`, which only servers of the stateless era
//! know. A server that refuses it, does not answer within [`PROBE`], or supports older revisions only then
//! gets `initialize`. After a silence the server may still be starting: it then reads both requests, and may refuse
//! the second because the first decided the era, as the Python SDK does. So the probe stays open beside `initialize`, and
//! the first of the two that succeeds decides. A server that refuses a revision and lists others gets the newest that we
//! speak too. A server that ends at the probe cannot be sent anything more: the caller can start it again with
//! [`Era::Handshake`].

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    DiscoverResult, ErrorCode, InitializeResult, ProtocolVersion, ServerCapabilities,
    ServerPeerInfo,
};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::connection::Command;
use super::link::{Link, Pending};
use crate::text::shortened;
use crate::{Era, Greeting, McpLimits};

/// How long a server may take to answer the probe; never more than half of the start limit.
const PROBE: Duration = Duration::from_secs(3);
/// What we speak, newest first.
const STATELESS: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];
const HANDSHAKE: &[ProtocolVersion] = &[
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// The result of a handshake.
pub(super) struct Agreed {
    pub(super) greeting: Greeting,
    pub(super) capabilities: ServerCapabilities,
    /// Sent with every request: the stateless era has no handshake that the server remembers.
    pub(super) meta: Map<String, Value>,
}

/// Makes the handshake. The caller limits its time. An error is a text, shortened.
pub(super) async fn shake(
    link: &Link,
    era: Option<Era>,
    limits: &McpLimits,
) -> Result<Agreed, String> {
    let probe = match era {
        Some(Era::Handshake) => None,
        // The program may have been replaced by an older version, which ignores the probe. But the newer
        // version does not answer either while it starts.
        Some(Era::Stateless) => Some(limits.start / 2),
        None => Some(PROBE.min(limits.start / 2)),
    };
    let discovered = match probe {
        Some(limit) => discover(link, limit).await?,
        None => Discovered::Initialize(&HANDSHAKE[0]),
    };
    let peer = match discovered {
        Discovered::Peer(peer) => *peer,
        Discovered::Initialize(version) => initialize(link, version).await?,
        Discovered::Unanswered(probe) => initialize_beside(link, probe).await?,
    };
    let version = &peer.protocol_version;
    let era = if STATELESS.contains(version) {
        Era::Stateless
    } else if HANDSHAKE.contains(version) {
        Era::Handshake
    } else {
        return Err(no_common_version(std::slice::from_ref(version)));
    };
    link.command(Command::Settle(era));
    let meta = match era {
        Era::Handshake => Map::new(),
        Era::Stateless => client_context(link, version),
    };
    let (name, server_version) = match &peer.server_info {
        Some(info) => (shortened(&info.name), shortened(&info.version)),
        None => Default::default(),
    };
    let greeting = Greeting {
        name,
        version: server_version,
        protocol: version.to_string(),
        era,
    };
    Ok(Agreed {
        greeting,
        capabilities: peer.capabilities,
        meta,
    })
}

/// The result of the probe.
enum Discovered {
    /// A server of the stateless era.
    Peer(Box<ServerPeerInfo>),
    /// `initialize` is to be sent, with this revision.
    Initialize(&'static ProtocolVersion),
    /// The server ignores the probe, or has not read it yet.
    Unanswered(Pending),
}

/// Probes for the stateless era.
async fn discover(link: &Link, limit: Duration) -> Result<Discovered, String> {
    let newest = Discovered::Initialize(&HANDSHAKE[0]);
    let mut version = &STATELESS[0];
    // A server that refuses the version and names another one is asked once more.
    for _ in 0..2 {
        let meta = client_context(link, version).into();
        let params = Map::from_iter([("_meta".to_owned(), meta)]);
        let pending = link.request(link.next_id(), "server/discover", params, None)?;
        let mut pending = pending.never_cancelled();
        let Ok(response) = timeout(limit, pending.response()).await else {
            return Ok(Discovered::Unanswered(pending));
        };
        let error = match response? {
            Ok(result) => {
                let Ok(found) = serde_json::from_value::<DiscoverResult>(result) else {
                    return Err(something_else());
                };
                if let Some(older) = older_alone(&found.supported_versions) {
                    return Ok(Discovered::Initialize(older));
                }
                let version = common(&found.supported_versions)?.clone();
                let peer = ServerPeerInfo::from_discover_result(version, found);
                return Ok(Discovered::Peer(Box::new(peer)));
            }
            Err(error) => error,
        };
        let supported = supported(&error);
        if let Some(older) = older_alone(&supported) {
            return Ok(Discovered::Initialize(older));
        }
        match error.code {
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => version = common(&supported)?,
            // Only servers of the stateless era return these errors.
            ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH => {
                return Err(refused(&error));
            }
            _ => return Ok(newest),
        }
    }
    Err(no_common_version(std::slice::from_ref(version)))
}

/// Sends `initialize` to a server that has not answered the probe.
async fn initialize_beside(link: &Link, mut probe: Pending) -> Result<ServerPeerInfo, String> {
    let initialize = initialize(link, &HANDSHAKE[0]);
    tokio::pin!(initialize);
    let initialized = tokio::select! {
        // What the server read first.
        biased;
        peer = answered_late(&mut probe) => match peer {
            Some(peer) => return Ok(peer),
            None => return initialize.await,
        },
        initialized = &mut initialize => initialized,
    };
    // The refusal may overtake the answer that explains it.
    let Err(refusal) = initialized else {
        return initialized;
    };
    let late = timeout(PROBE, answered_late(&mut probe)).await;
    late.ok().flatten().ok_or(refusal)
}

/// The peer, if the answer is one of the stateless era. May be dropped and called again until it has returned.
async fn answered_late(probe: &mut Pending) -> Option<ServerPeerInfo> {
    let result = probe.response().await.ok()?.ok()?;
    let found: DiscoverResult = serde_json::from_value(result).ok()?;
    let version = common(&found.supported_versions).ok()?.clone();
    Some(ServerPeerInfo::from_discover_result(version, found))
}

async fn initialize(
    link: &Link,
    version: &'static ProtocolVersion,
) -> Result<ServerPeerInfo, String> {
    let mut version = version;
    // A server that refuses the version and lists others is asked once more.
    let mut other = true;
    loop {
        let error = match initialized(link, version).await? {
            Ok(peer) => return Ok(peer),
            Err(error) => error,
        };
        match older(&supported(&error)).filter(|older| other && *older != version) {
            Some(older) => version = older,
            None => return Err(refused(&error)),
        }
        other = false;
    }
}

/// Sends `initialize` with this revision. The inner error is the server's refusal.
async fn initialized(
    link: &Link,
    version: &ProtocolVersion,
) -> Result<Result<ServerPeerInfo, ErrorData>, String> {
    let params = [
        ("protocolVersion", json!(version)),
        ("capabilities", link.shared.handler.capabilities()),
        ("clientInfo", client_info()),
    ];
    let params = params.map(|(key, value)| (key.to_owned(), value));
    let params = Map::from_iter(params);
    let pending = link.request(link.next_id(), "initialize", params, None)?;
    let mut pending = pending.never_cancelled();
    let result = match pending.response().await? {
        Ok(result) => serde_json::from_value::<InitializeResult>(result),
        Err(error) => return Ok(Err(error)),
    };
    let result = result.map_err(|_| something_else())?;
    link.command(Command::Initialized);
    Ok(Ok(result.into()))
}

/// The revisions that a refusal lists as supported.
fn supported(error: &ErrorData) -> Vec<ProtocolVersion> {
    let data = error.data.as_ref();
    let listed = |key| data.and_then(|data: &Value| data.get(key));
    listed("supported")
        .or_else(|| listed("supportedVersions"))
        .and_then(|listed| serde_json::from_value(listed.clone()).ok())
        .unwrap_or_default()
}

fn refused(error: &ErrorData) -> String {
    shortened(&format!(
        "it refused: {} (code {})",
        error.message, error.code.0
    ))
}

fn something_else() -> String {
    "its answer to the handshake is not a result of it".to_owned()
}

fn client_info() -> Value {
    json!({"name": "agentmine", "version": env!("CARGO_PKG_VERSION")})
}

fn client_context(link: &Link, version: &ProtocolVersion) -> Map<String, Value> {
    let context = [
        ("protocolVersion", json!(version)),
        ("clientInfo", client_info()),
        ("clientCapabilities", link.shared.handler.capabilities()),
    ];
    let context = context.into_iter();
    context
        .map(|(key, value)| (format!("io.modelcontextprotocol/{key}"), value))
        .collect()
}

/// The newest common revision that begins with `initialize`.
fn older(theirs: &[ProtocolVersion]) -> Option<&'static ProtocolVersion> {
    HANDSHAKE.iter().find(|ours| theirs.contains(ours))
}

/// The same, unless there is a common one of the stateless era too.
fn older_alone(theirs: &[ProtocolVersion]) -> Option<&'static ProtocolVersion> {
    let stateless = STATELESS.iter().any(|ours| theirs.contains(ours));
    older(theirs).filter(|_| !stateless)
}

fn common(theirs: &[ProtocolVersion]) -> Result<&'static ProtocolVersion, String> {
    let common = STATELESS.iter().find(|ours| theirs.contains(ours));
    common.ok_or_else(|| no_common_version(theirs))
}

fn no_common_version(theirs: &[ProtocolVersion]) -> String {
    let list = |versions: &[ProtocolVersion]| {
        let versions = versions.iter().take(10).map(ProtocolVersion::as_str);
        versions.collect::<Vec<_>>().join(", ")
    };
    let theirs = match theirs {
        [] => "no version".to_owned(),
        theirs => list(theirs),
    };
    shortened(&format!(
        "no common version of the protocol: the server speaks {theirs}; the client speaks {}",
        list(&[STATELESS, HANDSHAKE].concat())
    ))
}
