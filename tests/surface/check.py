#!/usr/bin/env python3
"""Ways past the library: every name that libc exports and every system call of the kernel's
table that can touch a stream socket or a descriptor's number has to be the library's own, or
stand below with the reason why it need not be.

    check.py LIBYASMIN.SO

And each instruction of the library that goes to the thread's block by fs has to be noted (by_block in
crates/preload/src/thread.rs): in a static program it has to go by gs, and only what is noted does.

Looked at are the libc that is installed and its old companions, the kernel's asm/unistd_64.h,
and the library that was built. A name or a call that appears in a newer one fails here, and
somebody has to look at it.
"""

import pathlib
import re
import subprocess
import sys

LIBRARIES = ["libc.so.6", "libpthread.so.0", "librt.so.1", "libanl.so.1"]
FOLDERS = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"]
TABLE = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]
BY_NUMBER = pathlib.Path(__file__).parents[2] / "crates/preload/src/exports/by_number.rs"

# What a name that matters has in it: its verb, or the thing that it is about.
MATTERS = re.compile(
    r"read|write|send|recv|poll|select|close|dup|fcntl|ioctl|connect|accept|sock|splice|tee$|aio"
    r"|lio_|epoll|shutdown|uring|exec|spawn|fork|clone|syscall|fd|io_submit|atmark|printf|exit$"
    r"|sigaction|signal|daemon|login_tty|isastream|wordexp"
)
# Of these the word stands for something else.
OTHERWISE = re.compile(
    r"pthread_(?!cancel|atfork)|^_?_?pthread|thrd_|mtx_|cnd_|strdup|strndup|wcsdup|duplocale|mutex"
    r"|readlink|readdir|readable|freading|fwriting|fnreadable|thread|^_?_?nss_|xdr|^ether|rwlock"
    r"|^(fts|cat|iconv|dl|closedir|opendir|fdopendir|rewinddir|endfsent)|signal_np|bindtextdomain"
    r"|_IO_|^psignal|^sigaltstack|socketpair$|addseverity|(v?)(s|sn|as|ob|w|sw)printf|printf_(size|par|modif|func|spec|type)"
    r"|^__(v?)(s|sn|as|ob|w|sw|vsw|vfw)printf|wprintf|strfd|confstr|fdelt|fdatasync|fdetach|fdim|^__fd|nfds"
)

