//! The repository's settings file, which comes from anybody.

use serde::Deserialize;

/// The repository's settings file, `.agentmine/config.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectFile {
    /// The image to run in, if the operator allows it.
    pub image: Option<String>,
    /// Shell commands that must succeed.
    pub checks: Vec<String>,
    /// Shell commands that prepare a fresh clone, instead of those derived from the project's files.
    pub setup: Option<Vec<String>>,
}

/// Where it is.
pub const PROJECT_FILE: &str = ".agentmine/config.yaml";
const MAX_LINES: usize = 20;
const MAX_LINE: usize = 2_000;

impl ProjectFile {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// What is wrong with it, in words that begin with its name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Self =
            serde_saphyr::from_str(text).map_err(|e| format!("{PROJECT_FILE}: {e}"))?;
        for (key, lines) in [
            ("checks", &file.checks),
            ("setup", file.setup.as_ref().unwrap_or(&Vec::new())),
        ] {
            if lines.len() > MAX_LINES || lines.iter().any(|line| line.len() > MAX_LINE) {
                return Err(format!(
                    "{PROJECT_FILE}: `{key}` is too long; expected at most {MAX_LINES} lines of at most {MAX_LINE} bytes"
                ));
            }
        }
        if file.checks.iter().any(|line| line.trim().is_empty()) {
            return Err(format!(
                "{PROJECT_FILE}: `checks` has an empty line, which would always succeed; expected shell commands"
            ));
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faulty_project_file_is_reported_with_its_name() {
        let error = ProjectFile::parse("cheks: [make test]").unwrap_err();
        assert!(error.starts_with(PROJECT_FILE), "{error}");
        assert!(error.contains("cheks"), "{error}");
    }

    #[test]
    fn a_blank_check_is_a_fault() {
        for blank in ["''", "\" \\n\""] {
            let text = format!("checks: [make test, {blank}]");
            let error = ProjectFile::parse(&text).unwrap_err();
            assert!(error.contains("empty line"), "{error}");
        }
        ProjectFile::parse("checks: [make test]").unwrap();
    }
}
