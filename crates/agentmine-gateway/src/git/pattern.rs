//! Patterns of paths in the operator's configuration.
//!
//! `*` and `?` stand for characters of one name, `**` for any number of folders. A pattern without a slash
//! applies in every folder. Upper and lower case are the same, as on the file systems of many developers.

/// Whether `path` matches `pattern`, or is below a folder that does.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern
        .trim_start_matches('/')
        .trim_end_matches('/')
        .to_lowercase();
    let path = path.to_lowercase();
    let mut parts: Vec<&str> = pattern.split('/').collect();
    if parts.len() == 1 {
        parts.insert(0, "**");
    }
    let path: Vec<&str> = path.split('/').collect();
    // `reach[n]`: the pattern so far matches the first `n` names of the path.
    let mut reach = vec![false; path.len() + 1];
    reach[0] = true;
    for part in parts {
        let mut next = vec![false; path.len() + 1];
        for at in 0..=path.len() {
            next[at] = if part == "**" {
                reach[at] || (at > 0 && next[at - 1])
            } else {
                at > 0 && reach[at - 1] && name_matches(part.as_bytes(), path[at - 1].as_bytes())
            };
        }
        reach = next;
    }
    reach.iter().skip(1).any(|reached| *reached)
}

/// In time proportional to the product of the lengths.
fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, from)) => {
                    *from += 1;
                    (p, n) = (*at + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_names_folders_and_what_is_below_them() {
        for (pattern, path, expected) in [
            (".github/workflows/**", ".github/workflows/ci.yml", true),
            (".github/workflows", ".GitHub/workflows/x/ci.yml", true),
            (
                ".github/workflows/*.yml",
                "x/.github/workflows/ci.yml",
                false,
            ),
            ("**/*.pem", "a/b/key.pem", true),
            ("*.pem", "key.PEM", true),
            ("*.pem", "key.pem.txt", false),
            ("Jenkinsfile*", "ci/Jenkinsfile.release", true),
            ("tests/**/key?.txt", "tests/key1.txt", true),
            ("tests/**/key?.txt", "tests/a/b/key12.txt", false),
            ("docs", "docs/a.md", true),
            ("docs", "src/docs.rs", false),
            ("a*b*c", "axxbxxc", true),
            ("**", "anything/at/all", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
