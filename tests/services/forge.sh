# shellcheck shell=bash
# Clients of forges that nobody here wrote, in the exact versions of `forge.txt` (PyPI), `forge/package-lock.json`
# (npm) and `forge/debian.txt`: they keep the fake forge honest. They are fetched once; later runs contact no registry.

install_forge_clients() {
    [ -z "${AGENTMINE_TEST_FORGE_CLIENTS:-}" ] || return 0
    local list=$ROOT/tests/services/forge.txt folder
    folder=$STATE/forge-clients-$({ cat "$list" && python_version; } | sha256sum | cut -c1-16)
    export AGENTMINE_TEST_FORGE_CLIENTS=$folder
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/forge-clients-*
    if ! /usr/bin/python3 -m pip install --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary=:all: --target "$folder.part" --requirement "$list" >"$STATE/forge-clients.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/forge-clients.log" >&2
        die "cannot install the clients of forges; the full output is in $STATE/forge-clients.log"
    fi
    mv "$folder.part" "$folder"
}

# Runs no scripts of the packages.
install_forge_clients_of_npm() {
    [ -z "${AGENTMINE_TEST_FORGE_NPM:-}" ] || return 0
    local inputs=$ROOT/tests/services/forge folder
    folder=$STATE/forge-npm-$(sha256sum <"$inputs/package-lock.json" | cut -c1-16)
    export AGENTMINE_TEST_FORGE_NPM=$folder
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/forge-npm-*
    mkdir "$folder.part"
    if ! { cp "$inputs"/package.json "$inputs"/package-lock.json "$folder.part" &&
        npm ci --prefix "$folder.part" --ignore-scripts --no-audit --no-fund; } >"$STATE/forge-npm.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/forge-npm.log" >&2
        die "cannot install the clients of forges; the full output is in $STATE/forge-npm.log"
    fi
    mv "$folder.part" "$folder"
}

# The command lines of GitLab and GitHub, of Debian 13, on whatever Debian this is: they need the C library alone.
install_forge_clients_of_debian() {
    [ -z "${AGENTMINE_TEST_FORGE_CLI:-}" ] || return 0
    local list=$ROOT/tests/services/forge/debian.txt folder
    folder=$STATE/forge-cli-$(sha256sum <"$list" | cut -c1-16)
    export AGENTMINE_TEST_FORGE_CLI=$folder/usr/bin
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/forge-cli-*
    if ! debian_programs "$folder.part" "$list" >"$STATE/forge-cli.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/forge-cli.log" >&2
        die "cannot fetch the clients of forges; the full output is in $STATE/forge-cli.log"
    fi
    mv "$folder.part" "$folder"
}

# debian_programs FOLDER LIST: unpacks these packages of Debian 13, with lists of their own.
debian_programs() {
    local folder=$1 list=$2 apt=$1/apt mirror package packages
    # shellcheck disable=SC2016 # for apt-get
    mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -n 1)}
    [ -n "$mirror" ] || { echo "no Debian mirror in apt's lists. hint: run apt-get update, or set DEBIAN_MIRROR" && return 1; }
    mkdir -p "$apt/lists/partial" "$apt/cache"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache")
    apt-get "${options[@]}" update || return 1
    mapfile -t packages <"$list"
    (cd "$apt" && apt-get "${options[@]}" download "${packages[@]}") || return 1
    for package in "$apt"/*.deb; do
        dpkg-deb -x "$package" "$folder" || return 1
    done
    rm -rf "$apt"
}
