# shellcheck shell=bash
# Wheels from PyPI that the registry of the story tests serves, in the exact versions of `wheels.txt`. They are
# fetched once; later runs contact no registry.

fetch_wheels() {
    [ -z "${AGENTMINE_TEST_WHEELS:-}" ] || return 0
    local list=$ROOT/tests/services/wheels.txt folder
    folder=$STATE/wheels-$(sha256sum <"$list" | cut -c1-16)
    export AGENTMINE_TEST_WHEELS=$folder
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/wheels-*
    if ! /usr/bin/python3 -m pip download --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$folder.part" --requirement "$list" >"$STATE/wheels.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/wheels.log" >&2
        die "cannot fetch the wheels for the tests; the full output is in $STATE/wheels.log"
    fi
    mv "$folder.part" "$folder"
}
