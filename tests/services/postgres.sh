# shellcheck shell=bash
# Postgres on 127.0.0.1:54329, without durability, since it holds only test data. The data is in memory where there is
# room: many tests create a database, which is 300 files, and remove it.

PG_PORT=54329

# Postgres refuses to run as root.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

pg_bin() {
    local all=(/usr/lib/postgresql/*/bin)
    echo "${all[-1]}/$1"
}

pg_answers() {
    "$(pg_bin pg_isready)" -q -h 127.0.0.1 -p $PG_PORT
}

# pg_place: prints the folder of the data: the one in memory if it exists or fits, otherwise one in the state folder.
pg_place() {
    local memory=/dev/shm/${STATE##*/}-postgres free
    if [ ! -d "$memory" ] || [ -L "$memory" ]; then
        free=$(df -t tmpfs --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || free=0
        [ "$free" -ge $((4 << 20)) ] && [ ! -L "$memory" ] || memory=$STATE/postgres
    fi
    echo "$memory"
}

start_server() {
    as_postgres "$(pg_bin pg_ctl)" -D "$1" -w -s -l "$STATE/postgres/log" -o "-p $PG_PORT \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories=$STATE/postgres -c max_connections=300 \
        -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c jit=off" start 9>&-
}

start_postgres() {
    [ -z "${AGENTMINE_TEST_POSTGRES_URL:-}" ] || return 0
    export AGENTMINE_TEST_POSTGRES_URL=postgres://postgres@127.0.0.1:$PG_PORT/postgres
    if pg_answers; then return 0; fi
    if listens $PG_PORT; then die "port $PG_PORT is in use by something other than Postgres"; fi

    local place data
    place=$(pg_place)
    data=$place/data
    mkdir -p "$STATE/postgres" "$place"
    [ "$(id -u)" != 0 ] || chown postgres "$STATE/postgres" "$place"
    as_postgres test -x "$STATE/postgres" || die "the user postgres has no access to $STATE. hint: set AGENTMINE_TEST_STATE to another folder"
    if ! as_postgres test -f "$data/PG_VERSION"; then
        as_postgres "$(pg_bin initdb)" -D "$data" -A trust -U postgres --no-sync -E UTF8 --locale=C.UTF-8 \
            >"$STATE/initdb.log" 2>&1 || die "initdb failed: see $STATE/initdb.log"
    fi
    # A server that was killed blocks the start until its parent has reaped it, which may take a moment.
    wait_for 20 start_server "$data" || die "Postgres did not start: see $STATE/postgres/log"
    say "started Postgres on 127.0.0.1:$PG_PORT"
}

stop_postgres() {
    local data
    for data in "$(pg_place)/data" "$STATE/postgres/data"; do
        as_postgres test -f "$data/postmaster.pid" 2>/dev/null || continue
        as_postgres "$(pg_bin pg_ctl)" -D "$data" -s -m fast stop && say "stopped Postgres"
    done
}
