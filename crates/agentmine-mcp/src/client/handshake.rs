//! The handshake, in either era of the protocol.
//!
//! Where the era is not known, the server is sent `server/discover`, which only servers of the stateless
//! era know. One that refuses it, does not answer within [`PROBE`], or supports older revisions only, is
//! then sent `initialize`. A server that ends at the probe cannot be sent anything any more: the caller
//! can start it again with [`Era::Handshake`].

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    DiscoverResult, ErrorCode, ProtocolVersion, ServerCapabilities, ServerPeerInfo, ServerResult,
};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::link::Link;
use crate::output::{head_of, printable, shortened};
use crate::{Era, Greeting, McpLimits};

/// How long a server may take to answer the probe; never more than half of the start limit.
const PROBE: Duration = Duration::from_secs(3);
/// Bytes of a server's instructions.
const MAX_INSTRUCTIONS: usize = 16 * 1024;
/// What we speak, newest first.
const STATELESS: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];
const HANDSHAKE: &[ProtocolVersion] = &[
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// What a server and we have agreed on.
pub(super) struct Agreed {
    pub(super) greeting: Greeting,
    pub(super) capabilities: ServerCapabilities,
    /// Goes with every request: the stateless era has no handshake that the server remembers.
    pub(super) meta: Map<String, Value>,
}

/// Makes the handshake. The time limit is the caller's; an error is in words, shortened.
pub(super) async fn shake(
    link: &Link,
    era: Option<Era>,
    limits: &McpLimits,
) -> Result<Agreed, String> {
    let probe = match era {
        Some(Era::Handshake) => None,
        // It may be an older version of itself by now, which ignores the probe. But the newer one also
        // does not answer for as long as it takes to start.
        Some(Era::Stateless) => Some(limits.start / 2),
        None => Some(PROBE.min(limits.start / 2)),
    };
    let discovered = match probe {
        Some(limit) => discover(link, limit).await?,
        None => None,
    };
    let peer = match discovered {
        Some(peer) => peer,
        None => initialize(link).await?,
    };
    let version = &peer.protocol_version;
    let era = if STATELESS.contains(version) {
        Era::Stateless
    } else if HANDSHAKE.contains(version) {
        Era::Handshake
    } else {
        return Err(shortened(&no_common_version(std::slice::from_ref(version))));
    };
    link.settle(era);
    let meta = match era {
        Era::Handshake => Map::new(),
        Era::Stateless => client_context(link, version),
    };
    let (name, server_version) = match &peer.server_info {
        Some(info) => (shortened(&info.name), shortened(&info.version)),
        None => Default::default(),
    };
    let instructions = peer.instructions.as_deref().unwrap_or_default();
    let greeting = Greeting {
        name,
        version: server_version,
        protocol: version.to_string(),
        era,
        capabilities: names(&peer.capabilities),
        instructions: printable(head_of(instructions, MAX_INSTRUCTIONS)),
    };
    Ok(Agreed {
        greeting,
        capabilities: peer.capabilities,
        meta,
    })
}

/// Probes for the stateless era. `None`: the server is to be sent `initialize`.
async fn discover(link: &Link, limit: Duration) -> Result<Option<ServerPeerInfo>, String> {
    match probe(link, limit, &STATELESS[0]).await? {
        Probed::Settled(peer) => Ok(peer.map(|peer| *peer)),
        // The server refused the version and named one that we speak: it is asked once more.
        Probed::Offered(version) => match probe(link, limit, &version).await? {
            Probed::Settled(peer) => Ok(peer.map(|peer| *peer)),
            Probed::Offered(version) => Err(shortened(&no_common_version(&[version]))),
        },
    }
}

/// What a probe told.
enum Probed {
    Settled(Option<Box<ServerPeerInfo>>),
    /// A version of the stateless era, in the place of the one that was refused.
    Offered(ProtocolVersion),
}

async fn probe(link: &Link, limit: Duration, version: &ProtocolVersion) -> Result<Probed, String> {
    let params = json!({ "_meta": client_context(link, version) });
    let mut pending = link.request(link.next_id(), "server/discover", params)?;
    let Ok(response) = timeout(limit, pending.response()).await else {
        pending.forget();
        return Ok(Probed::Settled(None));
    };
    match response? {
        Ok(ServerResult::DiscoverResult(found)) => {
            agreed(found).map(|peer| Probed::Settled(peer.map(Box::new)))
        }
        Ok(_) => Err(something_else()),
        Err(error) => {
            let listed = error.data.as_ref().and_then(|data| data.get("supported"));
            let supported: Vec<ProtocolVersion> = listed
                .and_then(|listed| serde_json::from_value(listed.clone()).ok())
                .unwrap_or_default();
            match error.code {
                _ if only_older(&supported) => Ok(Probed::Settled(None)),
                ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                    let common = STATELESS.iter().find(|ours| supported.contains(ours));
                    match common {
                        Some(version) => Ok(Probed::Offered(version.clone())),
                        None => Err(shortened(&no_common_version(&supported))),
                    }
                }
                // Only servers of the stateless era refuse it so.
                ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH => {
                    Err(refused(&error))
                }
                _ => Ok(Probed::Settled(None)),
            }
        }
    }
}

