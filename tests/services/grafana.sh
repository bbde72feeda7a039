# shellcheck shell=bash
# Types that Grafana publishes, against which the dashboards are compiled, in the exact versions of `grafana/package-lock.json`
# (npm). They are fetched once; later runs contact no registry. Runs no scripts of the packages.

install_grafana_types() {
    [ -z "${AGENTMINE_TEST_GRAFANA:-}" ] || return 0
    local inputs=$ROOT/tests/services/grafana folder
    folder=$STATE/grafana-$(sha256sum <"$inputs/package-lock.json" | cut -c1-16)
    export AGENTMINE_TEST_GRAFANA=$folder
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/grafana-*
    mkdir "$folder.part"
    if ! { cp "$inputs"/package.json "$inputs"/package-lock.json "$folder.part" &&
        npm ci --prefix "$folder.part" --ignore-scripts --no-audit --no-fund; } >"$STATE/grafana.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/grafana.log" >&2
        die "cannot install the types of Grafana; the full output is in $STATE/grafana.log"
    fi
    mv "$folder.part" "$folder"
}
