# shellcheck shell=bash
# A Docker engine, and the executor image in it.

DEFAULT_SOCKET=/var/run/docker.sock

start_docker() {
    if docker info >/dev/null 2>&1; then return 0; fi
    if [ -n "${DOCKER_HOST:-}" ]; then
        die "the Docker engine at DOCKER_HOST does not answer. hint: unset DOCKER_HOST, and one will be started"
    fi
    # An engine that an earlier run started may still be running.
    local socket=$STATE/docker/docker.sock
    if [ -S "$socket" ] && DOCKER_HOST=unix://$socket docker info >/dev/null 2>&1; then
        export DOCKER_HOST=unix://$socket
        return 0
    fi

    has_root || die "no Docker engine answers, and starting one needs root. hint: join the group" \
        "\`docker\`, set DOCKER_HOST, or install sudo"
    local options=(--group "$(id -gn)" --pidfile "$STATE/docker/pid")
    mkdir -p "$STATE/docker"
    if as_root test -S $DEFAULT_SOCKET && as_root docker info >/dev/null 2>&1; then
        # There is an engine that this user may not access. Start a second one, which must not touch the
        # bridge and the firewall rules of the first: without a separate network it would remove the bridge.
        say "you may not use this machine's Docker engine: starting one for the tests"
        export DOCKER_HOST=unix://$socket
        try_dockerd unshare --net dockerd "${options[@]}" --host "$DOCKER_HOST" --data-root "$STATE/docker/data" \
            --exec-root "$STATE/docker/exec" --iptables=false --bridge=none && return 0
    else
        try_dockerd dockerd "${options[@]}" && return 0
        try_dockerd dockerd "${options[@]}" --iptables=false --bridge=none && return 0
    fi
    tail -n 20 "$STATE/docker/log" >&2
    die "the Docker engine did not start: see $STATE/docker/log"
}

# Its arguments are the command. Started by a root shell in the background, so that sudo itself can ask for a
# password on this terminal.
try_dockerd() {
    local pid tries=150
    # shellcheck disable=SC2016 # for the inner shell
    pid=$(as_root bash -c 'setsid nohup "$@" </dev/null >"$0" 2>&1 9>&- & echo $!' \
        "$STATE/docker/log" "$@")
    until docker info >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ] || gone "$pid"; then return 1; fi
        sleep 0.2
    done
    say "started a Docker engine"
}

stop_docker() {
    [ -e "$STATE/docker/pid" ] || return 0
    stop_recorded "$STATE/docker/pid" "$STATE/docker/"
    say "stopped the Docker engine"
}

make_image() {
    if [ -n "${AGENTMINE_TEST_IMAGE:-}" ]; then
        docker image inspect "$AGENTMINE_TEST_IMAGE" >/dev/null 2>&1 \
            || die "there is no image $AGENTMINE_TEST_IMAGE (from AGENTMINE_TEST_IMAGE)"
        return 0
    fi
    export AGENTMINE_TEST_IMAGE=coding-agent-executor:latest
    "$ROOT/docker/executor-default/build" "$AGENTMINE_TEST_IMAGE" >&2 9>&- \
        || die "cannot build the image $AGENTMINE_TEST_IMAGE"
}
