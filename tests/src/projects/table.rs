//! The repositories, each composed of the archives in this folder.

use super::Everyday;

macro_rules! archive {
    ($name:literal) => {
        include_str!(concat!($name, ".txtar"))
    };
}

const PYTHON_FILES: &str = archive!("python");
const PYTEST_FILES: &str = archive!("pytest");
const PIP_FILES: &str = archive!("pip");
const NODE_FILES: &str = archive!("node");
const NODE_MEMBER_FILES: &str = archive!("node_member");
const NODE_SETTINGS_FILES: &str = archive!("node_settings");
const NPM_FILES: &str = archive!("npm");
const GO_FILES: &str = archive!("go");
const GO_REGISTRY_FILES: &str = archive!("go_registry");
const RUST_FILES: &str = archive!("rust");
const CARGO_SETTINGS_FILES: &str = archive!("cargo_settings");
const JAVA_FILES: &str = archive!("java");
const MAVEN_SETTINGS_FILES: &str = archive!("maven_settings");

const PY_FIX: (&str, &str, &str) = ("greet.py", "', !'", "f', {name}!'");
const JS_FIX: (&str, &str, &str) = ("greet.js", "}, !`", "}, ${name}!`");
const GO_FIX: (&str, &str, &str) = ("greet.go", "\", !\"", "\", \" + name + \"!\"");
const RUST_FIX: (&str, &str, &str) = (
    "src/lib.rs",
    "_name: &str) -> String {\n    format!(\"{}, !\", greetings::hello())",
    "name: &str) -> String {\n    format!(\"{}, {name}!\", greetings::hello())",
);
const JAVA_FIX: (&str, &str, &str) = (
    "src/main/java/demo/Greet.java",
    "+ \", !\";",
    "+ \", \" + name + \"!\";",
);

/// Python with requirements and pytest.
pub const PIP: Everyday = Everyday {
    name: "pip",
    layers: &[("", PYTHON_FILES), ("", PYTEST_FILES), ("", PIP_FILES)],
    fix: PY_FIX,
    check: "python3 -m pytest -q",
    requests: "/files/greetings",
};

/// Python with a pyproject.toml only. pip reads the index from a settings file beside it.
pub const PYPROJECT: Everyday = Everyday {
    name: "pyproject",
    layers: &[
        ("", PYTHON_FILES),
        ("", PYTEST_FILES),
        ("", archive!("pyproject")),
    ],
    ..PIP
};

/// Python with uv and its lock file.
pub const UV: Everyday = Everyday {
    name: "uv",
    layers: &[("", PYTHON_FILES), ("", archive!("uv"))],
    fix: PY_FIX,
    check: "sh ./test.sh",
    requests: "/files/greetings",
};

/// Python with poetry and its lock file.
pub const POETRY: Everyday = Everyday {
    name: "poetry",
    layers: &[("", PYTHON_FILES), ("", archive!("poetry"))],
    ..UV
};

/// Node with npm and its lock file.
pub const NPM: Everyday = Everyday {
    name: "npm",
    layers: &[("", NODE_FILES), ("", NODE_SETTINGS_FILES), ("", NPM_FILES)],
    fix: JS_FIX,
    check: "npm test --silent",
    requests: "/greetings/-/",
};

/// Node with pnpm and its lock file.
pub const PNPM: Everyday = Everyday {
    name: "pnpm",
    layers: &[
        ("", NODE_FILES),
        ("", NODE_SETTINGS_FILES),
        ("", archive!("pnpm")),
    ],
    check: "pnpm test",
    ..NPM
};

/// Node with yarn 1 and its lock file.
pub const YARN: Everyday = Everyday {
    name: "yarn",
    layers: &[
        ("", NODE_FILES),
        ("", NODE_SETTINGS_FILES),
        ("", archive!("yarn")),
    ],
    check: "yarn test",
    ..NPM
};

/// A Go module with a dependency, which the image's `GOPROXY` provides.
pub const GO: Everyday = Everyday {
    name: "go",
    layers: &[("", GO_FILES), ("", GO_REGISTRY_FILES)],
    fix: GO_FIX,
    check: "go test ./...",
    requests: "/go/example.com/greetings",
};

/// A Go module whose dependency is in the same repository.
pub const GO_WORKSPACE: Everyday = Everyday {
    name: "go-workspace",
    layers: &[("", GO_FILES), ("", archive!("go_workspace"))],
    fix: GO_FIX,
    check: "go test ./...",
    requests: "",
};

/// A Rust crate with its lock file.
pub const CARGO: Everyday = Everyday {
    name: "cargo",
    layers: &[
        ("", RUST_FILES),
        ("", CARGO_SETTINGS_FILES),
        ("", archive!("cargo")),
    ],
    fix: RUST_FIX,
    check: "cargo test",
    requests: "/crates/greetings",
};

