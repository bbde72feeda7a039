//! A small sample repository with a failing test, and the issue about it.

use std::path::Path;

use super::Forge;

/// The sample's name.
pub const DEMO: &str = "octo/demo";

/// The sample issue's title.
pub const DEMO_TITLE: &str = "greet.sh greets nobody";

/// The sample issue's text.
pub const DEMO_BODY: &str = "`sh greet.sh Ada` prints `Hello, !`. It should print `Hello, Ada!`, \
    and `Hello, world!` without a name. `sh test.sh` shows it.\n";

/// Writes the sample's files.
///
/// # Panics
/// If the folder cannot be written.
pub fn write_demo(dir: &Path) {
    let files = [
        (
            "README.md",
            "# demo\n\nA script that greets. `sh test.sh` tests it.\n",
        ),
        (
            "greet.sh",
            "#!/bin/sh\n# Greets the person named by the first argument.\nname=\"\"\necho \"Hello, $name!\"\n",
        ),
        (
            "test.sh",
            "#!/bin/sh\nset -eu\ncd \"$(dirname \"$0\")\"\nfail=0\ncheck() {\n  if [ \"$1\" = \"$2\" ]; then echo \"ok: $2\"; \
             else echo \"FAIL: got '$1', expected '$2'\"; fail=1; fi\n}\n\
             check \"$(sh greet.sh Ada)\" \"Hello, Ada!\"\ncheck \"$(sh greet.sh)\" \"Hello, world!\"\nexit $fail\n",
        ),
        (".agentmine/config.yaml", "checks: [\"sh test.sh\"]\n"),
    ];
    for (name, text) in files {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a folder of the sample");
        }
        std::fs::write(path, text).expect("a file of the sample");
    }
}

impl Forge {
    /// Adds the sample repository and its issue with the given label; returns the issue's number.
    pub fn seed_demo(&self, label: &str) -> u64 {
        self.add_repo(DEMO, write_demo);
        self.add_issue(DEMO, DEMO_TITLE, DEMO_BODY, &[label])
    }
}
