/* A plugin that does whatever its data says, to see what it can get away with. Linked statically,
 * so that it needs no file of the host. Where it tries something, it passes if that was refused
 * and fails if it was not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

static char input[1 << 20];
extern char **environ;

static const char *value(const char *key, char *into, size_t size) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":\"", key);
    const char *at = strstr(input, wanted);
    if (!at) return NULL;
    at += strlen(wanted);
    size_t n = strcspn(at, "\"");
    if (n >= size) n = size - 1;
    memcpy(into, at, n);
    into[n] = 0;
    return into;
}

static int answer(const char *result, const char *code, const char *message) {
    printf("{\"apiVersion\":\"imagecompat/v1\",\"result\":\"%s\",\"reasons\":"
           "[{\"code\":\"%s\",\"message\":\"%s\"}]}\n", result, code, message);
    fflush(stdout);
    return !strcmp(result, "pass") ? 0 : !strcmp(result, "fail") ? 1 : 2;
}

/* What was tried: refused is good. */
static int refused(int was, const char *what) {
    char text[200];
    snprintf(text, sizeof text, "%s: %s", what, was ? strerror(errno) : "it worked");
    return answer(was ? "pass" : "fail", was ? "REFUSED" : "WORKED", text);
}

static void *idle(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}

static int threads(int wanted) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    int made = 0;
    for (; made < wanted; made++) {
        pthread_t one;
        if (pthread_create(&one, &small, idle, NULL)) break;
    }
    return made;
}

/* Calls that are refused whatever their arguments. */
static int calls(void) {
    static const struct { const char *name; long number; } all[] = {
        {"socket", SYS_socket}, {"socketpair", SYS_socketpair}, {"io_uring_setup", 425},
        {"ptrace", SYS_ptrace}, {"process_vm_readv", SYS_process_vm_readv},
        {"setsid", SYS_setsid}, {"setpgid", SYS_setpgid}, {"mount", SYS_mount},
        {"umount2", SYS_umount2}, {"pivot_root", SYS_pivot_root}, {"chroot", SYS_chroot},
        {"setns", SYS_setns}, {"unshare", SYS_unshare}, {"bpf", SYS_bpf},
        {"perf_event_open", SYS_perf_event_open}, {"init_module", SYS_init_module},
        {"finit_module", SYS_finit_module}, {"delete_module", SYS_delete_module},
        {"kexec_load", SYS_kexec_load}, {"reboot", SYS_reboot}, {"swapon", SYS_swapon},
        {"clock_settime", SYS_clock_settime}, {"settimeofday", SYS_settimeofday},
        {"personality", SYS_personality}, {"userfaultfd", SYS_userfaultfd},
        {"add_key", SYS_add_key}, {"keyctl", SYS_keyctl},
        {"open_by_handle_at", SYS_open_by_handle_at}, {"truncate", SYS_truncate},
        {"fchmod", SYS_fchmod}, {"fchmodat", SYS_fchmodat}, {"fchmodat2", 452},
        {"fchown", SYS_fchown}, {"fchownat", SYS_fchownat}, {"utimensat", SYS_utimensat},
        {"setxattr", SYS_setxattr}, {"shmget", SYS_shmget}, {"msgget", SYS_msgget},
        {"pidfd_open", 434}, {"pidfd_send_signal", 424}, {"syslog", SYS_syslog},
        {"sethostname", SYS_sethostname}, {"fanotify_init", SYS_fanotify_init},
        {"io_setup", SYS_io_setup}, {"migrate_pages", SYS_migrate_pages},
        {"move_pages", SYS_move_pages},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        errno = 0;
        long got = syscall(all[n].number, 0, 0, 0, 0, 0);
        if (got != -1 || errno != EPERM) {
            char text[100];
            snprintf(text, sizeof text, "%s: %ld %s", all[n].name, got, strerror(errno));
            return answer("fail", "WORKED", text);
        }
    }
    errno = 0;
    /* Newer than the list. */
    if (syscall(469, 0, 0, 0, 0) != -1 || errno != ENOSYS)
        return answer("fail", "WORKED", "a call that nobody knows");
    errno = 0;
    if (syscall(SYS_clone3, 0, 0) != -1 || errno != ENOSYS)
        return answer("fail", "WORKED", "clone3");
    return answer("pass", "REFUSED", "all of them");
}

static int forks(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) return answer("fail", "WORKED", "fork");
    if (errno != EPERM) return refused(0, "fork");
    /* As the kernel is asked, without the C library's own opinion. */
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child > 0) return answer("fail", "WORKED", "clone");
    child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return refused(child < 0, "clone");
}

/* Other processes of the same user: their limits, processors and priorities. */
static int others(void) {
    struct rlimit limit = {64, 64};
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    pid_t other = getppid();
    if (!prlimit(other, RLIMIT_NOFILE, NULL, &limit)) return answer("fail", "WORKED", "prlimit");
    if (!sched_setaffinity(other, sizeof first, &first) || errno != EPERM)
        return answer("fail", "WORKED", "sched_setaffinity");
    if (!setpriority(PRIO_PROCESS, other, 19) || errno != EPERM)
        return answer("fail", "WORKED", "setpriority");
    if (getrlimit(RLIMIT_NOFILE, &limit)) return answer("fail", "REFUSED", "its own limits");
    return answer("pass", "REFUSED", "others");
}

