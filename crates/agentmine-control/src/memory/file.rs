//! A record as a Markdown file: its fields as YAML front matter, then its content.
//!
//! Guaranteed: what [`encode`] writes, [`decode`] reads back as the same record, byte for byte. A file that a person
//! wrote may omit what has a default; every fault of it is reported with line, column and key.

use agentmine_domain::{Confidence, MemoryEntry, MemoryRecord, MemorySource, MemoryStatus};
use agentmine_runtime::config::tree::ConfigPlace;
use agentmine_runtime::config::{SettingFault, document};
use chrono::{DateTime, NaiveDate, SubsecRound as _, Utc};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Largest file in bytes: a record with all that it may have, and its escapes.
pub(crate) const MAX_FILE: u64 = 64 * 1024;

/// A file, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryFile {
    pub(crate) entry: MemoryEntry,
    /// The version of the record that the file was exported from.
    pub(crate) version: Option<i64>,
    /// Whether nobody has edited the file since its export.
    pub(crate) is_as_exported: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Head {
    id: String,
    category: String,
    title: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    source: Source,
    #[serde(default)]
    confidence: Sure,
    #[serde(default)]
    expires: Option<String>,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default)]
    digest: Option<String>,
}

/// The domain's enums with their schema. A file that a person writes is a draft unless it says otherwise.
macro_rules! choice {
    ($name:ident => $domain:ident { $first:ident $(, $rest:ident)* }) => {
        #[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        enum $name { #[default] $first $(, $rest)* }

        impl From<$name> for $domain {
            fn from(choice: $name) -> Self {
                match choice { $name::$first => Self::$first $(, $name::$rest => Self::$rest)* }
            }
        }
    };
}

choice!(Status => MemoryStatus { Draft, Active, Archived });
choice!(Source => MemorySource { Human, Session });
choice!(Sure => Confidence { High, Medium, Low });

/// The file of a record.
pub(crate) fn encode(record: &MemoryRecord) -> String {
    let MemoryRecord { entry, version, .. } = record;
    let (fields, digest) = (fields(entry), digest_of(entry));
    let mut text = format!("---\n{fields}version: {version}\ndigest: \"{digest}\"\n---\n");
    if !entry.content.is_empty() {
        text.push_str(&entry.content);
        text.push('\n');
    }
    text
}

/// A digest of what was exported, which shows an export whether the file was edited.
fn digest_of(entry: &MemoryEntry) -> String {
    let digest = Sha256::digest(format!("{}---\n{}", fields(entry), entry.content));
    let first = digest.iter().take(8);
    first.map(|byte| format!("{byte:02x}")).collect()
}

/// The front matter of a record, without what depends on its version.
fn fields(entry: &MemoryEntry) -> String {
    let MemoryEntry {
        id,
        category,
        title,
        summary,
        content: _,
        status,
        tags,
        source,
        confidence,
        expires_at,
    } = entry;
    let tags: Vec<String> = tags.iter().map(|tag| scalar(tag)).collect();
    let mut text = format!(
        "id: {}\ncategory: {}\ntitle: {}\n",
        scalar(id.as_str()),
        scalar(category),
        scalar(title)
    );
    if !summary.is_empty() {
        text.push_str(&format!("summary: {}\n", scalar(summary)));
    }
    text.push_str(&format!(
        "status: {status}\ntags: [{}]\nsource: {source}\nconfidence: {confidence}\n",
        tags.join(", ")
    ));
    if let Some(at) = expires_at {
        text.push_str(&format!("expires: {}\n", scalar(&time(*at))));
    }
    text
}

