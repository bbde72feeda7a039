# shellcheck shell=bash
# The temporary folder of a run, in memory where there is room. The tests make and remove hundreds of thousands of small
# files, and on ext4 without a journal each new file is looked for among all that were removed lately.
# Tests that need a disk ask for a folder there: `agentmine_tests::on_disk`.

# What must be free in /dev/shm, and of the memory, which sandboxes and services need too, in KiB.
TEMPORARY_ROOM=$((4 << 20))
TEMPORARY_MEMORY=$((8 << 20))

# choose_temporary: exports TMPDIR, unless the caller has. The name is short, since the path of a socket has 107 bytes at most.
choose_temporary() {
    local folder why
    if [ -n "${TMPDIR:-}" ]; then
        say "temporary folders are in TMPDIR: $TMPDIR"
        return 0
    fi
    remove_temporary_of_the_dead
    if why=$(no_memory_for_files); then
        say "temporary folders are on a disk, in /tmp: $why"
        return 0
    fi
    if ! folder=$(mktemp -d "/dev/shm/agentmine.$$.XXXX"); then
        say "temporary folders are on a disk, in /tmp: /dev/shm cannot be written"
        return 0
    fi
    # As /tmp: some tests run programs as other users.
    chmod 1777 "$folder"
    if ! runs_programs "$folder"; then
        rmdir "$folder"
        say "temporary folders are on a disk, in /tmp: no program can be started in /dev/shm"
        return 0
    fi
    export TMPDIR=$folder
    trap remove_temporary EXIT
    say "temporary folders are in memory: $folder"
}

# Whether files in memory have no room; prints the reason.
no_memory_for_files() {
    local room memory
    room=$(df -t tmpfs --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || room=0
    memory=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
    if [ "${room:-0}" -lt "$TEMPORARY_ROOM" ]; then
        echo "/dev/shm has less than $((TEMPORARY_ROOM >> 20)) GiB free"
    elif [ "${memory:-0}" -lt "$TEMPORARY_MEMORY" ]; then
        echo "less than $((TEMPORARY_MEMORY >> 20)) GiB of memory are free"
    else
        return 1
    fi
}

# Whether a program in this folder starts: not where it is mounted with `noexec`.
runs_programs() {
    local program=$1/program status=0
    printf '#!/bin/sh\n' >"$program"
    chmod 755 "$program"
    "$program" 2>/dev/null || status=$?
    rm "$program"
    return "$status"
}

remove_temporary() { remove_folder "$TMPDIR"; }

# What runs that were killed have left.
remove_temporary_of_the_dead() {
    local folder pid
    for folder in /dev/shm/agentmine.*.*; do
        pid=${folder#*agentmine.}
        if [ -O "$folder" ] && [ ! -L "$folder" ] && gone "${pid%%.*}"; then remove_folder "$folder"; fi
    done
}

# Whatever is mounted below it stays.
remove_folder() { rm -rf --one-file-system "$1" || say "$1 could not be removed"; }