/* Lists, objects and numbers as no reader wants them. */
static int strange(const char *what) {
    int depth = 200000;
    printf("{\"apiVersion\":\"imagecompat/v1\",\"result\":\"pass\",\"x\":");
    if (!strcmp(what, "deep")) {
        for (int n = 0; n < depth; n++) putchar('[');
        for (int n = 0; n < depth; n++) putchar(']');
    } else if (!strcmp(what, "deep-objects")) {
        for (int n = 0; n < depth / 2; n++) fputs("{\"a\":", stdout);
        putchar('1');
        for (int n = 0; n < depth / 2; n++) putchar('}');
    } else if (!strcmp(what, "number")) {
        fputs("1e999999999", stdout);
    } else {
        for (int n = 0; n < depth; n++) putchar('9');
    }
    puts("}");
    fflush(stdout);
    return 0;
}

/* Becomes the program called `helper` beside it, on a kernel that lacks what its own name says. */
static int become_helper(const char *self, const char *lacking, char **argv) {
    char helper[512];
    const char *slash = strrchr(self, '/');
    snprintf(helper, sizeof helper, "%.*s/helper", slash ? (int)(slash - self) : 1, slash ? self : ".");
    int calls[2] = {-1, -1}, error = ENOSYS;
    if (!strcmp(lacking, "landlock")) calls[0] = 444;
    if (!strcmp(lacking, "seccomp")) calls[0] = SYS_seccomp, calls[1] = SYS_prctl, error = EINVAL;
    if (!strcmp(lacking, "namespaces")) calls[0] = SYS_unshare, error = EPERM;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[0], 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[1], 0, 3),
        /* Of prctl only the part that sets a filter. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return perror("no filter"), 9;
    execv(helper, argv);
    return perror(helper), 9;
}

static int privileges(void) {
    unsigned int header[2] = {0x20080522, 0}, caps[6] = {0};
    syscall(SYS_capget, header, caps);
    if (caps[0] | caps[1] | caps[2] | caps[3] | caps[4] | caps[5])
        return answer("fail", "WORKED", "it has capabilities");
    if (geteuid() == 0 || getuid() == 0 || getegid() == 0)
        return answer("fail", "WORKED", "it is root");
    if (getgroups(0, NULL) > 0 && input[0] == 'r') return answer("fail", "WORKED", "groups");
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    if (limit.rlim_max) return answer("fail", "WORKED", "core files");
    return refused(setuid(0), "setuid");
}

int main(int argc, char **argv) {
    const char *without = strstr(argv[0], "/without-");
    if (without) return become_helper(argv[0], without + 9, argv);
    size_t n = fread(input, 1, sizeof input - 1, stdin);
    input[n] = 0;
    char mode[64] = "", path[256] = "";
    value("mode", mode, sizeof mode);
    value("path", path, sizeof path);
    const char *command = argc > 1 ? argv[1] : "";
#define IS(name) (!strcmp(mode, name))

    if (!strcmp(command, "describe")) {
        if (IS("describe-garbage")) return puts("not JSON"), 0;
        if (IS("describe-fails")) return fputs("no idea\x1b[31m\n", stderr), 4;
        char facts[256];
        printf("{\"apiVersion\":\"imagecompat/v1\",\"version\":\"1\",\"facts\":[%s%s%s]}\n",
               value("wants", facts, sizeof facts) ? "\"" : "",
               value("wants", facts, sizeof facts) ? facts : "",
               value("wants", facts, sizeof facts) ? "\"" : "");
        return 0;
    }
    if (IS("pass") || IS("fail") || IS("unknown")) return answer(mode, "SAID", "so it is");
    if (IS("hang")) for (;;) pause();
    if (IS("spin")) for (volatile unsigned n = 0;; n++) {}
    if (IS("hang-silent")) { close(1); close(2); for (;;) pause(); }
    if (IS("flood")) for (;;) if (write(1, input, sizeof input) < 0) return 3;
    if (IS("flood-stderr")) {
        for (int n = 0; n < 64; n++) if (write(2, input, sizeof input) < 0) return 3;
        return answer("pass", "SAID", "after 64 MiB of log");
    }
    if (IS("flood-stderr-endless")) for (;;) if (write(2, input, sizeof input) < 0) return 3;
    if (IS("exit")) return fputs("cannot find out\n", stderr), 3;
    if (IS("garbage")) return puts("}{ \x1b[2J"), 0;
    if (IS("nothing")) return 0;
    if (IS("disagree")) return answer("pass", "SAID", "and yet"), 1;
    if (IS("old")) return puts("{\"apiVersion\":\"imagecompat/v0\",\"result\":\"pass\"}"), 0;
    if (IS("twice")) return puts("{\"apiVersion\":\"imagecompat/v1\",\"result\":\"fail\",\"result\":\"pass\"}"), 0;
    if (IS("signal")) abort();
    if (IS("crash")) return *(volatile int *)0;
    if (IS("deep") || IS("deep-objects") || IS("number") || IS("digits")) return strange(mode);
    if (IS("daemon")) {
        /* A child in a session of its own that keeps everything open. */
        if (fork() == 0) {
            setsid();
            for (;;) pause();
        }
        return answer("pass", "SAID", "and somebody stays");
    }
    if (IS("child")) {
        /* The same within the group. */
        if (fork() == 0) for (;;) pause();
        return answer("pass", "SAID", "and somebody stays");
    }
    if (IS("orphan")) return refused(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0), "outliving the caller");
    if (IS("others")) return others();
    if (IS("stack")) {
        struct rlimit limit = {1UL << 30, 1UL << 30};
        return refused(setrlimit(RLIMIT_STACK, &limit), "a gigabyte of stack");
    }
    if (IS("many-files")) {
        int made = 0;
        while (made < 4096 && memfd_create("x", 0) >= 0) made++;
        return refused(made < 64, "thousands of files in memory");
    }
    if (IS("escape")) return answer("fail", "RED", "\\u001b[31mred\\u0007 \\u202edesrever");
    if (IS("socket")) return refused(socket(AF_INET, SOCK_STREAM, 0) < 0, "socket");
    if (IS("unix")) return refused(socket(AF_UNIX, SOCK_STREAM, 0) < 0, "socket");
    if (IS("calls")) return calls();
    if (IS("fork")) return forks();
    if (IS("privileges")) return privileges();
    if (IS("write")) return refused(open(path, O_WRONLY | O_CREAT, 0600) < 0, path);
    if (IS("read")) return refused(open(path, O_RDONLY) < 0, path);
    if (IS("list")) return refused(open(path, O_RDONLY | O_DIRECTORY) < 0, path);
    if (IS("exec")) return execl(path, path, NULL), refused(1, path);
    if (IS("unlink")) return refused(unlink(path), path);
    if (IS("chmod")) return refused(chmod(path, 0777), path);
    if (IS("kill-parent")) return refused(kill(getppid(), SIGTERM), "kill");
    if (IS("kill-all")) return refused(kill(-1, SIGTERM), "kill");
    if (IS("few-threads"))
        return threads(8) == 8 ? answer("pass", "SAID", "eight") : answer("fail", "SAID", "fewer");
    if (IS("many-threads")) return refused(threads(500) < 500, "threads");
    if (IS("memory")) {
        char *big = malloc(1 << 30);
        return refused(big == NULL, "a gigabyte");
    }
    if (IS("shared-memory")) {
        void *big = mmap(NULL, 1 << 30, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return refused(big == MAP_FAILED, "a gigabyte, shared");
    }
    if (IS("memory-file")) {
        signal(SIGXFSZ, SIG_IGN);
        int file = memfd_create("x", 0);
        return refused(file < 0 || ftruncate(file, 1 << 20), "a file in memory");
    }
    if (IS("reserve")) {
        /* As Go does before its first line runs. */
        void *big = mmap(NULL, 1UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return big == MAP_FAILED ? answer("fail", "SAID", "no room") : answer("pass", "SAID", "room");
    }
    if (IS("own-program")) return refused(open("/proc/self/exe", O_WRONLY) < 0, "its own program");
    if (IS("descriptors")) {
        for (int n = 3; n < 1024; n++)
            if (fcntl(n, F_GETFD) != -1) return answer("fail", "WORKED", "an open descriptor");
        return answer("pass", "REFUSED", "none");
    }
    if (IS("environment")) {
        for (char **one = environ; *one; one++)
            if (strncmp(*one, "PATH=", 5) && strncmp(*one, "LANG=", 5) && strncmp(*one, "OCI_COMPAT_", 11))
                return answer("fail", "WORKED", *one);
        return getenv("HOME") || !getenv("OCI_COMPAT_API") ? answer("fail", "WORKED", "HOME")
                                                           : answer("pass", "REFUSED", "cleared");
    }
    if (IS("x32")) {
#ifdef __x86_64__
        syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0);
#else
        abort();
#endif
        return answer("fail", "WORKED", "a call by its other number");
    }
    if (IS("terminal")) {
        char key = 'x';
        return refused(ioctl(0, 0x5412, &key) && errno == EPERM, "typing");
    }
    if (IS("echo")) {
        /* What it was given, as a text within the answer. */
        char text[8192];
        size_t to = 0;
        const char *from = strstr(input, "\"host\"");
        for (; from && *from && to < sizeof text - 2; from++) {
            if (*from == '"' || *from == '\\') text[to++] = '\\';
            text[to++] = *from;
        }
        text[to] = 0;
        return answer("pass", "GIVEN", text);
    }
    if (IS("facts")) {
        puts("{\"apiVersion\":\"imagecompat/v1\",\"result\":\"pass\",\"facts\":"
             "{\"attributes\":{\"own\":{\"elements\":{\"answer\":\"42\"}}}}}");
        return 0;
    }
    fprintf(stderr, "no such mode: %s\n", mode);
    return 9;
}
