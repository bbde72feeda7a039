# shellcheck shell=bash
# RabbitMQ on 127.0.0.1:56729, its management API on 15679.

AMQP_PORT=56729
MANAGEMENT_PORT=15679
DIST_PORT=25679

# Not /api/overview: it needs statistics, which may be missing after the machine was suspended.
rabbitmq_answers() {
    curl -sf -m 5 -u guest:guest -o /dev/null 127.0.0.1:$MANAGEMENT_PORT/api/whoami && listens $AMQP_PORT
}

start_rabbitmq() {
    [ -z "${AGENTMINE_TEST_AMQP_URL:-}" ] || return 0
    export AGENTMINE_TEST_AMQP_URL=amqp://guest:guest@127.0.0.1:$AMQP_PORT/%2f
    if rabbitmq_answers; then return 0; fi
    if listens $AMQP_PORT; then
        wait_for 20 rabbitmq_answers || die "port $AMQP_PORT is in use by something other than the tests' RabbitMQ"
        return 0
    fi

    local home=$STATE/rabbitmq
    mkdir -p "$home"
    echo '[rabbitmq_management].' >"$home/enabled_plugins"
    cat >"$home/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$AMQP_PORT
management.tcp.ip = 127.0.0.1
management.tcp.port = $MANAGEMENT_PORT
log.console = true
log.file = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 200MB
CONF
    # Not the wrapper in /usr/sbin, which insists on the user `rabbitmq`.
    start "$home/log" env HOME="$home" RABBITMQ_NODENAME="agentmine-tests-$(id -u)-$AMQP_PORT@localhost" \
        RABBITMQ_MNESIA_BASE="$home/data" RABBITMQ_LOG_BASE="$home" RABBITMQ_LOGS=- \
        RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" \
        RABBITMQ_DIST_PORT=$DIST_PORT RABBITMQ_PID_FILE="$home/pid" ERL_EPMD_ADDRESS=127.0.0.1 \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \
        /usr/lib/rabbitmq/bin/rabbitmq-server
    wait_for 90 rabbitmq_answers || {
        tail -n 20 "$home/log" >&2
        die "RabbitMQ did not start: see $home/log"
    }
    say "started RabbitMQ on 127.0.0.1:$AMQP_PORT"
}

# epmd, which it starts, keeps running: all Erlang programs of the machine share it.
stop_rabbitmq() {
    [ -e "$STATE/rabbitmq/pid" ] || return 0
    stop_recorded "$STATE/rabbitmq/pid" rabbitmq
    say "stopped RabbitMQ"
}
