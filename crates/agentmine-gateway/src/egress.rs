//! By which rule of the web policy a request was let through or refused: the labels of its metric.
//!
//! They are words of this file. What a sandbox names, such as a host, is never a label.

/// The rule that let a request through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedBy {
    /// All public hosts are allowed: `whitelist_mode: false`.
    Public,
    /// `allowed_domains`.
    Listed,
    /// A package registry, which is read only.
    Registry,
    /// `allowed_private`.
    Private,
}

/// The rule that refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockedBy {
    /// `external_access: false`.
    Disabled,
    /// Only ports 80 and 443 are for public hosts.
    Port,
    /// The host is not in `allowed_domains`.
    Host,
    /// An address that is private, or of the worker itself, or one that may not be named.
    Address,
    /// What may not be asked of a package registry.
    Registry,
    /// The TLS in a tunnel names another host, hides its name, or is none.
    Tls,
    /// Not a request to a proxy.
    Request,
}

impl AllowedBy {
    /// Every rule.
    pub(crate) const ALL: [Self; 4] = [Self::Public, Self::Listed, Self::Registry, Self::Private];

    /// Counts a request.
    pub(crate) fn count(self, requests: u64) {
        count("allowed", self.as_str(), requests);
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Listed => "listed",
            Self::Registry => "registry",
            Self::Private => "private",
        }
    }
}

impl BlockedBy {
    /// Every rule.
    pub(crate) const ALL: [Self; 7] = [
        Self::Disabled,
        Self::Port,
        Self::Host,
        Self::Address,
        Self::Registry,
        Self::Tls,
        Self::Request,
    ];

    /// Counts a request.
    pub(crate) fn count(self, requests: u64) {
        count("blocked", self.as_str(), requests);
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Port => "port",
            Self::Host => "host",
            Self::Address => "address",
            Self::Registry => "registry",
            Self::Tls => "tls",
            Self::Request => "request",
        }
    }
}

fn count(outcome: &'static str, rule: &'static str, requests: u64) {
    metrics::counter!("agentmine_gateway_web_requests_total", "outcome" => outcome, "rule" => rule)
        .increment(requests);
}
