//! The words of git's smart HTTP protocol.

/// One of git's two services.
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

/// The protocol version that the sandbox's git asks for. Any other text means version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolVersion {
    V1,
    V2,
}

impl ProtocolVersion {
    /// Reads the header `Git-Protocol`.
    pub(crate) fn from_header(header: &[u8]) -> Option<Self> {
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

/// How the body of a request is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
}
