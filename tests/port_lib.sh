# TCP ports for programs that are told theirs, as perftest is. To be sourced.
#
# The kernel hands the ports of its local range to whoever connects, and keeps them for a minute after the connection's end; a server cannot listen on one
# of those. Ports here are below that range, and no socket has them, whatever its state.

port_low=12000
port_high=$(awk '{ print $1 }' /proc/sys/net/ipv4/ip_local_port_range 2>/dev/null)
if [ "${port_high:-0}" -le $((port_low + 1000)) ]; then
    port_low=20000 port_high=32768
fi
port=$((port_low + $$ * 16 % (port_high - port_low)))

# port_state PORT: the states of the sockets that have it at this end, in the kernel's hexadecimal (0A: listening)
port_state() {
    awk -v p="$(printf ':%04X' "$1")" 'substr($2, length($2) - 4) == p { print $4 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# port_next: another $port that no socket has
port_next() {
    while :; do
        port=$((port + 1))
        [ "$port" -lt "$port_high" ] || port=$port_low
        [ -n "$(port_state "$port")" ] || return 0
    done
}

# port_wait PORT PID: until PORT is listened on; fails when PID, a child of this shell which was to do so, has ended
port_wait() {
    port_tries=0
    while ! port_state "$1" | grep -q '^0A$'; do
        port_tries=$((port_tries + 1))
        if [ "$port_tries" -ge 400 ] || ! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$2/status" 2>/dev/null; then
            echo "nobody listens on port $1"
            return 1
        fi
        sleep 0.05
    done
}
