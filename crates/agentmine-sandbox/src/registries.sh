# Prints the registries of the presets in "$@", as each package manager is configured: lines of a preset's
# name and URLs or hosts. One that is missing prints nothing.

has() { command -v "$1" >/dev/null 2>&1; }
# say PRESET: one line for all that is on stdin.
say() { printf '%s %s\n' "$1" "$(tr '\n' ' ')"; }
urls() { grep -ohE '(https?|sparse\+https?)://[A-Za-z0-9._:@-]+' "$@" 2>/dev/null; }

for preset in "$@"; do
    case $preset in
    npm)
        has npm && npm config get registry 2>/dev/null | say npm
        # Yarn 2 and later knows only the second setting.
        has yarn && { yarn config get registry || yarn config get npmRegistryServer; } 2>/dev/null | say npm
        ;;
    pypi)
        echo "${PIP_INDEX_URL:-} ${PIP_EXTRA_INDEX_URL:-} ${UV_INDEX_URL:-} ${UV_DEFAULT_INDEX:-}" | say pypi
        # Its default is only in its code.
        has python3 && python3 - <<'PYTHON' 2>/dev/null | say pypi
import os
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
configuration = Configuration(isolated=False)
configuration.load()
own = [value for key, value in configuration.items() if key.endswith("index-url")]
own = own or [] if os.environ.get("PIP_INDEX_URL") else own or [PyPI.simple_url, PyPI.file_storage_domain]
print(*own)
PYTHON
        ;;
    crates)
        urls "${CARGO_HOME:-$HOME/.cargo}/config.toml" /usr/local/cargo/config.toml | say crates
        if has cargo; then
            cargo=$(rustup which cargo 2>/dev/null || command -v cargo)
            # The default index is only in the program.
            grep -aohE 'sparse\+https://index\.[a-z.]+' "$cargo" 2>/dev/null | sort -u | say crates
        fi
        ;;
    go) has go && go env GOPROXY GOSUMDB 2>/dev/null | say go ;;
    maven)
        urls "$HOME/.m2/settings.xml" /etc/maven/settings.xml | grep -v 'maven\.apache\.org/\(SETTINGS\|xsd\)' | say maven
        if has mvn && has unzip; then
            # The default repository is in the model that every project inherits.
            home=$(readlink -f "$(command -v mvn)")
            home=${home%/bin/*}
            for jar in "$home"/lib/maven-model-builder-*.jar; do
                unzip -p "$jar" '*/pom-4.0.0.xml' 2>/dev/null | grep -E '<url>' | urls | say maven
            done
        fi
        ;;
    rubygems)
        has gem && gem sources --list 2>/dev/null | urls | say rubygems
        ;;
    debian) urls -r /etc/apt/sources.list /etc/apt/sources.list.d | say debian ;;
    esac
done
exit 0
