# shellcheck shell=bash
# The collector of traces, from PyPI, in the exact version of `collector.txt`. It is fetched once; later runs contact no
# registry.

install_collector() {
    [ -z "${AGENTMINE_TEST_COLLECTOR:-}" ] || return 0
    local list=$ROOT/tests/services/collector.txt folder
    folder=$STATE/collector-$({ cat "$list" && python_version; } | sha256sum | cut -c1-16)
    export AGENTMINE_TEST_COLLECTOR=$folder/rotel/rotel-agent
    [ ! -e "$folder" ] || return 0
    say "installing the collector of traces from PyPI"
    rm -rf "$STATE"/collector-*
    if ! /usr/bin/python3 -m pip install --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary=:all: --target "$folder.part" --requirement "$list" >"$STATE/collector.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/collector.log" >&2
        die "cannot install the collector of traces; the full output is in $STATE/collector.log"
    fi
    mv "$folder.part" "$folder"
}
