# shellcheck shell=bash
# Clients of forges that nobody here wrote (PyPI), in the exact versions of `forge.txt`: they keep the fake forge
# honest. They are fetched once; later runs contact no registry.

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