fn agreed(found: DiscoverResult) -> Result<Option<ServerPeerInfo>, String> {
    let supported = &found.supported_versions;
    if only_older(supported) {
        return Ok(None);
    }
    match STATELESS.iter().find(|ours| supported.contains(ours)) {
        Some(version) => Ok(Some(ServerPeerInfo::from_discover_result(
            version.clone(),
            found,
        ))),
        None => Err(shortened(&no_common_version(supported))),
    }
}

async fn initialize(link: &Link) -> Result<ServerPeerInfo, String> {
    let params = json!({
        // The newest revision that has this handshake.
        "protocolVersion": HANDSHAKE[0],
        "capabilities": link.shared.handler.capabilities(),
        "clientInfo": client_info(),
    });
    let mut pending = link.request(link.next_id(), "initialize", params)?;
    let result = match pending.response().await? {
        Ok(ServerResult::InitializeResult(result)) => result,
        Ok(_) => return Err(something_else()),
        Err(error) => return Err(refused(&error)),
    };
    link.initialized();
    Ok(result.into())
}

fn refused(error: &ErrorData) -> String {
    shortened(&format!(
        "it refused: {} (code {})",
        error.message, error.code.0
    ))
}

fn something_else() -> String {
    "it answered the handshake with something else".to_owned()
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

fn names(capabilities: &ServerCapabilities) -> Vec<String> {
    let has = [
        ("completions", capabilities.completions.is_some()),
        ("logging", capabilities.logging.is_some()),
        ("prompts", capabilities.prompts.is_some()),
        ("resources", capabilities.resources.is_some()),
        ("tools", capabilities.tools.is_some()),
    ];
    let has = has.into_iter().filter(|(_, has)| *has);
    has.map(|(name, _)| name.to_owned()).collect()
}

/// Whether we have revisions in common with the server, but only such that begin with `initialize`.
fn only_older(theirs: &[ProtocolVersion]) -> bool {
    let common = |ours: &[ProtocolVersion]| ours.iter().any(|version| theirs.contains(version));
    !common(STATELESS) && common(HANDSHAKE)
}

fn no_common_version(theirs: &[ProtocolVersion]) -> String {
    let list = |versions: &[ProtocolVersion]| {
        let versions = versions.iter().take(10).map(ProtocolVersion::as_str);
        versions.collect::<Vec<_>>().join(", ")
    };
    let (ours, theirs) = ([STATELESS, HANDSHAKE].concat(), list(theirs));
    let theirs = if theirs.is_empty() {
        "none of them"
    } else {
        &theirs
    };
    format!(
        "no common version of the protocol: it speaks {theirs}; here {} are spoken",
        list(&ours)
    )
}
