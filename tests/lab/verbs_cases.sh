# Sourced by verbs_compare.sh: the failures, and how each is made on each target.
#
# case_set NAME TARGET RETRY sets
#   command          run by host A's verbs_watch; what it prints marks times ($SOFTFAB and $FAB name the fabric)
#   act              for the lab: what is done outside the VMs when A fires the trigger "act"; empty: nothing
#   before           faults of the fabric, at all NICs, that hold from the start
#   a_opts b_opts    options of either end
#   sides            whose observations count
#   traffic          windows in bursts, so that the machine is not busy, or without a pause
#   observe timeout  how long after the failure; of the queue pairs
#   proof            words without which the failure did not take place
#   times            how often the repetitions
# and fails where the target has nothing of its own to show: the mimic where it does what the fabric does anyway.

CASES="carrier carrier-short carrier-back ifdown ifdown-busy ifdown-back ifdown-stuck cut cut-in cut-out cut-a-writes cut-b-writes link-del unplug loss corrupt killed"

case_label() {
    case $1 in
    carrier) echo "carrier=Link down (carrier lost at A)" ;;
    carrier-short) echo "carrier-short=Link down for 0.1 s" ;;
    carrier-back) echo "carrier-back=Link down for 1.5 s" ;;
    ifdown) echo "ifdown=Interface of A taken down" ;;
    ifdown-busy) echo "ifdown-busy=The same, a write always waiting to be sent" ;;
    ifdown-stuck) echo "ifdown-stuck=The same, every queue pair stuck by it" ;;
    ifdown-back) echo "ifdown-back=Interface of A down for 1.5 s" ;;
    cut) echo "cut=Silent cut, both ways" ;;
    cut-in) echo "cut-in=Silent cut towards A" ;;
    cut-out) echo "cut-out=Silent cut from A" ;;
    cut-a-writes) echo "cut-a-writes=Silent cut, only A writes" ;;
    cut-b-writes) echo "cut-b-writes=Silent cut, only B writes" ;;
    link-del) echo "link-del=RDMA device deleted (rdma link del)" ;;
    unplug) echo "unplug=NIC unplugged" ;;
    loss) echo "loss=Loss of 1 %" ;;
    corrupt) echo "corrupt=1 % of packets corrupted" ;;
    killed) echo "killed=Process of A killed" ;;
    esac
}

# fabric_fault WORDS... : each after "h1:n0"
fabric_fault() {
    faults=
    for w in "$@"; do
        faults="$faults 'h1:n0 $w'"
    done
    command="read go && \$SOFTFAB fault --name \$FAB$faults && echo mark applied"
}
# then SECONDS WORDS...
fabric_then() {
    command="$command && sleep $1 && echo mark back && \$SOFTFAB fault --name \$FAB 'h1:n0 $2'"
}
kernel_act() {
    act=$1
    command="lab-trigger 2>/dev/null; read go && lab-trigger act.\$RUN >/dev/null && echo mark applied"
}
kernel_then() {
    act_back=$2
    command="$command && sleep $1 && echo mark back && lab-trigger back.\$RUN >/dev/null"
}

# What both kinds of fabric do alike; "" of the second: the mimic does the same as the fabric, unless retry 7 makes the difference.
case_fabric() { # NAME, MIMIC (0 or 1); uses retry
    mimic=$2 same=1
    case $1 in
    carrier) fabric_fault down ;;
    carrier-short)
        fabric_fault down
        fabric_then 0.1 up
        ;;
    carrier-back)
        fabric_fault down
        fabric_then 1.5 up
        ;;
    ifdown | ifdown-back | ifdown-busy)
        same=0
        if [ "$mimic" = 1 ]; then fabric_fault down send-error; else fabric_fault down; fi
        [ "$1" != ifdown-back ] || fabric_then 1.5 up
        ;;
    ifdown-stuck)
        same=0
        [ "$mimic" = 1 ] || return 1
        fabric_fault down send-stuck
        fabric_then 1.5 up
        ;;
    cut | cut-a-writes | cut-b-writes) fabric_fault blackhole ;;
    cut-in) fabric_fault blackhole-rx ;;
    cut-out) fabric_fault blackhole-tx ;;
    link-del) fabric_fault 'delay 0ms' ;;
    unplug)
        same=0
        if [ "$mimic" = 1 ]; then fabric_fault unplug; else fabric_fault remove; fi
        ;;
    loss) fabric_fault 'loss 1%' ;;
    corrupt) fabric_fault 'corrupt 1%' ;;
    killed) command='read go && kill -9 $PPID' ;;
    esac
    if [ "$mimic" = 1 ]; then
        [ "$3" = 7 ] || [ $same = 0 ] || return 1
        before="retry7-forever recv-kept"
    fi
}

case_kernel() { # NAME
    case $1 in
    carrier) kernel_act link-off ;;
    carrier-short)
        kernel_act link-off
        kernel_then 0.1 link-on
        ;;
    carrier-back)
        kernel_act link-off
        kernel_then 1.5 link-on
        ;;
    ifdown | ifdown-busy) command='ip link show >/dev/null; read go && echo mark applied && ip link set $NETDEV down' ;;
    ifdown-back) command='ip link show >/dev/null; read go && echo mark applied && ip link set $NETDEV down && sleep 1.5 && echo mark back && ip link set $NETDEV up' ;;
    ifdown-stuck) return 1 ;; # one of the outcomes of ifdown
    cut | cut-a-writes | cut-b-writes) kernel_act cut ;;
    cut-in) kernel_act cut-in ;;
    cut-out) kernel_act cut-out ;;
    link-del) command='rdma link >/dev/null; read go; echo mark applied; rdma link del $RDMADEV & sleep 0.5' ;; # it ends when the device is closed
    unplug) kernel_act unplug ;;
    loss) kernel_act loss ;;
    corrupt) kernel_act corrupt ;;
    killed) command='read go && kill -9 $PPID' ;;
    esac
}

case_set() { # NAME TARGET RETRY
    act='' act_back='' before='' a_opts='' b_opts='' sides='A B' traffic='--pace 40ms' observe=4000ms timeout=16 times=1 proof=applied
    case $1 in
    cut-a-writes) b_opts=--recv-only ;;
    cut-b-writes) a_opts=--recv-only ;;
    killed) sides=B proof='TCP' ;;
    unplug)
        times=2
        [ "$2" != kernel ] || proof="not listed"
        ;;
    loss | corrupt) traffic= ;;
    ifdown-busy) traffic='' times=2 ;;
    ifdown) times=2 ;; # chance decides there
    ifdown-back) times=2 observe=6000ms ;;
    carrier-back | ifdown-stuck) observe=6000ms ;;
    carrier-short) timeout=18 observe=6000ms ;; # in a virtual machine it takes longer
    esac
    case $2 in
    fabric) case_fabric "$1" 0 "$3" ;;
    mimic) case_fabric "$1" 1 "$3" ;;
    kernel) case_kernel "$1" ;;
    esac
}
