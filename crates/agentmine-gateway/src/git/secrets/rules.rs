//! Formats of tokens and keys, as their issuers document them.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use super::entropy::{bits, is_placeholder};

/// A format.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// One of these is in every match; the pattern is tried only if the text has one.
    signs: &'static [&'static str],
    pattern: Regex,
    /// Whether a match counts; the first group, if there is one, is the value.
    counts: fn(&Captures<'_>) -> bool,
}

impl Rule {
    /// The start of each match, in order.
    pub(super) fn find(&self, text: &[u8]) -> impl Iterator<Item = usize> {
        let has = |sign: &&str| memchr::memmem::find(text, sign.as_bytes()).is_some();
        let may_match = self.signs.iter().any(has);
        let matches = may_match.then(|| self.pattern.captures_iter(text));
        matches
            .into_iter()
            .flatten()
            .filter(move |found| (self.counts)(found))
            .map(|found| found.get(0).map_or(0, |whole| whole.start()))
    }
}

pub(super) fn all() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| FORMATS.iter().map(compiled).collect());
    &RULES
}

type Format = (
    &'static str,
    &'static [&'static str],
    &'static str,
    fn(&Captures<'_>) -> bool,
);

const FORMATS: [Format; 33] = [
    (
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        r"\b(gh[pousr]_[A-Za-z0-9]{36,255})\b",
        random,
    ),
    (
        "github-token",
        &["github_pat_"],
        r"\b(github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})\b",
        random,
    ),
    (
        "gitlab-token",
        &[
            "glpat-", "gldt-", "glrt-", "glptt-", "glsoat-", "glft-", "glagent-", "glcbt-",
        ],
        r"\bgl(?:pat|dt|rt|ptt|soat|ft|agent|cbt)-([A-Za-z0-9_\-]{20,})",
        random,
    ),
    (
        "slack-token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxe", "xoxr-", "xoxs-", "xapp-"],
        r"\b(?:xox[abeprs]|xoxe\.xox[bp]|xapp)-(?:[0-9A-Z]+-){1,5}([A-Za-z0-9]{16,})",
        random,
    ),
    (
        "slack-webhook",
        &["hooks.slack.com/"],
        r"hooks\.slack\.com/(?:services|workflows)/T[A-Z0-9]{7,}/[AB][A-Z0-9]{7,}/([A-Za-z0-9]{20,})",
        random,
    ),
    (
        "aws-access-key",
        &["AKIA", "ASIA", "ABIA", "ACCA"],
        r"\b((?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b",
        random,
    ),
    (
        "aws-secret-key",
        &["ecret", "ECRET"],
        r#"(?i)aws.{0,20}secret.{0,20}["'\s]*[:=]>?["'\s]*([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)"#,
        random,
    ),
    (
        "gcp-api-key",
        &["AIza"],
        r"\b(AIza[0-9A-Za-z_\-]{35})(?:[^0-9A-Za-z_\-]|$)",
        random,
    ),
    (
        "gcp-oauth",
        &["GOCSPX-"],
        r"\b(GOCSPX-[A-Za-z0-9_\-]{28})",
        random,
    ),
    (
        "gcp-access-token",
        &["ya29."],
        r"\b(ya29\.[0-9A-Za-z_\-]{40,})",
        random,
    ),
    (
        "azure-storage-key",
        &["AccountKey="],
        r"AccountKey=([A-Za-z0-9+/]{86}==)",
        random,
    ),
    (
        "stripe-key",
        &["_live_", "whsec_"],
        r"\b((?:sk|rk)_live_[0-9A-Za-z]{20,}|whsec_[A-Za-z0-9]{32,})\b",
        random,
    ),
    (
        "openai-key",
        &["T3BlbkFJ"],
        r"\b(sk-[A-Za-z0-9_\-]{20,}T3BlbkFJ[A-Za-z0-9_\-]{20,})",
        random,
    ),
    (
        "openai-key",
        &["sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-"],
        r"\b(sk-(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_\-]{40,})",
        random,
    ),
    (
        "anthropic-key",
        &["sk-ant-"],
        r"\b(sk-ant-[a-z]{3,6}[0-9]{2}-[A-Za-z0-9_\-]{60,})",
        random,
    ),
    (
        "huggingface-token",
        &["hf_"],
        r"\b(hf_[A-Za-z]{34})\b",
        random,
    ),
    ("npm-token", &["npm_"], r"\b(npm_[A-Za-z0-9]{36})\b", random),
    (
        "npm-token",
        &["_authToken"],
        r"_authToken\s*=\s*([A-Za-z0-9_\-]{30,})",
        random,
    ),
    (
        "pypi-token",
        &["pypi-AgE"],
        r"\b(pypi-AgE[A-Za-z0-9_\-]{50,})",
        random,
    ),
    (
        "crates-token",
        &["cio"],
        r"\b(cio[A-Za-z0-9]{32})\b",
        random,
    ),
    (
        "rubygems-token",
        &["rubygems_"],
        r"\b(rubygems_[0-9a-f]{48})\b",
        random,
    ),
    (
        "docker-token",
        &["dckr_"],
        r"\b(dckr_(?:pat|oat)_[A-Za-z0-9_\-]{27,32})",
        random,
    ),
    (
        "sendgrid-key",
        &["SG."],
        r"\b(SG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43})",
        random,
    ),
    (
        "digitalocean-token",
        &["dop_v1_", "doo_v1_", "dor_v1_"],
        r"\b(do[opr]_v1_[a-f0-9]{64})\b",
        random,
    ),
    (
        "atlassian-token",
        &["ATATT3"],
        r"\b(ATATT3[A-Za-z0-9_\-=]{100,})",
        random,
    ),
    (
        "shopify-token",
        &["shp"],
        r"\b(shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32})\b",
        random,
    ),
    (
        "linear-key",
        &["lin_api_"],
        r"\b(lin_api_[A-Za-z0-9]{40})\b",
        random,
    ),
    (
        "vault-token",
        &["hvs."],
        r"\b(hvs\.[A-Za-z0-9_\-]{80,})",
        random,
    ),
    (
        "terraform-token",
        &[".atlasv1."],
        r"\b([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-]{60,})",
        random,
    ),
    (
        "age-key",
        &["AGE-SECRET-KEY-1"],
        r"\b(AGE-SECRET-KEY-1[0-9A-Z]{58})\b",
        random,
    ),
    (
        "private-key",
        &["PRIVATE KEY"],
        r#"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\\r|\\n|[\s"',+>*#|\\])*(?:(?:Proc-Type|DEK-Info|Version|Comment):[^\n]*[\s"'+]+)*([A-Za-z0-9+/=]{40,})"#,
        random,
    ),
    (
        "jwt",
        &["eyJ"],
        r"\b(eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{20,})",
        of_a_person,
    ),
    (
        "url-password",
        &["://"],
        r#"\b[a-zA-Z][a-zA-Z0-9+.\-]{1,20}://([^\s:/@"'`<>(){}$%*\\]{1,64}):([^\s:/@"'`<>(){}$*\\]{8,128})@([A-Za-z0-9.\-]{4,253})"#,
        of_a_server,
    ),
];

