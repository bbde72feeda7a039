//! Everyday repositories, made by script: one for each package manager, with one dependency, a test that
//! fails, attributes, tags and 200 commits of history.
#![expect(
    clippy::expect_used,
    reason = "a harness: a fault of its own has to end the test at once"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::model::{Scenario, commit_and_push, edit_replace, say};
use crate::registry::Registry;

/// A repository and the change that fixes it.
pub struct Everyday {
    /// The part after `octo/`.
    pub name: &'static str,
    /// Paths and texts; [`Registry::fill`] is applied to the texts.
    pub files: &'static [(&'static str, &'static str)],
    /// The file to change, the old and the new text.
    pub fix: (&'static str, &'static str, &'static str),
    /// The check that is expected to be guessed.
    pub check: &'static str,
    /// The part of the registry that the set-up has to request; empty if there is no dependency.
    pub requests: &'static str,
}

const COMMITS: usize = 200;

impl Everyday {
    /// The repository's full name.
    pub fn full_name(&self) -> String {
        format!("octo/{}", self.name)
    }

    /// A reply script that fixes it.
    pub fn scenario(&self) -> Scenario {
        let (file, old, new) = self.fix;
        Scenario::new(self.name).replies([
            edit_replace(file, old, new),
            commit_and_push("Greet by name"),
            say("It greets by name now."),
        ])
    }

    /// Writes the history into the bare repository `git_dir`.
    ///
    /// # Panics
    /// If git fails.
    pub fn write(&self, git_dir: &Path, registry: &Registry) {
        let mut stream = String::from("reset refs/heads/main\n");
        for n in 1..COMMITS {
            let notes: String = (1..=n % 20 + 1)
                .map(|i| format!("- change {i}\n"))
                .collect();
            commit(&mut stream, n, &[("CHANGES.md".to_owned(), notes)]);
            if n % 50 == 0 {
                let _ = write!(
                    stream,
                    "reset refs/tags/v0.{}\nfrom refs/heads/main\n\n",
                    n / 50
                );
            }
        }
        let attributes = ("*.sh text eol=lf\n*.png binary\n", ".gitattributes");
        let mut files = vec![(attributes.1.to_owned(), attributes.0.to_owned())];
        files.extend(
            self.files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), registry.fill(text))),
        );
        commit(&mut stream, COMMITS, &files);
        let mut import = Command::new("git")
            .arg("-C")
            .arg(git_dir)
            .args(["fast-import", "--quiet", "--force"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("git");
        let mut input = import.stdin.take().expect("its stdin");
        input.write_all(stream.as_bytes()).expect("the history");
        drop(input);
        assert!(import.wait().expect("git").success(), "git fast-import");
    }
}

fn commit(stream: &mut String, n: usize, files: &[(String, String)]) {
    let when = 1_700_000_000 + n * 3_600;
    let message = format!("Change {n}\n");
    let _ = write!(
        stream,
        "commit refs/heads/main\ncommitter Ada <ada@example.com> {when} +0100\ndata {}\n{message}\n",
        message.len()
    );
    for (path, text) in files {
        let _ = write!(
            stream,
            "M 100644 inline {path}\ndata {}\n{text}\n",
            text.len()
        );
    }
    stream.push('\n');
}

const PY_CODE: &str =
    "import greetings\n\n\ndef greet(name):\n    return greetings.hello() + ', !'\n";
const PY_TEST: &str = "import greet\n\n\ndef test_greets_by_name():\n    assert greet.greet('Ada') == 'Hello, Ada!'\n";
const PY_FIX: (&str, &str, &str) = ("greet.py", "', !'", "f', {name}!'");
const PY_IGNORE: &str = "__pycache__/\n.venv/\n";

const JS_CODE: &str =
    "const { hello } = require('greetings');\nexports.greet = (name) => `${hello()}, !`;\n";
const JS_TEST: &str = "const test = require('node:test');\nconst assert = require('node:assert');\nconst { greet } = require('../greet.js');\n\
    test('greets by name', () => assert.strictEqual(greet('Ada'), 'Hello, Ada!'));\n";
