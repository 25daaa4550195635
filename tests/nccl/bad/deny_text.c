/*
 * deny_text COMMAND...: COMMAND in a process where memory that is executable cannot be made
 * writable, as under SELinux without execmod. Exit 77 where filters of system calls are not to be
 * had.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(at)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define RETURN(k)  BPF_STMT(BPF_RET | BPF_K, (k))
#define WRITE_EXEC (PROT_WRITE | PROT_EXEC)

static struct sock_filter filter[] = {
    LOAD(offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 5),
    LOAD(offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
    LOAD(offsetof(struct seccomp_data, args[2])),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, WRITE_EXEC),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WRITE_EXEC, 1, 0),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_ERRNO | EACCES),
};

int main(int argc, char **argv)
{
    struct sock_fprog p = {sizeof(filter) / sizeof(filter[0]), filter};

    if (argc < 2) {
        fprintf(stderr, "usage: deny_text COMMAND...\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) != 0) {
        fprintf(stderr, "no filter of system calls: %s\n", strerror(errno));
        return 77;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
    return 127;
}
