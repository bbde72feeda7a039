//! Parts of an engine that are known to let containers out, or to filter less than they should.

/// The first version without the fault, for each line of releases that got the correction: the last line covers
/// all later ones.
struct Known {
    part: &'static str,
    fixed: &'static [[u32; 3]],
    fault: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        part: "runc",
        fixed: &[[1, 2, 8], [1, 3, 3], [1, 4, 0]],
        fault: "a container can write to files of the machine while it starts (CVE-2025-31133, CVE-2025-52565, \
                CVE-2025-52881)",
    },
    Known {
        part: "runc",
        fixed: &[[1, 1, 12]],
        fault: "a container can reach the file system of the machine (CVE-2024-21626)",
    },
    Known {
        part: "Engine",
        fixed: &[[25, 0, 0]],
        fault: "its system call filter allows io_uring, and before 23.0 AF_VSOCK (AgentMine's own filter does not)",
    },
];

/// A sentence for each part with a known fault.
pub(super) fn outdated(parts: &[(String, String)]) -> Vec<String> {
    let found = KNOWN.iter().filter_map(|known| {
        let (_, version) = parts.iter().find(|(name, _)| name == known.part)?;
        let is_old = numbers(version).is_some_and(|version| !is_fixed(version, known.fixed));
        let [major, minor, patch] = known.fixed[0];
        is_old.then(|| {
            format!(
                "{} {version} of the container engine is older than {major}.{minor}.{patch}: {}. hint: update it, \
                 unless your distribution has corrected this version",
                known.part.to_lowercase(),
                known.fault
            )
        })
    });
    found.collect()
}

fn is_fixed(version: [u32; 3], fixed: &[[u32; 3]]) -> bool {
    let same_line = fixed.iter().find(|it| it[..2] == version[..2]);
    match same_line {
        Some(fixed) => version >= *fixed,
        None => fixed.last().is_some_and(|last| version >= *last),
    }
}

/// The numbers at the start of a version such as `1.1.5+ds1` or `v27.3.1-ce`.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let version = version.trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
    let mut numbers = version[..end.unwrap_or(version.len())]
        .split('.')
        .map(|number| number.parse().ok());
    Some([
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
        numbers.next().flatten().unwrap_or(0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[(&str, &str)]) -> String {
        let parts = parts
            .iter()
            .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
        outdated(&parts.collect::<Vec<_>>()).join("\n")
    }

    #[test]
    fn old_parts_are_named_with_their_fault() {
        let old = of(&[("Engine", "20.10.24+dfsg1"), ("runc", "1.1.5+ds1")]);
        for part in [
            "engine 20.10.24",
            "io_uring",
            "runc 1.1.5",
            "CVE-2024-21626",
            "CVE-2025-31133",
        ] {
            assert!(old.contains(part), "{part}: {old}");
        }
        let between = of(&[("Engine", "27.5.1"), ("runc", "1.2.7")]);
        assert!(
            between.contains("CVE-2025-31133") && !between.contains("CVE-2024-21626"),
            "{between}"
        );
        for new in ["1.2.8", "1.3.3", "1.4.0-rc.3", "1.5.1", "unknown"] {
            assert_eq!(
                of(&[("Engine", "29.0.0"), ("runc", new), ("containerd", "1")]),
                "",
                "{new}"
            );
        }
        assert!(of(&[("runc", "1.3.2")]).contains("runc 1.3.2"));
    }
}