/// Ruby with a Gemfile and rake.
pub const BUNDLER: Everyday = Everyday {
    name: "bundler",
    layers: &[("", archive!("bundler"))],
    fix: (
        "greet.rb",
        "_name)\n  \"#{Greetings.hello}, !\"",
        "name)\n  \"#{Greetings.hello}, #{name}!\"",
    ),
    check: "sh ./test.sh",
    requests: "/gems/greetings",
};

/// Java with Maven. The plugins are those that Debian packages; its own global settings allow plain HTTP.
pub const MAVEN: Everyday = Everyday {
    name: "maven",
    layers: &[
        ("", JAVA_FILES),
        ("", MAVEN_SETTINGS_FILES),
        ("", archive!("maven")),
    ],
    fix: JAVA_FIX,
    check: "mvn -q -B test",
    requests: "/maven/com/example/greetings",
};

/// Java with Gradle.
pub const GRADLE: Everyday = Everyday {
    name: "gradle",
    layers: &[("", JAVA_FILES), ("", archive!("gradle"))],
    check: "gradle -q --no-daemon test",
    ..MAVEN
};

/// A workspace of npm: the root installs and tests its member.
pub const NPM_WORKSPACE: Everyday = Everyday {
    name: "npm-workspace",
    layers: &[
        ("packages/app/", NODE_FILES),
        ("packages/app/", NODE_MEMBER_FILES),
        ("", NODE_SETTINGS_FILES),
        ("", archive!("npm_workspace")),
    ],
    fix: ("packages/app/greet.js", JS_FIX.1, JS_FIX.2),
    check: "npm test --silent --workspaces --if-present",
    requests: "/greetings/-/",
};

/// A workspace of pnpm.
pub const PNPM_WORKSPACE: Everyday = Everyday {
    name: "pnpm-workspace",
    layers: &[
        ("packages/app/", NODE_FILES),
        ("packages/app/", NODE_MEMBER_FILES),
        ("", NODE_SETTINGS_FILES),
        ("", archive!("pnpm_workspace")),
    ],
    fix: ("packages/app/greet.js", JS_FIX.1, JS_FIX.2),
    check: "pnpm --recursive test",
    requests: "/greetings/-/",
};

/// A workspace of uv: the dependency is a member's.
pub const UV_WORKSPACE: Everyday = Everyday {
    name: "uv-workspace",
    layers: &[
        ("packages/app/", PYTHON_FILES),
        ("", archive!("uv_workspace")),
    ],
    fix: ("packages/app/greet.py", PY_FIX.1, PY_FIX.2),
    check: "sh ./test.sh",
    requests: "/files/greetings",
};

/// A workspace of Go: two modules, one of them with a dependency.
pub const GO_WORK: Everyday = Everyday {
    name: "go-work",
    layers: &[
        ("app/", GO_FILES),
        ("app/", GO_REGISTRY_FILES),
        ("", archive!("go_work")),
    ],
    fix: ("app/greet.go", "\", \" + marks", "\", \" + name + marks"),
    check: "go test ./app/... ./marks/...",
    requests: "/go/example.com/greetings",
};

/// A workspace of cargo.
pub const CARGO_WORKSPACE: Everyday = Everyday {
    name: "cargo-workspace",
    layers: &[
        ("crates/app/", RUST_FILES),
        ("", CARGO_SETTINGS_FILES),
        ("", archive!("cargo_workspace")),
    ],
    fix: ("crates/app/src/lib.rs", RUST_FIX.1, RUST_FIX.2),
    check: "cargo test",
    requests: "/crates/greetings",
};

/// Maven modules: one depends on the other, and on a registry.
pub const MAVEN_MODULES: Everyday = Everyday {
    name: "maven-modules",
    layers: &[
        ("app/", JAVA_FILES),
        ("", MAVEN_SETTINGS_FILES),
        ("", archive!("maven_modules")),
    ],
    fix: (
        "app/src/main/java/demo/Greet.java",
        "\", \" + Marks",
        "\", \" + name + Marks",
    ),
    check: "mvn -q -B test",
    requests: "/maven/com/example/greetings",
};

/// Two independent projects in the folders of one repository.
pub const MONOREPO: Everyday = Everyday {
    name: "monorepo",
    layers: &[
        ("jobs/", PYTHON_FILES),
        ("jobs/", PYTEST_FILES),
        ("jobs/", PIP_FILES),
        ("web/", NODE_FILES),
        ("web/", NODE_SETTINGS_FILES),
        ("web/", NPM_FILES),
        ("", archive!("monorepo")),
    ],
    fix: ("jobs/greet.py", PY_FIX.1, PY_FIX.2),
    check: "cd jobs && python3 -m pytest -q",
    requests: "/greetings/-/",
};

/// A C project with make.
pub const MAKE: Everyday = Everyday {
    name: "make",
    layers: &[("", archive!("make"))],
    fix: ("greet.c", "\\n\", \"\")", "\\n\", argv[1])"),
    check: "make check",
    requests: "",
};