const JS_FIX: (&str, &str, &str) = ("greet.js", "}, !`", "}, ${name}!`");
const JS_PACKAGE: &str = "{\n  \"name\": \"demo\",\n  \"version\": \"1.0.0\",\n  \"private\": true,\n  \"scripts\": { \"test\": \"node --test tests/\" },\n  \"dependencies\": { \"greetings\": \"1.0.0\" }\n}\n";
const JS_LOCK: &str = "{\n  \"name\": \"demo\",\n  \"version\": \"1.0.0\",\n  \"lockfileVersion\": 3,\n  \"requires\": true,\n  \"packages\": {\n    \"\": {\n      \"name\": \"demo\",\n      \"version\": \"1.0.0\",\n      \"dependencies\": { \"greetings\": \"1.0.0\" }\n    },\n    \"node_modules/greetings\": {\n      \"version\": \"1.0.0\",\n      \"resolved\": \"{URL}/greetings/-/greetings-1.0.0.tgz\",\n      \"integrity\": \"{NPM_INTEGRITY}\"\n    }\n  }\n}\n";
const JS_MEMBER: &str = "{\n  \"name\": \"app\",\n  \"version\": \"1.0.0\",\n  \"scripts\": { \"test\": \"node --test tests/\" },\n  \"dependencies\": { \"greetings\": \"1.0.0\" }\n}\n";
const JS_IGNORE: &str = "node_modules/\n.pnpm-store/\n";

/// Python with requirements and pytest.
pub const PIP: Everyday = Everyday {
    name: "pip",
    files: &[
        (
            "requirements.txt",
            "--index-url {URL}/simple\n--trusted-host {HOST}\ngreetings==1.0\npytest\n",
        ),
        ("greet.py", PY_CODE),
        ("conftest.py", ""),
        ("tests/test_greet.py", PY_TEST),
        (".gitignore", PY_IGNORE),
    ],
    fix: PY_FIX,
    check: "python3 -m pytest -q",
    requests: "/files/greetings",
};

/// Python with a pyproject.toml only. pip reads the index from a settings file beside it.
pub const PYPROJECT: Everyday = Everyday {
    name: "pyproject",
    files: &[
        (
            "pyproject.toml",
            "[build-system]\nrequires = [\"setuptools\"]\nbuild-backend = \"setuptools.build_meta\"\n\n[project]\nname = \"demo\"\nversion = \"1.0\"\n\
             dependencies = [\"greetings @ {URL}/files/greetings-1.0-py3-none-any.whl\"]\n\n[project.optional-dependencies]\ntest = [\"pytest\"]\n\n[tool.setuptools]\npy-modules = [\"greet\"]\n",
        ),
        ("greet.py", PY_CODE),
        ("conftest.py", ""),
        ("tests/test_greet.py", PY_TEST),
        (".gitignore", PY_IGNORE),
    ],
    fix: PY_FIX,
    check: "python3 -m pytest -q",
    requests: "/files/greetings",
};

/// Python with uv and its lock file.
pub const UV: Everyday = Everyday {
    name: "uv",
    files: &[
        (
            "pyproject.toml",
            "[project]\nname = \"demo\"\nversion = \"1.0\"\nrequires-python = \">=3.10\"\ndependencies = [\"greetings\"]\n\n[[tool.uv.index]]\nurl = \"{URL}/simple\"\ndefault = true\n",
        ),
        (
            "uv.lock",
            "version = 1\nrevision = 3\nrequires-python = \">=3.10\"\n\n[[package]]\nname = \"demo\"\nversion = \"1.0\"\nsource = { virtual = \".\" }\ndependencies = [\n    { name = \"greetings\" },\n]\n\n\
             [package.metadata]\nrequires-dist = [{ name = \"greetings\" }]\n\n[[package]]\nname = \"greetings\"\nversion = \"1.0\"\nsource = { registry = \"{URL}/simple\" }\nwheels = [\n    { url = \"{URL}/files/greetings-1.0-py3-none-any.whl\", hash = \"sha256:{WHEEL_SHA256}\" },\n]\n",
        ),
        ("greet.py", PY_CODE),
        (
            "test.sh",
            "uv run --frozen python -c \"import greet; assert greet.greet('Ada') == 'Hello, Ada!'\"\n",
        ),
        (".gitignore", PY_IGNORE),
    ],
    fix: PY_FIX,
    check: "sh ./test.sh",
    requests: "/files/greetings",
};