# Names that are left alone, by reason.
LEFT = {
    "streams: they read, write and close by functions of the library's": """
        fcloseall fread fread_unlocked fwrite fwrite_unlocked pclose
        printf fprintf vprintf vfprintf __printf_chk __fprintf_chk __vprintf_chk __vfprintf_chk
        __fread_chk __fread_unlocked_chk putspent popen register_printf_function
        __libc_start_call_main perror getdelim fopencookie __register_frame_info
    """,
    "the number is of a file, a pipe, a queue, a clock or the like, or of nothing yet": """
        pread pread64 __pread64 __pread_chk __pread64_chk pwrite pwrite64 __pwrite64 preadv
        preadv64 pwritev pwritev64 process_vm_readv process_vm_writev readahead mq_close mq_open
        mq_send mq_receive mq_timedsend mq_timedreceive eventfd eventfd_read eventfd_write signalfd
        timerfd_create timerfd_gettime timerfd_settime memfd_create memfd_secret sem_close
        pidfd_open pidfd_send_signal pidfd_getpid pidfd_spawn pidfd_spawnp getdirentries
        copy_file_range tee vmsplice isfdtype fdopendir inotify_add_watch mremap posix_madvise
        fanotify_mark
    """,
    "answers for a request that was left to TCP when it began": """
        aio_cancel aio_cancel64 aio_error aio_error64 aio_fsync aio_fsync64 aio_init aio_return
        aio_return64 aio_suspend aio_suspend64
    """,
    "forks with the handlers that the library registered": "fork __fork __libc_fork",
    "sockets of libc's own, which the library never heard of": """
        __res_nsend res_nsend __res_send res_send __res_nclose __res_iclose res_nclose rexec
        rexec_af rcmd rcmd_af rresvport closelog syslog svc_sendreply __rpc_thread_svc_fdset
        svc_fdset svc_pollfd __rpc_thread_svc_pollfd __rpc_thread_svc_max_pollfd svc_getreq_poll
        svcudp_bufcreate clnttcp_create clntudp_create svc_getreqset
    """,
    "SunRPC for programs linked long ago: what they move nobody counts, so such a socket gets no ring": """
        svcfd_create svcunixfd_create
    """,
    "a terminal": "openpty ttyname isastream tcsendbreak",
    "in the child alone": """
        posix_spawn_file_actions_adddup2 posix_spawn_file_actions_addclose
        posix_spawn_file_actions_addclosefrom_np posix_spawn_file_actions_addopen
        posix_spawn_file_actions_addchdir_np posix_spawn_file_actions_addfchdir_np
        posix_spawn_file_actions_addtcsetpgrp_np posix_spawn_file_actions_init
        posix_spawn_file_actions_destroy posix_spawnattr_destroy posix_spawnattr_init
        posix_spawnattr_getflags posix_spawnattr_setflags posix_spawnattr_getpgroup
        posix_spawnattr_setpgroup posix_spawnattr_getschedparam posix_spawnattr_setschedparam
        posix_spawnattr_getschedpolicy posix_spawnattr_setschedpolicy posix_spawnattr_getsigdefault
        posix_spawnattr_setsigdefault posix_spawnattr_getsigmask posix_spawnattr_setsigmask
        posix_spawnattr_getcgroup_np posix_spawnattr_setcgroup_np
    """,
    "ends by way of exit handlers, or at once as _exit does, where the kernel sees to it": """
        exit at_quick_exit quick_exit on_exit atexit __cxa_atexit __cxa_at_quick_exit svc_exit
    """,
    "no descriptor in it": """
        __cyg_profile_func_exit gettimeofday __gettimeofday settimeofday dirfd pkey_mprotect
        obstack_printf obstack_vprintf __obstack_printf_chk __obstack_vprintf_chk __printf_fp
        parse_printf_format strsignal sigdescr_np sigabbrev_np gsignal raise re_exec regexec lockf pthread_atfork
        __register_atfork fgetspent_r sigreturn
    """,
}

# System calls that are left alone, by reason. The library's own are read from its source.
CALLS_LEFT = {
    "no descriptor": """
        mprotect brk rt_sigreturn access sched_yield mremap msync mincore madvise
        shmget shmat shmctl pause nanosleep getitimer alarm setitimer getpid exit wait4 kill uname
        semget semop semctl shmdt msgget msgsnd msgrcv msgctl truncate getcwd chdir rename mkdir
        rmdir creat link unlink symlink readlink chmod chown lchown umask gettimeofday getrlimit
        getrusage sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid
        getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid
        getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait
        rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs sysfs
        getpriority setpriority sched_setparam sched_getparam sched_setscheduler
        sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
        mlock munlock munlockall vhangup modify_ldt pivot_root _sysctl arch_prctl
        adjtimex setrlimit chroot sync acct settimeofday mount umount2 swapon swapoff reboot
        sethostname setdomainname iopl ioperm create_module init_module delete_module
        get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall
        security gettid setxattr lsetxattr getxattr lgetxattr listxattr llistxattr removexattr
        lremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area
        io_setup io_destroy io_getevents io_cancel get_thread_area lookup_dcookie epoll_ctl_old
        epoll_wait_old remap_file_pages set_tid_address restart_syscall semtimedop timer_create
        timer_settime timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime
        clock_getres clock_nanosleep tgkill utimes vserver mbind set_mempolicy
        get_mempolicy mq_unlink kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get
        migrate_pages set_robust_list get_robust_list move_pages rt_tgsigqueueinfo
        perf_event_open prlimit64 clock_adjtime getcpu kcmp sched_setattr sched_getattr
        getrandom membarrier mlock2 pkey_mprotect pkey_alloc pkey_free rseq process_madvise
        landlock_create_ruleset memfd_secret process_mrelease futex_waitv
        set_mempolicy_home_node map_shadow_stack futex_wake futex_wait futex_requeue
        lsm_get_self_attr lsm_set_self_attr lsm_list_modules statmount listmount mseal uretprobe
        uprobe munmap process_vm_readv process_vm_writev io_pgetevents
        cachestat rseq_slice_yield
    """,
    "of files, folders and file systems: refused on a socket, or without effect on its bytes": """
        open stat fstat lstat lseek pread64 pwrite64 flock fsync fdatasync ftruncate getdents
        fchdir fchmod fchown fstatfs readahead fsetxattr fgetxattr flistxattr fremovexattr
        getdents64 fadvise64 openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat
        linkat symlinkat readlinkat fchmodat faccessat sync_file_range utimensat fallocate
        preadv pwritev name_to_handle_at open_by_handle_at syncfs setns finit_module renameat2
        kexec_file_load copy_file_range statx open_tree move_mount fsopen fsconfig fsmount fspick
        openat2 faccessat2 mount_setattr quotactl_fd landlock_add_rule landlock_restrict_self
        fchmodat2 setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr
        file_setattr
    """,
    "makes a new number, or is of another kind of descriptor": """
        pipe pipe2 socketpair eventfd eventfd2 signalfd signalfd4
        timerfd_create timerfd_settime timerfd_gettime inotify_init inotify_init1
        inotify_add_watch inotify_rm_watch fanotify_init fanotify_mark mq_open mq_timedsend
        mq_timedreceive mq_notify mq_getsetattr memfd_create pidfd_open pidfd_send_signal
        userfaultfd tee vmsplice bind listen
    """,
    "refused, so that programs go on without; or of no use after that": """
        io_uring_enter io_uring_register
    """,
    "privileged, and says nothing of the program's own bytes": "bpf",
}


