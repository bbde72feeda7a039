# shellcheck shell=bash
# Shared by the scripts in this folder, which tests/run sources.

# Where the services keep their data. Not in the checkout: all checkouts use the same ports, and the
# user `postgres` needs access.
STATE=${AGENTMINE_TEST_STATE:-/var/tmp/agentmine-tests-$(id -u)}

say() { echo "tests/run: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# Creates the state folder, and refuses one that belongs to somebody else.
make_state() {
    mkdir -p "$STATE"
    if [ -L "$STATE" ] || [ ! -O "$STATE" ]; then
        die "$STATE does not belong to you. hint: set AGENTMINE_TEST_STATE to another folder"
    fi
}

has_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has_root; then
        sudo "$@"
    else
        die "\`$1\` needs root. hint: run as root, or install sudo"
    fi
}

# Whether something listens on 127.0.0.1:$1.
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# wait_for SECONDS COMMAND...: tries the command five times a second until it succeeds.
wait_for() {
    local tries=$(($1 * 5))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.2
    done
}

# start LOG COMMAND...: in the background, detached from this terminal, without the lock of tests/run.
start() {
    local log=$1
    shift
    setsid nohup "$@" </dev/null >"$log" 2>&1 9>&- &
}

# stop_recorded FILE WORD: stops the process in a pid file if its command line still contains the word.
# If the pid has been reused for another process, that process is left alone.
stop_recorded() {
    local pid
    pid=$(as_root cat "$1" 2>/dev/null) || return 0
    if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2"; then
        as_root kill "$pid"
        wait_for 20 gone "$pid" || say "process $pid did not end"
    fi
    as_root rm -f "$1"
}

gone() { [ ! -d "/proc/$1" ]; }