/// Python with poetry and its lock file.
pub const POETRY: Everyday = Everyday {
    name: "poetry",
    files: &[
        (
            "pyproject.toml",
            "[tool.poetry]\nname = \"demo\"\nversion = \"1.0\"\ndescription = \"\"\nauthors = [\"Ada <ada@example.com>\"]\npackage-mode = false\n\n[tool.poetry.dependencies]\npython = \">=3.10\"\ngreetings = { url = \"{URL}/files/greetings-1.0-py3-none-any.whl\" }\n",
        ),
        (
            "poetry.lock",
            "[[package]]\nname = \"greetings\"\nversion = \"1.0\"\ndescription = \"\"\noptional = false\npython-versions = \"*\"\ngroups = [\"main\"]\nfiles = [\n    {file = \"greetings-1.0-py3-none-any.whl\", hash = \"sha256:{WHEEL_SHA256}\"},\n]\n\n\
             [package.source]\ntype = \"url\"\nurl = \"{URL}/files/greetings-1.0-py3-none-any.whl\"\n\n[metadata]\nlock-version = \"2.1\"\npython-versions = \">=3.10\"\ncontent-hash = \"{POETRY_HASH}\"\n",
        ),
        ("greet.py", PY_CODE),
        (
            "test.sh",
            "poetry run python -c \"import greet; assert greet.greet('Ada') == 'Hello, Ada!'\"\n",
        ),
        (".gitignore", PY_IGNORE),
    ],
    fix: PY_FIX,
    check: "sh ./test.sh",
    requests: "/files/greetings",
};

/// Node with npm and its lock file.
pub const NPM: Everyday = Everyday {
    name: "npm",
    files: &[
        ("package.json", JS_PACKAGE),
        ("package-lock.json", JS_LOCK),
        (".npmrc", "registry={URL}/\n"),
        ("greet.js", JS_CODE),
        ("tests/greet.test.js", JS_TEST),
        (".gitignore", JS_IGNORE),
    ],
    fix: JS_FIX,
    check: "npm test --silent",
    requests: "/greetings/-/",
};

/// Node with pnpm and its lock file.
pub const PNPM: Everyday = Everyday {
    name: "pnpm",
    files: &[
        ("package.json", JS_PACKAGE),
        (
            "pnpm-lock.yaml",
            "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\n\nimporters:\n\n  .:\n    dependencies:\n      greetings:\n        specifier: 1.0.0\n        version: 1.0.0\n\npackages:\n\n  greetings@1.0.0:\n    resolution: {integrity: {NPM_INTEGRITY}}\n\nsnapshots:\n\n  greetings@1.0.0: {}\n",
        ),
        (".npmrc", "registry={URL}/\n"),
        ("greet.js", JS_CODE),
        ("tests/greet.test.js", JS_TEST),
        (".gitignore", JS_IGNORE),
    ],
    fix: JS_FIX,
    check: "pnpm test",
    requests: "/greetings/-/",
};

/// Node with yarn 1 and its lock file.
pub const YARN: Everyday = Everyday {
    name: "yarn",
    files: &[
        ("package.json", JS_PACKAGE),
        (
            "yarn.lock",
            "# THIS IS AN AUTOGENERATED FILE. DO NOT EDIT THIS FILE DIRECTLY.\n# yarn lockfile v1\n\n\ngreetings@1.0.0:\n  version \"1.0.0\"\n  resolved \"{URL}/greetings/-/greetings-1.0.0.tgz#{NPM_SHA1}\"\n  integrity {NPM_INTEGRITY}\n",
        ),
        (".npmrc", "registry={URL}/\n"),
        (".yarnrc", "registry \"{URL}/\"\n"),
        ("greet.js", JS_CODE),
        ("tests/greet.test.js", JS_TEST),
        (".gitignore", JS_IGNORE),
    ],
    fix: JS_FIX,
    check: "yarn test",
    requests: "/greetings/-/",
};

