//! The one repository, however it is reached.

mod error;
mod http;
mod path;
mod service;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;

pub(crate) use error::UpstreamError;
use http::HttpUpstream;
use path::PathUpstream;
pub(crate) use service::{Encoding, ProtocolVersion, Service};

use crate::GatewayError;
use crate::config::Upstream;
use crate::http::{Body, full, streamed};
use crate::wire::advertisement::Advertisement;

/// Size limit of a list of refs that is read whole.
const MAX_ADVERTISEMENT: usize = 64 * 1024 * 1024;
/// Size limit of the report of a push.
const MAX_REPORT: usize = 1024 * 1024;
/// Size limit of the request of a fetch, compressed and uncompressed.
pub(crate) const MAX_FETCH_REQUEST: usize = 2 * 1024 * 1024;

/// The one repository.
#[derive(Debug)]
pub(crate) enum Remote {
    Http(Box<HttpUpstream>),
    Path(PathUpstream),
}

impl Remote {
    pub(crate) fn new(upstream: Upstream) -> Result<Self, GatewayError> {
        Ok(match upstream {
            Upstream::Http {
                url,
                user,
                password,
                authority,
            } => {
                let http = HttpUpstream::new(url, user, password, authority)?;
                Self::Http(Box::new(http))
            }
            Upstream::Path(path) => Self::Path(PathUpstream::new(&path)?),
        })
    }

    /// The list of refs for a fetch, forwarded as it arrives.
    pub(crate) async fn advertise_fetch(
        &self,
        version: Option<ProtocolVersion>,
    ) -> Result<Body, UpstreamError> {
        let service = Service::UploadPack;
        Ok(match self {
            Self::Http(http) => streamed(http.advertise(service, version).await?.bytes_stream()),
            Self::Path(path) => full(path.advertise(service, version, MAX_ADVERTISEMENT).await?),
        })
    }

    /// What the host can do, as it says in version 2 of the protocol, if it speaks that one; otherwise its refs.
    pub(crate) async fn capabilities(&self) -> Result<Bytes, UpstreamError> {
        let service = Service::UploadPack;
        let version = Some(ProtocolVersion::V2);
        match self {
            Self::Http(http) => {
                let response = http.advertise(service, version).await?;
                collected(response, MAX_ADVERTISEMENT).await
            }
            Self::Path(path) => {
                let bytes = path.advertise(service, version, MAX_ADVERTISEMENT).await?;
                Ok(bytes.into())
            }
        }
    }

    /// What git's own client is to fetch from.
    pub(crate) fn url(&self) -> std::io::Result<OsString> {
        Ok(match self {
            Self::Http(http) => http.base().as_str().into(),
            Self::Path(path) => path.served()?.into(),
        })
    }

    /// The answer to a request for the list of refs, in version 2 of the protocol.
    pub(crate) async fn list_refs(&self, request: Bytes) -> Result<Bytes, UpstreamError> {
        match self {
            Self::Http(http) => {
                let version = Some(ProtocolVersion::V2);
                let response = http.upload_pack(request, Encoding::Identity, version);
                collected(response.await?, MAX_ADVERTISEMENT).await
            }
            Self::Path(_) => Err(UpstreamError::Network(
                "a repository on this machine is not mirrored".into(),
            )),
        }
    }

    /// The current refs, as listed for a push.
    pub(crate) async fn advertise_push(&self) -> Result<Advertisement, UpstreamError> {
        let service = Service::ReceivePack;
        let bytes = match self {
            Self::Http(http) => {
                let response = http.advertise(service, None).await?;
                collected(response, MAX_ADVERTISEMENT).await?.to_vec()
            }
            Self::Path(path) => path.advertise(service, None, MAX_ADVERTISEMENT).await?,
        };
        Advertisement::parse(&bytes)
            .map_err(|_| UpstreamError::Network("upstream's list of refs is malformed".into()))
    }

    /// Whether the host lets the worker push at all: it lists the refs for a push only to those who may. The list is not
    /// read.
    pub(crate) async fn offers_push(&self) -> Result<(), UpstreamError> {
        match self {
            Self::Http(http) => http.advertise(Service::ReceivePack, None).await.map(drop),
            Self::Path(_) => Ok(()),
        }
    }

    /// A fetch.
    pub(crate) async fn upload_pack(
        &self,
        body: Bytes,
        encoding: Encoding,
        version: Option<ProtocolVersion>,
    ) -> Result<Body, UpstreamError> {
        Ok(match self {
            Self::Http(http) => {
                let response = http.upload_pack(body, encoding, version).await?;
                streamed(response.bytes_stream())
            }
            Self::Path(path) => {
                let body = match encoding {
                    Encoding::Identity => body,
                    Encoding::Gzip => gunzip(&body)?,
                };
                streamed(path.upload_pack(body, version)?)
            }
        })
    }

    /// A push that has passed every check. `file` is at its beginning and holds `length` bytes.
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
            Self::Path(path) => path.receive_pack(file, MAX_REPORT).await.map(Bytes::from),
        }
    }
}

async fn collected(response: reqwest::Response, cap: usize) -> Result<Bytes, UpstreamError> {
    let mut stream = response.bytes_stream();
    let mut all = BytesMut::new();
    while let Some(chunk) = stream.try_next().await.map_err(http::network)? {
        if all.len() + chunk.len() > cap {
            return Err(UpstreamError::Network(
                "upstream's response is too large".into(),
            ));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

/// Uncompresses the request of a fetch, to at most [`MAX_FETCH_REQUEST`] bytes.
pub(crate) fn gunzip(body: &[u8]) -> Result<Bytes, UpstreamError> {
    let unreadable = || UpstreamError::Network("the request cannot be uncompressed".into());
    let mut out = Vec::new();
    let limit = MAX_FETCH_REQUEST as u64;
    flate2::read::GzDecoder::new(body)
        .take(limit + 1)
        .read_to_end(&mut out)
        .map_err(|_| unreadable())?;
    if out.len() as u64 > limit {
        return Err(unreadable());
    }
    Ok(out.into())
}
