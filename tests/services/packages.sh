# shellcheck shell=bash
# Installs what is missing, from Debian packages. What is already there is not changed.

# need COMMAND PACKAGE: adds the package to the list if the command is neither in PATH nor in /usr/sbin or /sbin.
need() {
    local found
    found=$(compgen -G "$1" || PATH=$PATH:/usr/sbin:/sbin command -v "$1" || true)
    [ -n "$found" ] || MISSING+=("$2")
}

install_packages() {
    MISSING=()
    need git git
    need curl curl
    need jq jq
    # The command line is walked through in a terminal.
    need tmux tmux
    need bwrap bubblewrap
    need cc build-essential
    # A remote engine is tried over ssh.
    need ssh openssh-client
    need sshd openssh-server
    need "/etc/ssl/certs/ca-certificates.crt" ca-certificates
    if [ -z "${AGENTMINE_TEST_POSTGRES_URL:-}" ]; then
        need "/usr/lib/postgresql/*/bin/initdb" postgresql
    fi
    # The chaos suite sets the clock of its own Postgres back.
    need "/usr/lib/*/faketime/libfaketime.so.1" libfaketime
    if [ -z "${AGENTMINE_TEST_AMQP_URL:-}" ]; then
        need /usr/lib/rabbitmq/bin/rabbitmq-server rabbitmq-server
    fi
    # Rules and metrics are checked by Prometheus' own tools, manifests are rendered by kubectl.
    need promtool prometheus
    need amtool prometheus-alertmanager
    need kubectl kubernetes-client
    need psql postgresql-client
    need docker docker.io
    if [ -z "${DOCKER_HOST:-}" ]; then
        need dockerd docker.io
    fi
    if [ -z "${AGENTMINE_TEST_IMAGE:-}" ]; then
        need mmdebstrap mmdebstrap
    fi
    need /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
    # The toolchains of the everyday repositories, for the local jail.
    need node nodejs
    need npm npm
    need go golang-go
    need mvn maven
    need gradle gradle
    need javac default-jdk-headless
    need /usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin libmaven-compiler-plugin-java
    need /usr/share/maven-repo/org/apache/maven/plugins/maven-resources-plugin libmaven-resources-plugin-java
    need /usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin libsurefire-java
    need /usr/share/maven-repo/junit/junit junit4
    need python3 python3
    if [ -z "${AGENTMINE_TEST_MCP:-}" ] || [ -z "${AGENTMINE_TEST_MANIFESTS:-}" ] || [ -z "${AGENTMINE_TEST_COLLECTOR:-}" ]; then
        need /usr/bin/python3 python3
        need "/usr/lib/python3/dist-packages/pip" python3-pip
    fi
    install_missing
}

# Installs the packages in the list.
install_missing() {
    [ "${#MISSING[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null \
        || die "missing: ${MISSING[*]}. hint: this is not Debian; install them by hand"
    say "installing ${MISSING[*]}"
    if ! without_services apt_install >"$STATE/apt.log" 2>&1 9>&-; then
        tail -n 20 "$STATE/apt.log" >&2
        die "cannot install packages; the full output is in $STATE/apt.log"
    fi
}

apt_install() {
    as_root apt-get update -q &&
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qy --no-install-recommends "${MISSING[@]}"
}

# The tests start their own services on their own ports, so the packages must not start theirs.
# invoke-rc.d consults this file (https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt).
without_services() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    "$@" || status=$?
    as_root rm -f "$policy"
    return "$status"
}