const GO_CODE: &str = "package demo\n\nimport \"example.com/greetings\"\n\n// Greet greets by name.\nfunc Greet(name string) string {\n\treturn greetings.Hello() + \", !\"\n}\n";
const GO_TEST: &str = "package demo\n\nimport \"testing\"\n\nfunc TestGreet(t *testing.T) {\n\tif got := Greet(\"Ada\"); got != \"Hello, Ada!\" {\n\t\tt.Fatal(got)\n\t}\n}\n";
const GO_FIX: (&str, &str, &str) = ("greet.go", "\", !\"", "\", \" + name + \"!\"");

/// A Go module with a dependency, which the image's `GOPROXY` provides.
pub const GO: Everyday = Everyday {
    name: "go",
    files: &[
        (
            "go.mod",
            "module example.com/demo\n\ngo 1.18\n\nrequire example.com/greetings v1.0.0\n",
        ),
        (
            "go.sum",
            "example.com/greetings v1.0.0 {GO_ZIP}\nexample.com/greetings v1.0.0/go.mod {GO_MOD}\n",
        ),
        ("greet.go", GO_CODE),
        ("greet_test.go", GO_TEST),
    ],
    fix: GO_FIX,
    check: "go test ./...",
    requests: "/go/example.com/greetings",
};

/// A Go module whose dependency is in the same repository.
pub const GO_WORKSPACE: Everyday = Everyday {
    name: "go-workspace",
    files: &[
        (
            "go.mod",
            "module example.com/demo\n\ngo 1.18\n\nrequire example.com/greetings v1.0.0\n\nreplace example.com/greetings => ./greetings\n",
        ),
        (
            "greetings/go.mod",
            "module example.com/greetings\n\ngo 1.18\n",
        ),
        (
            "greetings/greetings.go",
            "package greetings\n\n// Hello greets.\nfunc Hello() string { return \"Hello\" }\n",
        ),
        ("greet.go", GO_CODE),
        ("greet_test.go", GO_TEST),
    ],
    fix: GO_FIX,
    check: "go test ./...",
    requests: "",
};

const CARGO_MIRROR: &str = "[source.crates-io]\nreplace-with = \"mirror\"\n\n[source.mirror]\nregistry = \"sparse+{URL}/cargo/\"\n";
const RUST_CODE: &str = "pub fn greet(_name: &str) -> String {\n    format!(\"{}, !\", greetings::hello())\n}\n\n#[test]\nfn greets_by_name() {\n    assert_eq!(greet(\"Ada\"), \"Hello, Ada!\");\n}\n";
const RUST_FIX: (&str, &str) = (
    "_name: &str) -> String {\n    format!(\"{}, !\", greetings::hello())",
    "name: &str) -> String {\n    format!(\"{}, {name}!\", greetings::hello())",
);

/// A Rust crate with its lock file.
pub const CARGO: Everyday = Everyday {
    name: "cargo",
    files: &[
        (
            "Cargo.toml",
            "[package]\nname = \"demo\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\n[dependencies]\ngreetings = \"1.0.0\"\n",
        ),
        (
            "Cargo.lock",
            "version = 3\n\n[[package]]\nname = \"demo\"\nversion = \"1.0.0\"\ndependencies = [\n \"greetings\",\n]\n\n[[package]]\nname = \"greetings\"\nversion = \"1.0.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{CRATE_SHA256}\"\n",
        ),
        (".cargo/config.toml", CARGO_MIRROR),
        ("src/lib.rs", RUST_CODE),
        (".gitignore", "target/\n"),
    ],
    fix: ("src/lib.rs", RUST_FIX.0, RUST_FIX.1),
    check: "cargo test",
    requests: "/crates/greetings",
};

