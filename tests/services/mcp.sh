# shellcheck shell=bash
# Third-party MCP servers (npm, PyPI), Node 22 and the conformance suite, in the exact versions of
# `mcp/package-lock.json` and `mcp/requirements.txt`. They are fetched once; later runs contact no registry.

MCP_INPUTS=$ROOT/tests/services/mcp

# What the installed folder depends on, including the version of Python, since some packages have native parts.
mcp_hash() {
    { cat "$MCP_INPUTS"/package-lock.json "$MCP_INPUTS"/requirements.txt && python_version; } | sha256sum | cut -c1-16
}

python_version() { /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

install_mcp_servers() {
    [ -z "${AGENTMINE_TEST_MCP:-}" ] || return 0
    local hash folder
    hash=$(mcp_hash)
    folder=$STATE/mcp-$hash
    export AGENTMINE_TEST_MCP=$folder
    [ ! -e "$folder" ] || return 0
    say "installing MCP servers from npm and PyPI (about half a minute)"
    rm -rf "$STATE"/mcp-*
    mkdir "$folder.part"
    if ! { install_from_npm "$folder.part" && install_from_pypi "$folder.part" "$(python_version)"; } \
        >"$STATE/mcp.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/mcp.log" >&2
        die "cannot install the MCP servers; the full output is in $STATE/mcp.log"
    fi
    mv "$folder.part" "$folder"
}

# Runs no scripts of the packages.
install_from_npm() {
    cp "$MCP_INPUTS"/package.json "$MCP_INPUTS"/package-lock.json "$1" &&
        npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund || return
    # Headers and manuals make up a third of it.
    rm -rf "$1"/node_modules/node-linux-*/include "$1"/node_modules/node-linux-*/share
}

# install_from_pypi FOLDER VERSION: wheels only, so nothing is built and no scripts run.
install_from_pypi() {
    /usr/bin/python3 -m pip install --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary=:all: --python-version "$2" --target "$1/python" --requirement "$MCP_INPUTS/requirements.txt"
}

# The inspector of MCP, whose command line drives our own server. It runs on the Node of the servers.
install_inspector() {
    [ -z "${AGENTMINE_TEST_INSPECTOR:-}" ] || return 0
    local inputs=$ROOT/tests/services/inspector folder
    folder=$STATE/inspector-$(sha256sum <"$inputs/package-lock.json" | cut -c1-16)
    export AGENTMINE_TEST_INSPECTOR=$folder
    [ ! -e "$folder" ] || return 0
    rm -rf "$STATE"/inspector-*
    mkdir "$folder.part"
    if ! { cp "$inputs"/package.json "$inputs"/package-lock.json "$folder.part" &&
        npm ci --prefix "$folder.part" --ignore-scripts --no-audit --no-fund; } >"$STATE/inspector.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/inspector.log" >&2
        die "cannot install the inspector of MCP; the full output is in $STATE/inspector.log"
    fi
    mv "$folder.part" "$folder"
}

# The same servers in an image, for Docker sandboxes.
make_mcp_image() {
    [ -z "${AGENTMINE_TEST_MCP_IMAGE:-}" ] || return 0
    export AGENTMINE_TEST_MCP_IMAGE=coding-agent-executor-mcp:latest
    local base hash version context=$AGENTMINE_TEST_MCP
    base=$(docker image inspect -f '{{.Id}}' "$AGENTMINE_TEST_IMAGE")
    hash=$(cat "$MCP_INPUTS/Dockerfile" <(echo "$base $AGENTMINE_TEST_MCP") | sha256sum | cut -c1-16)
    if [ "$(docker image inspect -f '{{index .Config.Labels "agentmine.mcp"}}' \
        "$AGENTMINE_TEST_MCP_IMAGE" 2>/dev/null)" = "$hash" ]; then
        return 0
    fi
    say "building image $AGENTMINE_TEST_MCP_IMAGE"
    version=$(docker run --rm --network none "$AGENTMINE_TEST_IMAGE" \
        python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$version" != "$(python_version)" ]; then
        context=$STATE/mcp-image
        rm -rf "$context" && cp -a "$AGENTMINE_TEST_MCP" "$context" && rm -rf "$context/python"
        install_from_pypi "$context" "$version" >"$STATE/mcp.log" 2>&1 9>&- \
            || die "cannot install the MCP servers for Python $version: see $STATE/mcp.log"
    fi
    DOCKER_BUILDKIT=0 docker build --quiet --label "agentmine.mcp=$hash" --tag "$AGENTMINE_TEST_MCP_IMAGE" \
        --build-arg "BASE=$AGENTMINE_TEST_IMAGE" --build-arg "AT=$AGENTMINE_TEST_MCP" \
        --file "$MCP_INPUTS/Dockerfile" "$context" >"$STATE/mcp.log" 2>&1 9>&- \
        || die "cannot build the image $AGENTMINE_TEST_MCP_IMAGE: see $STATE/mcp.log"
    [ "$context" = "$AGENTMINE_TEST_MCP" ] || rm -rf "$context"
}
