"""Builds one small package, `greetings`, for every kind of registry: build.py FOLDER URL

FOLDER becomes the root of a static file server at URL. Prints the checksums that lock files hold, as JSON.
"""

import base64
import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(sys.argv[1])
URL = sys.argv[2]
SUMS = {}


def write(path, data):
    file = ROOT / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def tarred(files, compress=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if compress else "w") as archive:
        for name, data in files.items():
            data = data.encode() if isinstance(data, str) else data
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def python():
    info = "greetings-1.0.dist-info"
    name = "greetings-1.0-py3-none-any.whl"
    wheel = zipped(
        {
            "greetings.py": "def hello():\n    return 'Hello'\n",
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": f"greetings.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
        }
    )
    write(f"files/{name}", wheel)
    index("greetings", [name])
    SUMS["WHEEL_SHA256"] = sha256(wheel)
    # What poetry computes from the sections of pyproject.toml that a lock file depends on.
    dependencies = {"python": ">=3.10", "greetings": {"url": f"{URL}/files/{name}"}}
    content = {"dependencies": dependencies, "source": None, "extras": None, "dev-dependencies": None}
    SUMS["POETRY_HASH"] = sha256(json.dumps(content, sort_keys=True).encode())


def index(name, files):
    """A project's page of the simple repository API (PEP 503)."""
    links = "".join(f'<a href="{URL}/files/{file}">{file}</a>\n' for file in files)
    write(f"simple/{name}/index.html", f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")


def wheels(folder):
    """Serves the wheels of a folder as well."""
    projects = {}
    for file in sorted(pathlib.Path(folder).glob("*.whl")):
        write(f"files/{file.name}", file.read_bytes())
        name = file.name.split("-")[0].lower().replace("_", "-").replace(".", "-")
        projects.setdefault(name, []).append(file.name)
    for name, files in projects.items():
        index(name, files)


def node():
    manifest = {"name": "greetings", "version": "1.0.0", "main": "index.js"}
    package = tarred(
        {
            "package/package.json": json.dumps(manifest),
            "package/index.js": "exports.hello = () => 'Hello';\n",
        }
    )
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    shasum = hashlib.sha1(package).hexdigest()
    write("greetings/-/greetings-1.0.0.tgz", package)
    dist = {"tarball": f"{URL}/greetings/-/greetings-1.0.0.tgz", "integrity": integrity, "shasum": shasum}
    document = {
        "name": "greetings",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**manifest, "dist": dist}},
    }
    write("greetings/index.html", json.dumps(document))
    SUMS["NPM_INTEGRITY"] = integrity
    SUMS["NPM_SHA1"] = shasum


def go():
    mod = "module example.com/greetings\n\ngo 1.18\n"
    source = 'package greetings\n\n// Hello greets.\nfunc Hello() string { return "Hello" }\n'
    files = {"go.mod": mod, "greetings.go": source}
    prefix = "example.com/greetings@v1.0.0/"
    base = "go/example.com/greetings/@v"
    write(f"{base}/list", "v1.0.0\n")
    write(f"{base}/v1.0.0.info", '{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}')
    write(f"{base}/v1.0.0.mod", mod)
    write(f"{base}/v1.0.0.zip", zipped({prefix + name: text for name, text in files.items()}))

    def h1(names):
        # The hash of a module in go.sum: `Hash1` of the package dirhash in golang/mod.
        lines = "".join(f"{sha256(text.encode())}  {name}\n" for name, text in sorted(names.items()))
        return "h1:" + base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()

    SUMS["GO_ZIP"] = h1({prefix + name: text for name, text in files.items()})
    SUMS["GO_MOD"] = h1({"go.mod": mod})


def rust():
    manifest = '[package]\nname = "greetings"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tarred(
        {
            "greetings-1.0.0/Cargo.toml": manifest,
            "greetings-1.0.0/src/lib.rs": "pub fn hello() -> &'static str {\n    \"Hello\"\n}\n",
        }
    )
    checksum = sha256(crate)
    write("crates/greetings/1.0.0/download", crate)
    write("cargo/config.json", json.dumps({"dl": f"{URL}/crates"}))
    entry = {"name": "greetings", "vers": "1.0.0", "deps": [], "cksum": checksum, "features": {}, "yanked": False}
    write("cargo/gr/ee/greetings", json.dumps(entry) + "\n")
    SUMS["CRATE_SHA256"] = checksum


def java():
    jar = zipped({"greetings.txt": "Hello"})
    base = "maven/com/example/greetings/1.0/greetings-1.0"
    pom = (
        "<project><modelVersion>4.0.0</modelVersion><groupId>com.example</groupId>"
        "<artifactId>greetings</artifactId><version>1.0</version></project>\n"
    )
    for suffix, data in ((".jar", jar), (".pom", pom.encode())):
        write(base + suffix, data)
        write(base + suffix + ".sha1", hashlib.sha1(data).hexdigest())


def ruby():
    gemspec = (
        "--- !ruby/object:Gem::Specification\nname: greetings\nversion: !ruby/object:Gem::Version\n  version: 1.0.0\n"
        "platform: ruby\nauthors:\n- Example\nrequire_paths:\n- lib\nfiles:\n- lib/greetings.rb\n"
        "summary: Greets\nrequired_ruby_version: !ruby/object:Gem::Requirement\n  requirements:\n  - - \">=\"\n"
        "    - !ruby/object:Gem::Version\n      version: '0'\n"
        "required_rubygems_version: !ruby/object:Gem::Requirement\n  requirements:\n  - - \">=\"\n"
        "    - !ruby/object:Gem::Version\n      version: '0'\ndependencies: []\nspecification_version: 4\n"
    )
    data = tarred({"lib/greetings.rb": "module Greetings\n  def self.hello\n    'Hello'\n  end\nend\n"})
    gem = tarred({"metadata.gz": gzip.compress(gemspec.encode()), "data.tar.gz": data}, compress=False)
    write("gems/greetings-1.0.0.gem", gem)
    # The compact index that Bundler reads.
    info = f"---\n1.0.0 |checksum:{sha256(gem)}\n"
    write("info/greetings", info)
    md5 = hashlib.md5(info.encode()).hexdigest()
    write("versions", f"created_at: 2024-01-01T00:00:00Z\n---\ngreetings 1.0.0 {md5}\n")
    write("names", "---\ngreetings\n")


def debian():
    """Serves the plugins of Maven that Debian packages."""
    for file in pathlib.Path("/usr/share/maven-repo").rglob("*"):
        target = ROOT / "maven" / file.relative_to("/usr/share/maven-repo")
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.resolve())


for build in (python, node, go, rust, java, ruby, debian):
    build()
if len(sys.argv) > 3:
    wheels(sys.argv[3])
print(json.dumps({"URL": URL, "HOST": URL.split("//")[1].split(":")[0], **SUMS}))