/// Ruby with a Gemfile and rake.
pub const BUNDLER: Everyday = Everyday {
    name: "bundler",
    files: &[
        (
            "Gemfile",
            "source \"{URL}\"\ngem \"greetings\", \"1.0.0\"\n",
        ),
        (
            "Gemfile.lock",
            "GEM\n  remote: {URL}/\n  specs:\n    greetings (1.0.0)\n\nPLATFORMS\n  ruby\n\nDEPENDENCIES\n  greetings (= 1.0.0)\n",
        ),
        (
            "greet.rb",
            "require 'greetings'\n\ndef greet(_name)\n  \"#{Greetings.hello}, !\"\nend\n",
        ),
        (
            "test.sh",
            "bundle exec ruby -r./greet -e 'exit(greet(\"Ada\") == \"Hello, Ada!\")'\n",
        ),
    ],
    fix: (
        "greet.rb",
        "_name)\n  \"#{Greetings.hello}, !\"",
        "name)\n  \"#{Greetings.hello}, #{name}!\"",
    ),
    check: "sh ./test.sh",
    requests: "/gems/greetings",
};

const JAVA_CODE: &str = "package demo;\n\nimport java.io.IOException;\nimport java.io.InputStream;\nimport java.nio.charset.StandardCharsets;\n\n\
    public class Greet {\n    public static String greet(String name) throws IOException {\n        try (InputStream hello = Greet.class.getResourceAsStream(\"/greetings.txt\")) {\n            \
    return new String(hello.readAllBytes(), StandardCharsets.UTF_8) + \", !\";\n        }\n    }\n}\n";
const JAVA_TEST: &str = "package demo;\n\nimport static org.junit.Assert.assertEquals;\n\nimport org.junit.Test;\n\npublic class GreetTest {\n    @Test\n    public void greetsByName() throws Exception {\n        \
    assertEquals(\"Hello, Ada!\", Greet.greet(\"Ada\"));\n    }\n}\n";
const JAVA_FIX: (&str, &str, &str) = (
    "src/main/java/demo/Greet.java",
    "+ \", !\";",
    "+ \", \" + name + \"!\";",
);

/// Java with Maven. The plugins are those that Debian packages; its own global settings allow plain HTTP.
pub const MAVEN: Everyday = Everyday {
    name: "maven",
    files: &[
        (
            "pom.xml",
            "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>com.example</groupId>\n  <artifactId>demo</artifactId>\n  <version>1.0</version>\n  \
             <properties>\n    <maven.compiler.source>11</maven.compiler.source>\n    <maven.compiler.target>11</maven.compiler.target>\n    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>\n  </properties>\n  \
             <repositories><repository><id>central</id><url>{URL}/maven</url></repository></repositories>\n  \
             <pluginRepositories><pluginRepository><id>central</id><url>{URL}/maven</url></pluginRepository></pluginRepositories>\n  \
             <dependencies>\n    <dependency><groupId>com.example</groupId><artifactId>greetings</artifactId><version>1.0</version></dependency>\n    \
             <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.13.2</version><scope>test</scope></dependency>\n  </dependencies>\n  \
             <build><plugins>\n    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>\n    \
             <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>\n    \
             <plugin><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin>\n  </plugins></build>\n</project>\n",
        ),
        (".mvn/maven.config", "-gs\n.mvn/settings.xml\n"),
        (".mvn/settings.xml", "<settings/>\n"),
        ("src/main/java/demo/Greet.java", JAVA_CODE),
        ("src/test/java/demo/GreetTest.java", JAVA_TEST),
        (".gitignore", "target/\n"),
    ],
    fix: JAVA_FIX,
    check: "mvn -q -B test",
    requests: "/maven/com/example/greetings",
};

/// Java with Gradle.
pub const GRADLE: Everyday = Everyday {
    name: "gradle",
    files: &[
        (
            "build.gradle",
            "apply plugin: 'java'\n\nrepositories {\n    maven { url '{URL}/maven' }\n}\n\ndependencies {\n    compile 'com.example:greetings:1.0'\n    testCompile 'junit:junit:4.13.2'\n}\n",
        ),
        ("settings.gradle", "rootProject.name = 'demo'\n"),
        ("src/main/java/demo/Greet.java", JAVA_CODE),
        ("src/test/java/demo/GreetTest.java", JAVA_TEST),
        (".gitignore", "build/\n.gradle/\n"),
    ],
    fix: JAVA_FIX,
    check: "gradle -q --no-daemon test",
    requests: "/maven/com/example/greetings",
};