fn compiled((name, signs, pattern, counts): &Format) -> Rule {
    #[expect(
        clippy::expect_used,
        reason = "the patterns are constants, and a test compiles each"
    )]
    let pattern = Regex::new(&format!("(?-u){pattern}")).expect("a valid pattern");
    Rule {
        name,
        signs,
        pattern,
        counts: *counts,
    }
}

fn group<'a>(found: &Captures<'a>, number: usize) -> &'a [u8] {
    found.get(number).map_or(&[], |group| group.as_bytes())
}

/// Not an example such as `AKIAIOSFODNN7EXAMPLE` or `ghp_xxxxxxxx`.
fn random(found: &Captures<'_>) -> bool {
    let value = group(found, 1);
    !is_placeholder(value) && bits(value) >= 2.9
}

/// Not the token of the format's own documentation.
fn of_a_person(found: &Captures<'_>) -> bool {
    let value = group(found, 1);
    // {"sub":"1234567890
    memchr::memmem::find(value, b"eyJzdWIiOiIxMjM0NTY3ODkwI").is_none() && bits(value) >= 4.0
}

/// Not the password of a server that only its own machine or network reaches.
fn of_a_server(found: &Captures<'_>) -> bool {
    let (user, password, host) = (group(found, 1), group(found, 2), group(found, 3));
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    let is_local = !host.contains('.')
        || host.starts_with("127.")
        || host == "0.0.0.0"
        || [
            ".local",
            ".localhost",
            ".test",
            ".invalid",
            ".example",
            ".internal.example",
        ]
        .iter()
        .any(|end| host.ends_with(end))
        || host
            .split('.')
            .any(|part| part.starts_with("example") || part == "foo" || part == "host");
    !is_local && user != password && !is_placeholder(password) && bits(password) >= 2.75
}
