# Sourced by verbs_compare.sh: the kernel's rdma_rxe in the lab's virtual machines.
kernel_why="the lab is not there"
kernel_open() {
    return 1
}
kernel_close() {
    :
}
kernel_run() {
    return 1
}
kernel_versions() {
    echo unknown
}