/// A workspace of npm: the root installs and tests its member.
pub const NPM_WORKSPACE: Everyday = Everyday {
    name: "npm-workspace",
    files: &[
        (
            "package.json",
            "{\n  \"name\": \"demo\",\n  \"private\": true,\n  \"workspaces\": [\"packages/*\"]\n}\n",
        ),
        (
            "package-lock.json",
            "{\n  \"name\": \"demo\",\n  \"lockfileVersion\": 3,\n  \"requires\": true,\n  \"packages\": {\n    \"\": { \"name\": \"demo\", \"workspaces\": [\"packages/*\"] },\n    \
             \"node_modules/app\": { \"resolved\": \"packages/app\", \"link\": true },\n    \
             \"node_modules/greetings\": {\n      \"version\": \"1.0.0\",\n      \"resolved\": \"{URL}/greetings/-/greetings-1.0.0.tgz\",\n      \"integrity\": \"{NPM_INTEGRITY}\"\n    },\n    \
             \"packages/app\": { \"version\": \"1.0.0\", \"dependencies\": { \"greetings\": \"1.0.0\" } }\n  }\n}\n",
        ),
        (".npmrc", "registry={URL}/\n"),
        ("packages/app/package.json", JS_MEMBER),
        ("packages/app/greet.js", JS_CODE),
        ("packages/app/tests/greet.test.js", JS_TEST),
        (".gitignore", JS_IGNORE),
    ],
    fix: ("packages/app/greet.js", JS_FIX.1, JS_FIX.2),
    check: "npm test --silent --workspaces --if-present",
    requests: "/greetings/-/",
};

/// A workspace of pnpm.
pub const PNPM_WORKSPACE: Everyday = Everyday {
    name: "pnpm-workspace",
    files: &[
        (
            "package.json",
            "{ \"name\": \"demo\", \"private\": true }\n",
        ),
        ("pnpm-workspace.yaml", "packages:\n  - packages/*\n"),
        (
            "pnpm-lock.yaml",
            "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\n\nimporters:\n\n  .: {}\n\n  packages/app:\n    dependencies:\n      greetings:\n        specifier: 1.0.0\n        version: 1.0.0\n\n\
             packages:\n\n  greetings@1.0.0:\n    resolution: {integrity: {NPM_INTEGRITY}}\n\nsnapshots:\n\n  greetings@1.0.0: {}\n",
        ),
        (".npmrc", "registry={URL}/\n"),
        ("packages/app/package.json", JS_MEMBER),
        ("packages/app/greet.js", JS_CODE),
        ("packages/app/tests/greet.test.js", JS_TEST),
        (".gitignore", JS_IGNORE),
    ],
    fix: ("packages/app/greet.js", JS_FIX.1, JS_FIX.2),
    check: "pnpm --recursive test",
    requests: "/greetings/-/",
};