def words(groups):
    return {name for text in groups.values() for name in text.split()}


def exports(library):
    """Names of functions that programs can be linked with: not those of libc's own libraries."""
    text = subprocess.run(
        ["readelf", "--dyn-syms", "-W", str(library)], check=True, capture_output=True, text=True
    ).stdout
    names = set()
    for line in text.splitlines():
        parts = line.split()
        if len(parts) < 8 or parts[3] not in ("FUNC", "IFUNC", "NOTYPE") or parts[6] == "UND":
            continue
        name, _, version = parts[7].partition("@")
        if "GLIBC_PRIVATE" not in version:
            names.add(name)
    return names


def by_block(library):
    """How many instructions go by fs, and how many are noted."""
    code = subprocess.run(["objdump", "-d", library], check=True, capture_output=True, text=True).stdout
    sections = subprocess.run(
        ["readelf", "-SW", library], check=True, capture_output=True, text=True
    ).stdout
    section = re.search(r"yasmin_by_block +PROGBITS +\w+ +\w+ +(\w+)", sections)
    return code.count("%fs:"), int(section[1], 16) // 4 if section else 0


def kernel_calls():
    for path in map(pathlib.Path, TABLE):
        if path.exists():
            return set(re.findall(r"#define __NR_(\w+) \d+", path.read_text()))
    sys.exit("asm/unistd_64.h is not there: install the C library's headers")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    own = exports(sys.argv[1])
    places = [pathlib.Path(folder, name) for name in LIBRARIES for folder in FOLDERS]
    found = {path.resolve() for path in places if path.exists()}
    if not found:
        sys.exit("libc.so.6 was not found")
    libc = set().union(*map(exports, found))
    left = words(LEFT)
    failures = []
    for name in sorted(libc - own - left):
        if MATTERS.search(name) and not OTHERWISE.search(name):
            failures.append(f"libc's {name} goes past the library, and no reason is given")
    # What libc has by two names is the library's by both, whatever the names say.
    for name in sorted(own & libc):
        for other in (f"__{name}", f"__libc_{name}", f"{name}64"):
            if other in libc - own - left:
                failures.append(f"libc's {other} is another name of {name}")
    by_number = set(re.findall(r"^    [A-Z0-9_]+ = (\w+);", BY_NUMBER.read_text(), re.M))
    calls = kernel_calls()
    calls_left = words(CALLS_LEFT)
    for name in sorted(calls - by_number - calls_left):
        failures.append(f"system call {name} goes past the library, and no reason is given")
    for name in sorted(by_number & calls_left):
        failures.append(f"system call {name} is the library's own, and a reason is given as well")
    uses, noted = by_block(sys.argv[1])
    if uses != noted:
        failures.append(f"{uses} instructions of the library go by fs, and {noted} are noted")
    for line in failures:
        print(line)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