/// Reads the text of a file; `name` is for faults.
pub(crate) fn decode(name: &str, text: &str) -> Result<MemoryFile, Vec<SettingFault>> {
    let whole = |seen: &str| {
        let place = ConfigPlace::File {
            name: name.into(),
            line: 1,
            column: 1,
        };
        let expected = "YAML front matter between two lines of `---`";
        vec![SettingFault::new(&place, "", seen, expected)]
    };
    let (head, content) = split(text).ok_or_else(|| whole("no front matter"))?;
    // In place of the first line, so that the lines of faults are those of the file.
    let read = document::<Head>(name, &format!("#\n{head}"))?;
    let Head {
        id,
        category,
        title,
        summary,
        status,
        tags,
        source,
        confidence,
        expires,
        version,
        digest,
    } = read.value;
    let mut faults = Vec::new();
    let mut wrong = |key: &str, seen: String, expected: String| {
        faults.push(SettingFault::new(
            &read.tree.place_of(key),
            key,
            seen,
            expected,
        ));
    };
    let expires_at = expires.as_deref().map(parse_time).and_then(|parsed| {
        parsed
            .map_err(|expected| wrong("expires", "another text".into(), expected.into()))
            .ok()
    });
    if version.is_some_and(|version| version < 1) {
        wrong(
            "version",
            "a number below 1".into(),
            "the version that was exported".into(),
        );
    }
    let id = id
        .parse()
        .map_err(|fault: agentmine_domain::MemoryFault| wrong("id", fault.seen, fault.expected))
        .ok();
    let entry = id.map(|id| MemoryEntry {
        id,
        category,
        title,
        summary,
        content,
        status: status.into(),
        tags,
        source: source.into(),
        confidence: confidence.into(),
        expires_at,
    });
    for fault in entry.iter().flat_map(MemoryEntry::faults) {
        wrong(fault.field, fault.seen, fault.expected);
    }
    match entry {
        Some(entry) if faults.is_empty() => Ok(MemoryFile {
            is_as_exported: digest.is_some_and(|digest| digest == digest_of(&entry)),
            entry,
            version,
        }),
        Some(_) | None => Err(faults),
    }
}

/// The front matter and the content. Where git has made the lines end with CRLF, those of the content are LF again.
fn split(text: &str) -> Option<(String, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = match text.starts_with("---\r\n") {
        true => text.replace("\r\n", "\n"),
        false => text.to_owned(),
    };
    let rest = text.strip_prefix("---\n")?;
    let (head, content) = match rest.split_once("\n---\n") {
        Some((head, content)) => (head, content),
        None => (rest.strip_suffix("\n---")?, ""),
    };
    let content = content.strip_suffix('\n').unwrap_or(content);
    Some((head.to_owned(), content.to_owned()))
}

/// A time as `2027-01-31` (its beginning, UTC) or as RFC 3339.
pub(crate) fn parse_time(text: &str) -> Result<DateTime<Utc>, &'static str> {
    let midnight = |date: NaiveDate| date.and_hms_opt(0, 0, 0).map(|time| time.and_utc());
    let date = text.parse::<NaiveDate>().ok().and_then(midnight);
    let exact = || DateTime::parse_from_rfc3339(text).map(|at| at.with_timezone(&Utc));
    date.map_or_else(exact, Ok)
        .map(|at| at.trunc_subsecs(3))
        .map_err(|_| "a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z")
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

/// A text as a YAML scalar on one line: plain if it is a word that no reader takes for anything else.
fn scalar(text: &str) -> String {
    const OTHER: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_word = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    match is_word && !OTHER.contains(&text) {
        true => text.to_owned(),
        // A JSON string is a YAML string; what YAML calls unprintable is escaped too.
        false => serde_json::Value::from(text)
            .to_string()
            .chars()
            .flat_map(escaped)
            .collect(),
    }
}