/// A workspace of uv: the dependency is a member's.
pub const UV_WORKSPACE: Everyday = Everyday {
    name: "uv-workspace",
    files: &[
        (
            "pyproject.toml",
            "[project]\nname = \"demo\"\nversion = \"1.0\"\nrequires-python = \">=3.10\"\n\n[tool.uv.workspace]\nmembers = [\"packages/*\"]\n\n[[tool.uv.index]]\nurl = \"{URL}/simple\"\ndefault = true\n",
        ),
        (
            "packages/app/pyproject.toml",
            "[project]\nname = \"app\"\nversion = \"1.0\"\nrequires-python = \">=3.10\"\ndependencies = [\"greetings\"]\n",
        ),
        (
            "uv.lock",
            "version = 1\nrevision = 3\nrequires-python = \">=3.10\"\n\n[manifest]\nmembers = [\n    \"app\",\n    \"demo\",\n]\n\n[[package]]\nname = \"app\"\nversion = \"1.0\"\nsource = { virtual = \"packages/app\" }\ndependencies = [\n    { name = \"greetings\" },\n]\n\n\
             [package.metadata]\nrequires-dist = [{ name = \"greetings\" }]\n\n[[package]]\nname = \"demo\"\nversion = \"1.0\"\nsource = { virtual = \".\" }\n\n[[package]]\nname = \"greetings\"\nversion = \"1.0\"\nsource = { registry = \"{URL}/simple\" }\nwheels = [\n    { url = \"{URL}/files/greetings-1.0-py3-none-any.whl\", hash = \"sha256:{WHEEL_SHA256}\" },\n]\n",
        ),
        ("packages/app/greet.py", PY_CODE),
        (
            "test.sh",
            "PYTHONPATH=packages/app uv run --no-sync python -c \"import greet; assert greet.greet('Ada') == 'Hello, Ada!'\"\n",
        ),
        (".gitignore", PY_IGNORE),
    ],
    fix: ("packages/app/greet.py", PY_FIX.1, PY_FIX.2),
    check: "sh ./test.sh",
    requests: "/files/greetings",
};

/// A workspace of Go: two modules, one of them with a dependency.
pub const GO_WORK: Everyday = Everyday {
    name: "go-work",
    files: &[
        ("go.work", "go 1.18\n\nuse (\n\t./app\n\t./marks\n)\n"),
        (
            "app/go.mod",
            "module example.com/demo\n\ngo 1.18\n\nrequire example.com/greetings v1.0.0\n",
        ),
        (
            "app/go.sum",
            "example.com/greetings v1.0.0 {GO_ZIP}\nexample.com/greetings v1.0.0/go.mod {GO_MOD}\n",
        ),
        (
            "app/greet.go",
            "package demo\n\nimport (\n\t\"example.com/greetings\"\n\t\"example.com/marks\"\n)\n\n// Greet greets by name.\nfunc Greet(name string) string {\n\treturn greetings.Hello() + \", \" + marks.End\n}\n",
        ),
        ("app/greet_test.go", GO_TEST),
        ("marks/go.mod", "module example.com/marks\n\ngo 1.18\n"),
        (
            "marks/marks.go",
            "package marks\n\n// End ends a greeting.\nconst End = \"!\"\n",
        ),
    ],
    fix: ("app/greet.go", "\", \" + marks", "\", \" + name + marks"),
    check: "cd app && go test ./...",
    requests: "/go/example.com/greetings",
};

/// A workspace of cargo.
pub const CARGO_WORKSPACE: Everyday = Everyday {
    name: "cargo-workspace",
    files: &[
        (
            "Cargo.toml",
            "[workspace]\nresolver = \"2\"\nmembers = [\"crates/*\"]\n",
        ),
        (
            "crates/app/Cargo.toml",
            "[package]\nname = \"app\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\n[dependencies]\ngreetings = \"1.0.0\"\n",
        ),
        (
            "Cargo.lock",
            "version = 3\n\n[[package]]\nname = \"app\"\nversion = \"1.0.0\"\ndependencies = [\n \"greetings\",\n]\n\n[[package]]\nname = \"greetings\"\nversion = \"1.0.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{CRATE_SHA256}\"\n",
        ),
        (".cargo/config.toml", CARGO_MIRROR),
        ("crates/app/src/lib.rs", RUST_CODE),
        (".gitignore", "target/\n"),
    ],
    fix: ("crates/app/src/lib.rs", RUST_FIX.0, RUST_FIX.1),
    check: "cargo test",
    requests: "/crates/greetings",
};

