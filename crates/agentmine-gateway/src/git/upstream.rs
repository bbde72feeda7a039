//! The one repository, whichever way it is reached.

use std::fs::File;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;

use super::push::Advertisement;
use super::upstream_http::{self, HttpUpstream};
use super::upstream_path::PathUpstream;
use crate::Upstream;
use crate::http::{self, Body};

/// Bytes of the advertisement of refs that are read whole.
pub(crate) const MAX_ADVERTISEMENT: usize = 64 * 1024 * 1024;
/// Bytes of the answer to a push.
pub(crate) const MAX_REPORT: usize = 1024 * 1024;

/// Which of git's two services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Fetching.
    UploadPack,
    /// Pushing.
    ReceivePack,
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    pub(crate) fn subcommand(self) -> &'static str {
        match self {
            Self::UploadPack => "upload-pack",
            Self::ReceivePack => "receive-pack",
        }
    }

    pub(crate) fn advertisement_type(self) -> String {
        format!("application/x-{}-advertisement", self.name())
    }

    pub(crate) fn request_type(self) -> String {
        format!("application/x-{}-request", self.name())
    }

    pub(crate) fn result_type(self) -> String {
        format!("application/x-{}-result", self.name())
    }
}

/// The protocol version that the sandbox's git asks for. Anything else is version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

impl Version {
    pub(crate) fn of(header: &[u8]) -> Option<Self> {
        match header {
            b"version=1" => Some(Self::V1),
            b"version=2" => Some(Self::V2),
            _ => None,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::V1 => "version=1",
            Self::V2 => "version=2",
        }
    }
}

/// Upstream did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("the repository's host refused the worker's credentials ({0})")]
    Auth(u16),
    #[error("the repository was not found, or the worker's token may not see it")]
    NotFound,
    #[error("{0}")]
    Network(String),
}

/// The one repository.
#[derive(Debug)]
pub(crate) enum Remote {
    Http(HttpUpstream),
    Path(PathUpstream),
}

impl Remote {
    pub(crate) fn new(upstream: Upstream) -> anyhow::Result<Self> {
        Ok(match upstream {
            Upstream::Http {
                url,
                user,
                password,
            } => Self::Http(HttpUpstream::new(url, user, password)?),
            Upstream::Path(path) => Self::Path(PathUpstream::new(&path)?),
        })
    }

    /// The advertisement for a fetch, passed on as it comes.
    pub(crate) async fn advertise_fetch(
        &self,
        version: Option<Version>,
    ) -> Result<Body, UpstreamError> {
        let service = Service::UploadPack;
        Ok(match self {
            Self::Http(http) => {
                http::streamed(http.advertise(service, version).await?.bytes_stream())
            }
            Self::Path(path) => http::full(path.advertise(service, version).await?),
        })
    }

    /// The refs as one who pushes sees them now.
    pub(crate) async fn advertise_push(&self) -> Result<Advertisement, UpstreamError> {
        let service = Service::ReceivePack;
        let bytes = match self {
            Self::Http(http) => {
                let response = http.advertise(service, None).await?;
                collected(response, MAX_ADVERTISEMENT).await?.to_vec()
            }
            Self::Path(path) => path.advertise(service, None).await?,
        };
        Advertisement::parse(&bytes)
            .map_err(|_| UpstreamError::Network("the list of refs cannot be read".into()))
    }

    /// A fetch. `gzip` says that `body` is compressed.
    pub(crate) async fn upload_pack(
        &self,
        body: Bytes,
        gzip: bool,
        version: Option<Version>,
    ) -> Result<Body, UpstreamError> {
        Ok(match self {
            Self::Http(http) => {
                let response = http.upload_pack(body, gzip, version).await?;
                http::streamed(response.bytes_stream())
            }
            Self::Path(path) => {
                let body = if gzip { super::gunzip(&body)? } else { body };
                http::streamed(path.upload_pack(body, version)?)
            }
        })
    }

    /// A push, checked before. `file` stands at its beginning and holds `length` bytes.
    pub(crate) async fn receive_pack(
        &self,
        file: File,
        length: u64,
    ) -> Result<Bytes, UpstreamError> {
        match self {
            Self::Http(http) => {
                let response = http.receive_pack(file, length).await?;
                collected(response, MAX_REPORT).await
            }
            Self::Path(path) => path.receive_pack(file).await.map(Bytes::from),
        }
    }
}

async fn collected(response: reqwest::Response, cap: usize) -> Result<Bytes, UpstreamError> {
    let mut stream = response.bytes_stream();
    let mut all = BytesMut::new();
    while let Some(chunk) = stream.try_next().await.map_err(upstream_http::network)? {
        if all.len() + chunk.len() > cap {
            return Err(UpstreamError::Network("the answer is too long".into()));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}
