//! The handshake, in either era of the protocol.
//!
//! Where the era is not known, the server is asked `server/discover`, which only servers of the newer
//! one know. One that refuses, says nothing for [`PROBE`], or names older revisions only, is then
//! greeted the older way. A server that ends at the probe cannot be greeted any more: whoever started it can start it again with
//! [`Era::Handshake`].

use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, ProtocolVersion, ServerCapabilities};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RoleClient, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;

use super::filter::Filter;
use super::hub::Hub;
use crate::output::{head_of, printable, shortened};
use crate::{Era, Greeting, McpLimits};

/// How long a server may think about the probe; never more than half of the start limit.
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

/// Our side, as the library sees it. All that a server asks and tells is taken in by the
/// [`Filter`] before it.
pub(crate) struct Ours(Arc<Hub>);

impl ClientHandler for Ours {
    fn get_info(&self) -> ClientConfig {
        let ours = Implementation::new("agentmine", env!("CARGO_PKG_VERSION"));
        // The newest revision that has this handshake.
        ClientConfig::new(self.0.desk.declared(), ours)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

pub(crate) type Service = RunningService<RoleClient, Ours>;

/// Why a handshake failed.
pub(crate) struct Failure {
    /// In words, shortened.
    pub(crate) detail: String,
    /// Whether the server wants to know who we are.
    pub(crate) authorization: bool,
}

/// Makes the handshake. The time limit is the caller's.
pub(crate) async fn start<T>(
    transport: T,
    hub: &Arc<Hub>,
    era: Option<Era>,
    limits: &McpLimits,
) -> Result<(Service, Greeting, ServerCapabilities), Failure>
where
    T: Transport<RoleClient> + 'static,
{
    let either = ClientLifecycleMode::Auto {
        preferred_versions: STATELESS.to_vec(),
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let (mode, probe) = match era {
        Some(Era::Handshake) => (ClientLifecycleMode::Initialize, None),
        // It may be an older version of itself by now, which passes over the question; but so does,
        // for as long as it takes to start, the one that is known.
        Some(Era::Stateless) => (either, Some(limits.start / 2)),
        None => (either, Some(PROBE.min(limits.start / 2))),
    };
    let filter = Filter::new(transport, hub.clone(), probe);
    let service = serve_client_with_lifecycle(Ours(hub.clone()), filter, mode).await;
    let service = service.map_err(|error| failure(hub, &error))?;
    let Some(info) = service.peer().peer_info() else {
        return Err(said("it did not say what it speaks"));
    };
    let version = &info.protocol_version;
    let era = if STATELESS.contains(version) {
        Era::Stateless
    } else if HANDSHAKE.contains(version) {
        Era::Handshake
    } else {
        let theirs = std::slice::from_ref(version);
        return Err(said(&no_version(theirs)));
    };
    let _ = hub.era.set(era);
    let named = info.server_info.as_ref();
    let named = named.map(|info| (shortened(&info.name), shortened(&info.version)));
    let (name, server_version) = named.unwrap_or_default();
    let instructions = info.instructions.as_deref().unwrap_or_default();
    let greeting = Greeting {
        name,
        version: server_version,
        protocol: version.to_string(),
        era,
        capabilities: names(&info.capabilities),
        instructions: printable(head_of(instructions, MAX_INSTRUCTIONS)),
    };
    Ok((service, greeting, info.capabilities.clone()))
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

fn said(words: &str) -> Failure {
    Failure {
        detail: shortened(words),
        authorization: false,
    }
}

fn failure(hub: &Hub, error: &ClientInitializeError) -> Failure {
    let detail = match error {
        ClientInitializeError::NoCompatibleProtocolVersion {
            server_supported, ..
        } => no_version(server_supported),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            return failure(hub, fallback);
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused: {} (code {})", error.message, error.code.0)
        }
        ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ExpectedInitResponse(_) => {
            "it answered the handshake with something else".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => {
            let io = error.error.downcast_ref::<std::io::Error>();
            match io.map(std::io::Error::kind) {
                Some(std::io::ErrorKind::BrokenPipe) => "it has ended".to_owned(),
                _ => error.error.to_string(),
            }
        }
        other => match hub.ending.reason() {
            Some(reason) => reason.to_owned(),
            None => other.to_string(),
        },
    };
    // A transport that could not be written to has ended for a reason of its own.
    let detail = match (error, hub.ending.reason()) {
        (ClientInitializeError::TransportError { .. }, Some(reason)) => reason.to_owned(),
        _ => detail,
    };
    Failure {
        detail: shortened(&detail),
        authorization: error.is_authorization_required() || detail.contains("HTTP 403"),
    }
}

/// Whether one of these versions, by their names, is ours only by the older handshake.
pub(super) fn only_older(theirs: &[String]) -> bool {
    let speaks = |ours: &[ProtocolVersion]| {
        ours.iter()
            .any(|ours| theirs.iter().any(|theirs| theirs == ours.as_str()))
    };
    !speaks(STATELESS) && speaks(HANDSHAKE)
}

fn no_version(theirs: &[ProtocolVersion]) -> String {
    let words = |versions: &[ProtocolVersion]| {
        let versions: Vec<&str> = versions
            .iter()
            .take(10)
            .map(ProtocolVersion::as_str)
            .collect();
        versions.join(", ")
    };
    let (ours, theirs) = ([STATELESS, HANDSHAKE].concat(), words(theirs));
    let theirs = if theirs.is_empty() {
        "none of them"
    } else {
        &theirs
    };
    format!(
        "no common version of the protocol: it speaks {theirs}; here {} are spoken",
        words(&ours)
    )
}