fn escaped(c: char) -> Vec<char> {
    match c {
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
            format!("\\u{:04x}", u32::from(c)).chars().collect()
        }
        c => vec![c],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> MemoryRecord {
        MemoryRecord {
            entry: MemoryEntry {
                id: "linter".parse().unwrap(),
                category: "tooling".into(),
                title: "Clippy is the linter: no warnings".into(),
                summary: "two\nlines \"quoted\"".into(),
                content: "# Text\n\n---\n\n`x`\n".into(),
                status: MemoryStatus::Active,
                tags: vec!["rust".into(), "no".into(), "日本 語".into()],
                source: MemorySource::Session,
                confidence: Confidence::Medium,
                expires_at: Some("2031-02-03T04:05:06.789Z".parse().unwrap()),
            },
            version: 7,
            created_at: Utc::now(),
            updated_at: Utc::now(),
        }
    }

    #[test]
    fn a_record_is_a_file_that_people_can_review() {
        let text = encode(&record());
        let digest = digest_of(&record().entry);
        assert_eq!(
            text,
            format!(
                "---\nid: linter\ncategory: tooling\ntitle: \"Clippy is the linter: no warnings\"\n\
                 summary: \"two\\nlines \\\"quoted\\\"\"\nstatus: active\ntags: [rust, \"no\", \"日本 語\"]\n\
                 source: session\nconfidence: medium\nexpires: \"2031-02-03T04:05:06.789Z\"\nversion: 7\n\
                 digest: \"{digest}\"\n---\n# Text\n\n---\n\n`x`\n\n"
            )
        );
        let read = decode("linter.md", &text).unwrap();
        assert_eq!((read.entry, read.version), (record().entry, Some(7)));
        assert!(read.is_as_exported);
    }

    #[test]
    fn a_file_that_somebody_edited_is_not_as_it_was_exported() {
        let text = encode(&record());
        let is_as_exported = |text: &str| decode("linter.md", text).unwrap().is_as_exported;
        assert!(is_as_exported(&text.replace('\n', "\r\n")));
        assert!(!is_as_exported(
            &text.replace("status: active", "status: archived")
        ));
        assert!(!is_as_exported(&text.replace("# Text", "# Another")));
        assert!(!is_as_exported(&text.replace("digest:", "#")));
    }

    #[test]
    fn a_file_that_a_person_writes_needs_three_keys_and_is_a_draft() {
        let text = "---\nid: x\ncategory: c\ntitle: T\nexpires: 2027-01-31\n---\nText";
        let read = decode("x.md", text).unwrap();
        assert_eq!(read.entry.status, MemoryStatus::Draft);
        assert_eq!(read.entry.content, "Text");
        assert_eq!(read.version, None);
        let expires = read.entry.expires_at.unwrap().to_rfc3339();
        assert_eq!(expires, "2027-01-31T00:00:00+00:00");
        let windows = decode(
            "x.md",
            &text.replace('\n', "\r\n").replace("Text", "a\r\nb"),
        )
        .unwrap();
        assert_eq!(windows.entry.content, "a\nb");
        assert_eq!(
            decode("x.md", "---\nid: x\ncategory: c\ntitle: T\n---")
                .unwrap()
                .entry
                .content,
            ""
        );
    }

    #[test]
    fn every_fault_of_a_file_has_its_place() {
        let all = |text: &str| {
            let faults = decode("x.md", text).unwrap_err();
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        let unknown = all("---\nid: x\ncategory: c\ntitle: T\nstaus: active\nsource: robot\n---\n");
        assert!(
            unknown.contains("x.md:5:1: unknown key `staus`"),
            "{unknown}"
        );
        assert!(unknown.contains("did you mean `status`?"), "{unknown}");
        assert!(unknown.contains("x.md:6:9: source: `robot`"), "{unknown}");
        let forms = all("---\nid: ../x\ncategory: c\ntitle: T\nexpires: soon\n---\n");
        assert!(forms.contains("x.md:2:5: id:"), "{forms}");
        assert!(forms.contains("x.md:5:10: expires:"), "{forms}");
        let missing = all("---\nid: x\n---\n");
        assert!(
            missing.contains("the key `category`") && missing.contains("the key `title`"),
            "{missing}"
        );
        assert!(all("# Text\n").contains("no front matter"));
        assert!(all("---\nid: x\n").contains("no front matter"));
    }

    proptest! {
        #[test]
        fn a_round_trip_is_exact(
            content in "(\\PC|[\r\n\t-]){0,200}",
            summary in "(\\PC|\n){0,80}",
            title in "\\PC{1,40}",
            tag in "\\PC{1,20}",
        ) {
            let mut record = record();
            record.entry.content = content;
            record.entry.summary = summary;
            record.entry.title = format!("t{title}t");
            record.entry.tags = vec![format!("t{tag}t")];
            let read = decode("linter.md", &encode(&record)).unwrap();
            prop_assert_eq!(read.entry, record.entry);
        }
    }
}
