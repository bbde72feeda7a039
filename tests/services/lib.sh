# shellcheck shell=bash
# Shared by the scripts of this folder; sourced by tests/run.

# Where the services keep their data. Not below the checkout: the ports are the same for every
# checkout, and the user `postgres` has to be able to reach it.
STATE=${AGENTMINE_TEST_STATE:-/var/tmp/agentmine-tests-$(id -u)}

say() { echo "tests/run: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# Makes the state folder, and refuses one that somebody else has put there.
make_state() {
    mkdir -p "$STATE"
    if [ -L "$STATE" ] || [ ! -O "$STATE" ]; then
        die "$STATE is not your own folder. hint: set AGENTMINE_TEST_STATE to another one"
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

# wait_for SECONDS COMMAND...: tries it five times a second.
wait_for() {
    local tries=$(($1 * 5))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.2
    done
}

# start LOG COMMAND...: in the background, apart from this terminal, without the lock of tests/run.
start() {
    local log=$1
    shift
    setsid nohup "$@" </dev/null >"$log" 2>&1 9>&- &
}

# stop_recorded FILE WORD: ends the process in a pid file if its command line still has the word,
# so that a pid that was given to another process since is left alone.
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
