//! How work branches are named (`agent.branch_pattern`).

use std::str::FromStr;

/// Longest pattern in bytes. With the longest values of its fields, a name stays below what git hosts accept.
const LONGEST: usize = 80;

/// A pattern such as `{type}/{bot}-{number}-{description}`. Its names are valid branch names, whatever the fields hold: a
/// field may be empty, and has letters, digits and `-` alone.
///
/// ```
/// use agentmine_runtime::config::{BranchField, BranchPattern};
///
/// let pattern: BranchPattern = "{type}/{bot}-{number}-{description}".parse().unwrap();
/// let name = |description: &str| pattern.name(|field| match field {
///     BranchField::Type => "fix".into(),
///     BranchField::Bot => "mona".into(),
///     BranchField::Number => "7".into(),
///     BranchField::Description => description.into(),
/// });
/// assert_eq!(name("greet-by-name"), "fix/mona-7-greet-by-name");
/// assert_eq!(name(""), "fix/mona-7");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchPattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(BranchField),
}

/// What a pattern may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchField {
    /// `fix`, `feature`, `docs`, `refactor`, `test` or `task`.
    Type,
    /// The account of the bot.
    Bot,
    /// The number of the item.
    Number,
    /// A few words.
    Description,
}

impl BranchField {
    const ALL: [(&'static str, Self); 4] = [
        ("type", Self::Type),
        ("bot", Self::Bot),
        ("number", Self::Number),
        ("description", Self::Description),
    ];

    /// Whether a model is asked for it.
    fn is_worded(self) -> bool {
        match self {
            Self::Type | Self::Description => true,
            Self::Bot | Self::Number => false,
        }
    }
}

/// Not a pattern: what is expected instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidBranchPattern(pub &'static str);

impl BranchPattern {
    /// Whether a model is asked for words.
    #[must_use]
    pub fn asks_for_words(&self) -> bool {
        let is_asked = |part: &Part| matches!(part, Part::Field(field) if field.is_worded());
        self.0.iter().any(is_asked)
    }

    /// The name with these fields.
    #[must_use]
    pub fn name(&self, value: impl Fn(BranchField) -> String) -> String {
        let mut name = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Field(field) => name.push_str(&value(*field)),
            }
        }
        tidy(&name)
    }
}

/// The name without the separators that an empty field leaves.
fn tidy(name: &str) -> String {
    let segments = name.split('/').map(|segment| {
        let words: Vec<&str> = segment.split('-').filter(|it| !it.is_empty()).collect();
        words.join("-").trim_matches(['-', '_']).to_owned()
    });
    let segments: Vec<String> = segments.filter(|it| !it.is_empty()).collect();
    segments.join("/")
}

impl FromStr for BranchPattern {
    type Err = InvalidBranchPattern;

    fn from_str(text: &str) -> Result<Self, InvalidBranchPattern> {
        if text.len() > LONGEST {
            return Err(InvalidBranchPattern("at most 80 characters"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let field = after.split_once('}').and_then(|(name, after)| {
                let known = BranchField::ALL.iter().find(|(known, _)| *known == name)?;
                Some((known.1, after))
            });
            let (field, after) = field.ok_or(InvalidBranchPattern(
                "the fields `{type}`, `{bot}`, `{number}` and `{description}`",
            ))?;
            if parts.contains(&Part::Field(field)) {
                return Err(InvalidBranchPattern("each field once at most"));
            }
            parts.extend(literal(before)?);
            parts.push(Part::Field(field));
            rest = after;
        }
        parts.extend(literal(rest)?);
        if !parts.contains(&Part::Field(BranchField::Number)) {
            return Err(InvalidBranchPattern(
                "`{number}` in it, by which people find the item",
            ));
        }
        let pattern = Self(parts);
        if pattern.has_empty_segment() {
            return Err(InvalidBranchPattern(
                "something between, before and after each `/`",
            ));
        }
        Ok(pattern)
    }
}

impl BranchPattern {
    /// Of its text alone: a field that is empty takes its separators with it.
    fn has_empty_segment(&self) -> bool {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Field(_) => text.push('x'),
            }
        }
        text.split('/')
            .any(|segment| segment.trim_matches(['-', '_']).is_empty())
    }
}

/// Text between fields.
fn literal(text: &str) -> Result<Option<Part>, InvalidBranchPattern> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
    match text.chars().all(is_allowed) {
        true => Ok((!text.is_empty()).then(|| Part::Text(text.to_owned()))),
        false => Err(InvalidBranchPattern(
            "letters, digits, `-`, `_` and `/` beside the fields",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pattern: &str, description: &str) -> String {
        let pattern: BranchPattern = pattern.parse().unwrap();
        pattern.name(|field| match field {
            BranchField::Type => "docs".into(),
            BranchField::Bot => "mona-bot".into(),
            BranchField::Number => "7".into(),
            BranchField::Description => description.into(),
        })
    }

    #[test]
    fn an_empty_field_takes_its_separators_with_it() {
        for (pattern, with, without) in [
            (
                "{type}/{bot}-{number}-{description}",
                "docs/mona-bot-7-x-y",
                "docs/mona-bot-7",
            ),
            ("{description}-{number}", "x-y-7", "7"),
            ("{description}/{number}", "x-y/7", "7"),
            ("work/{number}_{description}", "work/7_x-y", "work/7"),
            (
                "{number}-{description}-{bot}",
                "7-x-y-mona-bot",
                "7-mona-bot",
            ),
        ] {
            assert_eq!(name(pattern, "x-y"), with);
            assert_eq!(name(pattern, ""), without);
        }
    }

    #[test]
    fn only_what_makes_valid_names_is_a_pattern() {
        for pattern in [
            "",
            "work",
            "{type}/{bot}",
            "{number",
            "{number}}",
            "{Number}",
            "{number}-{title}",
            "{number}-{number}",
            "/{number}",
            "{number}/",
            "a//{number}",
            "-/{number}",
            "{number}.lock",
            "../{number}",
            "{number} {type}",
            "{number}~1",
            "refs:{number}",
            "作業/{number}",
            &format!("{}{{number}}", "a".repeat(80)),
        ] {
            assert!(pattern.parse::<BranchPattern>().is_err(), "{pattern:?}");
        }
    }

    #[test]
    fn a_model_is_asked_for_words_alone() {
        let asks = |text: &str| text.parse::<BranchPattern>().unwrap().asks_for_words();
        assert!(asks("{type}/{number}") && asks("{number}-{description}"));
        assert!(!asks("bot/{bot}-{number}"));
    }
}
