# shellcheck shell=bash
# Clients of forges that nobody here wrote, in the exact versions of `forge.txt` (PyPI) and `forge/package-lock.json`
# (npm): they keep the fake forge honest. They are fetched once; later runs contact no registry.

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
