//! The faults of one configuration file.

use std::path::Path;

use agentmine_runtime::config::tree::ConfigPlace;

use crate::ConfigFault;

/// Faults of one file that are reported one by one. A hostile file may have any number.
const MAX_FAULTS: usize = 100;
/// Characters of a foreign text in a message.
const SHOWN: usize = 60;

/// The faults of one file, in the order in which they were found.
pub(super) struct Faults<'a> {
    file: &'a Path,
    found: Vec<ConfigFault>,
    more: usize,
}

impl<'a> Faults<'a> {
    pub(super) fn new(file: &'a Path) -> Self {
        Self {
            file,
            found: Vec::new(),
            more: 0,
        }
    }

    /// A fault because of which the server is skipped; without one the fault affects no server, or the whole file.
    pub(super) fn push(
        &mut self,
        line: Option<usize>,
        field: &str,
        detail: impl Into<String>,
        server: Option<&str>,
    ) {
        if self.found.len() == MAX_FAULTS {
            self.more += 1;
            return;
        }
        self.found.push(ConfigFault {
            file: self.file.to_owned(),
            line,
            field: field.to_owned(),
            detail: detail.into(),
            server: server.map(str::to_owned),
        });
    }

    /// All of them, by line.
    pub(super) fn into_vec(mut self) -> Vec<ConfigFault> {
        self.found.sort_by_key(|fault| fault.line);
        if self.more > 0 {
            self.found.push(ConfigFault {
                file: self.file.to_owned(),
                line: None,
                field: String::new(),
                detail: format!("and {} more faults", self.more),
                server: None,
            });
        }
        self.found
    }
}

pub(super) fn line_of(place: &ConfigPlace) -> Option<usize> {
    match place {
        ConfigPlace::File { line, .. } => usize::try_from(*line).ok(),
        ConfigPlace::Default | ConfigPlace::Env(_) | ConfigPlace::Flag(_) => None,
    }
}

/// A foreign text in a message: short, on one line, without control characters.
pub(super) fn shown(text: &str) -> String {
    let strange = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut out: String = text
        .chars()
        .take(SHOWN)
        .map(|c| if strange(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}