/// Maven modules: one depends on the other, and on a registry.
pub const MAVEN_MODULES: Everyday = Everyday {
    name: "maven-modules",
    files: &[
        (
            "pom.xml",
            "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>com.example</groupId>\n  <artifactId>parent</artifactId>\n  <version>1.0</version>\n  <packaging>pom</packaging>\n  \
             <modules><module>marks</module><module>app</module></modules>\n  \
             <properties>\n    <maven.compiler.source>11</maven.compiler.source>\n    <maven.compiler.target>11</maven.compiler.target>\n    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>\n  </properties>\n  \
             <repositories><repository><id>central</id><url>{URL}/maven</url></repository></repositories>\n  \
             <pluginRepositories><pluginRepository><id>central</id><url>{URL}/maven</url></pluginRepository></pluginRepositories>\n  \
             <build><plugins>\n    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>\n    \
             <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>\n    \
             <plugin><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin>\n  </plugins></build>\n</project>\n",
        ),
        (
            "marks/pom.xml",
            "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <parent><groupId>com.example</groupId><artifactId>parent</artifactId><version>1.0</version></parent>\n  <artifactId>marks</artifactId>\n</project>\n",
        ),
        (
            "app/pom.xml",
            "<project>\n  <modelVersion>4.0.0</modelVersion>\n  <parent><groupId>com.example</groupId><artifactId>parent</artifactId><version>1.0</version></parent>\n  <artifactId>app</artifactId>\n  \
             <dependencies>\n    <dependency><groupId>com.example</groupId><artifactId>marks</artifactId><version>1.0</version></dependency>\n    \
             <dependency><groupId>com.example</groupId><artifactId>greetings</artifactId><version>1.0</version></dependency>\n    \
             <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.13.2</version><scope>test</scope></dependency>\n  </dependencies>\n</project>\n",
        ),
        (".mvn/maven.config", "-gs\n.mvn/settings.xml\n"),
        (".mvn/settings.xml", "<settings/>\n"),
        (
            "marks/src/main/java/marks/Marks.java",
            "package marks;\n\npublic class Marks {\n    public static final String END = \"!\";\n}\n",
        ),
        (
            "app/src/main/java/demo/Greet.java",
            "package demo;\n\nimport java.io.IOException;\nimport java.io.InputStream;\nimport java.nio.charset.StandardCharsets;\n\nimport marks.Marks;\n\n\
             public class Greet {\n    public static String greet(String name) throws IOException {\n        try (InputStream hello = Greet.class.getResourceAsStream(\"/greetings.txt\")) {\n            \
             return new String(hello.readAllBytes(), StandardCharsets.UTF_8) + \", \" + Marks.END;\n        }\n    }\n}\n",
        ),
        ("app/src/test/java/demo/GreetTest.java", JAVA_TEST),
        (".gitignore", "target/\n"),
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
    files: &[
        (
            "jobs/requirements.txt",
            "--index-url {URL}/simple\n--trusted-host {HOST}\ngreetings==1.0\npytest\n",
        ),
        ("jobs/greet.py", PY_CODE),
        ("jobs/conftest.py", ""),
        ("jobs/tests/test_greet.py", PY_TEST),
        ("web/package.json", JS_PACKAGE),
        ("web/package-lock.json", JS_LOCK),
        ("web/.npmrc", "registry={URL}/\n"),
        (
            "web/greet.js",
            "const { hello } = require('greetings');\nexports.greet = (name) => `${hello()}, ${name}!`;\n",
        ),
        ("web/tests/greet.test.js", JS_TEST),
        (".gitignore", "__pycache__/\nnode_modules/\n"),
    ],
    fix: ("jobs/greet.py", PY_FIX.1, PY_FIX.2),
    check: "cd jobs && python3 -m pytest -q",
    requests: "/greetings/-/",
};

/// A C project with make.
pub const MAKE: Everyday = Everyday {
    name: "make",
    files: &[
        (
            "Makefile",
            "greet: greet.c\n\tcc -o greet greet.c\n\ncheck: greet\n\ttest \"$$(./greet Ada)\" = 'Hello, Ada!'\n\n.PHONY: check\n",
        ),
        (
            "greet.c",
            "#include <stdio.h>\n\nint main(int argc, char **argv) {\n    printf(\"Hello, %s!\\n\", \"\");\n    return argc > 1 && argv[1] ? 0 : 1;\n}\n",
        ),
        (".gitignore", "greet\n"),
    ],
    fix: ("greet.c", "\\n\", \"\")", "\\n\", argv[1])"),
    check: "make check",
    requests: "",
};
