# shellcheck shell=bash
# A client of model APIs that nobody here wrote, from PyPI, in the exact versions of `model.txt`: it keeps the scripted
# model honest. It runs beside the Python packages of the MCP servers, which include most of what it needs. It is fetched
# once; later runs contact no registry.

install_model_client() {
    [ -z "${AGENTMINE_TEST_MODEL_CLIENT:-}" ] || return 0
    local list=$ROOT/tests/services/model.txt folder
    folder=$STATE/model-client-$({ cat "$list" && python_version; } | sha256sum | cut -c1-16)
    export AGENTMINE_TEST_MODEL_CLIENT=$folder
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/model-client-*
    # Thousands of modules, of which a test imports some hundred: compiling all of them takes longer.
    if ! /usr/bin/python3 -m pip install --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
        --only-binary=:all: --target "$folder.part" --requirement "$list" >"$STATE/model-client.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/model-client.log" >&2
        die "cannot install the client of model APIs; the full output is in $STATE/model-client.log"
    fi
    mv "$folder.part" "$folder"
}
